//! Reading and writing rows. [`WriteRows::write`] is the one narrow place through which every put and
//! delete goes; a redo journal can be hooked in there, and tests count and compare writes there.

use std::cell::{Cell, OnceCell};

use redb::{
    MultimapTable, MultimapTableDefinition, ReadOnlyTable, ReadTransaction, ReadableTable, Table,
    TableDefinition, TableError, WriteTransaction,
};
use serde::de::DeserializeOwned;

use crate::error::StorageError;
use crate::format::record;
use crate::store::tables::{TABLES, TableId};

type Bytes = &'static [u8];
/// A row as read: key and value.
pub(crate) type Row = (Vec<u8>, Vec<u8>);

/// Something rows can be read from: a snapshot, or the writer's own transaction.
pub(crate) trait Rows {
    /// Hands the value of one row to `read`.
    fn with<T>(
        &self,
        table: TableId,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StorageError>;

    /// Up to `count_max` rows with `from <= key < to`, in key order.
    fn range(
        &self,
        table: TableId,
        from: &[u8],
        to: &[u8],
        count_max: usize,
    ) -> Result<Vec<Row>, StorageError>;

    /// The last row with `from <= key < to`.
    fn last(&self, table: TableId, from: &[u8], to: &[u8]) -> Result<Option<Row>, StorageError>;

    /// How many rows there are with `from <= key < to`, but counts no further than `count_max`.
    fn count_in(
        &self,
        table: TableId,
        from: &[u8],
        to: &[u8],
        count_max: usize,
    ) -> Result<usize, StorageError>;

    /// The number of rows.
    fn count(&self, table: TableId) -> Result<u64, StorageError>;

    /// One record, decoded. Damage is an error for that row alone.
    fn get<T: DeserializeOwned>(
        &self,
        table: TableId,
        key: &[u8],
    ) -> Result<Option<T>, StorageError> {
        self.with(table, key, |value| {
            record::decode(value).map_err(|damage| damage.in_row(table.name(), key).into())
        })
    }

    /// The first row with `from <= key < to`.
    fn first(&self, table: TableId, from: &[u8], to: &[u8]) -> Result<Option<Row>, StorageError> {
        Ok(self.range(table, from, to, 1)?.pop())
    }
}

/// The rows of the writer's open transaction. Tables are opened on first use, once.
pub(crate) struct WriteRows<'t> {
    transaction: &'t WriteTransaction,
    tables: [OnceCell<Table<'t, Bytes, Bytes>>; TABLES.len()],
    writes: u64,
    reads: Cell<u64>,
}

impl<'t> WriteRows<'t> {
    pub(crate) fn new(transaction: &'t WriteTransaction) -> Self {
        Self {
            transaction,
            tables: std::array::from_fn(|_| OnceCell::new()),
            writes: 0,
            reads: Cell::new(0),
        }
    }

    /// How many puts and deletes this transaction has seen.
    pub(crate) const fn writes(&self) -> u64 {
        self.writes
    }

    /// How many rows this transaction has read.
    pub(crate) const fn reads(&self) -> u64 {
        self.reads.get()
    }

    /// Puts a value, or deletes the row. Every change of the store goes through here.
    pub(crate) fn write(
        &mut self,
        table: TableId,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), StorageError> {
        self.open(table)?;
        self.writes += 1;
        let open = self.tables.get_mut(table.place()).and_then(OnceCell::get_mut);
        let open = open.ok_or_else(not_open)?;
        match value {
            Some(value) => drop(open.insert(key, value).map_err(storage)?),
            None => drop(open.remove(key).map_err(storage)?),
        }
        Ok(())
    }

    /// One of the app's own tables. It is no business of the store's what is done to it.
    pub(crate) fn open_app<K: redb::Key + 'static, V: redb::Value + 'static>(
        &self,
        definition: TableDefinition<'_, K, V>,
    ) -> Result<Table<'t, K, V>, TableError> {
        self.transaction.open_table(definition)
    }

    /// As [`Self::open_app`], for several values under one key.
    pub(crate) fn open_app_multimap<K: redb::Key + 'static, V: redb::Key + 'static>(
        &self,
        definition: MultimapTableDefinition<'_, K, V>,
    ) -> Result<MultimapTable<'t, K, V>, TableError> {
        self.transaction.open_multimap_table(definition)
    }

    fn open(&self, table: TableId) -> Result<&Table<'t, Bytes, Bytes>, StorageError> {
        let cell = self.tables.get(table.place()).ok_or_else(not_open)?;
        if let Some(open) = cell.get() {
            return Ok(open);
        }
        let open = self.transaction.open_table(table.definition()).map_err(table_error)?;
        Ok(cell.get_or_init(|| open))
    }
}

impl Rows for WriteRows<'_> {
    fn with<T>(
        &self,
        table: TableId,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StorageError> {
        self.reads.set(self.reads.get() + 1);
        get_row(self.open(table)?, key, read)
    }

    fn range(
        &self,
        table: TableId,
        from: &[u8],
        to: &[u8],
        count_max: usize,
    ) -> Result<Vec<Row>, StorageError> {
        let rows = range_rows(self.open(table)?, from, to, count_max)?;
        // A range that finds nothing has looked at one row all the same.
        self.reads.set(self.reads.get() + u64::try_from(rows.len()).unwrap_or(u64::MAX).max(1));
        Ok(rows)
    }

    fn last(&self, table: TableId, from: &[u8], to: &[u8]) -> Result<Option<Row>, StorageError> {
        self.reads.set(self.reads.get() + 1);
        last_row(self.open(table)?, from, to)
    }

    fn count_in(
        &self,
        table: TableId,
        from: &[u8],
        to: &[u8],
        count_max: usize,
    ) -> Result<usize, StorageError> {
        let count = count_rows(self.open(table)?, from, to, count_max)?;
        self.reads.set(self.reads.get() + u64::try_from(count).unwrap_or(u64::MAX).max(1));
        Ok(count)
    }

    fn count(&self, table: TableId) -> Result<u64, StorageError> {
        use redb::ReadableTableMetadata;
        self.open(table)?.len().map_err(storage)
    }
}

/// The rows as of the last commit. Held for one short read only (never across user code), because an
/// old snapshot keeps old pages from being used again.
pub(crate) struct Snapshot(pub(super) ReadTransaction);

impl Snapshot {
    /// A table, if anything was ever written to it.
    fn open(&self, table: TableId) -> Result<Option<ReadOnlyTable<Bytes, Bytes>>, StorageError> {
        match self.0.open_table(table.definition()) {
            Ok(open) => Ok(Some(open)),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(table_error(error)),
        }
    }
}

impl Rows for Snapshot {
    fn with<T>(
        &self,
        table: TableId,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> Result<T, StorageError>,
    ) -> Result<Option<T>, StorageError> {
        self.open(table)?.map_or(Ok(None), |open| get_row(&open, key, read))
    }

    fn range(
        &self,
        table: TableId,
        from: &[u8],
        to: &[u8],
        count_max: usize,
    ) -> Result<Vec<Row>, StorageError> {
        self.open(table)?.map_or(Ok(Vec::new()), |open| range_rows(&open, from, to, count_max))
    }

    fn last(&self, table: TableId, from: &[u8], to: &[u8]) -> Result<Option<Row>, StorageError> {
        self.open(table)?.map_or(Ok(None), |open| last_row(&open, from, to))
    }

    fn count_in(
        &self,
        table: TableId,
        from: &[u8],
        to: &[u8],
        count_max: usize,
    ) -> Result<usize, StorageError> {
        self.open(table)?.map_or(Ok(0), |open| count_rows(&open, from, to, count_max))
    }

    fn count(&self, table: TableId) -> Result<u64, StorageError> {
        use redb::ReadableTableMetadata;
        self.open(table)?.map_or(Ok(0), |open| open.len().map_err(storage))
    }
}

fn get_row<T>(
    table: &impl ReadableTable<Bytes, Bytes>,
    key: &[u8],
    read: impl FnOnce(&[u8]) -> Result<T, StorageError>,
) -> Result<Option<T>, StorageError> {
    table.get(key).map_err(storage)?.map(|value| read(value.value())).transpose()
}

fn range_rows(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    to: &[u8],
    count_max: usize,
) -> Result<Vec<Row>, StorageError> {
    let range = table.range::<&[u8]>(from..to).map_err(storage)?;
    let mut rows: Vec<Row> = Vec::new();
    for row in range.take(count_max) {
        let (key, value) = row.map_err(storage)?;
        let key = key.value();
        // A damaged branch page can lead anywhere, for ever: who reads in pages relies on the order.
        let ascends = rows.last().is_none_or(|(last, _)| last.as_slice() < key);
        if !ascends || key < from || key >= to {
            return Err(StorageError::corrupt("a table's rows are out of order"));
        }
        rows.push((key.to_vec(), value.value().to_vec()));
    }
    Ok(rows)
}

fn last_row(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    to: &[u8],
) -> Result<Option<Row>, StorageError> {
    let last = table.range::<&[u8]>(from..to).map_err(storage)?.next_back();
    let Some((key, value)) = last.transpose().map_err(storage)? else { return Ok(None) };
    Ok(Some((key.value().to_vec(), value.value().to_vec())))
}

fn count_rows(
    table: &impl ReadableTable<Bytes, Bytes>,
    from: &[u8],
    to: &[u8],
    count_max: usize,
) -> Result<usize, StorageError> {
    let mut count = 0;
    for row in table.range::<&[u8]>(from..to).map_err(storage)?.take(count_max) {
        row.map_err(storage)?;
        count += 1;
    }
    Ok(count)
}

fn not_open() -> StorageError {
    StorageError::internal("a table could not be opened")
}

fn table_error(error: TableError) -> StorageError {
    match error {
        TableError::Storage(error) => storage(error),
        other => StorageError::corrupt(other.to_string()),
    }
}

/// redb's storage error as ours.
pub(crate) fn storage(error: redb::StorageError) -> StorageError {
    match error {
        redb::StorageError::Corrupted(message) => StorageError::corrupt(message),
        redb::StorageError::Io(error) => StorageError::io(error.to_string()),
        redb::StorageError::DatabaseClosed => StorageError::closed(),
        other => StorageError::io(other.to_string()),
    }
}
