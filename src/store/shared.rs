//! A store inside a database of the app's own.

use std::collections::BTreeSet;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::{Database, ReadableDatabase, TableHandle};

use crate::error::{OpenError, StorageError};
use crate::store::create;
use crate::store::database::{Store, catch, close, read_format, transaction_error};
use crate::store::meta::Format;
use crate::store::rows::storage;

/// How messages call a database of which no path is known.
const NAME: &str = "<the app's database>";

/// The open database: the store's own, or one that it shares with the app.
#[derive(Debug)]
pub(crate) enum Held {
    Own(Database),
    /// Let go of in this order: the address is free before another database can have it.
    Shared {
        _sole: Sole,
        database: Arc<Database>,
    },
}

impl Deref for Held {
    type Target = Database;

    fn deref(&self) -> &Database {
        match self {
            Self::Own(database) => database,
            Self::Shared { database, .. } => database,
        }
    }
}

impl Held {
    /// Closes what is the store's own; the app's database stays open.
    pub(crate) fn close(self) -> Result<(), StorageError> {
        match self {
            Self::Own(database) => close(database),
            Self::Shared { .. } => Ok(()),
        }
    }
}

/// The databases of this process that have a store in use, by their address.
static IN_USE: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// The right to be the only store in a database: a second one would be a second writer that knows nothing
/// of what the first one has in memory.
#[derive(Debug)]
pub(crate) struct Sole(usize);

impl Sole {
    fn of(database: &Arc<Database>) -> Option<Self> {
        // The address is this database's for as long as it is held, which is as long as this lives.
        let address = Arc::as_ptr(database).addr();
        let is_free = IN_USE.lock().insert(address);
        // Made only if it is to be dropped some day, which frees the address.
        is_free.then(|| Self(address))
    }
}

impl Drop for Sole {
    fn drop(&mut self) {
        IN_USE.lock().remove(&self.0);
    }
}

impl Store {
    /// Opens the store in `database`, or makes it there in one transaction.
    pub(crate) fn open_shared(database: Arc<Database>) -> Result<Self, OpenError> {
        let path = Path::new(NAME);
        let sole = Sole::of(&database);
        let sole = sole.ok_or_else(|| OpenError::InUse { path: path.to_owned() })?;
        if read_format(path, &database)? == Format::Missing {
            if has_our_tables(path, &database)? {
                let why = "its format row is missing".into();
                return Err(OpenError::Damaged { path: path.to_owned(), why });
            }
            create::initialise(path, &database)?;
        }
        Ok(Self::new(Held::Shared { _sole: sole, database }, None, path))
    }
}

fn has_our_tables(path: &Path, database: &Database) -> Result<bool, OpenError> {
    catch(path, || {
        let snapshot = database.begin_read().map_err(|error| transaction_error(&error))?;
        let mut tables = snapshot.list_tables().map_err(storage)?;
        Ok(tables.any(|table| crate::domain::effect::is_reserved(table.name())))
    })
}
