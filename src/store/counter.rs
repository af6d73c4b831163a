//! The counters table (per class, over its life) and the windows table (per class and minute).

use crate::domain::counter::{Counters, Flows};
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// How many minutes of windows are kept (7 days).
pub(crate) const WINDOW_MINUTES: u64 = 7 * 24 * 60;

pub(crate) fn all(rows: &impl Rows) -> Result<Vec<(Class, Counters)>, StorageError> {
    let found = rows.range(TableId::Counters, &[], &[u8::MAX; 16], usize::MAX)?;
    found.iter().map(|(name, value)| Ok((key::read_class(name)?, record::decode(value)?))).collect()
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    class: Class,
    counters: &Counters,
) -> Result<(), StorageError> {
    rows.write(TableId::Counters, &key::class(class), Some(&record::encode(counters)?))
}

pub(crate) fn window(
    rows: &impl Rows,
    minute: u64,
    class: Class,
) -> Result<Option<Flows>, StorageError> {
    rows.get(TableId::Windows, &key::window(minute, class))
}

pub(crate) fn put_window(
    rows: &mut WriteRows<'_>,
    minute: u64,
    class: Class,
    flows: &Flows,
) -> Result<(), StorageError> {
    rows.write(TableId::Windows, &key::window(minute, class), Some(&record::encode(flows)?))
}

/// Drops up to `count_max` windows of minutes before `minute`; returns how many there were.
pub(crate) fn prune_windows(
    rows: &mut WriteRows<'_>,
    minute: u64,
    count_max: usize,
) -> Result<usize, StorageError> {
    let old = rows.range(TableId::Windows, &[], &minute.to_be_bytes(), count_max)?;
    for (name, _) in &old {
        rows.write(TableId::Windows, name, None)?;
    }
    Ok(old.len())
}
