//! A message to be emitted.

use serde::Serialize;

use crate::domain::limits::{HEADERS_BYTES_MAX, HEADERS_MAX};
use crate::domain::outbox::queue_of;
use crate::error::{EnqueueError, StorageError};
use crate::handle::new_job::NewJob;
use crate::handle::redrive::Redrive;
use crate::writer::command::{BatchRule, Enqueued};

/// A message for the outside, to be emitted: in a [`Completion`](crate::Completion), so that it is
/// there exactly when the work is done (P6), or with [`Redrive::emit`]. A [`Relay`](crate::Relay) hands
/// it to the sink of its destination.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use redrive::Message;
///
/// let receipt = Message::to("email")
///     .key("receipt:O-194")
///     .header("Content-Type", "application/json")
///     .json(&serde_json::json!({ "order": "O-194" }))?;
/// jobs.emit(receipt)?;
/// assert_eq!(jobs.outbox()?["email"].unsent, 1);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Message(NewJob);

impl Message {
    /// A message to a destination, with an empty payload. The name has 1 to 121 bytes and no control
    /// characters; that is checked when it is emitted. A destination that nobody knows yet comes into
    /// being with its first message, which waits, visibly, until there is a sink for it.
    #[must_use]
    pub fn to(destination: impl AsRef<str>) -> Self {
        Self(NewJob::message(queue_of(destination.as_ref())))
    }

    /// The payload as bytes. They are the same on every delivery.
    #[must_use]
    pub fn bytes(self, payload: impl Into<Vec<u8>>) -> Self {
        Self(self.0.bytes(payload))
    }

    /// The payload as JSON. The serialiser runs here, on the caller's thread.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::Encode`] when the value's serialiser fails or panics.
    pub fn json(self, payload: &impl Serialize) -> Result<Self, EnqueueError> {
        self.0.json(payload).map(Self)
    }

    /// The idempotency key, 1 to 512 bytes; it belongs to the destination. The same message again is a
    /// duplicate of the first one, another one under the key a conflict (P7).
    #[must_use]
    pub fn key(self, key: impl Into<String>) -> Self {
        Self(self.0.key(key))
    }

    /// The ordering key, 1 to 512 bytes: what it orders where the destination's order is
    /// [`MessageOrder::Key`](crate::MessageOrder::Key).
    #[must_use]
    pub fn order_key(self, key: impl Into<String>) -> Self {
        Self(self.0.order_key(key))
    }

    /// A header, for sinks that have such. Up to 32; names of HTTP's token characters, values of visible
    /// ASCII and spaces; 4,096 bytes in all. That is checked when the message is emitted.
    #[must_use]
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        Self(self.0.header(name.into(), value.into()))
    }

    pub(crate) fn into_job(self) -> NewJob {
        self.0
    }
}

pub(crate) fn check_headers(headers: &[(String, String)]) -> Result<(), EnqueueError> {
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if headers.len() > HEADERS_MAX || bytes > HEADERS_BYTES_MAX {
        return Err(EnqueueError::TooManyHeaders {
            headers: headers.len(),
            headers_max: HEADERS_MAX,
            bytes,
            bytes_max: HEADERS_BYTES_MAX,
        });
    }
    for (name, value) in headers {
        // RFC 9110, 5.6.2.
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        let visible = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
        let why = if name.is_empty() || !name.bytes().all(token) {
            "its name is not made of HTTP's token characters"
        } else if !value.bytes().all(visible) || value.trim() != value {
            "its value is not visible ASCII, or begins or ends with a space"
        } else {
            continue;
        };
        return Err(EnqueueError::BadHeader { name: name.clone(), why });
    }
    Ok(())
}

impl Redrive {
    /// Emits one message in a commit of its own. Returns after the commit.
    ///
    /// # Errors
    ///
    /// As [`Redrive::enqueue`]; also [`EnqueueError::BadHeader`] and [`EnqueueError::TooManyHeaders`].
    /// Nothing was written then.
    pub fn emit(&self, message: Message) -> Result<Enqueued, EnqueueError> {
        let mut outcomes = self.emit_many([message], BatchRule::PerItem)?;
        let none = || StorageError::internal("an emit had no outcome");
        outcomes.pop().ok_or_else(none)?
    }

    /// Emits up to 100,000 messages in one commit; one outcome per message, in order.
    ///
    /// # Errors
    ///
    /// As [`Redrive::enqueue_many`].
    pub fn emit_many(
        &self,
        messages: impl IntoIterator<Item = Message>,
        rule: BatchRule,
    ) -> Result<Vec<Result<Enqueued, EnqueueError>>, EnqueueError> {
        self.enqueue_many(messages.into_iter().map(Message::into_job), rule)
    }
}
