//! The handle of an open store.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::domain::id::JobId;
use crate::domain::time::Timestamp;
use crate::error::{CancelError, EnqueueError, OpenError, StorageError};
use crate::handle::job::JobInfo;
use crate::handle::new_job::NewJob;
use crate::handle::options::Options;
use crate::handle::stats::Stats;
use crate::store::app::Database;
use crate::store::database::Store;
use crate::store::rows::Rows;
use crate::store::verify::{VerifyReport, verify};
use crate::writer::Writer;
use crate::writer::command::{BatchRule, Cancelled, Command, Enqueue, Enqueued, SweepReport};
use crate::writer::events::Events;

/// An open store: the handle through which everything is done. Cheap to clone; all clones share one
/// writer. Dropping the last one closes the store.
///
/// Every call that changes something returns after the commit that contains it is on the disk
/// (unless the store was opened with [`Durability::Deferred`](crate::Durability::Deferred)).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("jobs.redb");
/// use redrive::{ClaimRequest, NewJob, Redrive};
///
/// let jobs = Redrive::open(path)?;
/// jobs.enqueue(NewJob::new("mail", "welcome").bytes("ada@example.org").key("welcome:ada"))?;
/// for lease in jobs.claim(ClaimRequest::new("mail"))? {
///     println!("{}", String::from_utf8_lossy(lease.payload()));
///     lease.complete()?;
/// }
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Redrive(Arc<Inner>);

struct Inner {
    store: Arc<Store>,
    writer: Writer,
    clock: Arc<dyn Clock>,
    payload_bytes_max: usize,
    window_minutes: u64,
    /// Enqueues refused before they reached the writer, since the opening.
    refused: AtomicU64,
    /// The longest `read`, in milliseconds.
    longest_read_ms: AtomicU64,
    recovered: SweepReport,
}

impl fmt::Debug for Redrive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redrive").field("path", &self.0.store.path()).finish_non_exhaustive()
    }
}

impl Redrive {
    /// Opens the store at `path` with the default options, or creates it there.
    ///
    /// # Errors
    ///
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Options::new().open(path)
    }

    /// The queue inside the app's own redb database, with the default options.
    ///
    /// # Errors
    ///
    /// As [`Options::with_database`], which says what there is to know.
    pub fn with_database(database: Arc<Database>) -> Result<Self, OpenError> {
        Options::new().with_database(database)
    }

    pub(crate) fn start(store: Store, options: &Options) -> Result<Self, OpenError> {
        let store = Arc::new(store);
        let clock = Arc::clone(&options.clock);
        let started =
            Writer::start(Arc::clone(&store), clock, options.durability, options.window_minutes);
        let (writer, recovered) = match started {
            Ok(started) => started,
            Err(error) => {
                // The error is the news; a close that fails as well adds nothing.
                let _ = store.close();
                return Err(store.opening_error(error));
            }
        };
        Ok(Self(Arc::new(Inner {
            store,
            writer,
            clock: Arc::clone(&options.clock),
            payload_bytes_max: options.payload_bytes_max,
            window_minutes: options.window_minutes,
            refused: AtomicU64::new(0),
            longest_read_ms: AtomicU64::new(0),
            recovered,
        })))
    }

    /// Adds one job.
    ///
    /// With a key, a second request with the same key, kind and payload is answered with the first
    /// job ([`Enqueued::Duplicate`]); see [`JobPolicy`](crate::JobPolicy) for how long a key is
    /// remembered. Keys belong to their queue.
    ///
    /// # Errors
    ///
    /// [`EnqueueError`]: a bad name or key, a payload over the limit, a key that belongs to another
    /// request, or the store's own trouble. Nothing was written then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{EnqueueError, NewJob};
    ///
    /// let charge = |cents: &str| NewJob::new("charges", "charge").bytes(cents).key("charge:O-194");
    /// let first = jobs.enqueue(charge("4900"))?;
    /// assert_eq!(jobs.enqueue(charge("4900"))?.job(), first.job());
    /// assert!(matches!(jobs.enqueue(charge("1")), Err(EnqueueError::KeyConflict { .. })));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue(&self, job: NewJob) -> Result<Enqueued, EnqueueError> {
        let mut outcomes = self.enqueue_many([job], BatchRule::PerItem)?;
        let none = || StorageError::internal("an enqueue had no outcome");
        outcomes.pop().ok_or_else(none)?
    }

    /// Adds up to 100,000 jobs in one commit; one outcome per job, in order.
    ///
    /// With [`BatchRule::PerItem`] the good ones are written and the others told why not. With
    /// [`BatchRule::AllOrNothing`] one refusal withholds all.
    ///
    /// # Errors
    ///
    /// [`EnqueueError::BatchTooLarge`], or [`EnqueueError::Storage`]: nothing was written then. What
    /// is wrong with a single job is that job's outcome.
    pub fn enqueue_many(
        &self,
        jobs: impl IntoIterator<Item = NewJob>,
        rule: BatchRule,
    ) -> Result<Vec<Result<Enqueued, EnqueueError>>, EnqueueError> {
        let jobs_max = crate::domain::limits::BATCH_MAX;
        let prepare = |job: NewJob| job.prepare(self.0.payload_bytes_max);
        // One more than allowed is enough to know.
        let prepared: Vec<_> = jobs.into_iter().take(jobs_max + 1).map(prepare).collect();
        if prepared.len() > jobs_max {
            return Err(EnqueueError::BatchTooLarge { jobs: prepared.len(), jobs_max });
        }
        let refused = prepared.iter().filter(|job| job.is_err()).count();
        self.0.refused.fetch_add(u64::try_from(refused).unwrap_or(u64::MAX), Ordering::Relaxed);
        if let Some(first) = prepared.iter().position(Result::is_err)
            && rule == BatchRule::AllOrNothing
        {
            let withheld = || EnqueueError::Withheld { refused: first };
            return Ok(prepared
                .into_iter()
                .map(|job| Err(job.err().unwrap_or_else(withheld)))
                .collect());
        }
        let (items, refusals): (Vec<_>, Vec<_>) = prepared
            .into_iter()
            .map(|job| match job {
                Ok(item) => (Some(item), None),
                Err(error) => (None, Some(error)),
            })
            .unzip();
        let items: Vec<_> = items.into_iter().flatten().collect();
        let mut outcomes = if items.is_empty() {
            Vec::new().into_iter()
        } else {
            self.ask(|reply| Command::Enqueue(Enqueue { items, rule, reply }))??.into_iter()
        };
        let missing = || Err(StorageError::internal("an enqueue had no outcome").into());
        let merge = |refusal: Option<EnqueueError>| match refusal {
            Some(error) => Err(error),
            None => outcomes.next().unwrap_or_else(missing),
        };
        Ok(refusals.into_iter().map(merge).collect())
    }

    /// Cancels a job. One that has not started is cancelled at once; one that is with a worker is
    /// cancelled when the delivery ends in anything but success (see [`Cancelled`]).
    ///
    /// # Errors
    ///
    /// [`CancelError`]: there is no such job, or it has ended.
    pub fn cancel(&self, job: JobId) -> Result<Cancelled, CancelError> {
        self.ask(|reply| Command::Cancel { job, reply })?
    }

    /// One job with its history, as of the last commit; `None` when there is no such job (finished
    /// jobs are forgotten after the time their policy states).
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the row cannot be read.
    pub fn job(&self, job: JobId) -> Result<Option<JobInfo>, StorageError> {
        self.0.store.read(|rows| JobInfo::read(rows, job))
    }

    /// The payload of one job; `None` when there is no such job or it has finished.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the row cannot be read.
    pub fn payload(&self, job: JobId) -> Result<Option<Vec<u8>>, StorageError> {
        use crate::store::job;
        self.0.store.read(|rows| match job::read(rows, job)? {
            Some(found) => job::payload(rows, &found),
            None => Ok(None),
        })
    }

    /// Counts by state, in total, per queue and per kind. Read from kept counters: the cost does
    /// not depend on the number of jobs.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the counters cannot be read.
    pub fn stats(&self) -> Result<Stats, StorageError> {
        let refused = self.0.refused.load(Ordering::Relaxed);
        let longest_write_ms = self.0.writer.longest_write_ms();
        let stats = self.0.store.read(Stats::read)?;
        let longest_transaction_ms = self.0.writer.longest_transaction_ms();
        let longest_read_ms = self.0.longest_read_ms.load(Ordering::Relaxed);
        Ok(Stats { refused, longest_write_ms, longest_transaction_ms, longest_read_ms, ..stats })
    }

    /// One bounded pass over what time has changed: due jobs, ended leases, finished jobs to be
    /// forgotten. The writer does this by itself; this call is for those who want it now, and know
    /// afterwards that it was done.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the commit failed.
    pub fn sweep(&self) -> Result<SweepReport, StorageError> {
        self.ask(|reply| Command::Sweep { reply })?
    }

    /// What the opening found left behind by a process that died: leases recovered, jobs dead of it.
    #[must_use]
    pub fn recovered(&self) -> SweepReport {
        self.0.recovered
    }

    /// Reads everything and compares: indexes, keys, payloads, history and counters against the job
    /// rows. Takes time in proportion to the file, constant memory, and keeps old pages from being
    /// reused while it runs.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the file cannot be read; differences are in the report.
    pub fn verify(&self) -> Result<VerifyReport, StorageError> {
        self.0.store.read(|rows| verify(rows, self.now(rows)?))
    }

    /// Subscribes to what happens from now on: jobs that die, leases that expire, cohorts, pauses and
    /// holds. Events are told once they are committed, each subscriber in its own queue of 1,024; who
    /// does not keep up misses some, is told how many, and holds up nobody.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use std::time::Duration;
    /// use redrive::{ClaimRequest, EventKind, Failure, NewJob};
    ///
    /// let mut events = jobs.events();
    /// jobs.enqueue(NewJob::new("mail", "welcome"))?;
    /// jobs.claim(ClaimRequest::new("mail"))?.remove(0).fail(Failure::permanent("E_ADDRESS"))?;
    /// let event = events.recv(Duration::from_secs(1)).ok_or("nothing happened")?;
    /// assert!(matches!(event.what, EventKind::JobDied { code, .. } if code == "E_ADDRESS"));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn events(&self) -> Events {
        self.0.writer.board.subscribe(Arc::clone(&self.0.clock))
    }

    /// Whether the store has stopped writing, and why: see [`StorageError::is_poisoned`].
    #[must_use]
    pub fn poisoned(&self) -> Option<StorageError> {
        self.0.writer.poisoned()
    }

    /// Closes the store for all handles: what has arrived is finished and committed, waiting claims
    /// are answered, the file is unlocked. Later calls get an error for which
    /// [`StorageError::is_closed`] holds. A lease still held then counts as in flight when the
    /// process ended.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the file could not be closed cleanly; what was acknowledged is safe.
    pub fn close(self) -> Result<(), StorageError> {
        if self.0.writer.is_lent_here() {
            return Err(StorageError::nested());
        }
        self.0.writer.close();
        let closed = self.0.store.close();
        self.0.writer.poisoned().map_or(closed, Err)
    }

    /// Rows that the writer has read or written since the opening: what a call costs, in a number
    /// that does not depend on the machine. Feature `test-util`.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn rows_touched(&self) -> u64 {
        self.0.store.rows_touched()
    }

    pub(crate) fn note_read(&self, took_ms: u64) {
        self.0.longest_read_ms.fetch_max(took_ms, Ordering::Relaxed);
    }

    pub(crate) fn payload_bytes_max(&self) -> usize {
        self.0.payload_bytes_max
    }

    /// The store's time as a reader can tell it: the wall clock, or the latest commit where that is
    /// ahead.
    pub(crate) fn now(&self, rows: &impl Rows) -> Result<Timestamp, StorageError> {
        let latest = crate::store::meta::read(rows)?.map(|meta| meta.latest);
        Ok(latest.unwrap_or_default().max(self.0.clock.wall()))
    }

    pub(crate) fn window_minutes(&self) -> u64 {
        self.0.window_minutes
    }

    /// A number that tells this file from others.
    pub(crate) fn store_number(&self) -> Result<u64, StorageError> {
        self.0.store.read(|rows| Ok(crate::store::meta::read(rows)?.map_or(0, |meta| meta.seed)))
    }

    pub(crate) fn store(&self) -> &Store {
        &self.0.store
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.0.writer
    }

    pub(crate) fn clock(&self) -> &Arc<dyn Clock> {
        &self.0.clock
    }

    /// Hands the writer a command and waits for its answer.
    pub(crate) fn ask<T>(
        &self,
        command: impl FnOnce(crate::writer::reply::Reply<T>) -> Command,
    ) -> Result<T, StorageError> {
        let pending = self.0.writer.ask(command)?;
        self.0.writer.wait(pending)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.writer.close();
        // Nobody is left to be told; what was acknowledged is on the disk.
        let _ = self.store.close();
    }
}
