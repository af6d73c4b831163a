//! Reading several things as of one moment.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use crate::domain::effect::TableSpec;
use crate::domain::id::JobId;
use crate::domain::limits::BATCH_MAX;
use crate::error::{EffectError, StorageError};
use crate::handle::effect::{EffectKey, EffectTable, EffectValue};
use crate::handle::job::JobInfo;
use crate::handle::redrive::Redrive;
use crate::store::database::caught;
use crate::store::effect as effect_store;
use crate::store::rows::{Rows, Snapshot};

/// The store as of one commit: jobs, and tables of the user's own. See [`Redrive::read`].
pub struct Reader<'r> {
    snapshot: &'r Snapshot,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

/// A row of an effect table: its key and its value.
pub type EffectRow<K, V> = (<K as EffectKey>::Read, <V as EffectValue>::Read);

impl Reader<'_> {
    /// The value under `key`; `None` when there is none, or no such table yet.
    ///
    /// # Errors
    ///
    /// [`EffectError`]: the table was made with other types, has a reserved name, or the row cannot be
    /// read.
    pub fn get<K, V>(
        &self,
        table: EffectTable<K, V>,
        key: &K,
    ) -> Result<Option<V::Read>, EffectError>
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        let key = table.key(key)?;
        let found = caught_here(|| {
            let Some(number) = number(self.snapshot, table.spec()?)? else { return Ok(None) };
            Ok(effect_store::get(self.snapshot, number, &key)?)
        })?;
        found.map(|bytes| table.value(&bytes)).transpose()
    }

    /// Up to `rows_max` rows (at most 100,000) whose keys are in `keys`, in the order of their encoded
    /// keys. To read on, begin after the last key: `(Bound::Excluded(last), Bound::Unbounded)`.
    ///
    /// # Errors
    ///
    /// As [`get`](Self::get).
    pub fn range<'k, K, V>(
        &self,
        table: EffectTable<K, V>,
        keys: impl RangeBounds<&'k K>,
        rows_max: usize,
    ) -> Result<Vec<EffectRow<K, V>>, EffectError>
    where
        K: EffectKey + ?Sized + 'k,
        V: EffectValue + ?Sized,
    {
        let from = match keys.start_bound() {
            Bound::Included(key) => table.key(key)?,
            Bound::Excluded(key) => after(table.key(key)?),
            Bound::Unbounded => Vec::new(),
        };
        let to = match keys.end_bound() {
            Bound::Included(key) => Some(after(table.key(key)?)),
            Bound::Excluded(key) => Some(table.key(key)?),
            Bound::Unbounded => None,
        };
        let found = caught_here(|| {
            let Some(number) = number(self.snapshot, table.spec()?)? else {
                return Ok(Vec::new());
            };
            let rows_max = rows_max.min(BATCH_MAX);
            Ok(effect_store::range(self.snapshot, number, &from, to.as_deref(), rows_max)?)
        })?;
        found.iter().map(|(key, value)| Ok((table.read_key(key)?, table.value(value)?))).collect()
    }

    /// One job with its history, as [`Redrive::job`].
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the row cannot be read.
    pub fn job(&self, job: JobId) -> Result<Option<JobInfo>, StorageError> {
        caught(|| JobInfo::read(self.snapshot, job))
    }
}

/// The smallest key after this one.
fn after(mut key: Vec<u8>) -> Vec<u8> {
    key.push(0);
    key
}

/// The number of the user's table, if it has been made, with the types that are asked for.
pub(crate) fn number(rows: &impl Rows, asked: TableSpec) -> Result<Option<u32>, EffectError> {
    match effect_store::known(rows, asked.name)? {
        Some(known) if known.fits(asked) => Ok(Some(known.number)),
        Some(known) => Err(EffectError::other_types(asked, &known.key, &known.value)),
        None => Ok(None),
    }
}

/// An access to pages; damaged ones can make the storage engine panic.
fn caught_here<T>(access: impl FnOnce() -> Result<T, EffectError>) -> Result<T, EffectError> {
    caught(|| Ok(access()))?
}

impl Redrive {
    /// Reads tables of the user's own, and jobs, as of the last commit: everything the closure reads
    /// belongs to one moment. Does not wait for the writer, nor the writer for it.
    ///
    /// Keep it short: for as long as the closure runs, pages that are replaced meanwhile cannot be used
    /// again, and the file grows. [`Stats::longest_read_ms`](crate::Stats::longest_read_ms) tells of the
    /// longest.
    ///
    /// # Errors
    ///
    /// What the closure returns, or [`EffectError::Storage`] when the store is closed.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::EffectTable;
    ///
    /// const SEEN: EffectTable<str, u64> = EffectTable::new("seen");
    ///
    /// let (ada, first) = jobs.read(|r| Ok((r.get(SEEN, "ada")?, r.range(SEEN, "b".."c", 100)?)))?;
    /// assert!(ada.is_none() && first.is_empty());
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn read<T>(
        &self,
        read: impl FnOnce(&Reader<'_>) -> Result<T, EffectError>,
    ) -> Result<T, EffectError> {
        let began_ms = self.clock().monotonic_ms();
        let snapshot = self.store().snapshot()?;
        let answer = read(&Reader { snapshot: &snapshot });
        drop(snapshot);
        self.note_read(self.clock().monotonic_ms().saturating_sub(began_ms));
        answer
    }
}
