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
mod front;
mod heads;
mod import;
mod key;
pub(crate) mod leases;
mod lent;
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
pub(crate) mod transact;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::clock::Clock;
use crate::domain::id::Instance;
use crate::domain::schedule::mix;
use crate::error::StorageError;
use crate::store::database::{End, Store, Sync};
use crate::writer::batch::{Answer, Batch};
use crate::writer::command::{Command, SweepReport};
use crate::writer::core::Core;
pub(crate) use crate::writer::front::Writer;
use crate::writer::mailbox::Mailbox;
use crate::writer::reply::Reply;
use crate::writer::timeline::{Reading, Timeline};
use crate::writer::transact::Loan;

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
    longest_transaction_ms: Arc<AtomicU64>,
    ahead_ms: Arc<AtomicU64>,
}

/// A write transaction that went well.
struct Ended {
    end: End,
    sync: Sync,
    /// When it was begun.
    time: Reading,
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
        let mut arrived = VecDeque::new();
        loop {
            if !more && arrived.is_empty() {
                self.rest();
            }
            // What is bounded in the mailbox is not to pile up behind transactions.
            if !arrived.iter().any(Command::is_transaction) {
                arrived.extend(self.mailbox.take());
            }
            let (commands, borrower) = until_transaction(&mut arrived);
            let round = self.round(commands)?;
            more = round.more;
            if let Some(close) = round.close {
                self.flush()?;
                return Ok(close);
            }
            if let Some(borrower) = borrower {
                self.lend(borrower)?;
                // Time has passed, and what is due is not to wait for the next command.
                more = true;
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
        let took_ms = self.clock.monotonic_ms().saturating_sub(time.monotonic_ms);
        self.longest_write_ms.fetch_max(took_ms, Ordering::Relaxed);
        // Results that came in are looked at before anything else is released.
        round.more |= self.core.cohorts.has_news() || self.core.retention.has_news();
        let ended = written.map(|()| Ended { end, sync, time });
        self.see_to(ended, answers)?;
        Ok(round)
    }

    /// What follows from the end of a write transaction: answers, and leases that begin.
    fn see_to(
        &mut self,
        ended: Result<Ended, StorageError>,
        answers: Vec<Answer>,
    ) -> Result<(), StorageError> {
        let Ended { end, sync, time } = match ended {
            Ok(ended) => ended,
            Err(cause) => {
                let cause = self.poisoned_by(cause);
                for answer in answers {
                    answer(Some(&cause));
                }
                return Err(cause);
            }
        };
        let told = std::mem::take(&mut self.core.told);
        if end == End::Commit {
            self.committed(sync, time.monotonic_ms);
            // Before the answers: who has one finds its event told.
            self.core.board.tell(time.now, told);
        }
        let granted = std::mem::take(&mut self.core.granted);
        self.core.leases.start(&granted, self.clock.monotonic_ms());
        for answer in answers {
            answer(None);
        }
        Ok(())
    }

    /// Latches `cause`. The latch comes first: nobody who is told may find the store still open.
    fn poisoned_by(&self, cause: StorageError) -> StorageError {
        let cause = cause.into_poison();
        let _ = self.poison.set(cause.clone());
        drop(self.mailbox.close(cause.clone()));
        cause
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

/// The commands before the first transaction, and who wants that.
fn until_transaction(arrived: &mut VecDeque<Command>) -> (Vec<Command>, Option<Reply<Loan>>) {
    let mut before = Vec::new();
    while let Some(command) = arrived.pop_front() {
        match command {
            Command::Transact { reply } => return (before, Some(reply)),
            command => before.push(command),
        }
    }
    (before, None)
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
        // Those are taken out of the line before.
        Command::Transact { .. } | Command::Look => {}
        Command::Close { reply } => round.close = Some(reply),
    }
    Ok(())
}
