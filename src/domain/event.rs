//! What can happen to a job. A new transition starts here; `transition::step` must then say what it
//! does in every state.

use crate::domain::blob::Blob;
use crate::domain::failure::Failure;
use crate::domain::id::{CohortId, Instance, Token};
use crate::domain::job::Payload;
use crate::domain::key::{Misplaced, RequestHash};
use crate::domain::time::Timestamp;
use crate::domain::transition::key::Replacement;

/// Something that happens to a job.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A worker takes it: a ready one, or a blocked one together with those before it.
    Claim(Claimant),
    /// Its due time has come.
    Due,
    /// Nobody holds its ordering key any longer: it is its turn.
    Unblock,
    /// The lease holder says it is done.
    Complete { token: Token, result: Option<Blob> },
    /// The lease holder says it failed; a reconciler, that it could not find out.
    Fail { token: Token, failure: Failure },
    /// A reconciler says that the delivery whose outcome was unknown had no effect.
    DidNotHappen { token: Token },
    /// The lease holder puts it off, uncharged.
    Snooze { token: Token, until: Timestamp },
    /// The lease holder gives it back, uncharged.
    Release { token: Token, work: Work },
    /// The lease ran out.
    Expire { token: Token, deadline_exceeded: bool },
    /// The process that held the lease died.
    Crash,
    /// Somebody asks for it not to be done.
    Cancel,
    /// The same key is asked for again before it was ever claimed, to take its place.
    Replace(Replacement),
    /// Its turn has come, and another has its key.
    Misplaced(Misplaced),
    /// Somebody replaces its payload while it lies dead.
    Amend { payload: Payload, hash: RequestHash, note: String },
    /// A cohort releases it from the quarantine.
    Redrive { cohort: CohortId, reason: String },
    /// Its payload cannot be read.
    Spoil { why: String },
}

/// Whether a job that is given back had been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Nothing was done.
    Unstarted,
    /// A handler was running and may have had its effect: the outcome is unknown (P8).
    Started,
}

/// Who claims.
#[derive(Clone, Debug)]
pub(crate) struct Claimant {
    pub(crate) instance: Instance,
    pub(crate) worker: String,
    pub(crate) version: String,
}
