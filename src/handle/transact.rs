//! Transactions on the caller's own thread.

use std::panic::resume_unwind;

use crate::domain::effect::is_reserved;
use crate::error::TransactError;
use crate::handle::completion::Completion;
use crate::handle::effect::{EffectKey, EffectTable, EffectValue};
use crate::handle::lease::Lease;
use crate::handle::message::Message;
use crate::handle::new_job::NewJob;
use crate::handle::redrive::Redrive;
use crate::store::app::{
    Key, MultimapTable, MultimapTableDefinition, MultimapTableHandle, Table, TableDefinition,
    TableHandle, Value, not_opened,
};
use crate::writer::command::{Enqueued, WriteSet};
use crate::writer::transact::{Outcome, Tx};

impl<'t> Tx<'_, 't> {
    /// Opens one of the app's own redb tables, which is made if it does not exist. Names that begin with
    /// `redrive/` are refused.
    ///
    /// # Errors
    ///
    /// [`TransactError::ReservedTable`], [`TransactError::OtherTypes`], or [`TransactError::Table`]: it is open
    /// in this transaction already (let go of it first).
    pub fn open_table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Table<'t, K, V>, TransactError> {
        let name = definition.name();
        check(name)?;
        self.app_table(definition).map_err(|error| not_opened(name, error))
    }

    /// Opens one of the app's own redb multimap tables; see [`open_table`](Self::open_table).
    ///
    /// # Errors
    ///
    /// As [`open_table`](Self::open_table).
    pub fn open_multimap_table<K: Key + 'static, V: Key + 'static>(
        &mut self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'t, K, V>, TransactError> {
        let name = definition.name();
        check(name)?;
        self.app_multimap(definition).map_err(|error| not_opened(name, error))
    }

    /// Adds a job; as [`Redrive::enqueue`].
    ///
    /// # Errors
    ///
    /// [`TransactError::Enqueue`]: nothing was written for this job; pass the error on to take the whole
    /// transaction back, or go on without it.
    pub fn enqueue(&mut self, job: NewJob) -> Result<Enqueued, TransactError> {
        let prepared = job.prepare(self.payload_bytes_max())?;
        Ok(self.accept(prepared)??)
    }

    /// Emits a message; as [`Redrive::emit`]. Its sequence is given out by the commit: a transaction that is
    /// taken back leaves no gap.
    ///
    /// # Errors
    ///
    /// As [`enqueue`](Self::enqueue).
    pub fn emit(&mut self, message: Message) -> Result<Enqueued, TransactError> {
        self.enqueue(message.into_job())
    }

    /// Completes a leased job in this transaction; as [`Lease::complete_with`]. A handler passes its
    /// [`Delivery`](crate::Delivery): its job is done with the commit, whatever the handler returns after
    /// that.
    ///
    /// The lease is not used up: should the transaction be taken back, it is as it was.
    ///
    /// # Errors
    ///
    /// [`TransactError::Settle`] with [`StaleLease`](crate::SettleError::StaleLease) when the lease has ended:
    /// pass it on, so that nothing is written (P5). [`TransactError::OtherStore`]: so, too.
    /// [`TransactError::Effect`] or a follow-up job that was refused: nothing of the completion was written.
    pub fn complete(
        &mut self,
        lease: &impl AsRef<Lease>,
        completion: impl Into<Completion>,
    ) -> Result<(), TransactError> {
        let lease = lease.as_ref();
        if !self.is_of(lease.jobs().writer().number()) {
            return Err(TransactError::OtherStore { job: lease.id() });
        }
        let how = completion.into().prepare(self.payload_bytes_max())?;
        self.settle(lease.token(), lease.class(), how)??;
        self.settled(lease.token(), lease.settled_flag());
        Ok(())
    }

    /// Puts a row into an effect table; one that is there under the key is replaced.
    ///
    /// # Errors
    ///
    /// [`TransactError::Effect`]: nothing was written for this row.
    pub fn put<K, V>(
        &mut self,
        table: EffectTable<K, V>,
        key: &K,
        value: &V::Given,
    ) -> Result<(), TransactError>
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        let changes = vec![table.change(key, Some(value))?];
        Ok(self.change(WriteSet { changes, ..WriteSet::default() })??)
    }

    /// Deletes a row of an effect table, if there is one under the key.
    ///
    /// # Errors
    ///
    /// As [`put`](Self::put).
    pub fn delete<K, V>(&mut self, table: EffectTable<K, V>, key: &K) -> Result<(), TransactError>
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        let changes = vec![table.change(key, None)?];
        Ok(self.change(WriteSet { changes, ..WriteSet::default() })??)
    }

    /// A row of an effect table, as this transaction has left it.
    ///
    /// # Errors
    ///
    /// [`TransactError::Effect`]: the table was made with other types, or the row cannot be read.
    pub fn get<K, V>(
        &mut self,
        table: EffectTable<K, V>,
        key: &K,
    ) -> Result<Option<V::Read>, TransactError>
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        let found = self.row(table.spec()?, &table.key(key)?)??;
        Ok(found.map(|bytes| table.value(&bytes)).transpose()?)
    }
}

fn check(table: &str) -> Result<(), TransactError> {
    if is_reserved(table) {
        return Err(TransactError::ReservedTable { table: table.to_owned() });
    }
    Ok(())
}

impl Redrive {
    /// Runs `work` in one transaction on this thread: reads and writes in the app's own redb tables, new
    /// jobs, completions and rows of effect tables commit together, or not at all. Returns after the commit.
    /// Workers that wait for what it enqueued get it in the same commit.
    ///
    /// An error from `work` takes the transaction back and is returned; the app's own reasons go through
    /// [`TransactError::app`]. A panic takes it back in order, too, and then goes on to the caller. Either
    /// way nothing was written, no space is lost, and the store goes on.
    ///
    /// **The cost:** there is one writer, and while `work` runs it is this thread. Every other call that
    /// writes, and every claim, waits; heartbeats and reads do not. So do not sleep, send or wait for
    /// anything in it. In particular do not wait for another thread that uses the store, and use two stores
    /// in the same order everywhere, if you must use one inside a transaction of the other. Many small
    /// transactions do not share their commits; where a [`Completion`] can say what is to be written, it is
    /// the cheaper way. [`Stats::longest_transaction_ms`](crate::Stats::longest_transaction_ms) tells of the
    /// longest.
    ///
    /// Calls of the store itself that would wait for the writer (`enqueue`, `claim`, a lease's `complete`,
    /// another `transact` ...) are refused inside `work`, at once, with an error for which
    /// [`StorageError::is_nested`](crate::StorageError::is_nested) holds: use the methods of [`Tx`]. A lease that
    /// is dropped in it is given back after it, unless it was completed in it. Calls that read see the last
    /// commit, not this transaction.
    ///
    /// # Errors
    ///
    /// [`TransactError`]: what `work` returned, or the store's own trouble. Nothing was written.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::NewJob;
    /// use redrive::redb::TableDefinition;
    ///
    /// const ORDERS: TableDefinition<&str, u64> = TableDefinition::new("orders");
    ///
    /// jobs.transact(|tx| {
    ///     tx.open_table(ORDERS)?.insert("O-194", 4_900)?;
    ///     tx.enqueue(NewJob::new("charges", "charge").bytes("O-194").key("charge:O-194"))
    /// })?;
    /// assert_eq!(jobs.stats()?.total.ready, 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn transact<T>(
        &self,
        work: impl FnOnce(&mut Tx<'_, '_>) -> Result<T, TransactError>,
    ) -> Result<T, TransactError> {
        match self.writer().transact(self.store(), self.payload_bytes_max(), work)? {
            Outcome::Committed(value) => Ok(value),
            Outcome::Refused(error) => Err(error),
            Outcome::Panicked(panic) => resume_unwind(panic),
        }
    }
}
