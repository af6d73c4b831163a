//! The history table: (job, entry number) -> entry, bounded per job.

use std::collections::BTreeSet;

use crate::domain::history::{HistoryEntry, evicted_by, kept};
use crate::domain::id::JobId;
use crate::domain::job::Job;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// Writes the next entry of `job`, and drops the one that no longer fits.
pub(crate) fn append(
    rows: &mut WriteRows<'_>,
    job: &Job,
    entry: &HistoryEntry,
) -> Result<(), StorageError> {
    let next = job.history_next;
    if let Some(gone) = evicted_by(next)
        && !job.history_pinned.contains(&gone)
    {
        rows.write(TableId::History, &key::history(job.id, gone), None)?;
    }
    rows.write(TableId::History, &key::history(job.id, next), Some(&record::encode(entry)?))
}

/// Writes the entries that `job` comes with, from number 0 on, as far as they fit.
pub(crate) fn put_all<'e>(
    rows: &mut WriteRows<'_>,
    job: &Job,
    entries: impl Iterator<Item = &'e HistoryEntry>,
) -> Result<(), StorageError> {
    let fit: BTreeSet<u32> = kept(job.history_next, &job.history_pinned).0.collect();
    for (number, entry) in (0..).zip(entries).filter(|(number, _)| fit.contains(number)) {
        let value = record::encode(entry)?;
        rows.write(TableId::History, &key::history(job.id, number), Some(&value))?;
    }
    Ok(())
}

/// Drops all entries of a job.
pub(crate) fn clear(rows: &mut WriteRows<'_>, job: &Job) -> Result<(), StorageError> {
    for entry in kept(job.history_next, &job.history_pinned).0 {
        rows.write(TableId::History, &key::history(job.id, entry), None)?;
    }
    Ok(())
}

/// The kept entries of one job.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// Those that can be read, oldest first.
    pub(crate) entries: Vec<HistoryEntry>,
    /// All of them.
    pub(crate) rows: usize,
}

pub(crate) fn read(rows: &impl Rows, job: JobId) -> Result<Kept, StorageError> {
    let prefix = key::job(job);
    let found = rows.range(TableId::History, &prefix, &key::after_prefix(&prefix), usize::MAX)?;
    let entries = found.iter().filter_map(|(_, value)| record::decode(value).ok()).collect();
    Ok(Kept { entries, rows: found.len() })
}
