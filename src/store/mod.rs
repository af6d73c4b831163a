//! The only layer that names redb, and the only one that knows tables. It decides nothing: what is
//! written was decided by `domain::transition`.

pub(crate) mod admission;
pub(crate) mod amendment;
pub(crate) mod app;
pub(crate) mod backlog;
pub(crate) mod cohort;
pub(crate) mod compact;
pub(crate) mod counter;
pub(crate) mod create;
pub(crate) mod database;
pub(crate) mod dead;
pub(crate) mod effect;
pub(crate) mod history;
pub(crate) mod import;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod mark;
pub(crate) mod meta;
pub(crate) mod names;
pub(crate) mod order;
pub(crate) mod outbox;
pub(crate) mod pause;
pub(crate) mod removal;
pub(crate) mod rows;
pub(crate) mod selection;
pub(crate) mod shared;
pub(crate) mod tables;
pub(crate) mod tombstone;
pub(crate) mod verify;

use crate::error::StorageError;
use crate::format::{Damage, DamagedRow};

impl From<DamagedRow> for StorageError {
    fn from(damage: DamagedRow) -> Self {
        Self::corrupt(damage.to_string())
    }
}

impl From<Damage> for StorageError {
    fn from(damage: Damage) -> Self {
        Self::corrupt(damage.0)
    }
}

/// Damage is the trouble of one row and of those who need it: an answer. Any other error ends the
/// batch.
pub(crate) fn alone<T>(
    read: Result<T, StorageError>,
) -> Result<Result<T, StorageError>, StorageError> {
    match read {
        Err(error) if !error.is_corrupt() => Err(error),
        answer => Ok(answer),
    }
}
