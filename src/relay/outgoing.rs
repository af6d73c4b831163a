//! What a sink sees of a message.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::domain::failure::Failure;
use crate::domain::id::JobId;
use crate::domain::outbox::destination_of;
use crate::domain::policy::OnUnknown;
use crate::domain::time::Timestamp;
use crate::handle::lease::Lease;

/// One delivery of a message to a sink. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Outgoing(Arc<Parts>);

#[derive(Debug)]
struct Parts {
    id: String,
    job: JobId,
    destination: String,
    sequence: u64,
    key: Option<String>,
    /// That of the store: empty where the whole destination is one order.
    line: Option<String>,
    headers: Vec<(String, String)>,
    payload: Vec<u8>,
    delivery: u32,
    attempt: u32,
    unknown: bool,
    repeats: bool,
    emitted_at: Timestamp,
}

impl Outgoing {
    /// `store` tells this file from others.
    pub(crate) fn new(lease: &Lease, store: u64) -> Self {
        let post = lease.post();
        let emitted_at = lease.enqueued_at();
        Self(Arc::new(Parts {
            id: format!("{store:016x}-{}-{}", lease.id(), emitted_at.as_millis()),
            job: lease.id(),
            destination: destination_of(lease.queue()).unwrap_or_default().to_owned(),
            sequence: post.map_or(0, |post| post.sequence),
            key: lease.key().map(str::to_owned),
            line: lease.line().map(str::to_owned),
            headers: post.map(|post| post.headers.clone()).unwrap_or_default(),
            payload: lease.payload().to_vec(),
            delivery: lease.delivery(),
            attempt: lease.attempt(),
            unknown: lease.outcome_unknown(),
            repeats: lease.on_unknown() == OnUnknown::Retry,
            emitted_at,
        }))
    }

    /// The message's identity, ASCII: the same on every delivery, and no other message's in any
    /// file. It is made of the store's number, the job's number and the time of the emit, so a
    /// store that was restored from a backup does not give an old id to a new message. A dead
    /// message that was exported and imported gets another id: give a key to what may travel so.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.0.id
    }

    /// What to hand to the receiver so that it can tell a repetition: the message's key, or its id where
    /// it has none. The same on every delivery.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        self.key().unwrap_or_else(|| self.id())
    }

    /// The job that the message is.
    #[must_use]
    pub fn job(&self) -> JobId {
        self.0.job
    }

    /// Where it goes.
    #[must_use]
    pub fn destination(&self) -> &str {
        &self.0.destination
    }

    /// Dense within the destination, from 1 on, in the order of the commits that emitted.
    #[must_use]
    pub fn sequence(&self) -> u64 {
        self.0.sequence
    }

    /// The message's key.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }

    /// The message's ordering key, where the destination orders by it.
    #[must_use]
    pub fn order_key(&self) -> Option<&str> {
        self.line().filter(|line| !line.is_empty())
    }

    /// What it is ordered with.
    pub(crate) fn line(&self) -> Option<&str> {
        self.0.line.as_deref()
    }

    /// The headers, in the order in which they were given.
    #[must_use]
    pub fn headers(&self) -> &[(String, String)] {
        &self.0.headers
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.0.payload
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    ///
    /// A permanent [`Failure`] with code `undecodable`: the same bytes will not decode next time.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(self.payload())
            .map_err(|error| Failure::permanent("undecodable").message(error.to_string()))
    }

    /// Which delivery this is, counted from 1 over the message's life.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.0.delivery
    }

    /// Which attempt this is, counted from 1 within the present cycle; what was offered and not reached
    /// does not count.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.attempt
    }

    /// An earlier delivery may have arrived without anybody knowing (P8).
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.0.unknown
    }

    /// Its policy says that it may be sent again after a delivery whose outcome is unknown.
    pub(crate) fn may_be_repeated(&self) -> bool {
        self.0.repeats
    }

    /// When it was emitted.
    #[must_use]
    pub fn emitted_at(&self) -> Timestamp {
        self.0.emitted_at
    }
}
