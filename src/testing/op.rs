//! What the model test and the fuzz targets do to a store: plain data, made from plain bytes.

use crate::domain::failure::FailureClass;
use crate::domain::key::OnDuplicate;

/// The queues in play.
pub(super) const QUEUES: [&str; 3] = ["alpha", "beta", "outbox:gamma"];
/// The one of them that is a destination's.
pub(super) const OUTBOX: usize = 2;
/// How many keys are in play.
pub(super) const KEYS: u8 = 6;
/// The kinds in play.
pub(super) const KINDS: [&str; 4] = ["one", "two", "three", "message"];
/// The one of them that messages are of.
pub(super) const MESSAGE: usize = 3;

/// One step. Jobs and leases are named by a place, taken modulo how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls they stand for")]
#[non_exhaustive]
pub enum Op {
    Enqueue(Item),
    EnqueueMany {
        items: Vec<Item>,
        all_or_nothing: bool,
    },
    /// `kinds` is a set of bits; none set means any kind. `reconciles` is one too; none set means
    /// none.
    Claim {
        queue: usize,
        kinds: u8,
        reconciles: u8,
        jobs: usize,
        /// With those that wait behind one of the same ordering key.
        followers: bool,
    },
    /// Answers what became of a delivery in doubt, if a lease is one.
    Reconcile {
        lease: usize,
        answer: u8,
    },
    Heartbeat {
        lease: usize,
    },
    Complete {
        lease: usize,
        result: Option<u8>,
    },
    /// Complete, with rows and follow-up jobs in the same commit.
    CompleteWith {
        lease: usize,
        changes: Vec<Change>,
        follow_ups: Vec<Item>,
        fault: Fault,
    },
    /// A step, which runs unless an earlier delivery has committed one of its name.
    Step {
        lease: usize,
        name: u8,
        changes: Vec<Change>,
        follow_ups: Vec<Item>,
    },
    /// A transaction, which is taken back if `gives_up`, or if the lease it is to complete has ended.
    Transact {
        lease: Option<usize>,
        items: Vec<Item>,
        changes: Vec<Change>,
        gives_up: bool,
    },
    Fail {
        lease: usize,
        class: FailureClass,
        retry_after_ms: Option<u64>,
        text: u8,
    },
    Snooze {
        lease: usize,
        ms: u64,
    },
    Release {
        lease: usize,
    },
    /// Let go of a lease without settling it.
    Drop {
        lease: usize,
    },
    /// Complete, then present the same token again in another call.
    Twice {
        lease: usize,
        again: u8,
    },
    /// Claim one and give it back, several times: makes a long history.
    Churn {
        queue: usize,
        times: u8,
    },
    Cancel {
        job: usize,
    },
    Discard {
        job: usize,
    },
    /// Give a dead job another payload.
    Amend {
        job: usize,
        payload: u8,
    },
    SetQueue {
        queue: usize,
        rules: Option<usize>,
        retry_share_percent: Option<u8>,
        /// A dead job halts those behind it under its ordering key.
        halt: Option<bool>,
        retention: Option<Retained>,
        /// Of a destination's messages: all in one order, those of one key, or none.
        order: Option<u8>,
    },
    Advance {
        ms: u64,
    },
    JumpForward {
        ms: u64,
    },
    JumpBack {
        ms: u64,
    },
    Sweep,
    /// Of a queue, or of one kind of it, or of redrive.
    Pause {
        scope: Pausing,
    },
    Resume {
        scope: Pausing,
    },
    /// A throttled failure that holds back its class or its queue.
    Throttle {
        lease: usize,
        ms: u64,
        queue: bool,
    },
    /// Start a cohort of dead jobs.
    Redrive(Brakes),
    Cohort {
        cohort: usize,
        order: Order,
    },
    /// Writes a dead job down outside the store.
    Export {
        job: usize,
    },
    /// Puts back what an export wrote.
    Import {
        export: usize,
    },
    /// Give all leases back, close, open.
    Reopen,
    /// The process dies with its leases; open again.
    Kill,
}

/// How to redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the methods of a plan")]
pub struct Brakes {
    pub queue: Option<usize>,
    pub code: Option<u8>,
    pub canary: u32,
    pub batch: u32,
    pub ramp_to: u32,
    pub every_ms: u64,
    pub in_flight_max: u32,
    pub limit: Option<u64>,
    pub reconciled: bool,
    pub dead_percent: Option<u32>,
    pub same_cause: Option<u32>,
    /// It has no reason, which is refused.
    pub bad: bool,
}

/// What to do to a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls they stand for")]
#[non_exhaustive]
pub enum Order {
    Pause,
    Resume,
    Abort,
}

/// How many dead jobs of a queue are kept, and for how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the methods of a retention")]
pub struct Retained {
    pub jobs: Option<u64>,
    pub bytes: Option<u64>,
    pub age_ms: Option<u64>,
}

/// What to pause or resume. The last of the kinds means the whole queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "as in `Scope`")]
pub struct Pausing {
    pub redrive: bool,
    pub queue: usize,
    pub kind: Option<usize>,
}

/// A put, or a delete, in one of the two tables of the user's in play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the arguments of a put")]
pub struct Change {
    pub notes: bool,
    pub key: u8,
    pub value: Option<u8>,
}

/// What a completion is to be refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the errors")]
#[non_exhaustive]
pub enum Fault {
    None,
    OtherTypes,
    Reserved,
}

/// A job to enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the fields of a new job")]
pub struct Item {
    pub queue: usize,
    pub kind: usize,
    pub key: Option<u8>,
    pub on_duplicate: OnDuplicate,
    pub payload: u8,
    pub priority: u8,
    pub when: When,
    pub rules: Option<usize>,
    pub order: Option<u8>,
    /// Its key is empty, which is refused.
    pub bad: bool,
}

/// When a job may first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the builder's methods")]
#[non_exhaustive]
pub enum When {
    Now,
    After(u64),
    /// At an instant this far after 2026-01-01.
    At(u64),
}
