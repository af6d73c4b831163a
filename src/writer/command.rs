//! What can be asked of the writer. A command carries its own typed reply.

mod import;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domain::arrival::Start;
use crate::domain::blob::Blob;
use crate::domain::effect::Change;
use crate::domain::event::{Event, Work};
use crate::domain::failure::Failure;
use crate::domain::filter::Filter;
use crate::domain::id::{Class, CohortId, JobId, Token};
use crate::domain::job::{JobState, Lane};
use crate::domain::key::{KeyClaim, OnDuplicate, RequestHash};
use crate::domain::order::OnDead;
use crate::domain::outbox::{Headers, MessageOrder, Post};
use crate::domain::pause::{Scope, Stop};
use crate::domain::plan::RedrivePlan;
use crate::domain::policy::{JobPolicy, OnUnknown};
use crate::domain::retention::DeadRetention;
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;
use crate::error::{
    AmendError, CancelError, ClaimError, CohortError, EnqueueError, PauseError, QueueError,
    RedriveError, SettleError, StorageError,
};
pub(crate) use crate::writer::command::import::{Import, Imported};
use crate::writer::reply::Reply;
use crate::writer::seen::ClaimFacts;
use crate::writer::transact::Loan;

pub(crate) enum Command {
    Enqueue(Enqueue),
    Claim(Claim),
    Settle(Box<Settle>),
    Mark(Box<Mark>),
    Cancel {
        job: JobId,
        reply: Reply<Result<Cancelled, CancelError>>,
    },
    Discard {
        slice: Box<Discard>,
        reply: Reply<Result<DiscardSlice, StorageError>>,
    },
    Import {
        items: Vec<Import>,
        reply: Reply<Result<Vec<Imported>, StorageError>>,
    },
    Amend {
        amend: Box<Amend>,
        reply: Reply<Result<(), AmendError>>,
    },
    Redrive {
        plan: Box<RedrivePlan>,
        reply: Reply<Result<CohortId, RedriveError>>,
    },
    Cohort {
        cohort: CohortId,
        order: CohortOrder,
        reply: Reply<Result<(), CohortError>>,
    },
    SetQueue {
        settings: QueueSettings,
        reply: Reply<Result<(), QueueError>>,
    },
    Pause {
        stopping: Stopping,
        reply: Reply<Result<Option<Stop>, PauseError>>,
    },
    Resume {
        scope: Scope,
        reply: Reply<Result<Vec<Stop>, PauseError>>,
    },
    /// What is known of claims.
    Facts {
        queue: String,
        kind: String,
        reply: Reply<ClaimFacts>,
    },
    Sweep {
        reply: Reply<Result<SweepReport, StorageError>>,
    },
    /// Lends the writer's state for a transaction on the caller's thread.
    Transact {
        reply: Reply<Loan>,
    },
    /// A waiting claim may have been told to stop.
    Look,
    Close {
        reply: Reply<()>,
    },
}

impl Command {
    /// Whether it asks for the writer's state.
    pub(crate) const fn is_transaction(&self) -> bool {
        matches!(self, Self::Transact { .. })
    }

    /// The lease that it gives back, if it does that.
    pub(crate) fn gives_back(&self) -> Option<Token> {
        match self {
            Self::Settle(settle) if matches!(settle.how, How::Release(_)) => Some(settle.token),
            _ => None,
        }
    }

    /// How much it weighs in the mailbox.
    pub(crate) fn payload_bytes(&self) -> usize {
        match self {
            Self::Enqueue(enqueue) => enqueue.items.iter().map(|item| item.payload.0.len()).sum(),
            Self::Settle(settle) => match &settle.how {
                How::Complete { result, effects } => {
                    result.as_ref().map_or(0, |result| result.0.len()) + effects.bytes()
                }
                How::Fail(_) | How::DidNotHappen | How::Snooze(_) | How::Release(_) => 0,
            },
            Self::Amend { amend, .. } => amend.payload.0.len(),
            Self::Mark(mark) => mark.marking.output.0.len() + mark.marking.effects.bytes(),
            Self::Import { items, .. } => items.iter().map(|item| item.payload.0.len()).sum(),
            Self::Claim(_)
            | Self::Cancel { .. }
            | Self::Discard { .. }
            | Self::Redrive { .. }
            | Self::Cohort { .. }
            | Self::SetQueue { .. }
            | Self::Pause { .. }
            | Self::Resume { .. }
            | Self::Facts { .. }
            | Self::Sweep { .. }
            | Self::Transact { .. }
            | Self::Look
            | Self::Close { .. } => 0,
        }
    }
}

pub(crate) struct Enqueue {
    pub(crate) items: Vec<Prepared>,
    pub(crate) rule: BatchRule,
    pub(crate) reply: Reply<Result<Vec<Result<Enqueued, EnqueueError>>, StorageError>>,
}

/// What a refused item of a call means for the others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum BatchRule {
    /// Each item stands for itself: the good ones are written, the others told.
    #[default]
    PerItem,
    /// One refused item refuses all; nothing is written.
    AllOrNothing,
}

/// A job that was checked and encoded on the caller's thread.
pub(crate) struct Prepared {
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) payload: Blob,
    pub(crate) key: Option<KeyClaim>,
    pub(crate) on_duplicate: OnDuplicate,
    pub(crate) priority: u8,
    pub(crate) start: Start,
    pub(crate) policy: Option<JobPolicy>,
    /// The ordering key.
    pub(crate) order: Option<String>,
    /// It is a message, with these headers.
    pub(crate) headers: Option<Headers>,
}

/// What is written in the same commit as something else, or not at all: checked and encoded on the
/// caller's thread.
#[derive(Default)]
pub(crate) struct WriteSet {
    /// In this order: a later change of the same row wins.
    pub(crate) changes: Vec<Change>,
    pub(crate) follow_ups: Vec<Prepared>,
}

impl WriteSet {
    pub(crate) fn bytes(&self) -> usize {
        let payloads = self.follow_ups.iter().map(|job| job.payload.0.len());
        self.changes.iter().map(Change::bytes).chain(payloads).sum()
    }
}

/// What became of an enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Enqueued {
    /// A new job.
    New(JobId),
    /// The key's owner is this same request (P7): nothing was added.
    Duplicate {
        /// The job that owns the key.
        of: JobId,
        /// The state it is in.
        state: JobState,
        /// Its result, if it is done and gave one.
        result: Option<Vec<u8>>,
    },
    /// It took the place of a request that was never claimed ([`OnDuplicate::Replace`]): that job stands
    /// for it from now on.
    Replaced(JobId),
}

impl Enqueued {
    /// The job that stands for the request: the new one, or the key's owner.
    #[must_use]
    pub const fn job(&self) -> JobId {
        match self {
            Self::New(job) | Self::Replaced(job) | Self::Duplicate { of: job, .. } => *job,
        }
    }
}

pub(crate) struct Claim {
    pub(crate) request: Request,
    pub(crate) reply: Reply<Result<Vec<Claimed>, ClaimError>>,
}

/// A claim, checked.
pub(crate) struct Request {
    pub(crate) queue: String,
    /// `None` takes any kind.
    pub(crate) kinds: Option<Vec<String>>,
    pub(crate) reconciles: Reconciles,
    pub(crate) jobs_max: usize,
    /// No more once their payloads reach this.
    pub(crate) bytes_max: usize,
    /// What else to lease along with a job that has an ordering key.
    pub(crate) along: Along,
    pub(crate) worker: String,
    pub(crate) version: String,
    /// Wait until this monotonic reading for the first job.
    pub(crate) until_ms: Option<u64>,
    pub(crate) stop: Option<StopFlag>,
}

/// What a claim leases along with a job that has an ordering key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Along {
    /// Nothing: those behind it wait.
    #[default]
    Nothing,
    /// Those that wait behind it, in their order: a batch.
    Followers,
}

/// The kinds that a claim has a reconciler for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reconciles {
    Kinds(Vec<String>),
    Any,
}

/// Tells a waiting claim to give up.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A job handed out under a lease.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) token: Token,
    pub(crate) class: Class,
    pub(crate) queue: Arc<str>,
    pub(crate) kind: Arc<str>,
    pub(crate) key: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) attempt: u32,
    pub(crate) lane: Lane,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) lease_ms: u64,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) unknown: Option<UnknownOutcome>,
    pub(crate) reconciles: u32,
    pub(crate) order: Option<String>,
    pub(crate) post: Option<Post>,
}

pub(crate) struct Settle {
    pub(crate) token: Token,
    pub(crate) class: Class,
    pub(crate) how: How,
    pub(crate) reply: Reply<Result<JobState, SettleError>>,
    /// The same worker's next claim, for the same commit.
    pub(crate) then: Option<Claim>,
}

pub(crate) enum How {
    Complete { result: Option<Blob>, effects: WriteSet },
    Fail(Failure),
    DidNotHappen,
    Snooze(Start),
    Release(Work),
}

/// A step to be committed.
pub(crate) struct Mark {
    pub(crate) marking: Marking,
    pub(crate) reply: Reply<Result<(), SettleError>>,
}

pub(crate) struct Marking {
    pub(crate) token: Token,
    pub(crate) class: Class,
    pub(crate) name: String,
    pub(crate) output: Blob,
    pub(crate) effects: WriteSet,
}

impl How {
    /// What it is to the job, and what is written along.
    pub(crate) fn event(self, token: Token, now: Timestamp) -> (Event, WriteSet) {
        let event = match self {
            Self::Complete { result, effects } => {
                return (Event::Complete { token, result }, effects);
            }
            Self::Fail(failure) => Event::Fail { token, failure },
            Self::DidNotHappen => Event::DidNotHappen { token },
            Self::Snooze(start) => Event::Snooze { token, until: start.from(now) },
            Self::Release(work) => Event::Release { token, work },
        };
        (event, WriteSet::default())
    }
}

/// What a cancel did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cancelled {
    /// The job had not started; it is cancelled.
    Now,
    /// The job is with a worker, who learns of it at the next heartbeat. Should the delivery end
    /// in anything but success, the job is cancelled; there is no retry.
    Requested,
}

/// One slice of a discard.
pub(crate) struct Discard {
    pub(crate) filter: Filter,
    pub(crate) reason: String,
    /// Where the slice before ended; none for the first one.
    pub(crate) from: Option<Resume>,
}

/// Where a discard goes on.
#[derive(Clone, Debug)]
pub(crate) struct Resume {
    /// Its record; what died after it began has a higher number.
    pub(crate) number: u64,
    /// When it began.
    pub(crate) at: Timestamp,
    /// The last row looked at.
    pub(crate) after: Vec<u8>,
}

/// What a slice of a discard did.
#[derive(Debug, Default)]
pub(crate) struct DiscardSlice {
    pub(crate) discarded: u64,
    /// Named jobs that are not dead.
    pub(crate) not_dead: u64,
    pub(crate) unreadable: u64,
    pub(crate) next: Option<Resume>,
}

/// A new payload for a dead job.
pub(crate) struct Amend {
    pub(crate) job: JobId,
    pub(crate) payload: Blob,
    pub(crate) hash: RequestHash,
    pub(crate) note: String,
}

/// What an operator does to a cohort that has not ended.
pub(crate) enum CohortOrder {
    Pause,
    Resume,
    Abort(String),
}

pub(crate) struct QueueSettings {
    pub(crate) name: String,
    pub(crate) policy: Option<JobPolicy>,
    pub(crate) retry_share_percent: Option<u32>,
    pub(crate) on_dead: Option<OnDead>,
    pub(crate) retention: Option<DeadRetention>,
    pub(crate) message_order: Option<MessageOrder>,
}

/// A pause, checked.
pub(crate) struct Stopping {
    pub(crate) scope: Scope,
    pub(crate) reason: String,
    pub(crate) by: String,
}

/// What one pass over due jobs and ended leases did. One job's trouble is a number here; it never
/// stops the pass (O-02).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SweepReport {
    /// Delayed jobs that became ready.
    pub due: u64,
    /// Leases that had ended.
    pub expired: u64,
    /// Jobs among those that died of it.
    pub died: u64,
    /// Finished jobs that were forgotten.
    pub forgotten: u64,
    /// Damaged rows that were set aside.
    pub set_aside: u64,
    /// Dead jobs that the retention of their queue removed.
    pub evicted: u64,
    /// Dead jobs that were looked at for the member list of a cohort.
    pub selected: u64,
    /// Dead jobs that a cohort released.
    pub redriven: u64,
    /// Cohorts whose next members could not go back any more, and were passed over.
    pub passed_over: u64,
}
