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

/// What the numbers in rows stand for.
pub(crate) trait Names {
    fn find_queue(&self, name: &str) -> Option<QueueId>;
    fn find_kind(&self, name: &str) -> Option<KindId>;
    /// Empty for a number that stands for nothing.
    fn queue_name(&self, id: QueueId) -> &str;
    /// Empty for a number that stands for nothing.
    fn kind_name(&self, id: KindId) -> &str;
    fn policy(&self, id: PolicyId) -> Option<&JobPolicy>;
}

/// All of them as of one moment, for readers.
#[derive(Debug)]
pub(crate) struct Known {
    queues: Vec<Queue>,
    kinds: Vec<String>,
    policies: Vec<JobPolicy>,
}

impl Known {
    pub(crate) fn read(rows: &impl Rows) -> Result<Self, StorageError> {
        Ok(Self { queues: queues(rows)?, kinds: kinds(rows)?, policies: policies(rows)? })
    }
}

fn at<T>(list: &[T], number: u32) -> Option<&T> {
    usize::try_from(number).ok().and_then(|place| list.get(place))
}

fn number(place: usize) -> Option<u32> {
    u32::try_from(place).ok()
}

impl Names for Known {
    fn find_queue(&self, name: &str) -> Option<QueueId> {
        let place = self.queues.iter().position(|queue| queue.name == name)?;
        number(place).map(QueueId::new)
    }

    fn find_kind(&self, name: &str) -> Option<KindId> {
        let place = self.kinds.iter().position(|kind| kind == name)?;
        number(place).map(KindId::new)
    }

    fn queue_name(&self, id: QueueId) -> &str {
        at(&self.queues, id.get()).map_or("", |queue| &queue.name)
    }

    fn kind_name(&self, id: KindId) -> &str {
        at(&self.kinds, id.get()).map_or("", String::as_str)
    }

    fn policy(&self, id: PolicyId) -> Option<&JobPolicy> {
        at(&self.policies, id.get())
    }
}

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

pub(crate) fn policy(rows: &impl Rows, id: PolicyId) -> Result<Option<JobPolicy>, StorageError> {
    rows.get(TableId::Policies, &key::number(id.get()))
}

/// The number of the queue with this name.
pub(crate) fn queue_id(rows: &impl Rows, name: &str) -> Result<Option<QueueId>, StorageError> {
    let place = queues(rows)?.iter().position(|queue| queue.name == name);
    Ok(place.and_then(|place| u32::try_from(place).ok()).map(QueueId::new))
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
