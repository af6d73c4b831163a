//! Identities. Every id is a newtype, so that two of them cannot be swapped in a call.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$meta:meta])* $vis:vis $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        $vis struct $name($inner);

        impl $name {
            /// Wraps the number.
            #[must_use]
            $vis const fn new(number: $inner) -> Self {
                Self(number)
            }

            /// The number itself.
            #[must_use]
            $vis const fn get(self) -> $inner {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id! {
    /// A job's identity: never reused in a file, growing in the order in which jobs were accepted
    /// (with gaps, because retries draw from the same sequence).
    pub JobId(u64)
}
id! {
    /// A cohort's identity. Drawn from the same sequence as job ids: it lies after every job that could
    /// be a member.
    pub CohortId(u64)
}
id! {
    /// The small number a queue's name is stored as.
    pub(crate) QueueId(u32)
}
id! {
    /// The small number a kind's name is stored as.
    pub(crate) KindId(u32)
}
id! {
    /// The small number a stored policy is known by.
    pub(crate) PolicyId(u32)
}
id! {
    /// Counts the openings of a file; a lease carries the number of the opening that granted it.
    pub(crate) Instance(u64)
}

/// The job class: what counters are kept by and claims choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Class {
    pub(crate) queue: QueueId,
    pub(crate) kind: KindId,
}

/// What fences a lease (P5): the job and the number of this delivery, which only goes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token {
    /// The leased job.
    pub job: JobId,
    /// Which of the job's deliveries this lease is, counted from 1 over its whole life.
    pub delivery: u32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {} delivery {}", self.job, self.delivery)
    }
}
