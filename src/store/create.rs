//! Making a new store. A file appears under its name only when it is whole, so that a name that
//! exists is always a store (or somebody else's file), never a half-made one.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use redb::Database;
use redb::backends::FileBackend;

use crate::error::{OpenError, StorageError};
use crate::store::database::{End, Settings, Sync, database_error, io, open_database, write_in};
use crate::store::meta::{self, Meta};
use crate::store::rows::Rows;
use crate::store::tables::TABLES;

/// Creates the store at `path`. If another process is faster, its file is left alone.
pub(super) fn create(path: &Path, settings: &Settings) -> Result<(), OpenError> {
    let unfinished = unfinished_name(path);
    let made = make(&unfinished, settings).and_then(|()| publish(&unfinished, path));
    // Whether it was published (then this is a second name) or not: the first name must go.
    let removed = fs::remove_file(&unfinished);
    made?;
    match removed {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io(&unfinished, &error).into()),
    }
}

/// `.NAME.creating-PROCESS-N` beside the file. One that is left over from a crash may be deleted.
fn unfinished_name(path: &Path) -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".creating-{}-{count}", std::process::id()));
    path.with_file_name(name)
}

fn make(unfinished: &Path, settings: &Settings) -> Result<(), OpenError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = options.open(unfinished).map_err(|error| io(unfinished, &error))?;
    let backend = FileBackend::new(file).map_err(|error| database_error(unfinished, error))?;
    let database = open_database(unfinished, backend, settings)?;
    initialise(unfinished, &database)?;
    database.close().map_err(|error| database_error(unfinished, error))
}

/// Gives the whole file its name, unless the name is taken by now.
fn publish(unfinished: &Path, path: &Path) -> Result<(), OpenError> {
    match fs::hard_link(unfinished, path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        // A file system without hard links: the name could be taken between these two calls, but
        // only by another creation of an empty store.
        Err(_) if !path.exists() => {
            fs::rename(unfinished, path).map_err(|error| io(path, &error))?;
        }
        Err(_) => return Ok(()),
    }
    sync_directory(path)
}

/// Makes the name itself durable. Directories cannot be opened for that on every system; there,
/// the name becomes durable with the first commit's metadata.
fn sync_directory(path: &Path) -> Result<(), OpenError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if cfg!(unix) {
        let directory = fs::File::open(parent).map_err(|error| io(parent, &error))?;
        directory.sync_all().map_err(|error| io(parent, &error))?;
    }
    Ok(())
}

/// Writes the rows that make a database a store.
pub(super) fn initialise(path: &Path, database: &Database) -> Result<(), OpenError> {
    let written = write_in(database, Sync::Now, |rows| {
        for table in &TABLES {
            // Opening creates; all tables exist from the first commit on.
            rows.count(table.id)?;
        }
        meta::write_format(rows)?;
        let meta = Meta::fresh();
        meta::write(rows, &meta)?;
        Ok(End::Commit)
    });
    written.map_err(|error: StorageError| {
        OpenError::Storage(StorageError::io(format!("{}: {error}", path.display())))
    })
}
