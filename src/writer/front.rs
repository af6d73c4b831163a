//! The handle's side of the writer: commands in, answers out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use crate::clock::Clock;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::store::database::{Store, caught};
use crate::writer::command::{Command, SweepReport};
use crate::writer::core::Core;
use crate::writer::events::Board;
use crate::writer::leases::Leases;
use crate::writer::mailbox::Mailbox;
use crate::writer::reply::{Pending, Reply, reply};
use crate::writer::timeline::Timeline;
use crate::writer::{Desk, Durability, lent};

/// The handle's side of the writer.
pub(crate) struct Writer {
    mailbox: Arc<Mailbox>,
    pub(crate) leases: Arc<Leases>,
    poison: Arc<OnceLock<StorageError>>,
    longest_write_ms: Arc<AtomicU64>,
    longest_transaction_ms: Arc<AtomicU64>,
    pub(crate) board: Arc<Board>,
    /// How far the timeline is ahead of the monotonic clock: it only grows.
    ahead_ms: Arc<AtomicU64>,
    /// No other writer of this process has it.
    number: u64,
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
        let longest_transaction_ms = Arc::new(AtomicU64::new(0));
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
            longest_transaction_ms: Arc::clone(&longest_transaction_ms),
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
        let writer = Self {
            mailbox,
            leases,
            poison,
            longest_write_ms,
            longest_transaction_ms,
            board,
            ahead_ms,
            number: lent::number(),
            thread,
        };
        Ok((writer, report))
    }

    /// Hands over a command built around its reply; the answer comes after its commit.
    pub(crate) fn ask<T>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<Pending<T>, StorageError> {
        if self.is_lent_here() {
            return Err(StorageError::nested());
        }
        let (reply, pending) = reply();
        self.mailbox.send(command(reply))?;
        Ok(pending)
    }

    /// Hands over a command whose answer nobody waits for. Inside a transaction it is kept until that has
    /// ended: the writer takes nothing out of its mailbox before, which may be full.
    pub(crate) fn tell(&self, command: Command) -> Result<(), StorageError> {
        match lent::keep(self.number, command) {
            Some(command) => self.mailbox.send(command),
            None => Ok(()),
        }
    }

    /// No other writer of this process has it.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whether this thread is inside a transaction of this store: what would wait for the writer would
    /// wait for itself.
    pub(crate) fn is_lent_here(&self) -> bool {
        lent::is_here(self.number)
    }

    /// Waits for an answer; if there will never be one, says why.
    pub(crate) fn wait<T>(&self, pending: Pending<T>) -> Result<T, StorageError> {
        if self.is_lent_here() {
            return Err(StorageError::nested());
        }
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

    /// The longest transaction on a caller's thread so far, likewise.
    pub(crate) fn longest_transaction_ms(&self) -> u64 {
        self.longest_transaction_ms.load(Ordering::Relaxed)
    }

    /// The first error that stopped the writer, if one did.
    pub(crate) fn poisoned(&self) -> Option<StorageError> {
        self.poison.get().cloned()
    }

    /// Finishes what has arrived, answers everybody, ends the thread. Not to be called inside a transaction.
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
