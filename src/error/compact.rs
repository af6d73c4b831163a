//! Errors about compaction.

use std::fmt;

use super::StorageError;

errors! {
    /// The file was not compacted. The store is closed, and nothing in it has changed.
    CompactError {
        /// The store is in a database of the app's own ([`Redrive::with_database`](crate::Redrive::with_database)).
        Shared => "the database belongs to the app: compact it there, with redb's Database::compact";
        /// Another user of the file has left a savepoint of redb's in it, which keeps all pages of its time.
        Savepoint => "the file has a savepoint, which redrive never makes: delete it with the tool that made it";
    }
}
