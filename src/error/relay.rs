//! Errors about relays.

use std::fmt;

use super::{BadName, StorageError};

errors! {
    /// The relay was not started.
    RelayError {
        /// A reconciler was given for a destination that has no sink.
        NoSinkFor {
            /// The destination.
            destination: String,
        } => "destination {destination:?} has a reconciler and no sink: give one with Relay::sink";
        /// No sink was given.
        NoSink => "no sink: give one with Relay::sink";
        /// A destination cannot be used.
        BadName {
            /// Why.
            why: BadName,
        } => "the destination cannot be used: {why}";
        /// A sink panicked when it was asked for its `batch_max`.
        SinkPanicked {
            /// Its destination.
            destination: String,
            /// What the panic said.
            message: String,
        } => "batch_max of the sink for {destination:?} panicked: {message}";
        /// A number is zero or too large.
        OutOfRange {
            /// Which one.
            what: &'static str,
            /// Its value.
            value: usize,
            /// The limit.
            value_max: usize,
        } => "{what} is {value}: give it 1 to {value_max}";
    }
}
