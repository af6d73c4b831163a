//! Outcomes that nobody knows (P8): what is kept of them until they are known.

use serde::{Deserialize, Serialize};

use crate::domain::failure::{Failure, FailureClass};
use crate::domain::job::{Job, Lane};
use crate::domain::policy::{JobPolicy, OnUnknown};
use crate::domain::time::Timestamp;

/// A delivery that may have had its effect without anybody knowing: the first one since the outcome
/// was last known. Later ones are in the job's history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UnknownOutcome {
    /// [`Ambiguous`](FailureClass::Ambiguous) or [`Crashed`](FailureClass::Crashed).
    pub class: FailureClass,
    /// What the handler reported, or `lease_expired`, `deadline_exceeded`, `crashed`, `stopped`.
    pub code: String,
    /// The other side's own reference for the request, if the handler gave one.
    pub provider_ref: Option<String>,
    /// Which of the job's deliveries it was, counted from 1.
    pub delivery: u32,
    /// When it ended.
    pub since: Timestamp,
}

impl UnknownOutcome {
    pub(crate) fn new(failure: &Failure, delivery: u32, since: Timestamp) -> Self {
        Self {
            class: failure.class(),
            code: failure.code().to_owned(),
            provider_ref: failure.reference().map(str::to_owned),
            delivery,
            since,
        }
    }
}

impl Lane {
    /// Whether jobs stand here to be handed to a reconciler.
    #[must_use]
    pub const fn is_reconcile(self) -> bool {
        match self {
            Self::Reconcile | Self::SuspectReconcile => true,
            Self::Fresh | Self::Retry | Self::Suspect => false,
        }
    }

    /// Whether jobs stand here that were in flight when the process died.
    #[must_use]
    pub const fn is_suspect(self) -> bool {
        match self {
            Self::Suspect | Self::SuspectReconcile => true,
            Self::Fresh | Self::Retry | Self::Reconcile => false,
        }
    }

    /// The lane in which a job that stands here waits for its reconciler. A suspect stays one.
    pub(crate) const fn reconciling(self) -> Self {
        match self {
            Self::Fresh | Self::Retry | Self::Reconcile => Self::Reconcile,
            Self::Suspect | Self::SuspectReconcile => Self::SuspectReconcile,
        }
    }

    /// The lane in which a job that stood here waits for its handler once its outcome is known.
    pub(crate) const fn resolved(self) -> Self {
        match self {
            Self::Fresh => Self::Fresh,
            Self::Retry | Self::Reconcile => Self::Retry,
            Self::Suspect | Self::SuspectReconcile => Self::Suspect,
        }
    }
}

/// The lane for a job that would go to `lane`: its reconciler comes first where the outcome of a
/// delivery is unknown and the job's policy says so. Whoever puts a job back in line asks this.
pub(crate) const fn lane_for(job: &Job, policy: &JobPolicy, lane: Lane) -> Lane {
    match policy.on_unknown {
        OnUnknown::Reconcile if job.unknown.is_some() => lane.reconciling(),
        OnUnknown::Retry | OnUnknown::Quarantine | OnUnknown::Reconcile => lane,
    }
}
