//! Errors about pauses.

use std::fmt;

use super::{BadName, StorageError};

errors! {
    /// Nothing was paused or resumed.
    PauseError {
        /// A name cannot be used.
        BadName {
            /// Which of them.
            what: &'static str,
            /// Why.
            why: BadName,
        } => "the {what} cannot be used: {why}";
        /// No reason was given. Whoever finds the pause later has nothing else to go by.
        NoReason => "a pause needs a reason: say why, for whoever finds it";
        /// The file knows as many queues, kinds or pauses as it may.
        TooMany {
            /// Of what.
            what: &'static str,
            /// The limit.
            count_max: usize,
        } => "there are already {count_max} {what}, the most one file may hold";
    }
}
