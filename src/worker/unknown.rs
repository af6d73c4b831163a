//! What a reconciler sees of a job.

use serde::de::DeserializeOwned;

use crate::domain::failure::{Failure, FailureClass};
use crate::domain::id::{JobId, Token};
use crate::domain::time::Timestamp;
use crate::worker::delivery::{Delivery, StopReason};

/// A delivery whose outcome is unknown, handed to a reconciler to find out. Asking is a delivery of its
/// own: counted on the disk before it starts, under a lease that is kept alive meanwhile.
#[derive(Debug)]
pub struct Unknown {
    pub(crate) delivery: Delivery,
}

impl Unknown {
    /// The job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.delivery.id()
    }

    /// What fences this reconciliation.
    #[must_use]
    pub fn token(&self) -> Token {
        self.delivery.token()
    }

    /// The queue's name.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.delivery.queue()
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.delivery.kind()
    }

    /// The idempotency key: what the lost delivery had, too.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.delivery.key()
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.delivery.payload()
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    ///
    /// A permanent [`Failure`] with code `undecodable`. Passed on with `?` it leaves the outcome
    /// unknown, as every error of a reconciler does.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        self.delivery.json()
    }

    /// The other side's own reference for the request, if the handler gave one
    /// ([`Failure::provider_ref`]).
    #[must_use]
    pub fn provider_ref(&self) -> Option<&str> {
        self.delivery.lease.unknown()?.provider_ref.as_deref()
    }

    /// [`Ambiguous`](FailureClass::Ambiguous), or [`Crashed`](FailureClass::Crashed) when the process
    /// died.
    #[must_use]
    pub fn class(&self) -> FailureClass {
        self.delivery.lease.unknown().map_or(FailureClass::Ambiguous, |unknown| unknown.class)
    }

    /// What the handler reported, or `lease_expired`, `deadline_exceeded`, `crashed`, `stopped`.
    #[must_use]
    pub fn code(&self) -> &str {
        self.delivery.lease.unknown().map_or("", |unknown| &unknown.code)
    }

    /// Which of the job's deliveries it was, counted from 1.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.delivery.lease.unknown().map_or(0, |unknown| unknown.delivery)
    }

    /// How many deliveries the job has had, this reconciliation included.
    #[must_use]
    pub fn deliveries(&self) -> u32 {
        self.delivery.delivery()
    }

    /// Since when the outcome is unknown.
    #[must_use]
    pub fn since(&self) -> Timestamp {
        let known = self.delivery.lease.unknown();
        known.map_or_else(|| self.delivery.enqueued_at(), |unknown| unknown.since)
    }

    /// How many reconciliations have left it unknown so far.
    #[must_use]
    pub fn reconciles(&self) -> u32 {
        self.delivery.lease.reconciles()
    }

    /// When the job was enqueued.
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.delivery.enqueued_at()
    }

    /// Whether the reconciler should stop, and why, see [`Delivery::should_stop`].
    #[must_use]
    pub fn should_stop(&self) -> Option<StopReason> {
        self.delivery.should_stop()
    }
}
