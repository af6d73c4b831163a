//! Trouble with tables of the user's own.

use std::fmt;

use super::{BadName, StorageError};
use crate::domain::effect::TableSpec;

errors! {
    /// A table of the user's own could not be read or written. Nothing was written.
    EffectError {
        /// The table's name cannot be used.
        BadTable {
            /// The name.
            table: String,
            /// Why.
            why: BadName,
        } => "the effect table {table:?} cannot be used: {why}";
        /// The table's name begins with `redrive/`, as those of the store itself do.
        ReservedTable {
            /// The name.
            table: String,
        } => "the table name {table:?} is reserved: names that begin with \"redrive/\" are the store's own";
        /// The table was made with other types.
        OtherTypes {
            /// The table.
            table: String,
            /// Types of key and value as it was made.
            found: String,
            /// Those that were asked for.
            asked: String,
        } => "effect table {table:?} holds {found}, not {asked}: use the types it was made with, or another name";
        /// A key's or a value's encoder failed or panicked.
        Unencodable {
            /// The table.
            table: String,
            /// What it said.
            message: String,
        } => "what is to be put into effect table {table:?} could not be encoded: {message}";
        /// A stored key or value does not fit the type it is read as.
        Undecodable {
            /// The table.
            table: String,
            /// What the decoder said.
            message: String,
        } => "a row of effect table {table:?} could not be decoded: {message}";
        /// The key is longer than the limit.
        KeyTooLong {
            /// The table.
            table: String,
            /// Its length in bytes.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "a key for effect table {table:?} has {bytes} bytes, the limit is {bytes_max}: use its hash";
        /// What is to be written along is larger than the limit.
        TooLarge {
            /// How much it is, in bytes, as far as it was counted.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "the effects have {bytes} bytes, the limit is {bytes_max}: split the work into several jobs or steps";
        /// More follow-up jobs than allowed.
        TooManyFollowUps {
            /// The limit.
            jobs_max: usize,
        } => "more than {jobs_max} follow-up jobs: enqueue one that enqueues the others";
        /// The file holds as many tables of the user's own as it may.
        TooManyTables {
            /// The limit.
            count_max: usize,
        } => "there are already {count_max} effect tables, the most one file may hold: put what varies into the key";
    }
}

impl EffectError {
    /// The table was made with other types than are asked for.
    pub(crate) fn other_types(asked: TableSpec, key: &str, value: &str) -> Self {
        Self::OtherTypes {
            table: asked.name.to_owned(),
            found: format!("{key} -> {value}"),
            asked: format!("{} -> {}", asked.key, asked.value),
        }
    }
}
