//! A job and the state it is in. A state owns its data: a finished job has no lease to forget about.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::blob::Blob;
use crate::domain::failure::FailureClass;
use crate::domain::id::{Class, CohortId, Instance, JobId, PolicyId, Token};
use crate::domain::key::KeyClaim;
use crate::domain::limits::PAYLOAD_INLINE_BYTES_MAX;
use crate::domain::order::OrderKey;
use crate::domain::outbox::Post;
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;

/// Which line a ready job stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Lane {
    /// Never failed in this cycle.
    Fresh,
    /// Failed before; may hold only a share of the queue's leases while fresh work waits.
    Retry,
    /// Was in flight when the process died; runs alone among its like until it is cleared or
    /// convicted (P12).
    Suspect,
    /// Waits for a reconciler, because the outcome of a delivery is unknown and its policy says to ask
    /// first ([`OnUnknown::Reconcile`](crate::OnUnknown::Reconcile)). Shares the bound of `Retry`.
    Reconcile,
    /// Both a suspect and waiting for a reconciler: that comes first, and it is alone among suspects
    /// even then.
    #[serde(rename = "suspect_reconcile")]
    SuspectReconcile,
}

impl Lane {
    pub(crate) const ALL: [Self; 5] =
        [Self::Fresh, Self::Retry, Self::Suspect, Self::Reconcile, Self::SuspectReconcile];

    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Fresh => 0,
            Self::Retry => 1,
            Self::Suspect => 2,
            Self::Reconcile => 3,
            Self::SuspectReconcile => 4,
        }
    }

    /// The lane's name as used in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Retry => "retry",
            Self::Suspect => "suspect",
            Self::Reconcile => "reconcile",
            Self::SuspectReconcile => "suspect_reconcile",
        }
    }
}

/// The state a job is in. Every accepted job is in exactly one (P3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum JobState {
    /// Waiting for a worker.
    Ready,
    /// Waiting for a time.
    Delayed,
    /// With a worker.
    Leased,
    /// Ended well.
    Done,
    /// In quarantine, with its evidence.
    Dead,
    /// Ended on request.
    Cancelled,
    /// Waiting for earlier jobs of its ordering key.
    Blocked,
}

impl JobState {
    /// The state's name as used in JSON, on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Delayed => "delayed",
            Self::Leased => "leased",
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Blocked => "blocked",
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where a job's payload is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Payload {
    /// In the row.
    Inline(Blob),
    /// In the `payloads` table, written once and never moved.
    Stored { bytes: u64 },
    /// Dropped when the job finished.
    Dropped,
}

impl Payload {
    /// Where a payload belongs.
    pub(crate) fn of(payload: &Blob) -> Self {
        if payload.0.len() <= PAYLOAD_INLINE_BYTES_MAX {
            return Self::Inline(payload.clone());
        }
        Self::Stored { bytes: u64::try_from(payload.0.len()).unwrap_or(u64::MAX) }
    }
}

/// A job: the whole row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) id: JobId,
    pub(crate) class: Class,
    pub(crate) policy: PolicyId,
    /// 0 to 255; higher goes first.
    pub(crate) priority: u8,
    pub(crate) key: Option<KeyClaim>,
    pub(crate) payload: Payload,
    pub(crate) enqueued_at: Timestamp,
    /// Every claim over the job's life. Only goes up; doubles as the fence of its leases.
    pub(crate) deliveries: u32,
    pub(crate) redrives: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
    /// An earlier delivery may have had its effect without anybody knowing.
    pub(crate) unknown: Option<UnknownOutcome>,
    pub(crate) cycle: Cycle,
    /// The number the next history entry will get.
    pub(crate) history_next: u32,
    /// The numbers of the history entries that are never dropped: its redrives, with the evidence of
    /// each death before them.
    pub(crate) history_pinned: Vec<u32>,
    /// The cohort that is owed its outcome.
    pub(crate) cohort: Option<CohortId>,
    /// Its payload was replaced while it lay dead; the original is kept.
    pub(crate) amended: bool,
    /// How many steps it has committed: rows in the table of markers.
    pub(crate) steps: u32,
    /// What an import knows it by again, if it came from one.
    pub(crate) imported: Option<[u8; 16]>,
    pub(crate) state: State,
    pub(crate) order: Option<OrderKey>,
    /// What makes it a message.
    pub(crate) post: Option<Post>,
}

/// What was spent in the present redrive cycle. A redrive starts a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cycle {
    /// Charged deliveries of any class: what `max_deliveries` bounds.
    pub(crate) attempts: u32,
    pub(crate) transient: u32,
    pub(crate) throttled: u32,
    pub(crate) ambiguous: u32,
    /// Crashes in a row, without a delivery in between that ended in a failure of its own.
    pub(crate) crashed: u32,
    pub(crate) snoozes: u32,
    pub(crate) releases: u32,
    /// Reconciliations in a row that have left the outcome unknown.
    pub(crate) reconciles: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum State {
    Ready(Ready),
    Delayed(Delayed),
    Leased(Lease),
    Dead(Dead),
    Done(Done),
    Cancelled(Cancelled),
    Blocked(Blocked),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    pub(crate) lane: Lane,
    /// The place in the lane.
    pub(crate) seq: u64,
    pub(crate) since: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Delayed {
    /// The lane it will stand in.
    pub(crate) lane: Lane,
    pub(crate) due: Timestamp,
}

/// Waiting for earlier jobs of the same ordering key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Blocked {
    /// The lane it will stand in.
    pub(crate) lane: Lane,
    /// Not to run before this, whenever its turn comes.
    pub(crate) due: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Lease {
    pub(crate) instance: Instance,
    pub(crate) worker: String,
    /// Of the handler, where the worker named one.
    pub(crate) version: String,
    pub(crate) claimed_at: Timestamp,
    pub(crate) deadline: Timestamp,
    pub(crate) cancel_requested: bool,
    /// Where it stood, to go back there if it is released unstarted.
    pub(crate) from: Ready,
}

/// Why a dead job is dead, apart from what it failed of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeathReason {
    /// The failure was permanent.
    Permanent,
    /// The budget of the last failure's class was spent.
    ClassBudget,
    /// The total budget (`max_deliveries`) was spent.
    TotalBudget,
    /// The outcome was unknown and the job's policy forbids repeating it.
    UnknownRefused,
    /// It was snoozed more often than its policy allows.
    SnoozeBudget,
    /// It was given back more often than its policy allows.
    ReleaseBudget,
    /// Its payload is damaged in the file: it cannot be run.
    Damaged,
    /// Its reconciler could not tell, as often as its policy allows it to be asked.
    ReconcileBudget,
    /// It came out of the quarantine when another job had its key.
    KeyTaken,
}

/// The evidence a dead job keeps (P9), beside its row and its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Dead {
    pub(crate) reason: DeathReason,
    pub(crate) class: FailureClass,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) provider_ref: Option<String>,
    pub(crate) worker: String,
    pub(crate) version: String,
    pub(crate) died_at: Timestamp,
    pub(crate) cause: u64,
    /// The store's next number when it died: what dies later has a higher one, also within the same
    /// millisecond.
    pub(crate) seq: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    pub(crate) at: Timestamp,
    pub(crate) claimed_at: Timestamp,
    pub(crate) worker: String,
    pub(crate) result: Option<Blob>,
    pub(crate) tombstone: Tombstone,
    /// It was not run: that job, which has its key, has done the same.
    pub(crate) duplicate_of: Option<JobId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cancelled {
    pub(crate) at: Timestamp,
    pub(crate) tombstone: Tombstone,
}

/// How long a finished job's row is still needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tombstone {
    /// Its key is held until then.
    pub(crate) key_until: Timestamp,
    /// The row is kept until then; never before `key_until`.
    pub(crate) row_until: Timestamp,
}

impl State {
    pub(crate) const fn name(&self) -> JobState {
        match self {
            Self::Ready(_) => JobState::Ready,
            Self::Delayed(_) => JobState::Delayed,
            Self::Leased(_) => JobState::Leased,
            Self::Dead(_) => JobState::Dead,
            Self::Done(_) => JobState::Done,
            Self::Cancelled(_) => JobState::Cancelled,
            Self::Blocked(_) => JobState::Blocked,
        }
    }

    pub(crate) const fn tombstone(&self) -> Option<Tombstone> {
        match self {
            Self::Done(done) => Some(done.tombstone),
            Self::Cancelled(cancelled) => Some(cancelled.tombstone),
            Self::Ready(_)
            | Self::Delayed(_)
            | Self::Leased(_)
            | Self::Dead(_)
            | Self::Blocked(_) => None,
        }
    }
}

impl Job {
    pub(crate) const fn lease(&self) -> Option<&Lease> {
        match &self.state {
            State::Leased(lease) => Some(lease),
            State::Ready(_)
            | State::Delayed(_)
            | State::Dead(_)
            | State::Done(_)
            | State::Cancelled(_)
            | State::Blocked(_) => None,
        }
    }

    /// The bytes of payload it has in the quarantine; 0 when it is not dead.
    pub(crate) fn dead_bytes(&self) -> u64 {
        match (&self.state, &self.payload) {
            (State::Dead(_), Payload::Inline(blob)) => {
                u64::try_from(blob.0.len()).unwrap_or(u64::MAX)
            }
            (State::Dead(_), Payload::Stored { bytes }) => *bytes,
            (
                State::Ready(_)
                | State::Delayed(_)
                | State::Leased(_)
                | State::Dead(_)
                | State::Done(_)
                | State::Cancelled(_)
                | State::Blocked(_),
                _,
            ) => 0,
        }
    }

    /// The token of the lease it is under, if any.
    pub(crate) fn token(&self) -> Option<Token> {
        self.lease().map(|_| Token { job: self.id, delivery: self.deliveries })
    }
}
