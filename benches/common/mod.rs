//! What the benches share: a store on a real disk whose writes and syncs are counted, and the
//! report that goes before every figure. A figure without its durability, its batch size and its
//! bytes says nothing.

use std::fs::OpenOptions;
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use criterion::Criterion;
use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};
use redrive::{Enqueued, NewJob, Options, Redrive};

/// The payload of every job: the size of a small JSON document.
pub(crate) const PAYLOAD: [u8; 100] = [b'x'; 100];

/// Run once, small: `cargo bench -- --test`.
pub(crate) fn quick() -> bool {
    std::env::args().any(|argument| argument == "--test")
}

/// `full`, or `small` under `--test`.
pub(crate) fn size(full: usize, small: usize) -> usize {
    if quick() { small } else { full }
}

/// Criterion with few, long samples: one sample is thousands of commits already.
pub(crate) fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(5))
        .configure_from_args()
}

/// What went to the file.
#[derive(Debug, Default)]
struct Counts {
    writes: AtomicU64,
    bytes: AtomicU64,
    syncs: AtomicU64,
    /// In syncs; the disk's share of a commit.
    sync_ns: AtomicU64,
}

/// A reading of the counters, or the difference between two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Traffic {
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
    pub(crate) syncs: u64,
    pub(crate) sync_ns: u64,
}

impl Traffic {
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            writes: self.writes - earlier.writes,
            bytes: self.bytes - earlier.bytes,
            syncs: self.syncs - earlier.syncs,
            sync_ns: self.sync_ns - earlier.sync_ns,
        }
    }
}

#[derive(Debug)]
struct CountingBackend {
    file: FileBackend,
    counts: Arc<Counts>,
}

impl StorageBackend for CountingBackend {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let start = Instant::now();
        let synced = self.file.sync_data();
        let ns = u64::try_from(start.elapsed().as_nanos()).unwrap();
        self.counts.syncs.fetch_add(1, Ordering::Relaxed);
        self.counts.sync_ns.fetch_add(ns, Ordering::Relaxed);
        synced
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let bytes = u64::try_from(data.len()).unwrap();
        self.counts.writes.fetch_add(1, Ordering::Relaxed);
        self.counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
    }
}

/// An open store in a directory of its own, which goes with it.
pub(crate) struct Disk {
    pub(crate) jobs: Redrive,
    counts: Arc<Counts>,
    path: PathBuf,
    _directory: tempfile::TempDir,
}

impl Disk {
    /// A new store under cargo's directory for such things, which is on the disk the project is on
    /// and not in memory.
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("jobs.redb");
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(&path);
        let counts = Arc::new(Counts::default());
        let backend = CountingBackend {
            file: FileBackend::new(file.unwrap()).unwrap(),
            counts: Arc::clone(&counts),
        };
        let jobs = Options::new().open_backend(backend).unwrap();
        Self { jobs, counts, path, _directory: directory }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Traffic {
            writes: read(&self.counts.writes),
            bytes: read(&self.counts.bytes),
            syncs: read(&self.counts.syncs),
            sync_ns: read(&self.counts.sync_ns),
        }
    }

    /// Says where the store is and how durable it is. That is observed, not assumed: a lone caller's
    /// enqueue must have made the file sync before it returned.
    pub(crate) fn describe(&self) {
        let before = self.traffic();
        const PROBES: u64 = 8;
        for _ in 0..PROBES {
            self.jobs.enqueue(NewJob::new("probe", "probe")).unwrap();
        }
        let probes = self.traffic().since(before);
        let durable = if probes.syncs >= PROBES {
            "durable before the answer"
        } else {
            "NOT durable before the answer"
        };
        println!(
            "  {} on {}; {durable}: {} syncs, {} bytes for {PROBES} awaited enqueues",
            self.path.display(),
            file_system(&self.path),
            probes.syncs,
            probes.bytes,
        );
    }

    /// What `lives` lives by `commands` commands cost the disk since `before`.
    pub(crate) fn report(&self, what: &str, lives: usize, commands: usize, before: Traffic) {
        let spent = self.traffic().since(before);
        let per = |count: u64, by: u64| count as f64 / by.max(1) as f64;
        println!(
            "  {what}: {:.1} jobs and {:.1} commands per commit, {:.0} bytes and {:.2} page writes \
             per job, {} syncs of {:.0} us, file {:.1} MiB",
            per(u64::try_from(lives).unwrap(), spent.syncs),
            per(u64::try_from(commands).unwrap(), spent.syncs),
            per(spent.bytes, u64::try_from(lives).unwrap()),
            per(spent.writes, u64::try_from(lives).unwrap()),
            spent.syncs,
            per(spent.sync_ns, spent.syncs) / 1_000.0,
            std::fs::metadata(&self.path).unwrap().len() as f64 / (1024.0 * 1024.0),
        );
    }
}

/// A job of `queue` with a key of its own.
pub(crate) fn keyed(queue: &str, key: usize) -> NewJob {
    NewJob::new(queue, "work").bytes(PAYLOAD).key(format!("order:{key:012}"))
}

pub(crate) fn is_new(outcome: &Enqueued) -> bool {
    matches!(outcome, Enqueued::New(_))
}

/// The value below which `share` of the sorted `durations` lie.
pub(crate) fn percentile(durations: &mut [Duration], share: f64) -> Duration {
    durations.sort_unstable();
    let last = durations.len() - 1;
    durations[((last as f64) * share).round() as usize]
}

/// One line of percentiles.
pub(crate) fn print_percentiles(what: &str, durations: &mut [Duration]) {
    println!(
        "  {what}: p50 {:?}, p99 {:?}, max {:?}",
        percentile(durations, 0.5),
        percentile(durations, 0.99),
        percentile(durations, 1.0),
    );
}

/// The type of the file system that holds `path`, where the system says.
fn file_system(path: &Path) -> String {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let held_by = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (mounted, kind) = (words.next()?, words.next()?);
        path.starts_with(mounted).then_some((mounted.len(), kind))
    });
    // Of two mounts on one place the later one is seen.
    let kind = held_by.max_by_key(|&(len, _)| len).map(|(_, kind)| kind);
    kind.unwrap_or("an unknown file system").to_owned()
}
