//! Queues, kinds and policies, which jobs refer to by small numbers.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::id::{KindId, PolicyId, QueueId};
use crate::domain::policy::JobPolicy;
use crate::domain::queue::Queue;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// All rows of one of the three tables: row `n` is number `n`.
fn all<T: DeserializeOwned>(rows: &impl Rows, table: TableId) -> Result<Vec<T>, StorageError> {
    let mut list = Vec::new();
    for (name, value) in rows.range(table, &[], &[u8::MAX; 8], usize::MAX)? {
        let number = key::read_number(&name)?;
        if usize::try_from(number) != Ok(list.len()) {
            return Err(StorageError::corrupt(format!("{} has a gap", table.name())));
        }
        list.push(record::decode(&value)?);
    }
    Ok(list)
}

fn put(
    rows: &mut WriteRows<'_>,
    table: TableId,
    number: u32,
    value: &impl Serialize,
) -> Result<(), StorageError> {
    rows.write(table, &key::number(number), Some(&record::encode(value)?))
}

pub(crate) fn queues(rows: &impl Rows) -> Result<Vec<Queue>, StorageError> {
    all(rows, TableId::Queues)
}

pub(crate) fn kinds(rows: &impl Rows) -> Result<Vec<String>, StorageError> {
    all(rows, TableId::Kinds)
}

pub(crate) fn policies(rows: &impl Rows) -> Result<Vec<JobPolicy>, StorageError> {
    all(rows, TableId::Policies)
}

pub(crate) fn queue(rows: &impl Rows, id: QueueId) -> Result<Option<Queue>, StorageError> {
    rows.get(TableId::Queues, &key::number(id.get()))
}

pub(crate) fn kind(rows: &impl Rows, id: KindId) -> Result<Option<String>, StorageError> {
    rows.get(TableId::Kinds, &key::number(id.get()))
}

pub(crate) fn put_queue(
    rows: &mut WriteRows<'_>,
    id: QueueId,
    queue: &Queue,
) -> Result<(), StorageError> {
    put(rows, TableId::Queues, id.get(), queue)
}

pub(crate) fn put_kind(
    rows: &mut WriteRows<'_>,
    id: KindId,
    name: &str,
) -> Result<(), StorageError> {
    put(rows, TableId::Kinds, id.get(), &name)
}

pub(crate) fn put_policy(
    rows: &mut WriteRows<'_>,
    id: PolicyId,
    policy: &JobPolicy,
) -> Result<(), StorageError> {
    put(rows, TableId::Policies, id.get(), policy)
}
