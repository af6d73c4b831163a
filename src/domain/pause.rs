//! What is stopped: pauses, which people set and lift, and holds, which a throttled failure asks for
//! and which end by themselves.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::failure::{Failure, FailureClass};
use crate::domain::id::{Class, KindId, QueueId};
use crate::domain::limits::{HOLD_MS_MAX, MESSAGE_BYTES_MAX, cut};
use crate::domain::outbox::queue_of;
use crate::domain::time::Timestamp;

/// What a pause is of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(tag = "scope", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scope {
    /// All work of a queue.
    Queue {
        /// The queue's name.
        queue: String,
    },
    /// The work of one kind in a queue.
    Class {
        /// The queue's name.
        queue: String,
        /// The kind's name.
        kind: String,
    },
    /// Sending dead jobs back, whatever their class. Other work goes on.
    Redrive,
    /// Sending dead jobs of one kind in a queue back. Other work goes on.
    RedriveClass {
        /// The queue's name.
        queue: String,
        /// The kind's name.
        kind: String,
    },
}

impl Scope {
    /// All work of a queue.
    #[must_use]
    pub fn queue(queue: impl Into<String>) -> Self {
        Self::Queue { queue: queue.into() }
    }

    /// All messages of a destination.
    #[must_use]
    pub fn destination(destination: impl AsRef<str>) -> Self {
        Self::Queue { queue: queue_of(destination.as_ref()) }
    }

    /// The work of one kind in a queue.
    #[must_use]
    pub fn class(queue: impl Into<String>, kind: impl Into<String>) -> Self {
        Self::Class { queue: queue.into(), kind: kind.into() }
    }

    /// Sending dead jobs back, whatever their class.
    #[must_use]
    pub const fn redrive() -> Self {
        Self::Redrive
    }

    /// Sending dead jobs of one kind in a queue back.
    #[must_use]
    pub fn redrive_class(queue: impl Into<String>, kind: impl Into<String>) -> Self {
        Self::RedriveClass { queue: queue.into(), kind: kind.into() }
    }

    /// The names in it.
    pub(crate) fn names(&self) -> (Option<&str>, Option<&str>) {
        match self {
            Self::Queue { queue } => (Some(queue), None),
            Self::Class { queue, kind } | Self::RedriveClass { queue, kind } => {
                (Some(queue), Some(kind))
            }
            Self::Redrive => (None, None),
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue { queue } => write!(f, "queue {queue}"),
            Self::Class { queue, kind } => write!(f, "kind {kind} of queue {queue}"),
            Self::Redrive => f.write_str("redrive"),
            Self::RedriveClass { queue, kind } => {
                write!(f, "redrive of kind {kind} of queue {queue}")
            }
        }
    }
}

/// What else than its own job a throttled failure holds back, see [`Failure::hold`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Hold {
    /// All jobs of the same kind in the same queue.
    Class,
    /// All jobs of the queue.
    Queue,
}

/// What is stopped, by the numbers of the file. A scope can be paused and held at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stopped {
    Queue(QueueId),
    Class(Class),
    Redrive,
    RedriveClass(Class),
    HeldQueue(QueueId),
    HeldClass(Class),
}

impl Stopped {
    /// The same by its names, which `queue` and `kind` look up.
    pub(crate) fn scope<E>(
        self,
        queue: impl Fn(QueueId) -> Result<String, E>,
        kind: impl Fn(KindId) -> Result<String, E>,
    ) -> Result<Scope, E> {
        Ok(match self {
            Self::Queue(id) | Self::HeldQueue(id) => Scope::Queue { queue: queue(id)? },
            Self::Class(class) | Self::HeldClass(class) => {
                Scope::Class { queue: queue(class.queue)?, kind: kind(class.kind)? }
            }
            Self::Redrive => Scope::Redrive,
            Self::RedriveClass(class) => {
                Scope::RedriveClass { queue: queue(class.queue)?, kind: kind(class.kind)? }
            }
        })
    }

    pub(crate) const fn is_hold(self) -> bool {
        match self {
            Self::HeldQueue(_) | Self::HeldClass(_) => true,
            Self::Queue(_) | Self::Class(_) | Self::Redrive | Self::RedriveClass(_) => false,
        }
    }

    /// The hold of the same scope. Redrive is never held.
    pub(crate) const fn held(self) -> Option<Self> {
        match self {
            Self::Queue(queue) => Some(Self::HeldQueue(queue)),
            Self::Class(class) => Some(Self::HeldClass(class)),
            Self::Redrive | Self::RedriveClass(_) | Self::HeldQueue(_) | Self::HeldClass(_) => None,
        }
    }

    /// What stops the work of a class, the pauses first.
    pub(crate) const fn of_work(class: Class) -> [Self; 4] {
        [
            Self::Queue(class.queue),
            Self::Class(class),
            Self::HeldQueue(class.queue),
            Self::HeldClass(class),
        ]
    }

    /// What stops the redrive of a class.
    pub(crate) const fn of_redrive(class: Class) -> [Self; 2] {
        [Self::Redrive, Self::RedriveClass(class)]
    }
}

/// A pause or a hold, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stop {
    pub(crate) reason: String,
    pub(crate) by: String,
    pub(crate) since: Timestamp,
    /// A hold's end.
    pub(crate) until: Option<Timestamp>,
}

/// Something that is paused, or held back for a throttled failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Paused {
    /// What.
    #[serde(flatten)]
    pub scope: Scope,
    /// Why; for a hold, code and message of the failure that asked for it.
    pub reason: String,
    /// By whom; for a hold, the job that failed.
    pub by: String,
    /// Since when.
    pub since: Timestamp,
    /// When a hold ends. `None`: a pause, which lasts until it is resumed.
    pub until: Option<Timestamp>,
}

impl Paused {
    pub(crate) fn new(scope: Scope, stop: Stop) -> Self {
        let Stop { reason, by, since, until } = stop;
        Self { scope, reason, by, since, until }
    }

    /// Whether it is a hold, which ends by itself.
    #[must_use]
    pub fn is_hold(&self) -> bool {
        self.until.is_some()
    }
}

/// The hold that `failure` of a job of `class` asks for, if it asks for one: until the time its other
/// side named, but no longer than the bound.
pub(crate) fn hold(
    class: Class,
    failure: &Failure,
    by: String,
    now: Timestamp,
) -> Option<(Stopped, Stop)> {
    let wait_ms = failure.retry_after_ms().filter(|&ms| ms > 0)?;
    if failure.class() != FailureClass::Throttled {
        return None;
    }
    let stopped = match failure.holds()? {
        Hold::Class => Stopped::HeldClass(class),
        Hold::Queue => Stopped::HeldQueue(class.queue),
    };
    let mut reason = failure.code().to_owned();
    if !failure.text().is_empty() {
        reason.push_str(": ");
        reason.push_str(failure.text());
    }
    let reason = cut(reason, MESSAGE_BYTES_MAX);
    let until = Some(now.plus_ms(wait_ms.min(HOLD_MS_MAX)));
    Some((stopped, Stop { reason, by, since: now, until }))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::domain::id::KindId;

    const CLASS: Class = Class { queue: QueueId::new(3), kind: KindId::new(4) };

    fn until(failure: &Failure) -> Option<(Stopped, u64)> {
        let (stopped, stop) = hold(CLASS, failure, String::new(), Timestamp::from_millis(1_000))?;
        Some((stopped, stop.until.unwrap().as_millis()))
    }

    #[test]
    fn only_a_throttled_failure_that_says_how_long_holds_and_not_above_the_bound() {
        let wait = Duration::from_secs(30);
        let failure = Failure::throttled("429").hold(Hold::Class);
        assert_eq!(until(&failure), None);
        assert_eq!(until(&failure.clone().retry_after(Duration::ZERO)), None);
        assert_eq!(until(&Failure::throttled("429").retry_after(wait)), None);
        assert_eq!(until(&Failure::transient("503").retry_after(wait).hold(Hold::Queue)), None);
        let held = failure.retry_after(wait);
        assert_eq!(until(&held), Some((Stopped::HeldClass(CLASS), 31_000)));
        let queue = held.hold(Hold::Queue).retry_after(Duration::MAX);
        assert_eq!(until(&queue), Some((Stopped::HeldQueue(CLASS.queue), 1_000 + HOLD_MS_MAX)));
    }
}
