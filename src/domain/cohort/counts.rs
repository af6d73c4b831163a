//! What becomes of the members of a cohort, counted.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// What became of one member of a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MemberOutcome {
    /// Not released yet; still dead.
    Held,
    /// Released, and not ended yet.
    InFlight,
    /// Released, and done.
    Completed,
    /// Released, and dead again.
    DiedAgain,
    /// Not released, because another job has done the same request under its key.
    Suppressed,
    /// Released, and cancelled.
    Cancelled,
    /// Not released; still as it was.
    Skipped(SkipReason),
}

/// Why a job that the filter holds for is not released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SkipReason {
    /// Another cohort that has not ended has it.
    InCohort,
    /// It was redriven as often as its policy allows.
    Budget,
    /// It was accepted longer ago than the plan allows.
    TooOld,
    /// It died of an unknown outcome, and the plan has no evidence about those.
    UnknownOutcome,
    /// Its key belongs to another job, which is alive or has another request.
    KeyTaken,
    /// It is no longer dead or no longer there.
    Gone,
    /// Its row cannot be read.
    Damaged,
}

impl SkipReason {
    /// The reason's name as used in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::InCohort => "in_cohort",
            Self::Budget => "budget",
            Self::TooOld => "too_old",
            Self::UnknownOutcome => "unknown_outcome",
            Self::KeyTaken => "key_taken",
            Self::Gone => "gone",
            Self::Damaged => "damaged",
        }
    }
}

impl MemberOutcome {
    /// The outcome's name as used on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::InFlight => "in_flight",
            Self::Completed => "completed",
            Self::DiedAgain => "died_again",
            Self::Suppressed => "suppressed",
            Self::Cancelled => "cancelled",
            Self::Skipped(_) => "skipped",
        }
    }
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where the members of a cohort are. Every member is counted once:
/// `selected = held + in_flight + completed + died_again + suppressed + cancelled + skipped`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CohortCounts {
    /// Jobs the filter held for at the start, within the plan's limit.
    pub selected: u64,
    /// Not released yet; still dead.
    pub held: u64,
    /// Released, and not ended yet.
    pub in_flight: u64,
    /// Released, and done.
    pub completed: u64,
    /// Released, and dead again.
    pub died_again: u64,
    /// Not released, because another job has done the same request under their key.
    pub suppressed: u64,
    /// Released, and cancelled.
    pub cancelled: u64,
    /// Not released, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
}

impl CohortCounts {
    /// Whether the sum holds, as it must at every moment.
    #[must_use]
    pub fn balances(&self) -> bool {
        let skipped: u64 = self.skipped.values().sum();
        let ends = self.completed + self.died_again + self.suppressed + self.cancelled;
        self.selected == self.held + self.in_flight + ends + skipped
    }

    /// How many were ever released.
    #[must_use]
    pub const fn released(&self) -> u64 {
        self.in_flight + self.completed + self.died_again + self.cancelled
    }

    pub(crate) fn join(&mut self, outcome: MemberOutcome) {
        self.selected = self.selected.saturating_add(1);
        let slot = self.slot(outcome);
        *slot = slot.saturating_add(1);
    }

    /// Takes one back that was selected and is beyond the limit.
    pub(crate) fn leave(&mut self, outcome: MemberOutcome) {
        self.selected = self.selected.saturating_sub(1);
        let slot = self.slot(outcome);
        *slot = slot.saturating_sub(1);
    }

    pub(super) fn moved(&mut self, from: MemberOutcome, to: MemberOutcome) {
        self.leave(from);
        self.join(to);
    }

    fn slot(&mut self, outcome: MemberOutcome) -> &mut u64 {
        match outcome {
            MemberOutcome::Held => &mut self.held,
            MemberOutcome::InFlight => &mut self.in_flight,
            MemberOutcome::Completed => &mut self.completed,
            MemberOutcome::DiedAgain => &mut self.died_again,
            MemberOutcome::Suppressed => &mut self.suppressed,
            MemberOutcome::Cancelled => &mut self.cancelled,
            MemberOutcome::Skipped(reason) => self.skipped.entry(reason).or_default(),
        }
    }
}

/// What is kept about one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) outcome: MemberOutcome,
    /// The cause it lay dead of when it was selected.
    pub(crate) cause: u64,
}
