//! How a store is opened.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, SystemClock};
use crate::domain::limits::{PAYLOAD_BYTES_CEILING, PAYLOAD_BYTES_MAX};
use crate::domain::time::whole_ms;
use crate::error::OpenError;
use crate::handle::redrive::Redrive;
use crate::store::app::Database;
use crate::store::database::{Settings, Store};
use crate::writer::Durability;

/// The least page cache that makes sense, in bytes (1 MiB).
const CACHE_BYTES_MIN: usize = 1024 * 1024;

const DAY_MINUTES: u64 = 24 * 60;
/// The longest time for which figures per minute are kept, in minutes (a year).
const WINDOW_MINUTES_MAX: u64 = 366 * DAY_MINUTES;

/// How to open a store. [`Redrive::open`] uses the defaults.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("jobs.redb");
/// use redrive::Options;
///
/// let jobs = Options::new().payload_bytes_max(64 * 1024).cache_bytes(16 * 1024 * 1024).open(path)?;
/// jobs.close()?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) durability: Durability,
    pub(crate) payload_bytes_max: usize,
    pub(crate) window_minutes: u64,
    cache_bytes: usize,
    check_integrity: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(SystemClock::new()),
            durability: Durability::Immediate,
            payload_bytes_max: PAYLOAD_BYTES_MAX,
            window_minutes: 7 * DAY_MINUTES,
            cache_bytes: 64 * 1024 * 1024,
            check_integrity: false,
        }
    }
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Where time comes from (default: the operating system).
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Whether calls wait for the disk (default: they do).
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// The longest payload in bytes (default 1 MiB, at most 256 MiB). Longer ones are refused with
    /// [`EnqueueError::PayloadTooLarge`](crate::EnqueueError::PayloadTooLarge).
    #[must_use]
    pub fn payload_bytes_max(mut self, bytes: usize) -> Self {
        self.payload_bytes_max = bytes;
        self
    }

    /// For how long figures per minute are kept, in whole minutes (default 7 days, 1 minute to 366
    /// days). They are what [`Redrive::report`] looks back with.
    #[must_use]
    pub fn keep_windows(mut self, life: Duration) -> Self {
        self.window_minutes = whole_ms(life) / 60_000;
        self
    }

    /// Memory for the page cache in bytes (default 64 MiB, at least 1 MiB).
    #[must_use]
    pub fn cache_bytes(mut self, bytes: usize) -> Self {
        self.cache_bytes = bytes;
        self
    }

    /// Checks every page's checksum when opening, not only after a crash: finds a file that was
    /// altered by something else, at the price of reading it whole.
    #[must_use]
    pub fn check_integrity(mut self) -> Self {
        self.check_integrity = true;
        self
    }

    /// Opens the store at `path`, or creates it there.
    ///
    /// The file is locked for this process until the last handle is closed or dropped. Jobs that
    /// were leased when an earlier process died become suspects at once (P12).
    ///
    /// # Errors
    ///
    /// [`OpenError`]: the file is in use, is something else, is damaged, was written by a newer
    /// version, is a directory or is empty; it is then left exactly as it was. Or an option is out
    /// of range, or the operating system refused.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Redrive, OpenError> {
        let settings = self.settings()?;
        Redrive::start(Store::open(path.as_ref(), &settings)?, &self)
    }

    /// Opens the store inside the app's own database, or makes it there in one transaction. Its tables have
    /// names that begin with `redrive/`; a database in which these are of a newer format, or damaged, is
    /// refused before anything is written. Closing the store leaves the database open.
    ///
    /// With [`Redrive::transact`], rows in the app's own tables and jobs commit together. The app may also write
    /// to its tables with transactions of its own, beside the store.
    ///
    /// **redb has one writer, and `begin_write` waits for it.** So a thread that has a write transaction of its
    /// own open must not call anything of the store that writes (`enqueue`, `complete`, `close`, dropping the last handle ...): the store
    /// would wait for the transaction, and the thread for the store, for ever. Commit first, or use
    /// [`Redrive::transact`]; inside that, `begin_write` would wait for ever, too. For as long as a write
    /// transaction of the app's is open, no job moves. And a savepoint of the app's must not be restored: it
    /// would take the jobs back, too, behind the store's back.
    ///
    /// The options [`cache_bytes`](Self::cache_bytes) and [`check_integrity`](Self::check_integrity) are the
    /// database's own business and change nothing here. The version of redb is part of this crate's API:
    /// use it as [`redrive::redb`](crate::redb).
    ///
    /// # Errors
    ///
    /// [`OpenError`]: a store is in use in this database already, its format is newer, it is damaged, or
    /// an option is out of range.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// use std::sync::Arc;
    /// use redrive::redb::{Database, TableDefinition};
    /// use redrive::{NewJob, Redrive};
    ///
    /// const ORDERS: TableDefinition<&str, u64> = TableDefinition::new("orders");
    ///
    /// let database = Arc::new(Database::create(dir.path().join("app.redb"))?);
    /// let jobs = Redrive::with_database(Arc::clone(&database))?;
    /// jobs.transact(|tx| {
    ///     tx.open_table(ORDERS)?.insert("O-194", 4_900)?;
    ///     tx.enqueue(NewJob::new("charges", "charge").bytes("O-194"))
    /// })?;
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_database(self, database: Arc<Database>) -> Result<Redrive, OpenError> {
        self.settings()?;
        Redrive::start(Store::open_shared(database)?, &self)
    }

    /// Opens the store in a storage backend, for tests. Feature `test-util`.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    #[cfg(feature = "test-util")]
    pub fn open_backend(self, backend: impl redb::StorageBackend) -> Result<Redrive, OpenError> {
        let settings = self.settings()?;
        Redrive::start(Store::open_backend(Box::new(backend), &settings)?, &self)
    }

    fn settings(&self) -> Result<Settings, OpenError> {
        let bad = |option, why: String| Err(OpenError::BadOption { option, why });
        if self.payload_bytes_max == 0 || self.payload_bytes_max > PAYLOAD_BYTES_CEILING {
            let why = format!("{} is not in 1..={PAYLOAD_BYTES_CEILING}", self.payload_bytes_max);
            return bad("payload_bytes_max", why);
        }
        if self.cache_bytes < CACHE_BYTES_MIN {
            return bad("cache_bytes", format!("{} is less than 1 MiB", self.cache_bytes));
        }
        if !(1..=WINDOW_MINUTES_MAX).contains(&self.window_minutes) {
            let why = "it is not between 1 minute and 366 days".into();
            return bad("keep_windows", why);
        }
        if self.durability == (Durability::Deferred { flush_every_ms: 0 }) {
            return bad("durability", "flush_every_ms is 0: use Durability::Immediate".into());
        }
        Ok(Settings { cache_bytes: self.cache_bytes, check_integrity: self.check_integrity })
    }
}
