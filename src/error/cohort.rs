//! Errors about redriving dead jobs.

use std::fmt;

use super::StorageError;
use crate::domain::cohort::CohortState;
use crate::domain::id::CohortId;
use crate::domain::plan::PlanError;

errors! {
    /// A cohort was not started, or could not be foreseen. Nothing was written.
    RedriveError {
        /// The plan cannot be used.
        Plan {
            /// What is wrong with it.
            why: PlanError,
        } => "{why}";
        /// As many cohorts as allowed have not ended.
        TooManyCohorts {
            /// The limit.
            count_max: usize,
        } => "{count_max} cohorts have not ended, the most at one time: abort one, or let one end";
    }

    /// A cohort was not paused, resumed or aborted. Nothing changed.
    CohortError {
        /// There is no such cohort.
        NotFound {
            /// The id.
            cohort: CohortId,
        } => "there is no cohort {cohort}: it never existed, or it ended and is no longer kept";
        /// The cohort is in a state in which this cannot be done.
        WrongState {
            /// The id.
            cohort: CohortId,
            /// Its state.
            state: CohortState,
        } => "cohort {cohort} is {state}: only one that has not ended can be paused or aborted, and only a paused one resumed";
        /// An abort gives no reason.
        NoReason => "no reason was given: say why the cohort stops";
    }
}
