//! The idempotency ledger: (queue, key) -> the job that owns it.
//!
//! The row names the job that took the key last and nothing else; state, request hash and result are
//! that job's, and so is whether it still owns the key (`domain/key.rs`). So it is written once per life,
//! and cannot disagree with the job. It stays for as long as that job's row does.

use crate::domain::id::{JobId, QueueId};
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::alone;
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

pub(crate) fn owner(
    rows: &impl Rows,
    queue: QueueId,
    name: &str,
) -> Result<Option<JobId>, StorageError> {
    rows.get(TableId::Keys, &key::key(queue, name))
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    queue: QueueId,
    name: &str,
    owner: JobId,
) -> Result<(), StorageError> {
    rows.write(TableId::Keys, &key::key(queue, name), Some(&record::encode(&owner)?))
}

/// Frees the key, unless another job owns it by now (O-09). A damaged row is left as it is: whoever
/// needs it is told.
pub(crate) fn release(
    rows: &mut WriteRows<'_>,
    queue: QueueId,
    name: &str,
    by: JobId,
) -> Result<(), StorageError> {
    if matches!(alone(owner(rows, queue, name))?, Ok(Some(owner)) if owner == by) {
        rows.write(TableId::Keys, &key::key(queue, name), None)?;
    }
    Ok(())
}
