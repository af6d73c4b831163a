//! A transaction on the caller's own thread. The writer lends its state and waits, parked, until it comes
//! back; so there is one writer at any moment, and the caller's code runs where it may take its time.
//!
//! What the caller's code does wrong ends with its transaction: an error and a panic are caught inside it,
//! and it is aborted in order. The state is then read anew from the file, which says all it said before.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::domain::counter::Flow;
use crate::domain::effect::TableSpec;
use crate::domain::id::{Class, Token};
use crate::error::{EffectError, EnqueueError, SettleError, StorageError};
use crate::store::app::{self, Key, MultimapTable, Table, TableError, Value};
use crate::store::database::{End, Store, Sync, caught};
use crate::store::{alone, effect as effect_store};
use crate::writer::batch::{Answer, Batch};
use crate::writer::command::{Command, Enqueued, How, Prepared, WriteSet};
use crate::writer::core::Core;
use crate::writer::lent::Here;
use crate::writer::reply::{Pending, Reply, reply};
use crate::writer::timeline::Reading;
use crate::writer::{Desk, Ended, Writer};

/// The writer's state in the hands of a caller. It always goes back, whatever happens to the caller.
pub(crate) struct Loan {
    lent: Option<(Box<Core>, Reply<Returned>)>,
    time: Reading,
    sync: Sync,
}

struct Returned {
    core: Box<Core>,
    answers: Vec<Answer>,
    ended: Result<End, StorageError>,
    /// What was decided in vain has left traces in `core`.
    stained: bool,
    /// Told when the writer has seen to what follows.
    done: Option<Reply<()>>,
}

/// How the caller's own code ended.
pub(crate) enum Outcome<T, E> {
    Committed(T),
    Refused(E),
    Panicked(Box<dyn Any + Send>),
}

/// An open transaction, see [`Redrive::transact`](crate::Redrive::transact).
pub struct Tx<'b, 't> {
    batch: Batch<'b, 't>,
    /// The number of the store's writer.
    writer: u64,
    payload_bytes_max: usize,
    /// The error that ends the transaction, and the store with it.
    broken: Option<StorageError>,
    /// Tables of the app's were opened, so there may be something to commit.
    touched: bool,
    /// Leases that were settled in it, with what is to be set once it is committed.
    settled: Vec<(Token, Arc<AtomicBool>)>,
}

impl fmt::Debug for Tx<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tx").finish_non_exhaustive()
    }
}

impl Drop for Loan {
    /// Comes first only where nothing was written: on a thread that went away meanwhile.
    fn drop(&mut self) {
        if let Some((core, back)) = self.lent.take() {
            let ended = Ok(End::Abort);
            back.send(Returned { core, answers: Vec::new(), ended, stained: true, done: None });
        }
    }
}

impl Loan {
    /// Gives the state back; returns when the writer has seen to what follows.
    fn give_back(mut self, ended: Result<End, StorageError>, answers: Vec<Answer>, stained: bool) {
        if let Some((core, back)) = self.lent.take() {
            let (done, seen_to): (_, Pending<()>) = reply();
            back.send(Returned { core, answers, ended, stained, done: Some(done) });
            // A writer that ended instead has told why; the next call learns it.
            let _ = seen_to.wait();
        }
    }
}

impl Writer {
    /// Runs `work` in a transaction on this thread.
    pub(crate) fn transact<T, E>(
        &self,
        store: &Store,
        payload_bytes_max: usize,
        work: impl FnOnce(&mut Tx<'_, '_>) -> Result<T, E>,
    ) -> Result<Outcome<T, E>, StorageError> {
        let mut loan = self.wait(self.ask(|reply| Command::Transact { reply })?)?;
        let ends = || StorageError::internal("no transaction on a thread that is ending");
        let here = Here::new(self.number()).ok_or_else(ends)?;
        let (time, sync) = (loan.time, loan.sync);
        let mut answers = Vec::new();
        let (mut outcome, mut settled) = (None, Vec::new());
        let mut end = End::Abort;
        let mut stained = true;
        // A panic of the storage engine is not to be taken for one of `work`, which are caught inside.
        let written = caught(|| {
            let missing = || StorageError::internal("the writer's state was not lent");
            let (core, _) = loan.lent.as_mut().ok_or_else(missing)?;
            store.write(sync, |rows| {
                let batch = Batch::new(core, rows, time, &mut answers).deferring_lease_ends();
                let mut tx = Tx::new(batch, self.number(), payload_bytes_max);
                let ran = catch_unwind(AssertUnwindSafe(|| work(&mut tx)));
                if let Some(broken) = tx.broken {
                    return Err(broken);
                }
                stained = tx.batch.is_dirty();
                outcome = Some(match ran {
                    Ok(Ok(value)) => Outcome::Committed(value),
                    Ok(Err(refused)) => Outcome::Refused(refused),
                    Err(panic) => Outcome::Panicked(panic),
                });
                if matches!(outcome, Some(Outcome::Committed(_))) {
                    tx.batch.end_leases();
                    tx.batch.serve_waiting()?;
                    let written = tx.batch.finish()? || tx.touched;
                    end = if written { End::Commit } else { End::Abort };
                    settled = tx.settled;
                }
                Ok(end)
            })
        });
        let refused = !matches!(outcome, Some(Outcome::Committed(_)));
        if written.is_err() {
            settled.clear();
        }
        for (_, lease) in &settled {
            lease.store(true, Ordering::Release);
        }
        let told = here.over();
        loan.give_back(written.clone().map(|()| end), answers, refused && stained);
        // What was let go of meanwhile is given back, unless it was settled.
        let is_settled = |token| settled.iter().any(|&(settled, _)| settled == token);
        for command in told {
            if !command.gives_back().is_some_and(is_settled) {
                // A store that takes no more commands recovers the lease at its next opening.
                let _ = self.tell(command);
            }
        }
        written.map_err(StorageError::into_poison)?;
        outcome.ok_or_else(|| StorageError::internal("a transaction had no outcome"))
    }
}

impl<'b, 't> Tx<'b, 't> {
    const fn new(batch: Batch<'b, 't>, writer: u64, payload_bytes_max: usize) -> Self {
        let settled = Vec::new();
        Self { batch, writer, payload_bytes_max, broken: None, touched: false, settled }
    }

    /// Runs one call of the transaction. A storage error ends it all; so does a panic of the storage
    /// engine, which would otherwise be taken for one of the caller's code.
    fn run<T>(
        &mut self,
        call: impl FnOnce(&mut Batch<'b, 't>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        if let Some(broken) = &self.broken {
            return Err(broken.clone());
        }
        let batch = &mut self.batch;
        let done = caught(|| call(batch));
        if let Err(error) = &done {
            self.broken = Some(error.clone());
        }
        done
    }

    pub(crate) const fn payload_bytes_max(&self) -> usize {
        self.payload_bytes_max
    }

    /// Whether this is a transaction of the store that has this writer.
    pub(crate) const fn is_of(&self, writer: u64) -> bool {
        self.writer == writer
    }

    /// A lease was settled: to be noted there, too, once this is committed.
    pub(crate) fn settled(&mut self, token: Token, lease: Arc<AtomicBool>) {
        self.settled.push((token, lease));
    }

    /// One of the app's own tables. The name was checked.
    pub(crate) fn app_table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: app::TableDefinition<'_, K, V>,
    ) -> Result<Table<'t, K, V>, TableError> {
        self.touched = true;
        self.batch.rows.open_app(definition)
    }

    /// As [`Self::app_table`], for several values under one key.
    pub(crate) fn app_multimap<K: Key + 'static, V: Key + 'static>(
        &mut self,
        definition: app::MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'t, K, V>, TableError> {
        self.touched = true;
        self.batch.rows.open_app_multimap(definition)
    }

    pub(crate) fn accept(
        &mut self,
        job: Prepared,
    ) -> Result<Result<Enqueued, EnqueueError>, StorageError> {
        self.run(|batch| batch.accept(job))
    }

    pub(crate) fn settle(
        &mut self,
        token: Token,
        class: Class,
        how: How,
    ) -> Result<Result<(), SettleError>, StorageError> {
        self.run(|batch| {
            let (event, effects) = how.event(token, batch.time.now);
            let outcome = batch.settled(token, event, effects)?;
            if matches!(outcome, Err(SettleError::StaleLease { .. })) {
                batch.core.books.count(class, Flow::Stale);
            }
            Ok(outcome.map(drop))
        })
    }

    /// Writes rows of effect tables.
    pub(crate) fn change(
        &mut self,
        effects: WriteSet,
    ) -> Result<Result<(), SettleError>, StorageError> {
        self.run(|batch| {
            let planned = match batch.plan_effects(&effects)? {
                Ok(planned) => planned,
                Err(refused) => return Ok(Err(refused)),
            };
            batch.apply_effects(effects, &planned).map(Ok)
        })
    }

    /// A row of an effect table, as this transaction sees it.
    pub(crate) fn row(
        &mut self,
        table: TableSpec,
        key: &[u8],
    ) -> Result<Result<Option<Vec<u8>>, EffectError>, StorageError> {
        self.run(|batch| {
            let known = match alone(effect_store::known(&*batch.rows, table.name))? {
                Ok(Some(known)) if known.fits(table) => known,
                Ok(Some(known)) => {
                    return Ok(Err(EffectError::other_types(table, &known.key, &known.value)));
                }
                Ok(None) => return Ok(Ok(None)),
                Err(damage) => return Ok(Err(damage.into())),
            };
            let found = alone(effect_store::get(&*batch.rows, known.number, key))?;
            Ok(found.map_err(EffectError::from))
        })
    }
}

impl Desk {
    /// Lends the state to a caller, waits for it, and sees to what follows. An error is one that poisons.
    pub(super) fn lend(&mut self, to: Reply<Loan>) -> Result<(), StorageError> {
        let time = self.look();
        let sync = self.sync(time.monotonic_ms);
        let (back, returned) = reply();
        let stand_in = self.core.stand_in();
        let core = Box::new(std::mem::replace(&mut self.core, stand_in));
        to.send(Loan { lent: Some((core, back)), time, sync });
        let lost = || StorageError::internal("the writer's state was not given back");
        let Returned { core, answers, ended, stained, done } = returned.wait().ok_or_else(lost)?;
        self.core = *core;
        let took_ms = self.clock.monotonic_ms().saturating_sub(time.monotonic_ms);
        self.longest_transaction_ms.fetch_max(took_ms, Ordering::Relaxed);
        let ended = ended.map(|end| Ended { end, sync, time });
        let seen_to = self.see_to(ended, answers).and_then(|()| self.clean(stained));
        if let Some(done) = done {
            done.send(());
        }
        seen_to
    }

    /// After a transaction that was taken back: what it left in memory is forgotten.
    fn clean(&mut self, stained: bool) -> Result<(), StorageError> {
        if !stained {
            return Ok(());
        }
        let window_minutes = self.core.window_minutes;
        match self.store.read(|rows| Core::load(rows, window_minutes)) {
            Ok(from_file) => {
                self.core.reload(from_file);
                Ok(())
            }
            Err(cause) => Err(self.poisoned_by(cause)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::domain::id::JobId;
    use crate::store::database::Settings;
    use crate::writer::Durability;
    use crate::writer::events::EventKind;

    fn writer(dir: &tempfile::TempDir) -> (Arc<Store>, Writer) {
        let settings = Settings { cache_bytes: 1 << 20, check_integrity: false };
        let store = Arc::new(Store::open(&dir.path().join("jobs.redb"), &settings).unwrap());
        let clock = Arc::new(SystemClock::new());
        let (writer, _) =
            Writer::start(Arc::clone(&store), clock, Durability::Immediate, 60).unwrap();
        (store, writer)
    }

    fn borrow(writer: &Writer) -> Loan {
        writer.wait(writer.ask(|reply| Command::Transact { reply }).unwrap()).unwrap()
    }

    /// P2: a loan that is lost on the way is a transaction that was taken back: what it has changed in memory
    /// is forgotten, and the writer goes on.
    #[test]
    fn p_02_a_lost_loan_is_taken_back() {
        let dir = tempfile::tempdir().unwrap();
        let (store, writer) = writer(&dir);
        let mut loan = borrow(&writer);
        let (core, _) = loan.lent.as_mut().unwrap();
        let next = core.meta.next;
        core.meta.next += 7;
        core.suspects = 1;
        core.granted.push(Token { job: JobId::new(1), delivery: 1 });
        core.told.push(EventKind::Missed { count: 1 });
        let board = Arc::clone(&core.board);
        drop(loan);
        let loan = borrow(&writer);
        let (core, _) = loan.lent.as_ref().unwrap();
        assert_eq!((core.meta.next, core.suspects), (next, 0));
        assert!(core.told.is_empty() && core.granted.is_empty());
        assert!(Arc::ptr_eq(&core.board, &board) && Arc::ptr_eq(&core.leases, &writer.leases));
        drop(loan);
        let swept = writer.wait(writer.ask(|reply| Command::Sweep { reply }).unwrap()).unwrap();
        assert!(swept.is_ok() && writer.poisoned().is_none());
        let done = writer.transact(&store, 1_000, |_| Ok::<_, ()>(7));
        assert!(matches!(done, Ok(Outcome::Committed(7))));
        writer.close();
    }

    /// One who asked and went away holds up nobody.
    #[test]
    fn a_loan_that_nobody_takes_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (_store, writer) = writer(&dir);
        drop(writer.ask(|reply| Command::Transact { reply }).unwrap());
        let swept = writer.wait(writer.ask(|reply| Command::Sweep { reply }).unwrap()).unwrap();
        assert!(swept.is_ok() && writer.poisoned().is_none());
        writer.close();
    }

    /// A panic of the storage engine is the store's trouble, not one of the caller's code.
    #[test]
    fn p_14_a_panic_of_the_engine_inside_is_a_storage_error() {
        let dir = tempfile::tempdir().unwrap();
        let (store, writer) = writer(&dir);
        let done = writer.transact(&store, 1_000, |tx| {
            tx.run(|_| -> Result<(), StorageError> { panic!("damaged pages") }).map_err(|_| ())
        });
        assert!(done.is_err_and(|error| error.is_poisoned()));
        assert!(writer.poisoned().is_some());
    }
}
