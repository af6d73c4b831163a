//! The history table: (job, entry number) -> entry, bounded per job.

use crate::domain::history::{HistoryEntry, evicted_by, kept};
use crate::domain::id::JobId;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// Writes entry number `next`, and drops the one that no longer fits.
pub(crate) fn append(
    rows: &mut WriteRows<'_>,
    job: JobId,
    next: u32,
    entry: &HistoryEntry,
) -> Result<(), StorageError> {
    if let Some(gone) = evicted_by(next) {
        rows.write(TableId::History, &key::history(job, gone), None)?;
    }
    rows.write(TableId::History, &key::history(job, next), Some(&record::encode(entry)?))
}

/// Drops all entries of a job that has had `next` of them.
pub(crate) fn clear(rows: &mut WriteRows<'_>, job: JobId, next: u32) -> Result<(), StorageError> {
    for entry in kept(next).0 {
        rows.write(TableId::History, &key::history(job, entry), None)?;
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
