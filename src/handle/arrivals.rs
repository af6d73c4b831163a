//! What came into the quarantine, by cause.

use std::collections::HashMap;

use serde::Serialize;

use crate::domain::count::Count;
use crate::domain::failure::FailureClass;
use crate::domain::id::{Class, JobId};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::store::backlog;
use crate::store::rows::Rows;

/// Dead jobs are looked at one by one up to this many.
const COUNT_MAX: usize = 2_000;
/// Causes that are told.
const CAUSES_MAX: usize = 10;

/// What came into the quarantine within a window and is still there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QuarantineArrivals {
    /// How many jobs; exact up to 2,000. Those that have left it since are in the flows alone.
    pub jobs: Count,
    /// How many causes they have.
    pub causes: usize,
    /// The 10 causes with the most jobs.
    pub largest: Vec<CauseArrivals>,
}

/// Jobs that died of the same thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CauseArrivals {
    /// The cause, as in [`DeadInfo::cause`](crate::DeadInfo::cause). Serialised as 16 hexadecimal digits.
    #[serde(serialize_with = "crate::domain::cause::hex::serialize")]
    pub cause: u64,
    /// Their queue.
    pub queue: String,
    /// Their kind.
    pub kind: String,
    /// The class of the last failure.
    pub class: FailureClass,
    /// The code of the last failure.
    pub code: String,
    /// How many, among those that were counted.
    pub jobs: u64,
    /// The first of them.
    pub sample: JobId,
}

/// Counts arrivals, class by class.
#[derive(Default)]
pub(crate) struct Arriving {
    seen: usize,
    causes: HashMap<u64, CauseArrivals>,
}

impl Arriving {
    /// Counts the arrivals of one class from `from` to before `to`.
    pub(crate) fn add(
        &mut self,
        rows: &impl Rows,
        (class, queue, kind): (Class, &str, &str),
        (from, to): (Timestamp, Timestamp),
    ) -> Result<(), StorageError> {
        let left = COUNT_MAX - self.seen;
        for (job, facts) in backlog::arrivals(rows, class, from, to, left)? {
            self.seen += 1;
            let found = self.causes.entry(facts.cause).or_insert_with(|| CauseArrivals {
                cause: facts.cause,
                queue: queue.to_owned(),
                kind: kind.to_owned(),
                class: facts.class,
                code: facts.code,
                jobs: 0,
                sample: job,
            });
            found.jobs += 1;
        }
        Ok(())
    }

    pub(crate) fn told(self) -> QuarantineArrivals {
        let mut largest: Vec<CauseArrivals> = self.causes.into_values().collect();
        largest.sort_by_key(|cause| (std::cmp::Reverse(cause.jobs), cause.sample));
        let causes = largest.len();
        largest.truncate(CAUSES_MAX);
        QuarantineArrivals { jobs: Count::up_to(self.seen, COUNT_MAX), causes, largest }
    }
}
