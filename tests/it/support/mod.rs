//! What several tests need.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    ClaimRequest, Clock, Durability, Enqueued, JobId, JobPolicy, Lease, ManualClock, NewJob,
    Options, Redrive, Schedule, Timestamp,
};

/// A store in a directory of its own, driven by a manual clock.
pub(crate) struct Bench {
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) path: PathBuf,
    pub(crate) jobs: Redrive,
    _dir: tempfile::TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(Options::new())
    }

    /// One that does not wait for the disk, for thousands of commits that no power cut will test.
    pub(crate) fn deferred() -> Self {
        Self::with(Options::new().durability(Durability::Deferred { flush_every_ms: 60_000 }))
    }

    fn with(options: Options) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.redb");
        let clock = ManualClock::new();
        let jobs = options.clock(clock.clone()).open(&path).unwrap();
        Self { clock, path, jobs, _dir: dir }
    }

    /// Closes the store and opens it again, with the same clock.
    pub(crate) fn reopen(&mut self) {
        self.jobs.clone().close().unwrap();
        self.reopen_closed();
    }

    pub(crate) fn reopen_closed(&mut self) {
        self.jobs = Options::new().clock(self.clock.clone()).open(&self.path).unwrap();
    }

    pub(crate) fn advance(&self, seconds: u64) {
        self.clock.advance(secs(seconds));
    }

    /// Claims up to `count` jobs of any kind from queue `q`.
    pub(crate) fn claim(&self, count: usize) -> Vec<Lease> {
        self.jobs.claim(ClaimRequest::new("q").up_to(count)).unwrap()
    }

    /// Claims one job, of which there must be one.
    pub(crate) fn claim_one(&self) -> Lease {
        self.claim(1).pop().expect("a ready job")
    }

    /// Adds a job of kind `k` to queue `q`.
    pub(crate) fn add(&self, payload: &str) -> JobId {
        self.add_with(NewJob::new("q", "k").bytes(payload))
    }

    pub(crate) fn add_with(&self, job: NewJob) -> JobId {
        match self.jobs.enqueue(job).unwrap() {
            Enqueued::New(id) => id,
            other => panic!("not new: {other:?}"),
        }
    }

    /// What the clock says.
    pub(crate) fn now(&self) -> Timestamp {
        Clock::wall(&*self.clock)
    }

    /// The store agrees with itself and the books balance (P11).
    pub(crate) fn check(&self) {
        check(&self.jobs);
    }
}

pub(crate) fn check(jobs: &Redrive) {
    let report = jobs.verify().unwrap();
    assert!(report.is_clean(), "{report:#?}");
    let stats = jobs.stats().unwrap();
    assert_eq!(stats.total.residual, 0, "{stats:#?}");
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Retries after exactly one second.
pub(crate) fn every_second() -> JobPolicy {
    JobPolicy::new().schedule(Schedule::list([secs(1)]).jitter_percent(0))
}

/// Runs this test binary again, as the child role `test`, which looks at `REDRIVE_CHILD`.
pub(crate) fn child(test: &str, argument: &std::path::Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command.env("REDRIVE_CHILD", argument);
    command
}

/// The argument, in a child; `None` in the normal run, where the child's test does nothing.
pub(crate) fn child_argument() -> Option<PathBuf> {
    std::env::var_os("REDRIVE_CHILD").map(PathBuf::from)
}

/// Whether the full sizes of the slow cases are wanted: `REDRIVE_FULL=1 cargo test --release`.
pub(crate) fn full() -> bool {
    std::env::var_os("REDRIVE_FULL").is_some()
}

/// A number from the environment, or `default`.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// A seed from the environment, or another one every time.
pub(crate) fn seed(name: &str) -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let fresh = std::collections::hash_map::RandomState::new().build_hasher().finish();
    number(name, fresh)
}

/// SplitMix64 (Steele, Lea, Flood 2014): reproducible random numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next().to_le_bytes()[0]).collect()
    }
}
