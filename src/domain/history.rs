//! What happened to one job. Kept outside its row, bounded, first and latest entries kept.

use serde::{Deserialize, Serialize};

use crate::domain::failure::FailureClass;
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
}

/// How a delivery ended, other than by completing the job.
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
}

/// The most entries one job keeps.
pub(crate) const ENTRIES_MAX: u32 = HISTORY_FIRST + HISTORY_LATEST;

/// The number of the entry that has to go when number `next` is written.
pub(crate) const fn evicted_by(next: u32) -> Option<u32> {
    if next < ENTRIES_MAX { None } else { Some(next - HISTORY_LATEST) }
}

/// The numbers kept after `next` entries were written, and how many were dropped between.
pub(crate) fn kept(next: u32) -> (impl Iterator<Item = u32>, u32) {
    let dropped = next.saturating_sub(ENTRIES_MAX);
    let first = 0..next.min(HISTORY_FIRST);
    let latest =
        if dropped == 0 { HISTORY_FIRST.min(next)..next } else { next - HISTORY_LATEST..next };
    (first.chain(latest), dropped)
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
            let (numbers, dropped) = kept(next + 1);
            assert_eq!(numbers.collect::<BTreeSet<_>>(), rows);
            assert_eq!(u32::try_from(rows.len()).unwrap() + dropped, next + 1);
        }
        assert_eq!(rows.len(), 32);
    }
}
