//! The sink that posts messages to a webhook.

use std::fmt;

use crate::domain::failure::Failure;
use crate::relay::outgoing::Outgoing;
use crate::relay::sink::Sink;
use crate::relay::webhook::Webhook;

/// What a message without a `Content-Type` is said to be.
const CONTENT_TYPE: &str = "application/octet-stream";

/// Posts each message over HTTP or HTTPS: the payload as it is, the message's headers, and its
/// [`idempotency_key`](Outgoing::idempotency_key) as `Idempotency-Key`, the same on every delivery. What
/// the answers mean is in the table of [`Webhook`]. One message at a time: each is acknowledged before
/// the next but one is posted, so a crash repeats at most two; use [`Relay::threads`](crate::Relay::threads)
/// where the destination's order allows more.
///
/// A message that has no `Content-Type` among its headers is sent as `application/octet-stream`; an
/// `Idempotency-Key` among them is not sent.
///
/// ```no_run
/// use std::time::Duration;
/// use redrive::{HttpSink, Redrive, Relay, Webhook};
///
/// let jobs = Redrive::open("jobs.redb")?;
/// let webhook = Webhook::new().timeout(Duration::from_secs(10)).header("Authorization", "Bearer x");
/// let relay = Relay::new(&jobs)
///     .sink("email", HttpSink::new("https://mail.example.org/send").webhook(webhook))
///     // One address for each message.
///     .sink("callbacks", HttpSink::routed(|message| {
///         let url = message.headers().iter().find(|(name, _)| name == "X-Callback");
///         let none = || redrive::Failure::permanent("no_callback");
///         Ok(url.ok_or_else(none)?.1.clone())
///     }))
///     .threads(8)
///     .start()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct HttpSink {
    webhook: Webhook,
    address: Box<Address>,
}

type Address = dyn Fn(&Outgoing) -> Result<String, Failure> + Send + Sync;

impl fmt::Debug for HttpSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSink").field("webhook", &self.webhook).finish_non_exhaustive()
    }
}

impl HttpSink {
    /// All messages to one address. One that cannot be posted to is a permanent failure of each message,
    /// code `bad_url`.
    pub fn new(url: impl Into<String>) -> Self {
        let url = url.into();
        Self::routed(move |_| Ok(url.clone()))
    }

    /// Each message to the address that `address` finds for it; its failure is that of the message.
    pub fn routed(
        address: impl Fn(&Outgoing) -> Result<String, Failure> + Send + Sync + 'static,
    ) -> Self {
        Self { webhook: Webhook::new(), address: Box::new(address) }
    }

    /// Limits, and headers of every post (default: [`Webhook::new`]).
    pub fn webhook(mut self, webhook: Webhook) -> Self {
        self.webhook = webhook;
        self
    }

    fn post(&self, message: &Outgoing) -> Result<(), Failure> {
        let url = (self.address)(message)?;
        let own = message.headers().iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let mut headers: Vec<(&str, &str)> =
            own.filter(|(name, _)| !name.eq_ignore_ascii_case("idempotency-key")).collect();
        if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
            headers.push(("Content-Type", CONTENT_TYPE));
        }
        self.webhook.post_with(&url, message.idempotency_key(), &headers, message.payload())
    }
}

impl Sink for HttpSink {
    fn deliver(&self, batch: &[Outgoing]) -> Vec<Result<(), Failure>> {
        batch.iter().map(|message| self.post(message)).collect()
    }

    fn batch_max(&self) -> usize {
        1
    }
}
