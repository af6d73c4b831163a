//! What a handler sees of a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::failure::Failure;
use crate::domain::id::{JobId, Token};
use crate::domain::time::Timestamp;
use crate::handle::effects::Effects;
use crate::handle::lease::Lease;

/// One delivery of a job to a handler. The lease is kept alive while the handler runs.
#[derive(Debug)]
pub struct Delivery {
    pub(crate) lease: Lease,
    pub(crate) pulse: Arc<Pulse>,
}

/// Why a handler should stop, as the heartbeats learn it.
#[derive(Debug, Default)]
pub(crate) struct Pulse {
    pub(crate) cancel_requested: AtomicBool,
    pub(crate) lost: AtomicBool,
    pub(crate) deadline_passed: AtomicBool,
    pub(crate) given_back: AtomicBool,
}

impl Pulse {
    /// Whether there is any sense in starting, or going on.
    pub(crate) fn may_go_on(&self) -> bool {
        ![&self.cancel_requested, &self.lost, &self.deadline_passed, &self.given_back]
            .iter()
            .any(|stop| stop.load(Ordering::Acquire))
    }
}

/// Why a handler should stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The lease is gone: whatever this delivery reports will be refused.
    LeaseLost,
    /// The delivery's hard deadline has passed; the lease ends with it.
    DeadlinePassed,
    /// Somebody asked to cancel the job.
    CancelRequested,
}

/// For what is done with a lease in a transaction: [`Tx::complete`](crate::Tx::complete).
impl AsRef<Lease> for Delivery {
    fn as_ref(&self) -> &Lease {
        &self.lease
    }
}

impl Delivery {
    /// The job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.lease.id()
    }

    /// What fences this delivery: the job and the number of the delivery.
    #[must_use]
    pub fn token(&self) -> Token {
        self.lease.token()
    }

    /// The queue's name.
    #[must_use]
    pub fn queue(&self) -> &str {
        self.lease.queue()
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.lease.kind()
    }

    /// The idempotency key: the same on every delivery. Hand it to whoever has the effect.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.lease.key()
    }

    /// The ordering key.
    #[must_use]
    pub fn order_key(&self) -> Option<&str> {
        self.lease.order_key()
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.lease.payload()
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    ///
    /// A permanent [`Failure`] with code `undecodable`; pass it on with `?`.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        self.lease.json()
    }

    /// Which delivery this is, counted from 1 over the job's life.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.lease.delivery()
    }

    /// Which attempt this is, counted from 1 within the present cycle.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.lease.attempt()
    }

    /// An earlier delivery may have had its effect without anybody knowing (P8).
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.lease.outcome_unknown()
    }

    /// When the job was enqueued.
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.lease.enqueued_at()
    }

    /// Runs `body` once over all deliveries of the job, and returns its output; see [`Lease::step`].
    ///
    /// # Errors
    ///
    /// What the body returns, or a [`Failure`] to be passed on with `?`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{Completion, EffectTable, Workers};
    ///
    /// const STOCK: EffectTable<str, u64> = EffectTable::new("reserved stock");
    ///
    /// let workers = Workers::new(&jobs).queue("orders", 4).handle("place", |job| {
    ///     let order: String = job.json()?;
    ///     let reserved: u64 = job.step("reserve stock", |fx| {
    ///         fx.put(STOCK, &order, &3);
    ///         Ok(3)
    ///     })?;
    ///     let label: String = job.step("print label", |_| Ok(format!("{order}: {reserved}")))?;
    ///     Ok(Completion::new().result(label))
    /// });
    /// # let _ = workers;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn step<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        body: impl FnOnce(&mut Effects) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.lease.step(name, body)
    }

    /// Whether the handler should stop, and why. A long handler asks now and then; the answer is as
    /// fresh as the last heartbeat.
    #[must_use]
    pub fn should_stop(&self) -> Option<StopReason> {
        let pulse = &self.pulse;
        if pulse.lost.load(Ordering::Acquire) || pulse.given_back.load(Ordering::Acquire) {
            Some(StopReason::LeaseLost)
        } else if pulse.deadline_passed.load(Ordering::Acquire) {
            Some(StopReason::DeadlinePassed)
        } else if pulse.cancel_requested.load(Ordering::Acquire) {
            Some(StopReason::CancelRequested)
        } else {
            None
        }
    }
}
