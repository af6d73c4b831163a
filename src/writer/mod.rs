//! The one thread that writes: collects what arrived while the last commit was in flight, plans and
//! applies each command, commits once, then answers everybody.

mod batch;
mod books;
mod claim;
mod cohort;
pub(crate) mod command;
mod core;
mod dead;
mod effect;
mod enqueue;
pub(crate) mod events;
mod follow;
mod heads;
mod import;
mod key;
pub(crate) mod leases;
mod mailbox;
mod mark;
mod order;
mod outbox;
mod pause;
mod registry;
pub(crate) mod reply;
mod retention;
pub(crate) mod seen;
mod settle;
mod sweep;
mod tell;
mod timeline;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::clock::Clock;
use crate::domain::id::Instance;
use crate::domain::schedule::mix;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::store::database::{End, Store, Sync, caught};
use crate::writer::batch::{Answer, Batch};
use crate::writer::command::{Command, SweepReport};
use crate::writer::core::Core;
use crate::writer::events::Board;
use crate::writer::leases::Leases;
use crate::writer::mailbox::Mailbox;
use crate::writer::reply::{Pending, Reply, reply};
use crate::writer::timeline::{Reading, Timeline};

/// The writer looks at the wall clock at least this often while something depends on time, so that
/// a clock that jumped, or a machine that slept, is noticed.
const BACKSTOP_MS: u64 = 5_000;

/// Whether a commit is on the disk when its callers are answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Durability {
    /// It is: what was acknowledged survives a power cut (P1). The default.
    #[default]
    Immediate,
    /// It may not be yet. A crash of the process or of the machine can take back what was acknowledged
    /// in the last `flush_every_ms` milliseconds: always the latest commits, never one from between.
    Deferred {
        /// The longest time between two flushes, in milliseconds.
        flush_every_ms: u64,
    },
}

/// The handle's side of the writer.
pub(crate) struct Writer {
    mailbox: Arc<Mailbox>,
    pub(crate) leases: Arc<Leases>,
    poison: Arc<OnceLock<StorageError>>,
    longest_write_ms: Arc<AtomicU64>,
    pub(crate) board: Arc<Board>,
    /// How far the timeline is ahead of the monotonic clock: it only grows.
    ahead_ms: Arc<AtomicU64>,
    thread: parking_lot::Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    /// Recovers what an earlier process left behind, then starts the thread.
    pub(crate) fn start(
        store: Arc<Store>,
        clock: Arc<dyn Clock>,
        durability: Durability,
        window_minutes: u64,
    ) -> Result<(Self, SweepReport), StorageError> {
        let core = store.read(|rows| Core::load(rows, window_minutes))?;
        let leases = Arc::clone(&core.leases);
        let board = Arc::clone(&core.board);
        let mailbox = Arc::new(Mailbox::new());
        let poison = Arc::new(OnceLock::new());
        let longest_write_ms = Arc::new(AtomicU64::new(0));
        let ahead_ms = Arc::new(AtomicU64::new(0));
        let timeline = Timeline::new(&*clock, core.meta.latest, core.meta.wall);
        let mut desk = Desk {
            store,
            timeline,
            clock,
            core,
            durability,
            unflushed_since_ms: None,
            mailbox: Arc::clone(&mailbox),
            poison: Arc::clone(&poison),
            longest_write_ms: Arc::clone(&longest_write_ms),
            ahead_ms: Arc::clone(&ahead_ms),
        };
        // On the caller's thread still, where no panic of the storage engine may end up.
        let report = caught(|| desk.recover())?;
        board.recovered(desk.core.opened_at, report);
        let thread = std::thread::Builder::new()
            .name("redrive-writer".into())
            .spawn(move || desk.run())
            .map_err(|error| StorageError::io(format!("no thread for the writer: {error}")))?;
        let thread = parking_lot::Mutex::new(Some(thread));
        Ok((Self { mailbox, leases, poison, longest_write_ms, board, ahead_ms, thread }, report))
    }

    /// Hands over a command built around its reply; the answer comes after its commit.
    pub(crate) fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Pending<T>, StorageError> {
        let (reply, pending) = reply();
        self.mailbox.send(command(reply))?;
        Ok(pending)
    }

    /// Hands over a command whose answer nobody waits for.
    pub(crate) fn tell(&self, command: Command) -> Result<(), StorageError> {
        self.mailbox.send(command)
    }

    /// Waits for an answer; if there will never be one, says why.
    pub(crate) fn wait<T>(&self, pending: Pending<T>) -> Result<T, StorageError> {
        pending.wait().ok_or_else(|| self.mailbox.cause())
    }

    /// The store's own time, as the writer would have it at this moment.
    pub(crate) fn now(&self, clock: &dyn Clock) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::Acquire);
        clock.wall().max(Timestamp::from_millis(clock.monotonic_ms()).plus_ms(ahead_ms))
    }

    /// The longest write transaction so far, from its start to the end of its commit.
    pub(crate) fn longest_write_ms(&self) -> u64 {
        self.longest_write_ms.load(Ordering::Relaxed)
    }

    /// The first error that stopped the writer, if one did.
    pub(crate) fn poisoned(&self) -> Option<StorageError> {
        self.poison.get().cloned()
    }

    /// Finishes what has arrived, answers everybody, ends the thread.
    pub(crate) fn close(&self) {
        if let Ok(pending) = self.ask(|reply| Command::Close { reply }) {
            pending.wait();
        }
        if let Some(thread) = self.thread.lock().take() {
            // The thread catches its panics; there is nothing more to learn from the join.
            let _ = thread.join();
        }
    }
}

/// The writer thread's own side.
struct Desk {
    store: Arc<Store>,
    clock: Arc<dyn Clock>,
    timeline: Timeline,
    core: Core,
    durability: Durability,
    /// When the oldest commit that is not on the disk yet was made (monotonic).
    unflushed_since_ms: Option<u64>,
    mailbox: Arc<Mailbox>,
    poison: Arc<OnceLock<StorageError>>,
    longest_write_ms: Arc<AtomicU64>,
    ahead_ms: Arc<AtomicU64>,
}

/// What one round over the commands asked for beside their answers.
#[derive(Default)]
struct Round {
    more: bool,
    swept: SweepReport,
    close: Option<Reply<()>>,
}

impl Desk {
    fn run(mut self) {
        let ended = catch_unwind(AssertUnwindSafe(|| self.serve()));
        let (cause, close) = match ended {
            Ok(Ok(close)) => (StorageError::closed(), Some(close)),
            Ok(Err(cause)) => (cause.into_poison(), None),
            Err(_) => {
                (StorageError::internal("the writer panicked; this is a bug").into_poison(), None)
            }
        };
        if close.is_none() {
            // Only the first cause is kept; there is one writer and it ends here.
            let _ = self.poison.set(cause.clone());
        }
        let now = self.timeline.read(&*self.clock).now;
        self.core.board.close(now, if close.is_none() { Some(&cause) } else { None });
        // Dropping a command tells its caller, who asks for the cause; so does dropping a claim.
        drop(self.mailbox.close(cause));
        self.core.waiting.clear();
        if let Some(close) = close {
            close.send(());
        }
    }

    /// Until closed; an error is the one that poisons.
    fn serve(&mut self) -> Result<Reply<()>, StorageError> {
        let mut more = self.core.cohorts.has_news() || self.core.retention.has_news();
        loop {
            if !more {
                self.rest();
            }
            let round = self.round(self.mailbox.take())?;
            more = round.more;
            if let Some(close) = round.close {
                self.flush()?;
                return Ok(close);
            }
        }
    }

    /// Waits for a command, or for the time at which there is something to do without one.
    fn rest(&self) {
        let until_ms = self.wake_ms();
        self.clock.wait(&self.mailbox.arrived, until_ms);
    }

    fn wake_ms(&self) -> Option<u64> {
        let now_ms = self.clock.monotonic_ms();
        let timeline_ms = |at| self.timeline.monotonic_ms_of(at);
        let claims = self.core.waiting.iter().filter_map(|claim| claim.request.until_ms);
        let flush = match self.durability {
            Durability::Immediate => None,
            Durability::Deferred { flush_every_ms } => {
                self.unflushed_since_ms.map(|since| since.saturating_add(flush_every_ms))
            }
        };
        let timed = [
            self.core.next_due.map(timeline_ms),
            self.core.next_tombstone.map(timeline_ms),
            self.core.pauses.next_end().map(timeline_ms),
            self.core.leases.next_end_ms(),
            self.core.cohorts.next_look().map(timeline_ms),
            self.core.retention.next_end().map(timeline_ms),
        ];
        let timed = timed.into_iter().flatten().min();
        let timed = timed.map(|at| at.min(now_ms.saturating_add(BACKSTOP_MS)));
        claims.chain(flush).chain(timed).min()
    }

    /// One group commit.
    fn round(&mut self, commands: Vec<Command>) -> Result<Round, StorageError> {
        let time = self.look();
        let sync = self.sync(time.monotonic_ms);
        let mut answers: Vec<Answer> = Vec::with_capacity(commands.len());
        let mut round = Round::default();
        let mut commands = commands.into_iter();
        let mut end = End::Abort;
        let flush = self.unflushed_since_ms.is_some();
        let core = &mut self.core;
        let written = self.store.write(sync, |rows| {
            let mut batch = Batch::new(core, rows, time, &mut answers);
            round.more = batch.sweep(&mut round.swept)?;
            for command in commands.by_ref() {
                run(&mut batch, command, &mut round)?;
            }
            batch.serve_waiting()?;
            // Deferred commits that are to reach the disk now need a commit, also an empty one.
            end = if batch.finish()? || (flush && sync == Sync::Now) {
                End::Commit
            } else {
                End::Abort
            };
            Ok(end)
        });
        let answered_ms = self.clock.monotonic_ms();
        let took_ms = answered_ms.saturating_sub(time.monotonic_ms);
        self.longest_write_ms.fetch_max(took_ms, Ordering::Relaxed);
        // Results that came in are looked at before anything else is released.
        round.more |= self.core.cohorts.has_news() || self.core.retention.has_news();
        if let Err(cause) = written {
            let cause = cause.into_poison();
            // The latch comes first: nobody who was told may find the store still open.
            let _ = self.poison.set(cause.clone());
            drop(self.mailbox.close(cause.clone()));
            for answer in answers {
                answer(Some(&cause));
            }
            return Err(cause);
        }
        if end == End::Commit {
            self.committed(sync, time.monotonic_ms);
        }
        // Before the answers: who has one finds its event told.
        self.core.board.tell(time.now, std::mem::take(&mut self.core.told));
        let granted = std::mem::take(&mut self.core.granted);
        self.core.leases.start(&granted, answered_ms);
        for answer in answers {
            answer(None);
        }
        Ok(round)
    }

    fn look(&mut self) -> Reading {
        let time = self.timeline.read(&*self.clock);
        let ahead_ms = time.now.as_millis().saturating_sub(time.monotonic_ms);
        self.ahead_ms.store(ahead_ms, Ordering::Release);
        if time.jump_ms > 0 {
            self.core.leases.jumped(time.jump_ms, time.monotonic_ms);
        }
        time
    }

    fn sync(&self, now_ms: u64) -> Sync {
        match self.durability {
            Durability::Immediate => Sync::Now,
            Durability::Deferred { flush_every_ms } => match self.unflushed_since_ms {
                Some(since_ms) if now_ms.saturating_sub(since_ms) >= flush_every_ms => Sync::Now,
                _ => Sync::Later,
            },
        }
    }

    fn committed(&mut self, sync: Sync, now_ms: u64) {
        match sync {
            Sync::Now => self.unflushed_since_ms = None,
            Sync::Later => {
                self.unflushed_since_ms.get_or_insert(now_ms);
            }
        }
    }

    /// Puts deferred commits on the disk.
    fn flush(&mut self) -> Result<(), StorageError> {
        if self.unflushed_since_ms.take().is_some() {
            self.store.write(Sync::Now, |_| Ok(End::Commit))?;
        }
        Ok(())
    }

    /// Takes the file over: a new instance number, and the leases of the dead become suspects.
    fn recover(&mut self) -> Result<SweepReport, StorageError> {
        let time = self.look();
        self.core.opened_at = time.now;
        self.core.meta.instance = Instance::new(self.core.meta.instance.get() + 1);
        if self.core.meta.seed == 0 {
            self.core.meta.seed = mix(time.now.as_millis());
        }
        let mut report = SweepReport::default();
        let mut from = Some(Vec::new());
        while let Some(start) = from.take() {
            let core = &mut self.core;
            self.store.write(Sync::Now, |rows| {
                let mut nobody = Vec::new();
                let mut batch = Batch::new(core, rows, time, &mut nobody);
                from = batch.recover(&start, &mut report)?;
                batch.take_over()?;
                Ok(End::Commit)
            })?;
            // Damage that the first slice meets leaves the file untouched. Later slices, if a process died
            // with more than a slice of leases, are not held in memory with it.
            self.store.let_in()?;
        }
        Ok(report)
    }
}

/// Runs one command.
fn run(batch: &mut Batch<'_, '_>, command: Command, round: &mut Round) -> Result<(), StorageError> {
    match command {
        Command::Enqueue(enqueue) => batch.enqueue(enqueue)?,
        Command::Claim(claim) => batch.claim_in_turn(claim)?,
        Command::Settle(settle) => batch.settle(*settle)?,
        Command::Mark(mark) => batch.mark(*mark)?,
        Command::Cancel { job, reply } => {
            let outcome = batch.cancel(job)?;
            batch.answer_with(reply, outcome);
        }
        Command::Discard { slice, reply } => {
            let outcome = batch.discard(*slice)?;
            batch.answer_with(reply, Ok::<_, StorageError>(outcome));
        }
        Command::Import { items, reply } => {
            let outcome = batch.import(items)?;
            batch.answer_with(reply, Ok::<_, StorageError>(outcome));
        }
        Command::Amend { amend, reply } => {
            let outcome = batch.amend(*amend)?;
            batch.answer_with(reply, outcome);
        }
        Command::Redrive { plan, reply } => {
            let outcome = batch.start_cohort(*plan)?;
            batch.answer_with(reply, outcome);
        }
        Command::Cohort { cohort, order, reply } => {
            let outcome = batch.order_cohort(cohort, order)?;
            batch.answer_with(reply, outcome);
        }
        Command::SetQueue { settings, reply } => {
            let outcome = batch.set_queue(&settings)?;
            batch.answer_with(reply, outcome);
        }
        Command::Pause { stopping, reply } => {
            let outcome = batch.pause(stopping)?;
            batch.answer_with(reply, outcome);
        }
        Command::Resume { scope, reply } => {
            let lifted = batch.resume(&scope)?;
            batch.answer_with(reply, Ok(lifted));
        }
        Command::Facts { queue, kind, reply } => {
            let facts = batch.claim_facts(&queue, &kind);
            batch.answer(move |_| reply.send(facts));
        }
        Command::Sweep { reply } => {
            // Every batch begins with a pass; this is the report of the one before this command.
            let report = round.swept;
            batch.answer_with(reply, Ok::<_, StorageError>(report));
        }
        Command::Look => {}
        Command::Close { reply } => round.close = Some(reply),
    }
    Ok(())
}
