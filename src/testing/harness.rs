//! Does the same things to a store and to the model, and compares after every one.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Clock, ManualClock};
use crate::handle::lease::Lease;
use crate::handle::options::Options;
use crate::handle::queue::QueuePolicy;
use crate::handle::redrive::Redrive;
use crate::handle::stats::Counts;
use crate::testing::crash_backend::{CrashDisk, Survival};
use crate::testing::decode::ops_from_bytes;
use crate::testing::expect::Verdict;
use crate::testing::life::Ending;
use crate::testing::model::Model;
use crate::testing::op::{Op, QUEUES};
use crate::testing::quarantine::Exported;
use crate::testing::rules::PLAIN;
use crate::writer::Durability;
use crate::writer::command::SweepReport;

/// 2026-01-01: where a [`ManualClock`] starts.
pub(super) const EPOCH_MS: u64 = 1_767_225_600_000;
/// The version of every handler of the test.
pub(super) const VERSION: &str = "v1";
/// `verify` runs after this many steps.
const VERIFY_EVERY: usize = 16;
/// Reports over some windows are compared after this many steps.
const REPORT_EVERY: usize = 8;

/// A command that was answered: what must be there from then on.
#[derive(Clone, Debug)]
pub struct Ack {
    /// The model after it.
    pub model: Model,
    /// Changes the disk had seen by then.
    pub operations: u64,
}

/// A store and the model of it.
#[derive(Debug)]
pub struct Harness {
    pub(super) clock: Arc<ManualClock>,
    disk: CrashDisk,
    durability: Durability,
    pub(super) jobs: Redrive,
    pub(super) held: Vec<Lease>,
    /// What exports have written.
    pub(super) exports: Vec<Exported>,
    pub(super) model: Model,
    pub(super) ops: usize,
    acks: Vec<Ack>,
    keep_acks: bool,
}

/// Runs what `data` says on a fresh store and on the model. Panics where they differ; the message
/// has the steps.
pub fn run_ops_from_bytes(data: &[u8]) {
    let ops = ops_from_bytes(data);
    let verdict = run_ops(&ops);
    #[expect(clippy::panic, reason = "how a fuzz target tells what it found")]
    if let Err(difference) = verdict {
        panic!("{difference}\nsteps: {ops:#?}");
    }
}

/// Runs `ops` on a fresh store and on the model; returns what was counted in the end.
///
/// # Errors
///
/// The first difference.
pub fn run_ops(ops: &[Op]) -> Result<Counts, String> {
    let mut harness = Harness::new(CrashDisk::new())?;
    for op in ops {
        harness.run(op)?;
    }
    harness.finish()
}

impl Harness {
    /// A new store on an empty disk.
    ///
    /// # Errors
    ///
    /// Why it could not be opened.
    pub fn new(disk: CrashDisk) -> Result<Self, String> {
        Self::with(disk, Durability::Immediate, false)
    }

    /// A new store whose acknowledgements are kept, see [`Self::acks`].
    ///
    /// # Errors
    ///
    /// Why it could not be opened.
    pub fn recorded(disk: CrashDisk, durability: Durability) -> Result<Self, String> {
        Self::with(disk, durability, true)
    }

    fn with(disk: CrashDisk, durability: Durability, keep_acks: bool) -> Result<Self, String> {
        let clock = ManualClock::new();
        let model = Model::new(clock.wall().as_millis(), clock.monotonic_ms());
        let jobs = open(&disk, &clock, Durability::Immediate)?;
        let mut harness = Self {
            clock,
            disk,
            durability,
            jobs,
            held: Vec::new(),
            exports: Vec::new(),
            model,
            ops: 0,
            acks: Vec::new(),
            keep_acks,
        };
        for queue in QUEUES {
            let policy = QueuePolicy::new().jobs(PLAIN.policy());
            let set = harness.jobs.set_queue(queue, policy);
            set.map_err(|error| format!("set_queue: {error}"))?;
        }
        if durability != Durability::Immediate {
            harness.close()?;
            harness.open()?;
            harness.acks.clear();
        }
        harness.acked();
        Ok(harness)
    }

    /// The store.
    #[must_use]
    pub fn jobs(&self) -> &Redrive {
        &self.jobs
    }

    /// The model as of the last answer.
    #[must_use]
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// Every command that was answered, in order.
    #[must_use]
    pub fn acks(&self) -> &[Ack] {
        &self.acks
    }

    /// Does one step and compares.
    ///
    /// # Errors
    ///
    /// The difference, or the error of the store.
    pub fn run(&mut self, op: &Op) -> Result<(), String> {
        self.ops += 1;
        let done = self.step(op);
        let done = done.and_then(|()| self.quiet());
        done.map_err(|what| format!("step {}, {op:?}: {what}", self.ops))?;
        let compared = if self.ops.is_multiple_of(VERIFY_EVERY) {
            self.model.compare_all(&self.jobs)
        } else if self.ops.is_multiple_of(REPORT_EVERY) {
            self.model.compare(&self.jobs).and_then(|()| self.model.compare_reports(&self.jobs))
        } else {
            self.model.compare(&self.jobs)
        };
        compared.map_err(|what| format!("after step {}, {op:?}: {what}", self.ops))
    }

    /// The last comparison, and one after a restart.
    ///
    /// # Errors
    ///
    /// The difference.
    pub fn finish(mut self) -> Result<Counts, String> {
        self.model.compare_all(&self.jobs)?;
        self.kill()?;
        self.model.compare_all(&self.jobs)?;
        self.jobs.stats().map(|stats| stats.total).map_err(text)
    }

    /// Closes the store with its leases held.
    ///
    /// # Errors
    ///
    /// Why it could not be closed cleanly.
    pub fn close(&mut self) -> Result<(), String> {
        let closed = self.jobs.clone().close();
        closed.map_err(|error| format!("close: {error}"))
    }

    /// Opens `disk` at the wall clock of `at` after the death of a process. Returns the place of
    /// the candidate that the store has become, if its process had died after exactly that.
    ///
    /// # Errors
    ///
    /// The differences from each candidate, or why the disk cannot be opened.
    pub fn recovered(disk: &CrashDisk, at: &Model, candidates: &[&Model]) -> Result<usize, String> {
        let clock = ManualClock::new();
        clock.jump_wall_back(Duration::from_millis(EPOCH_MS));
        clock.jump_wall(Duration::from_millis(at.wall));
        let jobs = open(disk, &clock, Durability::Immediate)?;
        sweep(&jobs)?;
        let mut differences = String::new();
        for (place, &candidate) in candidates.iter().enumerate() {
            let mut model = candidate.clone();
            model.reopen(at.wall, clock.monotonic_ms());
            model.settle_all();
            match model.compare_all(&jobs) {
                Ok(()) => return jobs.close().map(|()| place).map_err(text),
                Err(difference) => differences.push_str(&format!("\n{place}: {difference}")),
            }
        }
        Err(differences)
    }

    pub(super) fn acked(&mut self) {
        if self.keep_acks {
            self.acks.push(Ack { model: self.model.clone(), operations: self.disk.operations() });
        }
    }

    /// The clock was moved: what follows from that happens now.
    pub(super) fn time_moved(&mut self) -> Verdict {
        self.model.wall = self.clock.wall().as_millis();
        self.model.mono = self.clock.monotonic_ms();
        sweep(&self.jobs)?;
        self.model.settle_all();
        self.acked();
        Ok(())
    }

    pub(super) fn reopen(&mut self) -> Verdict {
        while !self.held.is_empty() {
            self.end(0, |_| Ending::Released, Lease::release)?;
            self.quiet()?;
        }
        self.close()?;
        self.open()
    }

    /// The process dies: what it has written is there, nothing is closed.
    pub(super) fn kill(&mut self) -> Verdict {
        let image = CrashDisk::from_image(self.disk.image(Survival::Everything));
        // The old process writes to a disk that nobody looks at any more.
        drop(self.jobs.clone().close());
        self.held.clear();
        self.disk = image;
        self.open()
    }

    fn open(&mut self) -> Verdict {
        self.jobs = open(&self.disk, &self.clock, self.durability)?;
        self.model.reopen(self.clock.wall().as_millis(), self.clock.monotonic_ms());
        self.time_moved()
    }
}

/// Sweeps until there is nothing left for this moment.
fn sweep(jobs: &Redrive) -> Verdict {
    while jobs.sweep().map_err(text)? != SweepReport::default() {}
    Ok(())
}

fn open(disk: &CrashDisk, clock: &Arc<ManualClock>, how: Durability) -> Result<Redrive, String> {
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(clock);
    let options = Options::new().clock(clock).durability(how);
    let options = options.cache_bytes(4 * 1024 * 1024);
    options.open_backend(disk.backend()).map_err(|error| format!("open: {error}"))
}

pub(super) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
