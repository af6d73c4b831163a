//! Messages for the outside: each is a job in the queue of its destination, with a sequence of its own
//! there.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::failure::FailureClass;
use crate::domain::job::{Job, State};
use crate::domain::policy::JobPolicy;
use crate::domain::schedule::Schedule;

/// What the names of the queues of destinations begin with; no other queue's does.
pub(crate) const QUEUE_PREFIX: &str = "outbox:";
/// The kind of every message.
pub(crate) const MESSAGE_KIND: &str = "message";
/// The ordering key of all messages of a destination that keeps them in one order. No user's ordering
/// key is empty.
const WHOLE_DESTINATION: &str = "";

/// In which order a destination's messages are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum MessageOrder {
    /// All of them one after the other, by sequence.
    #[default]
    Destination,
    /// Those of one [ordering key](crate::Message::order_key) one after the other; those without one in
    /// any order.
    Key,
    /// In any order: a message that fails holds up nobody.
    None,
}

impl MessageOrder {
    /// The ordering key of a message whose own is `own`.
    pub(crate) fn key(self, own: Option<String>) -> Option<String> {
        match self {
            Self::Destination => Some(WHOLE_DESTINATION.to_owned()),
            Self::Key => own,
            Self::None => None,
        }
    }
}

/// What a job row holds that makes the job a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Post {
    /// Dense within the destination, from 1 on.
    pub(crate) sequence: u64,
    pub(crate) headers: Headers,
}

/// Name and value, in the order in which they were given.
pub(crate) type Headers = Vec<(String, String)>;

/// The queue of a destination.
pub(crate) fn queue_of(destination: &str) -> String {
    format!("{QUEUE_PREFIX}{destination}")
}

/// The destination whose queue that is, if it is one's.
pub(crate) fn destination_of(queue: &str) -> Option<&str> {
    queue.strip_prefix(QUEUE_PREFIX)
}

/// The sequence of a message that is still to be sent; one in quarantine is not.
pub(crate) fn unsent(job: &Job) -> Option<u64> {
    let post = job.post.as_ref()?;
    match &job.state {
        State::Ready(_) | State::Delayed(_) | State::Leased(_) | State::Blocked(_) => {
            Some(post.sequence)
        }
        State::Dead(_) | State::Done(_) | State::Cancelled(_) => None,
    }
}

/// The policy of messages whose destination has none: a receiver that is away for a few hours costs no
/// message.
pub(crate) fn default_policy() -> JobPolicy {
    let schedule = Schedule::exponential(Duration::from_secs(1), Duration::from_secs(15 * 60));
    JobPolicy::new()
        .budget(FailureClass::Transient, 24)
        .budget(FailureClass::Throttled, 24)
        .max_deliveries(48)
        .schedule(schedule)
}
