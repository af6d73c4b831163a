//! What happened to one job. Kept outside its row, bounded, first and latest entries kept.

use serde::{Deserialize, Serialize};

use crate::domain::failure::FailureClass;
use crate::domain::id::{CohortId, JobId};
use crate::domain::job::{Dead, DeathReason};
use crate::domain::limits::{HISTORY_FIRST, HISTORY_LATEST};
use crate::domain::time::Timestamp;

/// One entry of a job's history.
///
/// A delivery is recorded when it ends; the present one, and a successful last one, are told by
/// the job itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistoryEntry {
    /// When it happened, on the store's timeline.
    pub at: Timestamp,
    /// What happened.
    pub event: HistoryEvent,
}

/// What a history entry tells.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HistoryEvent {
    /// A delivery ended without completing the job.
    DeliveryEnded {
        /// Which one, counted from 1.
        delivery: u32,
        /// When it was claimed.
        claimed_at: Timestamp,
        /// By whom.
        worker: String,
        /// How it ended.
        end: DeliveryEnd,
    },
    /// Somebody asked to cancel the job while it was leased.
    CancelRequested,
    /// A cohort released it from the quarantine. Such an entry is never dropped.
    Redriven {
        /// The cohort.
        cohort: CohortId,
        /// The reason given for the cohort.
        reason: String,
        /// What it had died of.
        death: Box<Death>,
    },
    /// Somebody replaced its payload while it lay dead.
    Amended {
        /// Why.
        note: String,
    },
    /// It came out of an export. What is before this happened elsewhere, or earlier.
    Imported {
        /// Its id in the export.
        from: JobId,
    },
    /// A later request took the place of the one before, which was never claimed
    /// ([`OnDuplicate::Replace`](crate::OnDuplicate::Replace)).
    Replaced,
}

/// The evidence of an earlier death, as it stood when the job was redriven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Death {
    /// When it died.
    pub at: Timestamp,
    /// Why.
    pub reason: DeathReason,
    /// The class of its last failure.
    pub class: FailureClass,
    /// The code of its last failure.
    pub code: String,
    /// The message of its last failure, bounded.
    pub message: String,
    /// The other side's reference, if known.
    pub provider_ref: Option<String>,
    /// Who had it last.
    pub worker: String,
    /// The version of the handler that had it last.
    pub version: String,
    /// The cause fingerprint, as 16 hexadecimal digits in JSON.
    #[serde(with = "crate::domain::cause::hex")]
    pub cause: u64,
    /// Charged deliveries in the cycle that ended so.
    pub attempts: u32,
}

impl Death {
    pub(crate) fn of(dead: &Dead, attempts: u32) -> Self {
        Self {
            at: dead.died_at,
            reason: dead.reason,
            class: dead.class,
            code: dead.code.clone(),
            message: dead.message.clone(),
            provider_ref: dead.provider_ref.clone(),
            worker: dead.worker.clone(),
            version: dead.version.clone(),
            cause: dead.cause,
            attempts,
        }
    }
}

/// How a delivery ended, other than by a handler's completing the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeliveryEnd {
    /// The handler reported a failure.
    Failed {
        /// Its class.
        class: FailureClass,
        /// Its code.
        code: String,
        /// Its message, bounded.
        message: String,
        /// The other side's reference, if known.
        provider_ref: Option<String>,
    },
    /// Put off until a later time, uncharged.
    Snoozed {
        /// Until when.
        until: Timestamp,
    },
    /// Given back unstarted, uncharged.
    Released,
    /// The lease ran out: the outcome is unknown.
    LeaseExpired {
        /// The delivery's hard deadline had passed too.
        deadline_exceeded: bool,
    },
    /// The process died: the outcome is unknown.
    Crashed,
    /// A reconciler was asked what had become of an earlier delivery.
    Reconciled {
        /// What it said.
        finding: Finding,
        /// The code of its error, if it gave one.
        code: String,
        /// The message of its error, bounded.
        message: String,
    },
}

/// What a reconciler found out about a delivery whose outcome was unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// It had its effect: the job is done.
    Happened,
    /// It had none: the job is delivered normally.
    DidNotHappen,
    /// Nobody knows yet.
    StillUnknown,
}

/// The most entries one job keeps.
pub(crate) const ENTRIES_MAX: u32 = HISTORY_FIRST + HISTORY_LATEST;

/// The number of the entry that has to go when number `next` is written.
pub(crate) const fn evicted_by(next: u32) -> Option<u32> {
    if next < ENTRIES_MAX { None } else { Some(next - HISTORY_LATEST) }
}

/// The numbers kept after `next` entries were written, those in `pinned` among them in any case, and
/// how many were dropped.
pub(crate) fn kept(next: u32, pinned: &[u32]) -> (impl Iterator<Item = u32>, u32) {
    let dropped = next.saturating_sub(ENTRIES_MAX);
    let between = HISTORY_FIRST..HISTORY_FIRST + dropped;
    let first = 0..next.min(HISTORY_FIRST);
    let latest = HISTORY_FIRST.min(next) + dropped..next;
    let pinned: Vec<u32> = pinned.iter().copied().filter(|n| between.contains(n)).collect();
    let dropped = dropped.saturating_sub(u32::try_from(pinned.len()).unwrap_or(u32::MAX));
    (first.chain(pinned).chain(latest), dropped)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// O-16: whatever is written, the first and the latest entries stay, and `kept` knows which.
    #[test]
    fn o_16_first_and_latest_entries_stay() {
        let mut rows = BTreeSet::new();
        for next in 0..1_000 {
            if let Some(gone) = evicted_by(next) {
                assert!(rows.remove(&gone));
            }
            rows.insert(next);
            let (numbers, dropped) = kept(next + 1, &[]);
            assert_eq!(numbers.collect::<BTreeSet<_>>(), rows);
            assert_eq!(u32::try_from(rows.len()).unwrap() + dropped, next + 1);
        }
        assert_eq!(rows.len(), 32);
    }

    /// P9: a pinned entry stays whatever comes after it, and everything else stays as it was.
    #[test]
    fn p9_pinned_entries_stay() {
        let pinned = [2, 4, 17, 40];
        for next in 0..100 {
            let (numbers, dropped) = kept(next, &pinned);
            let numbers: Vec<u32> = numbers.collect();
            let (plain, plain_dropped) = kept(next, &[]);
            let mut expected: BTreeSet<u32> = plain.collect();
            expected.extend(pinned.iter().filter(|&&n| n < next));
            assert!(numbers.is_sorted());
            assert_eq!(numbers.iter().copied().collect::<BTreeSet<_>>(), expected);
            assert_eq!(u32::try_from(numbers.len()).unwrap() + dropped, next);
            assert!(dropped <= plain_dropped);
        }
    }
}
