//! Errors about the quarantine.

use std::fmt;

use super::StorageError;
use crate::domain::filter::BadFilter;
use crate::domain::id::JobId;
use crate::domain::job::JobState;

errors! {
    /// Dead jobs could not be listed or discarded.
    DeadError {
        /// The filter cannot be used. Nothing was done.
        Filter {
            /// What is wrong with it.
            why: BadFilter,
        } => "{why}";
        /// No reason was given. Nothing was done.
        NoReason => "no reason was given: say why these jobs are discarded";
    }

    /// Dead jobs were not all written.
    ExportError {
        /// The filter cannot be used. Nothing was written.
        Filter {
            /// What is wrong with it.
            why: BadFilter,
        } => "{why}";
        /// The output failed. What was written before is there.
        Output {
            /// What it said.
            message: String,
        } => "the export could not be written: {message}";
    }

    /// An import ended early. What was read before is imported; it may be repeated.
    ImportError {
        /// The input failed.
        Input {
            /// The line, counted from 1.
            line: u64,
            /// What it said.
            message: String,
        } => "line {line} of the import could not be read: {message}";
    }

    /// A job was not amended. Nothing changed.
    AmendError {
        /// There is no such job.
        NotFound {
            /// The id.
            job: JobId,
        } => "there is no job {job}: it never existed, or it finished and its row is gone";
        /// The job is not dead.
        WrongState {
            /// The id.
            job: JobId,
            /// Its state.
            state: JobState,
        } => "job {job} is {state}: only dead jobs can be amended";
        /// No note was given.
        NoNote => "no note was given: say why the payload is replaced";
        /// The payload is larger than the store's limit.
        PayloadTooLarge {
            /// Its length in bytes.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "the payload has {bytes} bytes, the limit is {bytes_max}";
    }
}
