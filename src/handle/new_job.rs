//! A job to be enqueued.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::domain::arrival::Start;
use crate::domain::blob::Blob;
use crate::domain::key::{KeyClaim, OnDuplicate, RequestHash};
use crate::domain::limits::KEY_BYTES_MAX;
use crate::domain::outbox::{Headers, MESSAGE_KIND, destination_of};
use crate::domain::policy::JobPolicy;
use crate::domain::time::{Timestamp, whole_ms};
use crate::error::EnqueueError;
use crate::handle::message::check_headers;
use crate::handle::{check_destination, check_name, check_queue, check_text};
use crate::writer::command::Prepared;

/// A job to be enqueued: a queue, a kind, a payload, and what else is to be said about it.
///
/// ```
/// use std::time::Duration;
/// use redrive::NewJob;
///
/// let job = NewJob::new("charges", "charge")
///     .json(&serde_json::json!({ "order": "O-194", "cents": 4_900 }))?
///     .key("charge:O-194")
///     .delay(Duration::from_secs(30))
///     .priority(200);
/// # Ok::<_, redrive::EnqueueError>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewJob {
    queue: String,
    kind: String,
    payload: Vec<u8>,
    key: Option<String>,
    priority: u8,
    start: Start,
    policy: Option<JobPolicy>,
    order: Option<String>,
    /// It is a message.
    headers: Option<Headers>,
    on_duplicate: OnDuplicate,
}

impl NewJob {
    /// A job of `kind` in `queue`, with an empty payload. Names have 1 to 128 bytes and no control
    /// characters; that is checked at the enqueue. A queue comes into being with its first job.
    #[must_use]
    pub fn new(queue: impl Into<String>, kind: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            kind: kind.into(),
            payload: Vec::new(),
            key: None,
            priority: 100,
            start: Start::Now,
            policy: None,
            order: None,
            headers: None,
            on_duplicate: OnDuplicate::Return,
        }
    }

    /// A message in the queue of its destination.
    pub(crate) fn message(queue: String) -> Self {
        Self { headers: Some(Headers::new()), ..Self::new(queue, MESSAGE_KIND) }
    }

    /// Gives a message a header.
    pub(crate) fn header(mut self, name: String, value: String) -> Self {
        self.headers.get_or_insert_default().push((name, value));
        self
    }

    /// The payload as bytes.
    #[must_use]
    pub fn bytes(mut self, payload: impl Into<Vec<u8>>) -> Self {
        self.payload = payload.into();
        self
    }

    /// The payload as JSON. The serialiser runs here, on the caller's thread.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::Encode`] when the value's serialiser fails or panics.
    pub fn json(mut self, payload: &impl Serialize) -> Result<Self, EnqueueError> {
        let encoded = catch_unwind(AssertUnwindSafe(|| serde_json::to_vec(payload)));
        let message = match encoded {
            Ok(Ok(payload)) => {
                self.payload = payload;
                return Ok(self);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the serialiser panicked".to_owned(),
        };
        Err(EnqueueError::Encode { message })
    }

    /// The idempotency key: the stable business identity of the work, 1 to 512 bytes. It belongs to
    /// the queue.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// What to do when the key has an owner already (default [`OnDuplicate::Return`]). Without a key
    /// there are no duplicates.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use std::time::Duration;
    /// use redrive::{Enqueued, NewJob, OnDuplicate};
    ///
    /// // Index a document once it has been left alone for a while: the latest revision counts.
    /// let index = |revision: &str| {
    ///     NewJob::new("search", "index")
    ///         .bytes(revision)
    ///         .key("index:doc-7")
    ///         .delay(Duration::from_secs(5))
    ///         .on_duplicate(OnDuplicate::Replace)
    /// };
    /// let first = jobs.enqueue(index("revision 1"))?.job();
    /// assert_eq!(jobs.enqueue(index("revision 2"))?, Enqueued::Replaced(first));
    /// assert_eq!(jobs.payload(first)?.as_deref(), Some(b"revision 2".as_slice()));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn on_duplicate(mut self, choice: OnDuplicate) -> Self {
        self.on_duplicate = choice;
        self
    }

    /// Not before this long from now, on the store's timeline. Any length; what lies past the last
    /// representable instant sorts last.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.start = Start::AfterMs(whole_ms(delay));
        self
    }

    /// Not before this instant. One in the past means now.
    #[must_use]
    pub fn run_at(mut self, at: SystemTime) -> Self {
        self.start = Start::At(Timestamp::from(at));
        self
    }

    /// 0 to 255, higher goes first (default 100). Equal priorities go in the order of arrival.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// The policy, stored with the job (default: the queue's, see
    /// [`QueuePolicy`](crate::QueuePolicy)).
    #[must_use]
    pub fn policy(mut self, policy: JobPolicy) -> Self {
        self.policy = Some(policy);
        self
    }

    /// The ordering key, 1 to 512 bytes; it belongs to the queue. Jobs of one ordering key run one at
    /// a time, in the order in which they were accepted, whatever their priorities: one that is
    /// delayed or failed and waits for its next attempt holds up those behind it (they are
    /// *blocked*), and nobody else. What a dead one means for them is the queue's
    /// [`on_dead`](crate::QueuePolicy::on_dead). Without an ordering key there is no order across
    /// retries.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{ClaimRequest, JobState, NewJob};
    ///
    /// let step = |text: &str| NewJob::new("sync", "step").bytes(text).order_key("document 7");
    /// jobs.enqueue(step("create"))?;
    /// let second = jobs.enqueue(step("rename"))?.job();
    /// let first = jobs.claim(ClaimRequest::new("sync").up_to(2))?;
    /// assert_eq!(first.len(), 1);
    /// assert_eq!(jobs.job(second)?.map(|job| job.state), Some(JobState::Blocked));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn order_key(mut self, key: impl Into<String>) -> Self {
        self.order = Some(key.into());
        self
    }

    /// Checks everything that can be checked without the store, and hashes the request.
    pub(crate) fn prepare(self, payload_bytes_max: usize) -> Result<Prepared, EnqueueError> {
        check_names(&self.queue, &self.kind, self.headers.as_deref())?;
        if self.payload.len() > payload_bytes_max {
            let bytes = self.payload.len();
            return Err(EnqueueError::PayloadTooLarge { bytes, bytes_max: payload_bytes_max });
        }
        let key = match self.key {
            Some(key) => {
                check_text(&key, KEY_BYTES_MAX)
                    .map_err(|why| EnqueueError::BadName { what: "key", why })?;
                let headers = self.headers.as_deref().unwrap_or_default();
                let hash = request_hash(&self.queue, &self.kind, &self.payload, headers);
                Some(KeyClaim::new(key, hash))
            }
            None => None,
        };
        if let Some(order) = &self.order {
            let bad = |why| EnqueueError::BadName { what: "ordering key", why };
            check_text(order, KEY_BYTES_MAX).map_err(bad)?;
        }
        Ok(Prepared {
            queue: self.queue,
            kind: self.kind,
            payload: Blob(self.payload),
            key,
            priority: self.priority,
            start: self.start,
            policy: self.policy,
            order: self.order,
            headers: self.headers,
            on_duplicate: self.on_duplicate,
        })
    }
}

/// Whether a queue and a kind can be used, or the destination and the headers of a message.
pub(crate) fn check_names(
    queue: &str,
    kind: &str,
    headers: Option<&[(String, String)]>,
) -> Result<(), EnqueueError> {
    let bad = |what| move |why| EnqueueError::BadName { what, why };
    match headers {
        Some(headers) => {
            let destination = destination_of(queue).unwrap_or_default();
            check_destination(destination).map_err(bad("destination"))?;
            check_headers(headers)
        }
        None => {
            check_queue(queue).map_err(bad("queue"))?;
            check_name(kind).map_err(bad("kind"))
        }
    }
}

/// What makes two requests under one key the same: queue, kind, payload and a message's headers, each
/// with its length.
pub(crate) fn request_hash(
    queue: &str,
    kind: &str,
    payload: &[u8],
    headers: &[(String, String)],
) -> RequestHash {
    let mut hasher = Sha256::new();
    let headers = headers.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]);
    for part in [queue.as_bytes(), kind.as_bytes(), payload].into_iter().chain(headers) {
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hasher.update(part);
    }
    let digest = hasher.finalize();
    let mut hash = [0; 16];
    for (to, from) in hash.iter_mut().zip(digest) {
        *to = from;
    }
    RequestHash(hash)
}
