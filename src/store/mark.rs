//! The table of step markers: (job, step name) -> when, by which delivery, what it gave back.

use crate::domain::id::JobId;
use crate::domain::mark::Marker;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

pub(crate) fn get(
    rows: &impl Rows,
    job: JobId,
    name: &str,
) -> Result<Option<Marker>, StorageError> {
    rows.get(TableId::Effects, &key::marker(job, name))
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    job: JobId,
    name: &str,
    marker: &Marker,
) -> Result<(), StorageError> {
    rows.write(TableId::Effects, &key::marker(job, name), Some(&record::encode(marker)?))
}

/// All of a job's markers that can be read, in the order of their names.
pub(crate) fn all(rows: &impl Rows, job: JobId) -> Result<Vec<(String, Marker)>, StorageError> {
    let prefix = key::job(job);
    let found = rows.range(TableId::Effects, &prefix, &key::after_prefix(&prefix), usize::MAX)?;
    let readable = found.iter().filter_map(|(row, value)| {
        let (_, name) = key::read_marker(row).ok()?;
        Some((name.to_owned(), record::decode(value).ok()?))
    });
    Ok(readable.collect())
}

/// How many rows a job has, readable or not.
pub(crate) fn count(rows: &impl Rows, job: JobId) -> Result<usize, StorageError> {
    let prefix = key::job(job);
    let found = rows.range(TableId::Effects, &prefix, &key::after_prefix(&prefix), usize::MAX)?;
    Ok(found.len())
}

/// Drops all markers of a job.
pub(crate) fn clear(rows: &mut WriteRows<'_>, job: JobId) -> Result<(), StorageError> {
    let prefix = key::job(job);
    let found = rows.range(TableId::Effects, &prefix, &key::after_prefix(&prefix), usize::MAX)?;
    for (row, _) in found {
        rows.write(TableId::Effects, &row, None)?;
    }
    Ok(())
}
