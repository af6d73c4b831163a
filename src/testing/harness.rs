//! Does the same things to a store and to the model, and compares after every one.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use crate::clock::{Clock, ManualClock};
use crate::domain::failure::{Failure, FailureClass};
use crate::domain::id::JobId;
use crate::domain::job::JobState;
use crate::domain::time::Timestamp;
use crate::error::{CancelError, EnqueueError, SettleError};
use crate::handle::claim::ClaimRequest;
use crate::handle::lease::Lease;
use crate::handle::new_job::NewJob;
use crate::handle::options::Options;
use crate::handle::queue::QueuePolicy;
use crate::handle::redrive::Redrive;
use crate::handle::stats::Counts;
use crate::testing::crash_backend::{CrashDisk, Survival};
use crate::testing::expect::{Verdict, same};
use crate::testing::life::{Ending, Trouble};
use crate::testing::model::{Accepted, Model};
use crate::testing::op::{Item, KINDS, Op, QUEUES, When, ops_from_bytes};
use crate::testing::rules::RULES;
use crate::writer::Durability;
use crate::writer::command::{BatchRule, Cancelled, Enqueued, SweepReport};

/// 2026-01-01: where a [`ManualClock`] starts.
pub(super) const EPOCH_MS: u64 = 1_767_225_600_000;
/// The version of every handler of the test.
pub(super) const VERSION: &str = "v1";
/// `verify` runs after this many steps.
const VERIFY_EVERY: usize = 16;

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
    clock: Arc<ManualClock>,
    disk: CrashDisk,
    durability: Durability,
    jobs: Redrive,
    held: Vec<Lease>,
    model: Model,
    ops: usize,
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
            model,
            ops: 0,
            acks: Vec::new(),
            keep_acks,
        };
        for queue in QUEUES {
            let policy = QueuePolicy::new().jobs(crate::testing::rules::PLAIN.policy());
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
        done.map_err(|what| format!("step {}, {op:?}: {what}", self.ops))?;
        let compared = if self.ops.is_multiple_of(VERIFY_EVERY) {
            self.model.compare_all(&self.jobs)
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
            model.round(|_| ());
            match model.compare_all(&jobs) {
                Ok(()) => return jobs.close().map(|()| place).map_err(text),
                Err(difference) => differences.push_str(&format!("\n{place}: {difference}")),
            }
        }
        Err(differences)
    }

    fn acked(&mut self) {
        if self.keep_acks {
            self.acks.push(Ack { model: self.model.clone(), operations: self.disk.operations() });
        }
    }

    fn step(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Enqueue(item) => self.enqueue(std::slice::from_ref(item), BatchRule::PerItem),
            Op::EnqueueMany { items, all_or_nothing } => {
                let rule =
                    if *all_or_nothing { BatchRule::AllOrNothing } else { BatchRule::PerItem };
                self.enqueue(items, rule)
            }
            Op::Claim { queue, kinds, jobs } => self.claim(*queue, *kinds, *jobs),
            Op::Heartbeat { lease } => self.heartbeat(*lease),
            Op::Complete { lease, result } => self.complete(*lease, *result),
            Op::Fail { lease, class, retry_after_ms, text } => {
                self.fail(*lease, *class, *retry_after_ms, *text)
            }
            Op::Snooze { lease, ms } => self.snooze(*lease, *ms),
            Op::Release { lease } => self.end(*lease, |_| Ending::Released, Lease::release),
            Op::Drop { lease } => self.drop_lease(*lease),
            Op::Twice { lease, again } => self.twice(*lease, *again),
            Op::Churn { queue, times } => self.churn(*queue, *times),
            Op::Cancel { job } => self.cancel(*job),
            Op::Discard { job } => self.discard(*job),
            Op::SetQueue { queue, rules, retry_share_percent } => {
                self.set_queue(*queue, *rules, *retry_share_percent)
            }
            Op::Advance { ms } => {
                self.clock.advance(Duration::from_millis(*ms));
                self.time_moved()
            }
            Op::JumpForward { ms } => {
                self.clock.jump_wall(Duration::from_millis(*ms));
                self.time_moved()
            }
            Op::JumpBack { ms } => {
                self.clock.jump_wall_back(Duration::from_millis(*ms));
                self.time_moved()
            }
            Op::Sweep => self.time_moved(),
            Op::Reopen => self.reopen(),
            Op::Kill => self.kill(),
        }
    }

    fn enqueue(&mut self, items: &[Item], rule: BatchRule) -> Verdict {
        let good: Vec<Item> = items.iter().filter(|item| !item.bad).cloned().collect();
        let bad = items.len() - good.len();
        let first_bad = items.iter().position(|item| item.bad);
        let jobs: Vec<NewJob> = items.iter().map(Item::new_job).collect();
        let answered = self.jobs.enqueue_many(jobs, rule).map_err(text)?;
        let answered: Result<Vec<Accepted>, String> = answered.into_iter().map(accepted).collect();
        let answered = answered?;
        self.model.refused += u64::try_from(bad).unwrap_or(0);
        let expected = match first_bad {
            Some(first) if rule == BatchRule::AllOrNothing => {
                let told = |item: &Item| match item.bad {
                    true => Accepted::BadKey,
                    false => Accepted::Withheld(first),
                };
                items.iter().map(told).collect()
            }
            _ if good.is_empty() => vec![Accepted::BadKey; bad],
            _ => {
                let accepted = self.model.round(|model| match rule {
                    BatchRule::AllOrNothing => model.enqueue_all(&good),
                    BatchRule::PerItem => good.iter().map(|item| model.enqueue(item)).collect(),
                });
                let mut accepted = accepted.into_iter();
                let told = |item: &Item| {
                    let next = if item.bad { None } else { accepted.next() };
                    next.unwrap_or(Accepted::BadKey)
                };
                items.iter().map(told).collect()
            }
        };
        self.acked();
        same("what was accepted", &answered, &expected)
    }

    fn claim(&mut self, queue: usize, kinds: u8, jobs: usize) -> Verdict {
        let kinds: Vec<usize> = (0..KINDS.len()).filter(|kind| kinds >> kind & 1 == 1).collect();
        let worker = format!("w{}", self.ops);
        let name = QUEUES.get(queue).copied().unwrap_or_default();
        let mut request = ClaimRequest::new(name).up_to(jobs);
        if !kinds.is_empty() {
            request = request.kinds(kinds.iter().filter_map(|&kind| KINDS.get(kind).copied()));
        }
        let request = request.worker(worker.clone()).version(VERSION);
        let claimed = self.jobs.claim(request).map_err(text)?;
        let expected = self.model.round(|model| model.claim(queue, &kinds, jobs, &worker));
        self.acked();
        let ids: Vec<JobId> = claimed.iter().map(Lease::id).collect();
        same("the jobs claimed", &ids, &expected)?;
        for lease in claimed {
            self.granted(&lease)?;
            self.held.push(lease);
        }
        Ok(())
    }

    /// What a lease says of its job.
    fn granted(&self, lease: &Lease) -> Verdict {
        let job = self.model.jobs.get(&lease.id());
        let job = job.ok_or("a lease of no job")?;
        let lane = job.hold().map(|hold| hold.from.lane);
        same("delivery", &lease.delivery(), &job.deliveries)?;
        same("attempt", &lease.attempt(), &(job.attempts + 1))?;
        same("lane", &Some(lease.lane()), &lane)?;
        same("unknown", &lease.outcome_unknown(), &job.unknown)?;
        same("payload", &lease.payload(), &job.payload.as_slice())?;
        same("key", &lease.key(), &job.key.as_deref())?;
        let length = Duration::from_millis(job.rules.lease_ms);
        same("length", &lease.length(), &length)
    }

    fn heartbeat(&mut self, lease: usize) -> Verdict {
        let Some(place) = place_in(&self.held, lease) else {
            return Ok(());
        };
        let Some(lease) = self.held.get(place) else {
            return Ok(());
        };
        let beat = match lease.heartbeat() {
            Ok(beat) => Some((
                Timestamp::from_millis(crate::domain::time::whole_ms(beat.left)).as_millis(),
                beat.cancel_requested,
                beat.deadline_passed,
            )),
            Err(SettleError::StaleLease { .. }) => None,
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.heartbeat(lease.id(), lease.delivery());
        same("the heartbeat", &beat, &expected)
    }

    fn complete(&mut self, lease: usize, result: Option<u8>) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let result = result.map(|byte| vec![byte; usize::from(byte)]);
        let answer = match result.clone() {
            Some(result) => lease.complete_with(result),
            None => lease.complete(),
        };
        self.settled(id, delivery, answer.map(|()| JobState::Done), |model| {
            model.complete(id, result)
        })
    }

    fn fail(
        &mut self,
        lease: usize,
        class: FailureClass,
        retry_after_ms: Option<u64>,
        text: u8,
    ) -> Verdict {
        let code = format!("E{}", text % 3);
        let message = if text.is_multiple_of(2) { "" } else { "row refused" };
        let reference = text.is_multiple_of(4).then(|| format!("ref-{text}"));
        let mut failure = Failure::new(class, code.clone()).message(message);
        if let Some(reference) = &reference {
            failure = failure.provider_ref(reference.clone());
        }
        if let Some(ms) = retry_after_ms {
            failure = failure.retry_after(Duration::from_millis(ms));
        }
        let trouble = Trouble { class, code, message: message.to_owned(), provider_ref: reference };
        let ending = Ending::Failed(trouble, retry_after_ms);
        self.end(lease, |_| ending, |lease| lease.fail(failure))
    }

    fn snooze(&mut self, lease: usize, ms: u64) -> Verdict {
        let ending = |now| Ending::Snoozed { until: now + ms };
        self.end(lease, ending, |lease| lease.snooze(Duration::from_millis(ms)))
    }

    /// Ends a lease in anything but success.
    fn end(
        &mut self,
        lease: usize,
        ending: impl FnOnce(u64) -> Ending,
        call: impl FnOnce(Lease) -> Result<JobState, SettleError>,
    ) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let answer = call(lease);
        self.settled(id, delivery, answer, |model| model.settle(id, &ending(model.now)))
    }

    /// Compares the answer of a settling call with the model, which may find the token stale.
    fn settled(
        &mut self,
        id: JobId,
        delivery: u32,
        answer: Result<JobState, SettleError>,
        settle: impl FnOnce(&mut Model) -> Option<JobState>,
    ) -> Verdict {
        let answer = match answer {
            Ok(state) => Ok(state),
            Err(SettleError::StaleLease { current, .. }) => {
                Err(current.map(|token| token.delivery))
            }
            Err(error) => return Err(text(error)),
        };
        let class = self.model.class_of(id);
        let expected = self.model.round(|model| {
            if model.current(id, delivery) {
                settle(model).ok_or(None)
            } else {
                if let Some(class) = class {
                    model.stale(class);
                }
                Err(model.lease_of(id))
            }
        });
        self.acked();
        same("the answer to the settling call", &answer, &expected)
    }

    fn drop_lease(&mut self, lease: usize) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        // The release is in the mailbox when the drop returns, before the sweep that comes next.
        drop(lease);
        self.jobs.sweep().map_err(text)?;
        let class = self.model.class_of(id);
        self.model.round(|model| {
            if model.current(id, delivery) {
                model.settle(id, &Ending::Released);
            } else if let Some(class) = class {
                model.stale(class);
            }
        });
        self.acked();
        Ok(())
    }

    fn twice(&mut self, lease: usize, again: u8) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let copy = lease.copy();
        self.held.push(lease);
        let place = self.held.len() - 1;
        self.complete(place, None)?;
        self.held.push(copy);
        match again % 3 {
            0 => self.complete(place, Some(again)),
            1 => self.fail(place, FailureClass::Transient, None, again),
            _ => self.end(place, |_| Ending::Released, Lease::release),
        }
    }

    fn churn(&mut self, queue: usize, times: u8) -> Verdict {
        for _ in 0..times {
            let held = self.held.len();
            self.claim(queue, 0, 1)?;
            if self.held.len() == held {
                break;
            }
            self.end(held, |_| Ending::Released, Lease::release)?;
        }
        Ok(())
    }

    fn cancel(&mut self, job: usize) -> Verdict {
        let id = self.some_job(job);
        let answer = match self.jobs.cancel(id) {
            Ok(Cancelled::Now) => Ok(true),
            Ok(Cancelled::Requested) => Ok(false),
            Err(CancelError::NotFound { .. }) => Err(None),
            Err(CancelError::WrongState { state, .. }) => Err(Some(state)),
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.round(|model| model.cancel(id));
        self.acked();
        same("the answer to cancel", &answer, &expected)
    }

    fn discard(&mut self, job: usize) -> Verdict {
        let id = self.some_job(job);
        let answer = match self.jobs.discard(id) {
            Ok(()) => Ok(()),
            Err(CancelError::NotFound { .. }) => Err(None),
            Err(CancelError::WrongState { state, .. }) => Err(Some(state)),
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.round(|model| model.discard(id));
        self.acked();
        same("the answer to discard", &answer, &expected)
    }

    fn set_queue(&mut self, queue: usize, rules: Option<usize>, share: Option<u8>) -> Verdict {
        let rules = rules.and_then(|rules| RULES.get(rules % RULES.len()).copied());
        let mut policy = QueuePolicy::new();
        if let Some(rules) = &rules {
            policy = policy.jobs(rules.policy());
        }
        if let Some(percent) = share {
            policy = policy.retry_share(f64::from(percent) / 100.0);
        }
        let name = QUEUES.get(queue).copied().unwrap_or_default();
        self.jobs.set_queue(name, policy).map_err(text)?;
        self.model.round(|model| model.set_queue(queue, rules, share));
        self.acked();
        Ok(())
    }

    /// The clock was moved: what follows from that happens now.
    fn time_moved(&mut self) -> Verdict {
        self.model.wall = self.clock.wall().as_millis();
        self.model.mono = self.clock.monotonic_ms();
        sweep(&self.jobs)?;
        self.model.round(|_| ());
        self.acked();
        Ok(())
    }

    fn reopen(&mut self) -> Verdict {
        while !self.held.is_empty() {
            self.end(0, |_| Ending::Released, Lease::release)?;
        }
        self.close()?;
        self.open()
    }

    /// The process dies: what it has written is there, nothing is closed.
    fn kill(&mut self) -> Verdict {
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

    fn take(&mut self, lease: usize) -> Option<Lease> {
        let place = place_in(&self.held, lease)?;
        Some(self.held.remove(place))
    }

    /// A job that there is, or one of those that are gone.
    fn some_job(&self, choice: usize) -> JobId {
        let known = self.model.jobs.keys().chain(self.model.gone.last());
        let count = known.clone().count().max(1);
        known.copied().nth(choice % count).unwrap_or(JobId::new(999_999))
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

fn place_in(held: &[Lease], choice: usize) -> Option<usize> {
    choice.checked_rem(held.len())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn accepted(answer: Result<Enqueued, EnqueueError>) -> Result<Accepted, String> {
    Ok(match answer {
        Ok(Enqueued::New(id)) => Accepted::New(id),
        Ok(Enqueued::Duplicate { of, state, result }) => Accepted::Duplicate(of, state, result),
        Err(EnqueueError::KeyConflict { key, owner, state }) => {
            Accepted::Conflict(key, owner, state)
        }
        Err(EnqueueError::BadName { .. }) => Accepted::BadKey,
        Err(EnqueueError::Withheld { refused }) => Accepted::Withheld(refused),
        Err(error) => return Err(text(error)),
    })
}

impl Item {
    fn new_job(&self) -> NewJob {
        let queue = QUEUES.get(self.queue).copied().unwrap_or_default();
        let mut job =
            NewJob::new(queue, self.kind_name()).bytes(self.payload()).priority(self.priority);
        if let Some(key) = self.key() {
            job = job.key(key);
        }
        if self.bad {
            job = job.key("");
        }
        job = match self.when {
            When::Now => job,
            When::After(ms) => job.delay(Duration::from_millis(ms)),
            When::At(ms) => job.run_at(UNIX_EPOCH + Duration::from_millis(EPOCH_MS + ms)),
        };
        if let Some(rules) = self.rules.and_then(|rules| RULES.get(rules % RULES.len())) {
            job = job.policy(rules.policy());
        }
        job
    }
}
