//! The books over a span of time, and what waits now.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::count::Count;
use crate::domain::counter::{Counters, Flow, Flows, Gauge};
use crate::domain::effort::{COMPLETED_AFTER, DIED_AFTER, WORKED};
use crate::domain::id::{Class, JobId};
use crate::domain::job::Lane;
use crate::domain::pause::Paused;
use crate::domain::time::Timestamp;
use crate::domain::window::Window;
use crate::error::StorageError;
use crate::handle::arrivals::{Arriving, QuarantineArrivals};
use crate::handle::pause::list;
use crate::handle::redrive::Redrive;
use crate::store::rows::Rows;
use crate::store::{backlog, counter, names};

/// Delayed jobs are counted one by one up to this many in each span of time.
const DUE_COUNT_MAX: usize = 5_000;

/// What has happened in a window, and what waits now. `docs/operations.md` says where each figure comes
/// from.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Where the window begins: the start of a minute; not before what is kept.
    pub from: Timestamp,
    /// Where it ends: as of the last commit, or the end of a minute.
    pub to: Timestamp,
    /// Over all queues.
    pub total: Balance,
    /// By queue name.
    pub queues: BTreeMap<String, QueueBalance>,
    /// When the delayed jobs are due, now.
    pub delayed: DelayedBacklog,
    /// What came into the quarantine in the window, by cause.
    pub arrivals: QuarantineArrivals,
    /// What is paused or held, now.
    pub pauses: Vec<Paused>,
}

/// The balance of one queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct QueueBalance {
    /// Over all kinds.
    #[serde(flatten)]
    pub sum: Balance,
    /// By kind.
    pub kinds: BTreeMap<String, Balance>,
}

/// The balance of some jobs over a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Balance {
    /// What has happened in the window, by the names of [`Counts::flows`](crate::Counts::flows).
    pub flows: BTreeMap<&'static str, u64>,
    /// Accepted jobs that have not ended, dead ones included.
    pub alive: Change,
    /// Jobs in the quarantine.
    pub dead: Change,
    /// Accepted jobs less all that ended in the window, less the change of `alive`, which is counted
    /// apart: 0, or the books do not balance.
    pub residual: i64,
    /// Deaths less all that left the quarantine in the window, less the change of `dead`: 0 too.
    pub dead_residual: i64,
    /// Milliseconds of leases that ended in the window.
    pub worked_ms: u64,
    /// Of those, the share of retries, 0 to 1; `None` when no lease ended.
    pub retry_share: Option<f64>,
    /// Completed jobs by the number of attempts they took.
    pub completed_after: Attempts,
    /// Dead jobs by the number of attempts they had.
    pub died_after: Attempts,
    /// The ready job that has waited longest, now.
    pub oldest_ready: Option<OldestReady>,
}

/// A count at both ends of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// Before its first minute.
    pub before: u64,
    /// At its end.
    pub after: u64,
}

/// Jobs by the number of attempts of their last cycle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Attempts {
    /// The first attempt was the last.
    pub one: u64,
    /// Two.
    pub two: u64,
    /// Three.
    pub three: u64,
    /// Four to six.
    pub up_to_6: u64,
    /// Seven to twelve.
    pub up_to_12: u64,
    /// Thirteen or more.
    pub more: u64,
}

/// A job that stands ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OldestReady {
    /// The job.
    pub job: JobId,
    /// The lane it stands in.
    pub lane: Lane,
    /// Since when it has been ready.
    pub since: Timestamp,
    /// How long that is, in milliseconds.
    pub age_ms: u64,
}

/// Delayed jobs by the time at which they are due.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DelayedBacklog {
    /// Due already; they become ready at the next commit.
    pub overdue: Count,
    /// Within a minute.
    pub minute: Count,
    /// Within an hour.
    pub hour: Count,
    /// Within a day.
    pub day: Count,
    /// Later.
    pub later: Count,
}

impl Redrive {
    /// The books over `window`, and what waits now.
    ///
    /// Answered from kept counters and short reads: the cost depends on the number of queues and kinds,
    /// not on the number of jobs nor on the length of the window.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the counters cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use std::time::Duration;
    /// use redrive::{NewJob, Window};
    ///
    /// jobs.enqueue(NewJob::new("mail", "welcome"))?;
    /// let report = jobs.report(Window::last(Duration::from_secs(3_600)))?;
    /// assert_eq!((report.total.flow("enqueued"), report.total.alive.after), (1, 1));
    /// assert_eq!(report.total.residual, 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn report(&self, window: Window) -> Result<Report, StorageError> {
        self.store().read(|rows| {
            let now = self.now(rows)?;
            let classes = counter::all(rows)?;
            let oldest = now.minute().saturating_sub(self.window_minutes());
            let dropped = classes.iter().map(|(_, counters)| counters.kept_from);
            // The window that was kept last tells how things stood at its end.
            let kept = dropped.filter(|&minute| minute > 0).map(|minute| minute + 1);
            let kept = kept.chain([oldest]).max().unwrap_or(0);
            let (from, to) = window.minutes(now.minute(), kept);
            let start = |minute: u64| Timestamp::from_millis(minute.saturating_mul(60_000));
            let end = if to >= now.minute() { now } else { start(to.saturating_add(1)) };
            let mut report = Report {
                from: from.map_or(Timestamp::default(), start),
                to: end,
                ..Report::default()
            };
            let (mut total, mut sums) = (Span::default(), BTreeMap::<_, Span>::new());
            let mut arriving = Arriving::default();
            for (class, counters) in &classes {
                let span = Span::read(rows, *class, counters, (from, to), now)?;
                total.add(&span);
                sums.entry(class.queue).or_default().add(&span);
                let queue = names::queue(rows, class.queue)?.map(|queue| queue.name);
                let kind = names::kind(rows, class.kind)?.unwrap_or_default();
                let queue = queue.unwrap_or_default();
                if counters.gauge(Gauge::Dead) > 0 {
                    let window = (report.from, start(to.saturating_add(1)));
                    arriving.add(rows, (*class, &queue, &kind), window)?;
                }
                let queue = report.queues.entry(queue).or_default();
                queue.kinds.insert(kind, span.balance());
                if let Some(sum) = sums.get(&class.queue) {
                    queue.sum = sum.balance();
                }
            }
            report.total = total.balance();
            report.arrivals = arriving.told();
            report.delayed = DelayedBacklog::read(rows, now, total.delayed)?;
            report.pauses = list(rows)?;
            Ok(report)
        })
    }
}

impl Balance {
    /// What has happened in the window; 0 for a name that is not counted.
    #[must_use]
    pub fn flow(&self, name: &str) -> u64 {
        self.flows.get(name).copied().unwrap_or(0)
    }
}

impl Attempts {
    fn of(flows: &Flows, buckets: [Flow; 6]) -> Self {
        let [one, two, three, up_to_6, up_to_12, more] = buckets.map(|flow| flows.get(flow));
        Self { one, two, three, up_to_6, up_to_12, more }
    }
}

impl DelayedBacklog {
    fn read(rows: &impl Rows, now: Timestamp, delayed: u64) -> Result<Self, StorageError> {
        const MINUTE_MS: u64 = 60_000;
        // What is due at this very moment is due already.
        let mut from = Timestamp::default();
        let mut left = Count { count: delayed, at_least: false };
        let mut next = |to: Timestamp| -> Result<Count, StorageError> {
            let found = backlog::due(rows, from, to, DUE_COUNT_MAX)?;
            from = to;
            let found = Count::up_to(found, DUE_COUNT_MAX);
            left.count = left.count.saturating_sub(found.count);
            left.at_least |= found.at_least;
            Ok(found)
        };
        let (overdue, minute) = (next(now.plus_ms(1))?, next(now.plus_ms(MINUTE_MS))?);
        let hour = next(now.plus_ms(60 * MINUTE_MS))?;
        let day = next(now.plus_ms(24 * 60 * MINUTE_MS))?;
        // The rest, if all before it was counted; else nothing is known of it.
        let later = if left.at_least { Count { count: 0, at_least: true } } else { left };
        Ok(Self { overdue, minute, hour, day, later })
    }
}

/// Counters at both ends of a window, and what waits.
#[derive(Default)]
struct Span {
    before: Counters,
    after: Counters,
    oldest: Option<OldestReady>,
    delayed: u64,
}

impl Span {
    fn read(
        rows: &impl Rows,
        class: Class,
        counters: &Counters,
        (from, to): (Option<u64>, u64),
        now: Timestamp,
    ) -> Result<Self, StorageError> {
        let after = counter::at_end_of(rows, class, to, counters)?;
        let before = match from {
            Some(from) if from <= to => {
                counter::at_end_of(rows, class, from.saturating_sub(1), counters)?
            }
            // A window that ends before it begins.
            Some(_) => after.clone(),
            None => Counters::default(),
        };
        let mut oldest: Option<OldestReady> = None;
        for lane in Lane::ALL.into_iter().filter(|&lane| counters.gauge(Gauge::ready(lane)) > 0) {
            if let Some((since, job)) = backlog::oldest_ready(rows, class, lane)? {
                let found = OldestReady { job, lane, since, age_ms: now.ms_since(since) };
                oldest = older(oldest, Some(found));
            }
        }
        let delayed = counters.sum(Lane::ALL.map(Gauge::delayed));
        Ok(Self { before, after, oldest, delayed })
    }

    fn add(&mut self, other: &Self) {
        self.before.add_all(&other.before);
        self.after.add_all(&other.after);
        self.oldest = older(self.oldest, other.oldest);
        self.delayed += other.delayed;
    }

    fn balance(&self) -> Balance {
        let (before, after) = (&self.before, &self.after);
        let flows = after.flows.since(&before.flows);
        let worked_ms = flows.sum(WORKED);
        let retried_ms = flows.sum([Flow::WorkedRetry, Flow::WorkedReconcile]);
        Balance {
            alive: Change { before: before.alive(), after: after.alive() },
            dead: Change { before: before.gauge(Gauge::Dead), after: after.gauge(Gauge::Dead) },
            residual: after.residual().wrapping_sub(before.residual()),
            dead_residual: after.dead_residual().wrapping_sub(before.dead_residual()),
            worked_ms,
            retry_share: share(retried_ms, worked_ms),
            completed_after: Attempts::of(&flows, COMPLETED_AFTER),
            died_after: Attempts::of(&flows, DIED_AFTER),
            oldest_ready: self.oldest,
            flows: Flow::ALL.iter().map(|&flow| (flow.name(), flows.get(flow))).collect(),
        }
    }
}

fn older(one: Option<OldestReady>, other: Option<OldestReady>) -> Option<OldestReady> {
    [one, other].into_iter().flatten().min_by_key(|found| (found.since, found.job))
}

#[expect(clippy::cast_precision_loss, reason = "a share of times that are far below 2^52 ms")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
