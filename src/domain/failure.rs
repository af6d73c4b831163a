//! How a delivery can fail. A new failure class starts here; exhaustive matches lead on.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::limits::{
    CODE_BYTES_MAX, MESSAGE_BYTES_MAX, PROVIDER_REF_BYTES_MAX, RETRY_AFTER_MS_MAX, cut,
};
use crate::domain::pause::Hold;
use crate::domain::time::whole_ms;

/// What kind of failure it was; decides, with the job's stored policy, what happens next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum FailureClass {
    /// It cannot succeed without changing the input or the code. Dead at once.
    Permanent,
    /// It may succeed later. Retried on the job's schedule, within its budget.
    Transient,
    /// The other side asked for less. Like transient, but waits at least as long as it asked.
    Throttled,
    /// It may have happened: a lost response, a missed deadline, an expired lease.
    Ambiguous,
    /// The process died while it held the lease.
    Crashed,
}

impl FailureClass {
    /// Every class, in the order of their numbers.
    pub const ALL: [Self; 5] =
        [Self::Permanent, Self::Transient, Self::Throttled, Self::Ambiguous, Self::Crashed];

    /// The class's name as used in JSON, on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Permanent => "permanent",
            Self::Transient => "transient",
            Self::Throttled => "throttled",
            Self::Ambiguous => "ambiguous",
            Self::Crashed => "crashed",
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a delivery failed, as its handler reports it.
///
/// Texts are bounded: the code is cut to 64 bytes, the message to 2,048, the provider reference
/// to 256. Any [`std::error::Error`] converts into a transient failure with code `error`, so `?`
/// works in a handler.
///
/// ```
/// use redrive::{Failure, FailureClass};
///
/// let failure = Failure::permanent("E_SCHEMA").message("field `amount` is missing");
/// assert_eq!((failure.class(), failure.code()), (FailureClass::Permanent, "E_SCHEMA"));
/// assert_eq!(failure.text(), "field `amount` is missing");
/// let from_error: Failure = std::io::Error::other("connection reset").into();
/// assert_eq!(from_error.class(), FailureClass::Transient);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    class: FailureClass,
    code: String,
    message: String,
    provider_ref: Option<String>,
    retry_after_ms: Option<u64>,
    hold: Option<Hold>,
}

impl Failure {
    /// It cannot succeed as it is: the job is dead at once.
    #[must_use]
    pub fn permanent(code: impl Into<String>) -> Self {
        Self::new(FailureClass::Permanent, code)
    }

    /// It may succeed later: retried on the job's schedule.
    #[must_use]
    pub fn transient(code: impl Into<String>) -> Self {
        Self::new(FailureClass::Transient, code)
    }

    /// The other side asked for less (HTTP 429): retried no sooner than it asked.
    #[must_use]
    pub fn throttled(code: impl Into<String>) -> Self {
        Self::new(FailureClass::Throttled, code)
    }

    /// It may have happened (response lost after the request was sent): handled by the job's
    /// [`OnUnknown`](crate::OnUnknown) policy.
    #[must_use]
    pub fn ambiguous(code: impl Into<String>) -> Self {
        Self::new(FailureClass::Ambiguous, code)
    }

    pub(crate) fn new(class: FailureClass, code: impl Into<String>) -> Self {
        Self {
            class,
            code: cut(code.into(), CODE_BYTES_MAX),
            message: String::new(),
            provider_ref: None,
            retry_after_ms: None,
            hold: None,
        }
    }

    /// A text for people, cut to 2,048 bytes.
    #[must_use]
    pub fn message(mut self, message: impl Into<String>) -> Self {
        self.message = cut(message.into(), MESSAGE_BYTES_MAX);
        self
    }

    /// The other side's own reference for the request, if it is known; cut to 256 bytes.
    #[must_use]
    pub fn provider_ref(mut self, reference: impl Into<String>) -> Self {
        self.provider_ref = Some(cut(reference.into(), PROVIDER_REF_BYTES_MAX));
        self
    }

    /// The retry waits at least this long, at most 24 h, whatever the schedule says: an answer from
    /// outside is not to park a job, and those behind it, for ever. Whether there is a retry is decided by
    /// the budget alone. To wait for longer on purpose, snooze.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after_ms = Some(whole_ms(wait).min(RETRY_AFTER_MS_MAX));
        self
    }

    /// Holds back not only this job but its class or its whole queue until the time given with
    /// [`retry_after`](Self::retry_after), at most 1 h: what the other side limits is rarely one job.
    /// Jobs that run go on; nothing is claimed meanwhile, also after a restart. Only a throttled
    /// failure with a `retry_after` holds; of two holds the one that ends later counts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redrive::{Failure, Hold};
    ///
    /// let failure = Failure::throttled("429").retry_after(Duration::from_secs(30)).hold(Hold::Class);
    /// ```
    #[must_use]
    pub fn hold(mut self, hold: Hold) -> Self {
        self.hold = Some(hold);
        self
    }

    /// The failure's class.
    #[must_use]
    pub const fn class(&self) -> FailureClass {
        self.class
    }

    /// The error code.
    #[must_use]
    pub fn code(&self) -> &str {
        &self.code
    }

    /// The text for people; empty if none was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.message
    }

    /// The other side's reference, if it was given.
    #[must_use]
    pub fn reference(&self) -> Option<&str> {
        self.provider_ref.as_deref()
    }

    pub(crate) const fn holds(&self) -> Option<Hold> {
        self.hold
    }

    /// How long the retry waits at least, if that was asked for.
    #[must_use]
    pub fn wait(&self) -> Option<Duration> {
        self.retry_after_ms.map(Duration::from_millis)
    }

    pub(crate) const fn retry_after_ms(&self) -> Option<u64> {
        self.retry_after_ms
    }
}

impl<E: std::error::Error> From<E> for Failure {
    /// An error that carries no class is transient: it is retried, within a budget.
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            message.push_str(": ");
            message.push_str(&cause.to_string());
            source = cause.source();
        }
        Self::transient("error").message(message)
    }
}
