//! The `order` table: who holds an ordering key, and who waits for it. A waiting job's row is its state
//! row; a holder has one beside its state row.

use crate::domain::id::{Class, JobId, QueueId};
use crate::domain::job::Job;
use crate::domain::order::{Standing, standing};
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Row, Rows, WriteRows};
use crate::store::tables::TableId;

/// The oldest job beside `but` that holds the key.
pub(crate) fn oldest_holder(
    rows: &impl Rows,
    queue: QueueId,
    name: &str,
    but: JobId,
) -> Result<Option<JobId>, StorageError> {
    let prefix = key::order_standing(queue, name, Standing::Holds);
    let found = rows.range(TableId::Order, &prefix, &key::after_prefix(&prefix), 2)?;
    for (row, _) in found {
        let (_, id) = key::read_order(&row)?;
        if id != but {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The first row of an ordering key, with its standing and its job: a holder if there is one,
/// otherwise the one whose turn it is.
pub(crate) fn first(
    rows: &impl Rows,
    queue: QueueId,
    name: &str,
) -> Result<Option<(Row, Standing, JobId)>, StorageError> {
    let prefix = key::order_key(queue, name);
    let Some(row) = rows.first(TableId::Order, &prefix, &key::after_prefix(&prefix))? else {
        return Ok(None);
    };
    let (standing, id) = key::read_order(&row.0)?;
    Ok(Some((row, standing, id)))
}

/// Up to `count_max` of the jobs that wait for the key, in their order.
pub(crate) fn waiting(
    rows: &impl Rows,
    queue: QueueId,
    name: &str,
    count_max: usize,
) -> Result<Vec<(Row, JobId)>, StorageError> {
    let prefix = key::order_standing(queue, name, Standing::Waits);
    let found = rows.range(TableId::Order, &prefix, &key::after_prefix(&prefix), count_max)?;
    found
        .into_iter()
        .map(|row| {
            let (_, id) = key::read_order(&row.0)?;
            Ok((row, id))
        })
        .collect()
}

/// The value of every row: what is needed to count a waiting job that cannot be read.
pub(crate) fn value(job: &Job) -> Result<Vec<u8>, StorageError> {
    Ok(record::encode(&job.class)?)
}

/// Reads a row's value.
pub(crate) fn read_value(value: &[u8]) -> Result<Class, StorageError> {
    Ok(record::decode(value)?)
}

/// The key of the row by which `job` holds its ordering key.
pub(crate) fn holder_row(job: &Job) -> Option<Vec<u8>> {
    match standing(job) {
        Some((_, Standing::Holds)) => key::order_row(job),
        Some((_, Standing::Waits)) | None => None,
    }
}

/// Writes the difference between two moments of one job, as far as holding its key goes.
pub(crate) fn replace_holder(
    rows: &mut WriteRows<'_>,
    before: Option<&Job>,
    after: Option<&Job>,
) -> Result<(), StorageError> {
    let row_before = before.and_then(holder_row);
    let row_after = after.and_then(holder_row);
    if row_before == row_after {
        return Ok(());
    }
    if let Some(row) = row_before {
        rows.write(TableId::Order, &row, None)?;
    }
    if let (Some(row), Some(job)) = (row_after, after) {
        rows.write(TableId::Order, &row, Some(&value(job)?))?;
    }
    Ok(())
}
