//! Settles and claims that were asked for, to be waited for.

use crate::domain::job::JobState;
use crate::error::{ClaimError, SettleError};
use crate::handle::lease::Lease;
use crate::handle::redrive::Redrive;
use crate::writer::command::Claimed;
use crate::writer::reply::Pending;

/// A settle that was asked for.
pub(crate) struct Asked {
    pub(super) jobs: Redrive,
    pub(super) settled: Pending<Result<JobState, SettleError>>,
}

impl Asked {
    pub(crate) fn settled(self) -> Result<JobState, SettleError> {
        self.jobs.writer().wait(self.settled).map_err(SettleError::from).flatten()
    }
}

/// A settle that was asked for together with a claim.
pub(crate) struct Settling {
    pub(super) jobs: Redrive,
    pub(super) settled: Pending<Result<JobState, SettleError>>,
    pub(super) claimed: Pending<Result<Vec<Claimed>, ClaimError>>,
    /// Why the claim was not asked for.
    pub(super) refused: Option<ClaimError>,
}

impl Settling {
    /// Waits for the settle, then hands over what to wait for the claim with.
    pub(crate) fn settled(self) -> (Result<JobState, SettleError>, Claiming) {
        let Self { jobs, settled, claimed, refused } = self;
        let settled = jobs.writer().wait(settled).map_err(SettleError::from).flatten();
        (settled, Claiming { jobs, claimed, refused })
    }

    /// Waits for both. The claim is never answered before the settle: waiting for it first, the caller
    /// is woken once.
    pub(super) fn both(self) -> (Result<JobState, SettleError>, Result<Vec<Lease>, ClaimError>) {
        let Self { jobs, settled, claimed, refused } = self;
        let claimed = Claiming { jobs: jobs.clone(), claimed, refused }.claimed();
        (jobs.writer().wait(settled).map_err(SettleError::from).flatten(), claimed)
    }
}

/// A claim that was asked for together with a settle.
pub(crate) struct Claiming {
    pub(super) jobs: Redrive,
    pub(super) claimed: Pending<Result<Vec<Claimed>, ClaimError>>,
    pub(super) refused: Option<ClaimError>,
}

impl Claiming {
    pub(crate) fn claimed(self) -> Result<Vec<Lease>, ClaimError> {
        if let Some(error) = self.refused {
            return Err(error);
        }
        let claimed = self.jobs.writer().wait(self.claimed).map_err(ClaimError::from).flatten()?;
        Ok(self.jobs.leases(claimed))
    }
}
