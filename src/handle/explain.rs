//! Why a job is where it is.

use crate::domain::count::Count;
use crate::domain::counter::{Counters, Gauge};
use crate::domain::explain::{Explanation, Reason};
use crate::domain::id::{Class, JobId};
use crate::domain::job::{Job, Lane, Ready, State};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::handle::health::stops;
use crate::handle::pause;
use crate::handle::redrive::Redrive;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::{cohort, counter, job as job_store, names, order};
use crate::writer::command::Command;
use crate::writer::seen::ClaimFacts;

/// Jobs ahead are counted one by one up to this many.
const AHEAD_COUNT_MAX: usize = 1_000;
/// The lanes of which one job runs at a time.
const SUSPECTS: [Lane; 2] = [Lane::Suspect, Lane::SuspectReconcile];
/// The lanes that share the bound of retries.
const AGAIN: [Lane; 2] = [Lane::Retry, Lane::Reconcile];
/// Leases that are looked at for the suspect that runs.
const LEASES_MAX: usize = 1_000;

impl Redrive {
    /// Why this job is not running, from facts: as of the last commit, and of the claims that this
    /// process has made since it opened the file. A few short reads.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the job's row, or what it is judged by, cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{NewJob, Pause, Reason, Scope};
    ///
    /// let id = jobs.enqueue(NewJob::new("mail", "welcome"))?.job();
    /// jobs.pause(Scope::queue("mail"), Pause::new("provider is down").by("ada"))?;
    /// let why = jobs.explain(id)?;
    /// assert!(matches!(&why.reasons[0], Reason::Paused { pause } if pause.by == "ada"));
    /// println!("{why}");
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn explain(&self, job: JobId) -> Result<Explanation, StorageError> {
        let named = self.store().read(|rows| match job_store::read(rows, job)? {
            Some(found) => Ok(Some(names_of(rows, found.class)?)),
            None => Ok(None),
        })?;
        let (queue, kind) = named.unwrap_or_default();
        let facts =
            self.ask(|reply| Command::Facts { queue: queue.clone(), kind: kind.clone(), reply });
        // A store that writes no more still tells what the file says.
        let claims = facts.ok();
        self.store().read(|rows| {
            let now = self.now(rows)?;
            let mut why = Explanation { job, state: None, queue, kind, reasons: Vec::new() };
            match job_store::read(rows, job)? {
                None => why.reasons.push(Reason::Unknown),
                Some(job) => why.describe(rows, &job, claims.as_ref(), now)?,
            }
            Ok(why)
        })
    }
}

impl Explanation {
    fn describe(
        &mut self,
        rows: &impl Rows,
        job: &Job,
        claims: Option<&ClaimFacts>,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        self.state = Some(job.state.name());
        match &job.state {
            State::Done(done) => self.reasons.push(Reason::Done { at: done.at }),
            State::Cancelled(cancelled) => {
                self.reasons.push(Reason::Cancelled { at: cancelled.at });
            }
            State::Leased(lease) => self.reasons.push(Reason::Leased {
                worker: lease.worker.clone(),
                since: lease.claimed_at,
                cancel_requested: lease.cancel_requested,
            }),
            State::Dead(dead) => {
                self.reasons.push(Reason::Dead {
                    why: dead.reason,
                    class: dead.class,
                    code: dead.code.clone(),
                    message: dead.message.clone(),
                    at: dead.died_at,
                });
                let cohort = cohort::holding(rows, job.id)?;
                self.reasons.extend(cohort.map(|cohort| Reason::InCohort { cohort }));
                let pause = pause::of_redrive(rows, job.class)?;
                self.reasons.extend(pause.map(|pause| Reason::RedrivePaused { pause }));
            }
            State::Blocked(blocked) => {
                self.blocked(rows, job)?;
                self.stopped(rows)?;
                self.claimed(claims, blocked.lane);
            }
            State::Delayed(delayed) => {
                let until = delayed.due;
                self.reasons.push(if until > now {
                    Reason::Delayed { until }
                } else {
                    Reason::Due
                });
                self.stopped(rows)?;
                self.claimed(claims, delayed.lane);
            }
            State::Ready(ready) => {
                self.stopped(rows)?;
                self.claimed(claims, ready.lane);
                self.in_line(rows, job, *ready)?;
            }
        }
        if self.reasons.is_empty() {
            self.reasons.push(Reason::Next);
        }
        Ok(())
    }

    fn stopped(&mut self, rows: &impl Rows) -> Result<(), StorageError> {
        for stop in pause::list(rows)? {
            if stops(&stop, &self.queue, &self.kind) {
                self.reasons.push(match stop.is_hold() {
                    true => Reason::Held { hold: stop },
                    false => Reason::Paused { pause: stop },
                });
            }
        }
        Ok(())
    }

    fn blocked(&mut self, rows: &impl Rows, job: &Job) -> Result<(), StorageError> {
        let (Some(order), Some(row)) = (&job.order, key::order_row(job)) else { return Ok(()) };
        let queue = job.class.queue;
        let from = key::order_key(queue, &order.key);
        let ahead = rows.count_in(TableId::Order, &from, &row, AHEAD_COUNT_MAX)?;
        let ahead = Count::up_to(ahead, AHEAD_COUNT_MAX);
        let head = order::oldest_holder(rows, queue, &order.key, job.id)?;
        let head_state = match head {
            Some(head) => job_store::read(rows, head)?.map(|head| head.state.name()),
            None => None,
        };
        let key = order.key.clone();
        self.reasons.push(Reason::Blocked { key, ahead, head, head_state });
        Ok(())
    }

    fn claimed(&mut self, claims: Option<&ClaimFacts>, lane: Lane) {
        if lane.is_reconcile() {
            let seen = claims.is_some_and(|claims| claims.reconciled);
            self.reasons.push(Reason::Reconciler { seen });
            return;
        }
        let Some(claims) = claims else { return };
        if claims.last.is_none() {
            self.reasons.push(Reason::NoWorker);
        } else if !claims.handled {
            self.reasons.push(Reason::NoHandler);
        }
    }

    /// What stands before a ready job.
    fn in_line(&mut self, rows: &impl Rows, job: &Job, ready: Ready) -> Result<(), StorageError> {
        let pauses = pause::list(rows)?;
        let mut queue: Vec<(Class, Counters)> = Vec::new();
        let mut suspects = 0;
        for (class, counters) in counter::all(rows)? {
            suspects += counters.sum(SUSPECTS.map(Gauge::leased));
            if class.queue == job.class.queue {
                queue.push((class, counters));
            }
        }
        if SUSPECTS.contains(&ready.lane) && suspects > 0 {
            self.reasons.push(Reason::SuspectWaits { running: running_suspect(rows)? });
        }
        let kind_of = |class: Class| Ok::<_, StorageError>(names_of(rows, class)?.1);
        let mut open = Vec::new();
        for (class, counters) in &queue {
            let kind = kind_of(*class)?;
            if !pauses.iter().any(|stop| stops(stop, &self.queue, &kind)) {
                open.push((*class, counters));
            }
        }
        let leased = |lane| queue.iter().map(|(_, c)| c.gauge(Gauge::leased(lane))).sum::<u64>();
        let (retries, leases) = (
            AGAIN.into_iter().map(leased).sum::<u64>(),
            Lane::ALL.into_iter().map(leased).sum::<u64>(),
        );
        let fresh = open.iter().any(|(_, counters)| counters.gauge(Gauge::ready(Lane::Fresh)) > 0);
        let settings = names::queue(rows, job.class.queue)?;
        if let Some(settings) = settings
            && AGAIN.contains(&ready.lane)
            && fresh
            && !settings.retry_allowed(retries, leases)
        {
            let share_percent = settings.retry_share_percent;
            self.reasons.push(Reason::RetryShare { share_percent, retries, leases });
        }
        let mut ahead = 0;
        for (class, counters) in open {
            for lane in Lane::ALL.into_iter().filter(|&lane| counters.gauge(Gauge::ready(lane)) > 0)
            {
                let from = key::ready_lane(class, lane.number());
                let to = key::ready(class, job.priority, Ready { lane, ..ready });
                let left = AHEAD_COUNT_MAX - ahead;
                ahead += rows.count_in(TableId::Ready, &from, &to, left)?;
            }
        }
        if ahead > 0 {
            self.reasons.push(Reason::Behind { ahead: Count::up_to(ahead, AHEAD_COUNT_MAX) });
        }
        Ok(())
    }
}

fn names_of(rows: &impl Rows, class: Class) -> Result<(String, String), StorageError> {
    let queue = names::queue(rows, class.queue)?.map(|queue| queue.name);
    Ok((queue.unwrap_or_default(), names::kind(rows, class.kind)?.unwrap_or_default()))
}

/// The suspect that runs, if it is among the first leases.
fn running_suspect(rows: &impl Rows) -> Result<Option<JobId>, StorageError> {
    let leases = rows.range(TableId::Leased, &[], &[u8::MAX; 17], LEASES_MAX)?;
    for (name, value) in leases {
        let lane = record::decode::<(Class, Lane, crate::domain::id::Instance)>(&value);
        if lane.is_ok_and(|(_, lane, _)| SUSPECTS.contains(&lane)) {
            return Ok(Some(key::read_timed(&name)?.1));
        }
    }
    Ok(None)
}
