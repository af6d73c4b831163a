//! The only layer that names redb, and the only one that knows tables. It decides nothing: what is
//! written was decided by `domain::transition`.

pub(crate) mod admission;
pub(crate) mod counter;
pub(crate) mod create;
pub(crate) mod database;
pub(crate) mod history;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod meta;
pub(crate) mod names;
pub(crate) mod rows;
pub(crate) mod tables;
pub(crate) mod tombstone;
pub(crate) mod verify;

use crate::error::StorageError;
use crate::format::Damage;

impl From<Damage> for StorageError {
    fn from(damage: Damage) -> Self {
        Self::corrupt(damage.0)
    }
}
