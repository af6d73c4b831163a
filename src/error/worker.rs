//! Errors about workers.

use std::fmt;

use super::{BadName, StorageError};

errors! {
    /// The workers were not started.
    WorkersError {
        /// No queue was named.
        NoQueue => "no queue to serve: name one with Workers::queue";
        /// Neither a handler nor a reconciler was given.
        NoHandler => "no handler: give one with Workers::handle";
        /// A queue or a kind cannot be used.
        BadName {
            /// Which of them.
            what: &'static str,
            /// Why.
            why: BadName,
        } => "the {what} cannot be used: {why}";
        /// Zero threads, or too many.
        BadThreads {
            /// The queue.
            queue: String,
            /// How many were asked for.
            threads: usize,
            /// The limit.
            threads_max: usize,
        } => "queue {queue:?} was given {threads} threads: give it 1 to {threads_max}";
    }
}
