//! Why a job is where it is.

use std::fmt;

use serde::Serialize;

use crate::domain::counter::{Counters, Gauge};
use crate::domain::failure::FailureClass;
use crate::domain::id::{Class, CohortId, JobId};
use crate::domain::job::{DeathReason, Job, JobState, Lane, Ready, State};
use crate::domain::pause::Paused;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::handle::health::stops;
use crate::handle::pause;
use crate::handle::redrive::Redrive;
use crate::handle::report::Count;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::{cohort, counter, job as job_store, names, order};
use crate::writer::command::Command;
use crate::writer::seen::ClaimFacts;

/// Jobs ahead are counted one by one up to this many.
const AHEAD_COUNT_MAX: usize = 1_000;
/// Leases that are looked at for the suspect that runs.
const LEASES_MAX: usize = 1_000;

/// Why a job is where it is, and what it waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// The job.
    pub job: JobId,
    /// Its state; `None` when there is no such job.
    pub state: Option<JobState>,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// The reasons, each by itself enough to keep it from running, the hardest first.
    pub reasons: Vec<Reason>,
}

/// A reason why a job does not run, or runs, or will not run any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// There is no such job: it never existed, or it has finished and its row is gone.
    Unknown,
    /// It is done.
    Done {
        /// Since when.
        at: Timestamp,
    },
    /// It was cancelled.
    Cancelled {
        /// When.
        at: Timestamp,
    },
    /// It is dead: it runs again only when somebody sends it back.
    Dead {
        /// Why.
        why: DeathReason,
        /// The class of its last failure.
        class: FailureClass,
        /// The code of its last failure.
        code: String,
        /// The message of its last failure.
        message: String,
        /// Since when.
        at: Timestamp,
    },
    /// It is dead, and a member of a cohort that has not released it yet.
    InCohort {
        /// The cohort.
        cohort: CohortId,
    },
    /// It is dead, and sending such jobs back is paused.
    RedrivePaused {
        /// The pause.
        pause: Paused,
    },
    /// It runs.
    Leased {
        /// Who has it.
        worker: String,
        /// Since when.
        since: Timestamp,
        /// Somebody asked to cancel it.
        cancel_requested: bool,
    },
    /// Its time has not come.
    Delayed {
        /// It becomes ready then.
        until: Timestamp,
    },
    /// Earlier jobs of its ordering key are not through.
    Blocked {
        /// The ordering key.
        key: String,
        /// How many stand before it under that key; exact up to 1,000.
        ahead: Count,
        /// The one whose turn it is, if it was found.
        head: Option<JobId>,
        /// The state of that one. A dead one holds the key until it is redriven or discarded.
        head_state: Option<JobState>,
    },
    /// It is due, and becomes ready at the writer's next look.
    Due,
    /// Its queue or kind is paused.
    Paused {
        /// The pause.
        pause: Paused,
    },
    /// A throttled failure holds back its queue or kind.
    Held {
        /// The hold.
        hold: Paused,
    },
    /// Nobody has claimed from its queue since this process opened the file.
    NoWorker,
    /// Its queue is worked, but no claim since this process opened the file was for its kind.
    NoHandler,
    /// It was in flight when a process died: such jobs run one at a time, and another one runs.
    SuspectWaits {
        /// The one that runs, if it was found.
        running: Option<JobId>,
    },
    /// Retries hold their share of the queue's leases, and fresh work waits.
    RetryShare {
        /// The share in per cent.
        share_percent: u32,
        /// Leases that retries hold.
        retries: u64,
        /// All leases of the queue.
        leases: u64,
    },
    /// So many jobs of its queue stand before it.
    Behind {
        /// How many; exact up to 1,000.
        ahead: Count,
    },
    /// Nothing holds it back: the next claim takes it.
    Next,
}

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
            State::Blocked(_) => {
                self.blocked(rows, job)?;
                self.stopped(rows)?;
                self.claimed(claims);
            }
            State::Delayed(delayed) => {
                let until = delayed.due;
                self.reasons.push(if until > now {
                    Reason::Delayed { until }
                } else {
                    Reason::Due
                });
                self.stopped(rows)?;
                self.claimed(claims);
            }
            State::Ready(ready) => {
                self.stopped(rows)?;
                self.claimed(claims);
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

    fn claimed(&mut self, claims: Option<&ClaimFacts>) {
        let Some(claims) = claims else { return };
        if claims.last.is_none() && claims.waiting == 0 {
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
            suspects += counters.gauge(Gauge::leased(Lane::Suspect));
            if class.queue == job.class.queue {
                queue.push((class, counters));
            }
        }
        if ready.lane == Lane::Suspect && suspects > 0 {
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
        let (retries, leases) =
            (leased(Lane::Retry), Lane::ALL.into_iter().map(leased).sum::<u64>());
        let fresh = open.iter().any(|(_, counters)| counters.gauge(Gauge::ready(Lane::Fresh)) > 0);
        let settings = names::queue(rows, job.class.queue)?;
        if let Some(settings) = settings
            && ready.lane == Lane::Retry
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
        if lane.is_ok_and(|(_, lane, _)| lane == Lane::Suspect) {
            return Ok(Some(key::read_timed(&name)?.1));
        }
    }
    Ok(None)
}

impl fmt::Display for Explanation {
    /// A line per reason. Times are milliseconds since 1970.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.job)?;
        if let Some(state) = self.state {
            write!(f, " ({}/{}) is {state}", self.queue, self.kind)?;
        }
        for reason in &self.reasons {
            write!(f, "\n  {reason}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str(
                "there is no such job: it never existed, or it finished and is forgotten",
            ),
            Self::Done { at } => write!(f, "it is done since {at}"),
            Self::Cancelled { at } => write!(f, "it was cancelled at {at}"),
            Self::Dead { why, class, code, message, at } => {
                write!(f, "it is dead since {at} ({why:?}): {class} {code} {message}")
            }
            Self::InCohort { cohort } => write!(f, "cohort {cohort} is going to send it back"),
            Self::RedrivePaused { pause } => {
                write!(f, "sending it back is paused by {}: {}", pause.by, pause.reason)
            }
            Self::Leased { worker, since, cancel_requested } => {
                let asked = if *cancel_requested { "; cancelling was asked for" } else { "" };
                write!(f, "{worker} has had it since {since}{asked}")
            }
            Self::Delayed { until } => write!(f, "it is delayed until {until}"),
            Self::Blocked { key, ahead, head, head_state } => {
                let more = if ahead.at_least { "at least " } else { "" };
                write!(f, "{more}{} jobs of ordering key {key} come before it", ahead.count)?;
                match (head, head_state) {
                    (Some(head), Some(state)) => write!(f, "; job {head} is {state}"),
                    _ => Ok(()),
                }
            }
            Self::Due => f.write_str("it is due and becomes ready at the writer's next look"),
            Self::Paused { pause } => {
                write!(f, "{} is paused by {}: {}", pause.scope, pause.by, pause.reason)
            }
            Self::Held { hold } => {
                let until = hold.until.unwrap_or(Timestamp::MAX);
                write!(f, "{} is held until {until} by {}: {}", hold.scope, hold.by, hold.reason)
            }
            Self::NoWorker => f.write_str("nobody claims from its queue in this process"),
            Self::NoHandler => f.write_str("nobody claims its kind in this process"),
            Self::SuspectWaits { running } => {
                f.write_str(
                    "it was in flight when a process died and runs when no other such job does",
                )?;
                match running {
                    Some(job) => write!(f, "; job {job} runs now"),
                    None => Ok(()),
                }
            }
            Self::RetryShare { share_percent, retries, leases } => write!(
                f,
                "retries hold {retries} of {leases} leases, their share is {share_percent}%, and \
                 fresh work waits"
            ),
            Self::Behind { ahead } => {
                let more = if ahead.at_least { "at least " } else { "" };
                write!(f, "{more}{} jobs stand before it", ahead.count)
            }
            Self::Next => f.write_str("nothing holds it back: the next claim takes it"),
        }
    }
}
