//! The open database: transactions in, typed errors out.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use redb::backends::FileBackend;
use redb::{
    CommitError, Database, DatabaseError, ReadableDatabase, StorageBackend, TransactionError,
};

use crate::error::{OpenError, StorageError};
use crate::store::admission::{Admission, AdmissionBackend};
use crate::store::create;
use crate::store::meta::{self, FORMAT_VERSION, Format};
use crate::store::rows::{Snapshot, WriteRows, storage};
use crate::store::shared::Held;

/// The first bytes of every redb file.
const REDB_MAGIC: [u8; 9] = *b"redb\x1a\x0a\xa9\x0d\x0a";

/// How to open.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) cache_bytes: usize,
    pub(crate) check_integrity: bool,
}

/// Whether a commit waits for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sync {
    /// The commit is on the disk when it returns.
    Now,
    /// The commit is on the disk after a later one that is.
    Later,
}

/// What a write transaction wants to happen at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Abort,
}

/// The open database. Shared by the writer and by readers on the callers' threads.
#[derive(Debug)]
pub(crate) struct Store {
    database: RwLock<Option<Held>>,
    /// Until the store has been taken over.
    admission: Mutex<Option<Admission>>,
    path: PathBuf,
    touched: AtomicU64,
}

impl Store {
    /// Opens or creates the store in the file at `path`.
    pub(crate) fn open(path: &Path, settings: &Settings) -> Result<Self, OpenError> {
        match std::fs::metadata(path) {
            Ok(found) if found.is_dir() => {
                return Err(OpenError::IsDirectory { path: path.to_owned() });
            }
            Ok(found) if found.len() == 0 => {
                return Err(OpenError::Empty { path: path.to_owned() });
            }
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                create::create(path, settings)?;
            }
            Err(error) => return Err(io(path, &error).into()),
        }
        let file = OpenOptions::new().read(true).write(true).open(path);
        let mut file = file.map_err(|error| io(path, &error))?;
        check_magic(path, &mut file)?;
        let backend = FileBackend::new(file).map_err(|error| database_error(path, error))?;
        Self::admit(path, Box::new(backend), settings)
    }

    /// Opens or creates the store in `backend`. Nothing checks that what is there is a redb file.
    #[cfg(feature = "test-util")]
    pub(crate) fn open_backend(
        backend: Box<dyn StorageBackend>,
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let path = Path::new("<backend>");
        let len = backend.len().map_err(|error| io(path, &error))?;
        if len > 0 {
            return Self::admit(path, backend, settings);
        }
        let (backend, admission) = AdmissionBackend::new(backend);
        admission.admit().map_err(|error| io(path, &error))?;
        let database = open_database(path, backend, settings)?;
        create::initialise(path, &database)?;
        Ok(Self::new(Held::Own(database), None, path))
    }

    /// Opens the file if it says that it is a store of a version we read. Nothing is written to it
    /// before [`Self::let_in`].
    fn admit(
        path: &Path,
        backend: Box<dyn StorageBackend>,
        settings: &Settings,
    ) -> Result<Self, OpenError> {
        let (backend, admission) = AdmissionBackend::new(backend);
        let database = open_database(path, backend, settings)?;
        match read_format(path, &database)? {
            Format::Missing => Err(OpenError::Foreign {
                path: path.to_owned(),
                why: "a redb database without redrive's tables".into(),
            }),
            _ => Ok(Self::new(Held::Own(database), Some(admission), path)),
        }
    }

    pub(super) fn new(database: Held, admission: Option<Admission>, path: &Path) -> Self {
        Self {
            database: RwLock::new(Some(database)),
            admission: Mutex::new(admission),
            path: path.to_owned(),
            touched: AtomicU64::new(0),
        }
    }

    /// Rows that write transactions have read or written since the opening.
    #[cfg(feature = "test-util")]
    pub(crate) fn rows_touched(&self) -> u64 {
        self.touched.load(Ordering::Relaxed)
    }

    /// Writes what was held back so far. Called once the store has been taken over, so that damage
    /// that is met while doing so leaves the file as it was.
    pub(crate) fn let_in(&self) -> Result<(), StorageError> {
        let admission = self.admission.lock().take();
        admission
            .map_or(Ok(()), |admission| admission.admit().map_err(|error| io(&self.path, &error)))
    }

    /// What to say when the store cannot be taken over.
    pub(crate) fn opening_error(&self, error: StorageError) -> OpenError {
        if error.is_corrupt() {
            return OpenError::Damaged { path: self.path.clone(), why: error.to_string() };
        }
        error.into()
    }

    /// The file, for messages and sizes.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The length of the file; 0 where it is not in the file system.
    pub(crate) fn file_bytes(&self) -> u64 {
        std::fs::metadata(&self.path).map_or(0, |file| file.len())
    }

    /// Reads from the last commit. `read` must be short: see [`Snapshot`].
    pub(crate) fn read<T>(
        &self,
        read: impl FnOnce(&Snapshot) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        // Recursive: a transaction of this same thread may be open.
        let database = self.database.read_recursive();
        let database = database.as_ref().ok_or_else(StorageError::closed)?;
        caught(|| {
            let transaction = database.begin_read();
            let snapshot = Snapshot(transaction.map_err(|error| transaction_error(&error))?);
            read(&snapshot)
        })
    }

    /// The rows as of the last commit, to be dropped soon: see [`Snapshot`].
    pub(crate) fn snapshot(&self) -> Result<Snapshot, StorageError> {
        // Recursive: a transaction of this same thread may be open.
        let database = self.database.read_recursive();
        let database = database.as_ref().ok_or_else(StorageError::closed)?;
        caught(|| Ok(Snapshot(database.begin_read().map_err(|error| transaction_error(&error))?)))
    }

    /// Runs `write` in one transaction, which is committed or aborted as it says.
    pub(crate) fn write(
        &self,
        sync: Sync,
        write: impl FnOnce(&mut WriteRows<'_>) -> Result<End, StorageError>,
    ) -> Result<(), StorageError> {
        let database = self.database.read();
        let database = database.as_ref().ok_or_else(StorageError::closed)?;
        write_in(database, sync, |rows| {
            let end = write(rows);
            self.touched.fetch_add(rows.reads() + rows.writes(), Ordering::Relaxed);
            end
        })
    }

    /// Closes the file; later calls get `closed`. Waits for reads in progress.
    pub(crate) fn close(&self) -> Result<(), StorageError> {
        self.take().map_or(Ok(()), Held::close)
    }

    /// Waits for reads in progress.
    pub(super) fn take(&self) -> Option<Held> {
        self.database.write().take()
    }
}

/// What the database says it is, if that is a version we read or nothing at all.
pub(super) fn read_format(path: &Path, database: &Database) -> Result<Format, OpenError> {
    let format = catch(path, || {
        let snapshot = Snapshot(database.begin_read().map_err(|e| transaction_error(&e))?);
        meta::read_format(&snapshot)
    })?;
    let path = path.to_owned();
    match format {
        Format::Version(found) if found > FORMAT_VERSION => {
            Err(OpenError::Newer { path, found, supported: FORMAT_VERSION })
        }
        Format::Version(FORMAT_VERSION) | Format::Missing => Ok(format),
        Format::Version(_) | Format::Damaged => {
            Err(OpenError::Damaged { path, why: "its format row makes no sense".into() })
        }
    }
}

pub(super) fn close(database: Database) -> Result<(), StorageError> {
    caught(|| {
        database.close().map_err(|error| match error {
            DatabaseError::Storage(error) => storage(error),
            other => StorageError::io(other.to_string()),
        })
    })
}

/// One write transaction on `database`.
pub(crate) fn write_in(
    database: &Database,
    sync: Sync,
    write: impl FnOnce(&mut WriteRows<'_>) -> Result<End, StorageError>,
) -> Result<(), StorageError> {
    let mut transaction = database.begin_write().map_err(|error| transaction_error(&error))?;
    if sync == Sync::Later {
        transaction
            .set_durability(redb::Durability::None)
            .map_err(|error| StorageError::internal(error.to_string()))?;
    }
    let mut rows = WriteRows::new(&transaction);
    let Ok(end) = catch_unwind(AssertUnwindSafe(|| write(&mut rows))) else {
        // Damaged pages can make the storage engine panic, and would do so again while it cleans up,
        // which nothing could catch. The store is not written to after this; what is leaked here goes
        // with the process.
        std::mem::forget(rows);
        std::mem::forget(transaction);
        return Err(StorageError::corrupt("a panic while writing: damaged pages, or a bug"));
    };
    drop(rows);
    match end {
        Ok(End::Commit) => caught(|| {
            transaction.commit().map_err(|error| match error {
                CommitError::Storage(error) => storage(error),
                other => StorageError::internal(other.to_string()),
            })
        }),
        Ok(End::Abort) => caught(|| transaction.abort().map_err(storage)),
        // The first error is the one worth telling; the transaction is dropped, which aborts it.
        Err(error) => Err(error),
    }
}

pub(super) fn open_database(
    path: &Path,
    backend: impl StorageBackend,
    settings: &Settings,
) -> Result<Database, OpenError> {
    let mut builder = Database::builder();
    builder.set_cache_size(settings.cache_bytes);
    builder.set_check_integrity_on_open(settings.check_integrity);
    let opened = catch_unwind(AssertUnwindSafe(|| builder.create_with_backend(backend)));
    opened.map_err(|_| damaged(path))?.map_err(|error| database_error(path, error))
}

/// A damaged file can make the storage engine panic; here that is an answer like any other.
pub(super) fn catch<T>(
    path: &Path,
    read: impl FnOnce() -> Result<T, StorageError>,
) -> Result<T, OpenError> {
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) if error.is_corrupt() => {
            Err(OpenError::Damaged { path: path.to_owned(), why: error.to_string() })
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(damaged(path)),
    }
}

/// As [`catch`], for a store that is open already: its pages are not all looked at when it opens.
pub(crate) fn caught<T>(
    access: impl FnOnce() -> Result<T, StorageError>,
) -> Result<T, StorageError> {
    let panicked = |_| Err(StorageError::corrupt(NO_SENSE));
    catch_unwind(AssertUnwindSafe(access)).unwrap_or_else(panicked)
}

const NO_SENSE: &str = "the storage engine could not make sense of its pages";

fn damaged(path: &Path) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), why: NO_SENSE.into() }
}

fn check_magic(path: &Path, file: &mut File) -> Result<(), OpenError> {
    let mut head = Vec::with_capacity(REDB_MAGIC.len());
    let limit = u64::try_from(REDB_MAGIC.len()).unwrap_or(u64::MAX);
    file.take(limit).read_to_end(&mut head).map_err(|error| io(path, &error))?;
    if head == REDB_MAGIC {
        return Ok(());
    }
    let path = path.to_owned();
    if REDB_MAGIC.starts_with(&head) {
        return Err(OpenError::Damaged { path, why: "it is cut short".into() });
    }
    Err(OpenError::Foreign { path, why: "it does not begin as a redb database does".into() })
}

pub(super) fn io(path: &Path, error: &std::io::Error) -> StorageError {
    StorageError::io(format!("{}: {error}", path.display()))
}

pub(super) fn transaction_error(error: &TransactionError) -> StorageError {
    match error {
        TransactionError::Storage(redb::StorageError::Corrupted(message)) => {
            StorageError::corrupt(message.clone())
        }
        TransactionError::Storage(redb::StorageError::DatabaseClosed) => StorageError::closed(),
        other => StorageError::io(other.to_string()),
    }
}

pub(super) fn database_error(path: &Path, error: DatabaseError) -> OpenError {
    let path = path.to_owned();
    match error {
        DatabaseError::DatabaseAlreadyOpen | DatabaseError::LockProtocolMismatch => {
            OpenError::InUse { path }
        }
        DatabaseError::UpgradeRequired(version) => OpenError::Foreign {
            path,
            why: format!("a redb database of file format {version}, which redrive never wrote"),
        },
        DatabaseError::Storage(redb::StorageError::Corrupted(why)) => {
            OpenError::Damaged { path, why }
        }
        DatabaseError::Storage(redb::StorageError::Io(error))
            if matches!(
                error.kind(),
                std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::InvalidData
            ) =>
        {
            OpenError::Damaged { path, why: format!("it is cut short or altered: {error}") }
        }
        DatabaseError::Storage(error) => OpenError::Storage(storage(error)),
        other => OpenError::Damaged { path, why: other.to_string() },
    }
}
