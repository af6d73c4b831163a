//! The reasons why a job is where it is.

use std::fmt;

use serde::Serialize;

use crate::domain::count::Count;
use crate::domain::failure::FailureClass;
use crate::domain::id::{CohortId, JobId};
use crate::domain::job::{DeathReason, JobState};
use crate::domain::pause::Paused;
use crate::domain::time::Timestamp;

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
    /// The outcome of an earlier delivery is unknown, and its policy says to ask first: it waits for a
    /// reconciler of its kind.
    Reconciler {
        /// Whether somebody in this process has claimed with one since it opened the file.
        seen: bool,
    },
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
            Self::Reconciler { seen } => {
                f.write_str(
                    "the outcome of an earlier delivery is unknown: it waits for a reconciler of its kind",
                )?;
                f.write_str(if *seen { "" } else { ", and nobody in this process has one" })
            }
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
