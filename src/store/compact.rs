//! Giving the space that is not used back to the file system, at the end.

use redb::{CompactionError, Database};

use crate::error::{CompactError, StorageError};
use crate::store::database::{Store, caught};
use crate::store::rows::storage;
use crate::store::shared::Held;

impl Store {
    /// Closes the file, after compacting it where it is the store's own and nobody holds it back. Waits
    /// for reads in progress.
    pub(crate) fn compact(&self) -> Result<(), CompactError> {
        match self.take() {
            Some(Held::Own(mut database)) => {
                let compacted = compact(&mut database);
                let closed = Held::Own(database).close();
                compacted.and(closed.map_err(CompactError::Storage))
            }
            Some(Held::Shared { .. }) => Err(CompactError::Shared),
            None => Err(StorageError::closed().into()),
        }
    }
}

fn compact(database: &mut Database) -> Result<(), CompactError> {
    let compacted = caught(|| {
        Ok(match database.compact() {
            Ok(_) => Ok(()),
            Err(
                CompactionError::PersistentSavepointExists
                | CompactionError::EphemeralSavepointExists,
            ) => Err(CompactError::Savepoint),
            Err(CompactionError::Storage(error)) => Err(storage(error).into()),
            Err(other) => Err(StorageError::internal(other.to_string()).into()),
        })
    });
    compacted.unwrap_or_else(|error| Err(error.into()))
}
