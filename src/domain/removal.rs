//! What is remembered of dead jobs that were removed.

use serde::{Deserialize, Serialize};

use crate::domain::filter::DeadFacts;
use crate::domain::id::JobId;
use crate::domain::limits::REMOVAL_CAUSES_MAX;
use crate::domain::retention::RetentionBound;
use crate::domain::time::Timestamp;

/// A record of dead jobs that were removed together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Removal {
    /// When the first of them was removed.
    pub at: Timestamp,
    /// Why.
    pub why: RemovalReason,
    /// How many.
    pub jobs: u64,
    /// The lowest id among them.
    pub first: JobId,
    /// The highest id among them.
    pub last: JobId,
    /// How many died of what: the first 16 causes that were met.
    pub causes: Vec<RemovedCause>,
}

/// Why dead jobs were removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RemovalReason {
    /// Somebody discarded them.
    Discarded {
        /// The reason given.
        reason: String,
    },
    /// The queue's [`DeadRetention`](crate::DeadRetention) removed them, within one minute.
    Evicted {
        /// The queue.
        queue: String,
        /// By which bound.
        bound: RetentionBound,
    },
}

/// A cause among removed jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RemovedCause {
    /// The fingerprint, as 16 hexadecimal digits in JSON.
    #[serde(with = "crate::domain::cause::hex")]
    pub cause: u64,
    /// The code of the first one met.
    pub code: String,
    /// How many of the removed jobs had it.
    pub jobs: u64,
}

impl Removal {
    /// Of nothing yet.
    pub(crate) const fn new(why: RemovalReason, at: Timestamp) -> Self {
        let (first, last) = (JobId::new(u64::MAX), JobId::new(0));
        Self { at, why, jobs: 0, first, last, causes: Vec::new() }
    }

    pub(crate) fn add(&mut self, id: JobId, facts: &DeadFacts) {
        self.jobs = self.jobs.saturating_add(1);
        self.first = self.first.min(id);
        self.last = self.last.max(id);
        if let Some(known) = self.causes.iter_mut().find(|known| known.cause == facts.cause) {
            known.jobs = known.jobs.saturating_add(1);
        } else if self.causes.len() < REMOVAL_CAUSES_MAX {
            let (cause, code) = (facts.cause, facts.code.clone());
            self.causes.push(RemovedCause { cause, code, jobs: 1 });
        }
    }
}
