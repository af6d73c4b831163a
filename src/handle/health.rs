//! Whether the store is well, from the same figures as the report.

use std::collections::BTreeMap;

use crate::domain::counter::{Counters, Flow, Gauge};
use crate::domain::effort::WORKED;
use crate::domain::health::{Health, HealthLimits, Limit};
use crate::domain::id::{Class, QueueId};
use crate::domain::job::Lane;
use crate::domain::outbox::{MESSAGE_KIND, queue_of};
use crate::domain::pause::{Paused, Scope};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::handle::redrive::Redrive;
use crate::handle::{outbox, pause};
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::{backlog, counter, names};

/// The window in which worker time is looked at, and that of growth and expiries, in minutes.
const SHARE_MINUTES: u64 = 5;
const GROWTH_MINUTES: u64 = 60;

impl Redrive {
    /// Whether the store is well, by the default limits.
    ///
    /// # Errors
    ///
    /// As [`health_with`](Self::health_with).
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// for finding in jobs.health()?.findings() {
    ///     println!("{} {}: {} {}", finding.level, finding.name, finding.measured, finding.unit);
    ///     println!("    {}", finding.advice);
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn health(&self) -> Result<Health, StorageError> {
        self.health_with(&HealthLimits::default())
    }

    /// Whether the store is well, by these limits. Answered from kept counters and short reads, also
    /// when the store is poisoned.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the counters cannot be read.
    pub fn health_with(&self, limits: &HealthLimits) -> Result<Health, StorageError> {
        let facts = self.store().read(|rows| {
            let now = self.now(rows)?;
            Facts::read(rows, now, limits)
        })?;
        let mut health = Health::default();
        facts.judge(limits, &mut health);
        let whole = |subject: u64| (subject, None);
        health.check(
            "file_size",
            "bytes",
            whole(self.store().file_bytes()),
            limits.file_bytes,
            "see `redrive report`: a backlog or a quarantine that grows, or keys and finished jobs that \
             are kept long",
        );
        health.check(
            "longest_write",
            "ms",
            self.longest_wait(),
            limits.longest_write_ms,
            "every caller waits for the writer: look for a slow or full disk, very large batches, or \
             transactions that do more than write",
        );
        health.check(
            "poisoned",
            "stores",
            (u64::from(self.poisoned().is_some()), self.poisoned().map(|why| why.to_string())),
            Limit::new(1, 1),
            "nothing is written any more: mend the cause, close the file and open it again",
        );
        Ok(health)
    }

    /// For how long everybody had to wait for one write, and whose it was if it was not the writer's own.
    fn longest_wait(&self) -> Worst {
        let (own, lent) =
            (self.writer().longest_write_ms(), self.writer().longest_transaction_ms());
        if lent > own { (lent, Some("a transaction of the app's".to_owned())) } else { (own, None) }
    }
}

/// The worst value, and where it was found.
type Worst = (u64, Option<String>);

/// Destination, age of its oldest unsent message, whether it is paused or held.
type Unsent = (String, u64, bool);

#[derive(Default)]
struct Facts {
    retry_share: Worst,
    oldest_ready: Worst,
    unreconciled: Worst,
    growth: Worst,
    unsent: Vec<Unsent>,
    expiries: Worst,
    crashes: Worst,
    oldest_pause: Worst,
    set_aside: u64,
    unbalanced: u64,
}

/// What the classes of one queue come to.
#[derive(Default)]
struct QueueFacts {
    worked_ms: u64,
    retried_ms: u64,
    leases: u64,
    retries: u64,
    fresh_waits: bool,
}

impl Facts {
    fn read(rows: &impl Rows, now: Timestamp, limits: &HealthLimits) -> Result<Self, StorageError> {
        let pauses = pause::list(rows)?;
        let mut facts = Self { set_aside: rows.count(TableId::Damaged)?, ..Self::default() };
        let mut queues: BTreeMap<QueueId, (String, QueueFacts)> = BTreeMap::new();
        for (class, counters) in counter::all(rows)? {
            let queue = names::queue(rows, class.queue)?.map(|queue| queue.name);
            let (queue, kind) =
                (queue.unwrap_or_default(), names::kind(rows, class.kind)?.unwrap_or_default());
            let label = format!("kind {kind} of queue {queue}");
            facts.class(rows, class, &counters, &label, now)?;
            let stopped = pauses.iter().any(|stop| stops(stop, &queue, &kind));
            let entry = queues.entry(class.queue).or_insert_with(|| (queue, QueueFacts::default()));
            entry.1.add(rows, class, &counters, now)?;
            if !stopped {
                let fresh_ms = facts.waiting(rows, class, &counters, &label, now)?;
                entry.1.fresh_waits |= fresh_ms > limits.fresh_wait_ms;
            }
        }
        for (queue, found) in queues.into_values().filter(|(_, found)| found.fresh_waits) {
            worse(&mut facts.retry_share, found.share_percent(), || format!("queue {queue}"));
        }
        for (destination, stats) in outbox::read(rows, now)? {
            let queue = queue_of(&destination);
            let stopped = pauses.iter().any(|stop| stops(stop, &queue, MESSAGE_KIND));
            facts.unsent.push((destination, stats.oldest_unsent_age_ms(), stopped));
        }
        for stop in pauses.iter().filter(|stop| !stop.is_hold()) {
            worse(&mut facts.oldest_pause, now.ms_since(stop.since), || stop.scope.to_string());
        }
        Ok(facts)
    }

    /// What happened to a class in the last hour.
    fn class(
        &mut self,
        rows: &impl Rows,
        class: Class,
        counters: &Counters,
        label: &str,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let hour_ago = now.minute().saturating_sub(GROWTH_MINUTES);
        let before = counter::at_end_of(rows, class, hour_ago, counters)?;
        let flows = counters.flows.since(&before.flows);
        let (dead, dead_before) = (counters.gauge(Gauge::Dead), before.gauge(Gauge::Dead));
        let label = || label.to_owned();
        worse(&mut self.growth, dead.saturating_sub(dead_before), label);
        worse(&mut self.expiries, flows.get(Flow::LeaseExpired), label);
        worse(&mut self.crashes, flows.get(Flow::Crashed), label);
        let balanced = counters.residual() == 0 && counters.dead_residual() == 0;
        self.unbalanced += u64::from(!balanced);
        Ok(())
    }

    /// The oldest ready job of a class that may be claimed; returns how long fresh work has waited.
    fn waiting(
        &mut self,
        rows: &impl Rows,
        class: Class,
        counters: &Counters,
        label: &str,
        now: Timestamp,
    ) -> Result<u64, StorageError> {
        let mut fresh_ms = 0;
        for lane in Lane::ALL.into_iter().filter(|&lane| counters.gauge(Gauge::ready(lane)) > 0) {
            if let Some((since, job)) = backlog::oldest_ready(rows, class, lane)? {
                let age_ms = now.ms_since(since);
                worse(&mut self.oldest_ready, age_ms, || format!("job {job}, {label}"));
                if lane.is_reconcile() {
                    worse(&mut self.unreconciled, age_ms, || format!("job {job}, {label}"));
                }
                if lane == Lane::Fresh {
                    fresh_ms = age_ms;
                }
            }
        }
        Ok(fresh_ms)
    }

    fn judge(self, limits: &HealthLimits, health: &mut Health) {
        health.check(
            "retry_share",
            "percent",
            self.retry_share,
            limits.retry_share_percent,
            "retries hold the workers while fresh work waits: see what they fail of (`redrive report`, \
             `redrive dead list`), pause that kind, or lower the queue's retry share",
        );
        health.check(
            "oldest_ready",
            "ms",
            self.oldest_ready,
            limits.oldest_ready_ms,
            "ask `redrive explain` about the job: no worker, no handler for its kind, or too few workers",
        );
        health.check(
            "unreconciled",
            "ms",
            self.unreconciled,
            limits.unreconciled_ms,
            "nobody asks what became of an unknown outcome: run a worker that has a reconciler for the kind",
        );
        judge_unsent(self.unsent, limits.oldest_unsent_ms, health);
        health.check(
            "quarantine_growth",
            "jobs",
            self.growth,
            limits.quarantine_growth,
            "see what they died of with `redrive dead list`; pause the kind if it goes on",
        );
        health.check(
            "lease_expiries",
            "leases",
            self.expiries,
            limits.lease_expiries,
            "a handler outlives its lease or hangs: give it a longer lease or a deadline, or have it beat",
        );
        health.check(
            "crashes",
            "deliveries",
            self.crashes,
            limits.crashes,
            "the process died with jobs in flight: look for a job that kills it among the suspects",
        );
        health.check(
            "oldest_pause",
            "ms",
            self.oldest_pause,
            limits.oldest_pause_ms,
            "ask who paused it whether it is still needed (`redrive pauses`)",
        );
        health.check(
            "set_aside",
            "rows",
            (self.set_aside, None),
            limits.set_aside,
            "rows were damaged: run `redrive verify`, and check the disk",
        );
        health.check(
            "residual",
            "kinds",
            (self.unbalanced, None),
            Limit::new(1, 1),
            "the books do not balance: run `redrive verify` and report it",
        );
    }
}

fn judge_unsent(unsent: Vec<Unsent>, limit: Limit, health: &mut Health) {
    for (destination, age_ms, stopped) in unsent {
        health.check(
            "oldest_unsent",
            "ms",
            (age_ms, Some(format!("destination {destination}"))),
            if stopped { Limit::never() } else { limit },
            "see `redrive outbox`: no relay with a sink for it, a receiver that is away, or a dead \
             message that halts the others",
        );
    }
}

impl QueueFacts {
    fn add(
        &mut self,
        rows: &impl Rows,
        class: Class,
        counters: &Counters,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let ago = now.minute().saturating_sub(SHARE_MINUTES);
        let before = counter::at_end_of(rows, class, ago, counters)?;
        let flows = counters.flows.since(&before.flows);
        self.worked_ms += flows.sum(WORKED);
        self.retried_ms += flows.sum([Flow::WorkedRetry, Flow::WorkedReconcile]);
        self.leases += counters.sum(Lane::ALL.map(Gauge::leased));
        self.retries += counters.sum([Lane::Retry, Lane::Reconcile].map(Gauge::leased));
        Ok(())
    }

    /// Of the time of leases that ended; where none has, of the leases that there are.
    fn share_percent(&self) -> u64 {
        let of_time = self.retried_ms.saturating_mul(100).checked_div(self.worked_ms);
        of_time.or_else(|| (self.retries * 100).checked_div(self.leases)).unwrap_or(0)
    }
}

fn worse(worst: &mut Worst, value: u64, at: impl FnOnce() -> String) {
    if value > worst.0 {
        *worst = (value, Some(at()));
    }
}

/// Whether a pause or hold keeps work of this class from being claimed.
pub(crate) fn stops(stop: &Paused, queue: &str, kind: &str) -> bool {
    match &stop.scope {
        Scope::Queue { queue: stopped } => stopped == queue,
        Scope::Class { queue: stopped, kind: of } => stopped == queue && of == kind,
        Scope::Redrive | Scope::RedriveClass { .. } => false,
    }
}
