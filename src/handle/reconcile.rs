//! What a reconciler answers.

use crate::domain::failure::Failure;
use crate::domain::job::JobState;
use crate::error::SettleError;
use crate::handle::completion::Completion;
use crate::handle::lease::Lease;
use crate::writer::command::How;

/// What became of a delivery whose outcome was unknown (P8).
#[derive(Clone, Debug)]
#[non_exhaustive]
#[must_use]
pub enum Reconciled {
    /// It had its effect. The job is done, with this completion. Nothing that the lost delivery would have
    /// committed here was: hand over the rows, messages and follow-up jobs that its handler would have.
    /// (A completion that gives back or snoozes does that instead: nobody was asked.)
    Happened(Completion),
    /// It had no effect. The job is delivered normally, if its budgets allow another attempt.
    DidNotHappen,
    /// Nobody knows yet: it is asked again on the policy's schedule
    /// ([`JobPolicy::reconcile_schedule`](crate::JobPolicy::reconcile_schedule)), and dead with class
    /// `Ambiguous` after [`JobPolicy::reconciles_max`](crate::JobPolicy::reconciles_max) such answers.
    StillUnknown,
}

impl Reconciled {
    /// It happened, and this was its result (at most 64 KiB). For jobs that write nothing else here; see
    /// [`Happened`](Self::Happened).
    pub fn happened(result: impl Into<Vec<u8>>) -> Self {
        Self::Happened(Completion::new().result(result))
    }

    /// What to ask the store for.
    pub(crate) fn prepare(self, payload_bytes_max: usize) -> Result<How, SettleError> {
        match self {
            Self::Happened(completion) => completion.prepare(payload_bytes_max),
            Self::DidNotHappen => Ok(How::DidNotHappen),
            Self::StillUnknown => Ok(How::Fail(Failure::ambiguous("still_unknown"))),
        }
    }
}

impl Lease {
    /// Whether this is to be reconciled rather than run: an earlier delivery's outcome is unknown, and
    /// the job's policy says to find out first. Only claims that ask for such jobs get them, see
    /// [`ClaimRequest::reconciles`](crate::ClaimRequest::reconciles).
    #[must_use]
    pub fn is_reconciliation(&self) -> bool {
        self.lane().is_reconcile()
    }

    /// Settles a reconciliation. Returns what became of the job: done, ready for a normal delivery, or
    /// delayed until it is asked again; dead when a budget is spent, or cancelled if that was asked for
    /// meanwhile and it has not happened.
    ///
    /// [`fail`](Self::fail) means that the reconciler could not find out;
    /// [`complete`](Self::complete) is the same as [`Reconciled::Happened`].
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended; [`SettleError::NotAReconciliation`] when
    /// it is an ordinary delivery, or what a completion is refused for: then it is as unknown as
    /// before.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{ClaimRequest, Failure, JobPolicy, JobState, NewJob, OnUnknown, Reconciled};
    ///
    /// let policy = JobPolicy::new().on_unknown(OnUnknown::Reconcile);
    /// jobs.enqueue(NewJob::new("charges", "charge").key("charge:O-194").policy(policy))?;
    /// let lease = jobs.claim(ClaimRequest::new("charges"))?.remove(0);
    /// lease.fail(Failure::ambiguous("timeout").provider_ref("req-7"))?;
    ///
    /// // No handler gets it before somebody has looked.
    /// assert!(jobs.claim(ClaimRequest::new("charges"))?.is_empty());
    /// let lease = jobs.claim(ClaimRequest::new("charges").reconciles(["charge"]))?.remove(0);
    /// assert!(lease.is_reconciliation());
    /// assert_eq!(lease.unknown().and_then(|u| u.provider_ref.as_deref()), Some("req-7"));
    /// assert_eq!(lease.reconcile(Reconciled::happened("receipt 7c1"))?, JobState::Done);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reconcile(self, found: Reconciled) -> Result<JobState, SettleError> {
        if !self.is_reconciliation() {
            return Err(SettleError::NotAReconciliation { presented: self.token() });
        }
        let how = found.prepare(self.jobs.payload_bytes_max());
        self.settle_prepared(how)
    }
}
