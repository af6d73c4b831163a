//! The `outbox` table: what is still to be sent, by destination and sequence.

use crate::domain::id::{JobId, QueueId};
use crate::domain::job::Job;
use crate::domain::outbox::unsent;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// A message that waits to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsent {
    pub(crate) sequence: u64,
    pub(crate) job: JobId,
    pub(crate) emitted_at: Timestamp,
}

/// The unsent message of a destination that was emitted first: one row, whatever the backlog. Rows that
/// cannot be read are passed over, a few of them; `verify` tells of them.
pub(crate) fn oldest(rows: &impl Rows, queue: QueueId) -> Result<Option<Unsent>, StorageError> {
    const PASSED_MAX: usize = 100;
    let prefix = key::number(queue.get());
    let (mut from, end) = (prefix.clone(), key::after_prefix(&prefix));
    for _ in 0..PASSED_MAX {
        let Some((name, value)) = rows.first(TableId::Outbox, &from, &end)? else {
            return Ok(None);
        };
        if let (Ok((_, sequence)), Ok((job, emitted_at))) =
            (key::read_outbox(&name), read_value(&value))
        {
            return Ok(Some(Unsent { sequence, job, emitted_at }));
        }
        from = [name.as_slice(), &[0]].concat();
    }
    Ok(None)
}

/// The key of the row that says that `job` is still to be sent.
pub(crate) fn row(job: &Job) -> Option<Vec<u8>> {
    Some(key::outbox(job.class.queue, unsent(job)?))
}

/// Its value.
pub(crate) fn value(job: &Job) -> Result<Vec<u8>, StorageError> {
    Ok(record::encode(&(job.id, job.enqueued_at))?)
}

/// Reads a row's value: the message, and when it was emitted.
pub(crate) fn read_value(value: &[u8]) -> Result<(JobId, Timestamp), StorageError> {
    Ok(record::decode(value)?)
}

/// Writes the difference between two moments of one job.
pub(crate) fn replace(
    rows: &mut WriteRows<'_>,
    before: Option<&Job>,
    after: Option<&Job>,
) -> Result<(), StorageError> {
    let (row_before, row_after) = (before.and_then(row), after.and_then(row));
    if row_before == row_after {
        return Ok(());
    }
    if let Some(row) = row_before {
        rows.write(TableId::Outbox, &row, None)?;
    }
    if let (Some(row), Some(job)) = (row_after, after) {
        rows.write(TableId::Outbox, &row, Some(&value(job)?))?;
    }
    Ok(())
}
