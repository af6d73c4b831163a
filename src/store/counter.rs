//! The counters table (a row per class, and the store's own row) and the windows table (a row per
//! class and finished minute).

use crate::domain::counter::{Counters, Flows};
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// How many minutes of windows are kept (7 days).
pub(crate) const WINDOW_MINUTES: u64 = 7 * 24 * 60;

pub(crate) fn all(rows: &impl Rows) -> Result<Vec<(Class, Counters)>, StorageError> {
    // The store's own row has the empty key and comes before.
    let found = rows.range(TableId::Counters, &[0], &[u8::MAX; 16], usize::MAX)?;
    found.iter().map(|(name, value)| Ok((key::read_class(name)?, record::decode(value)?))).collect()
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    class: Class,
    counters: &Counters,
) -> Result<(), StorageError> {
    rows.write(TableId::Counters, &key::class(class), Some(&record::encode(counters)?))
}

pub(crate) fn put_window(
    rows: &mut WriteRows<'_>,
    minute: u64,
    class: Class,
    flows: &Flows,
) -> Result<(), StorageError> {
    rows.write(TableId::Windows, &key::window(minute, class), Some(&record::encode(flows)?))
}

/// Drops up to `count_max` windows of minutes before `minute`; returns what they held.
pub(crate) fn prune_windows(
    rows: &mut WriteRows<'_>,
    minute: u64,
    count_max: usize,
) -> Result<Vec<(Class, Flows)>, StorageError> {
    let old = rows.range(TableId::Windows, &[], &minute.to_be_bytes(), count_max)?;
    let mut pruned = Vec::with_capacity(old.len());
    for (name, value) in &old {
        rows.write(TableId::Windows, name, None)?;
        let class = key::read_class(name.get(8..).unwrap_or_default())?;
        // A damaged window is dropped with the rest; `verify` has told of it.
        pruned.push((class, record::decode(value).unwrap_or_default()));
    }
    Ok(pruned)
}
