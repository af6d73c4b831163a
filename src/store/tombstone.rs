//! When finished jobs may be forgotten: (time, first job) -> jobs. One row for all jobs that finish
//! in one commit with the same retention, so that the clean-up costs a finish almost nothing.

use crate::domain::id::JobId;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// Most jobs in one row: one clean-up step. Keys come in no order, so that each that goes costs a page of
/// its own.
pub(crate) const JOBS_MAX: usize = 100;

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    until: Timestamp,
    jobs: &[JobId],
) -> Result<(), StorageError> {
    for chunk in jobs.chunks(JOBS_MAX) {
        if let Some(&first) = chunk.first() {
            let value = record::encode(&chunk)?;
            rows.write(TableId::Tombstones, &key::timed(until, first), Some(&value))?;
        }
    }
    Ok(())
}

/// The key of the earliest row whose time is not after `now`, and its jobs if it can be read.
#[expect(clippy::type_complexity, reason = "a row, and perhaps its content")]
pub(crate) fn first_due(
    rows: &impl Rows,
    now: Timestamp,
) -> Result<Option<(Vec<u8>, Result<Vec<JobId>, StorageError>)>, StorageError> {
    let Some((name, value)) = rows.first(TableId::Tombstones, &[], &[u8::MAX; 17])? else {
        return Ok(None);
    };
    if key::read_timed(&name)?.0 > now {
        return Ok(None);
    }
    Ok(Some((name, record::decode(&value).map_err(StorageError::from))))
}

/// When the earliest row is due.
pub(crate) fn next(rows: &impl Rows) -> Result<Option<Timestamp>, StorageError> {
    let first = rows.first(TableId::Tombstones, &[], &[u8::MAX; 17])?;
    first.map(|(name, _)| Ok(key::read_timed(&name)?.0)).transpose()
}
