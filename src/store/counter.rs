//! The counters table (a row per class, and the store's own row) and the windows table (a row per
//! class and finished minute in which something happened).

use crate::domain::counter::Counters;
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::format::{Damage, key, record};
use crate::store::rows::{Row, Rows, WriteRows};
use crate::store::tables::TableId;

pub(crate) fn all(rows: &impl Rows) -> Result<Vec<(Class, Counters)>, StorageError> {
    // The store's own row has the empty key and comes before.
    let found = rows.range(TableId::Counters, &[0], &[u8::MAX; 16], usize::MAX)?;
    found.iter().map(|(name, value)| Ok((key::read_class(name)?, record::decode(value)?))).collect()
}

pub(crate) fn read(rows: &impl Rows, class: Class) -> Result<Option<Counters>, StorageError> {
    rows.get(TableId::Counters, &key::class(class))
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    class: Class,
    counters: &Counters,
) -> Result<(), StorageError> {
    rows.write(TableId::Counters, &key::class(class), Some(&record::encode(counters)?))
}

/// Writes what the counters said at the end of their minute.
pub(crate) fn put_window(
    rows: &mut WriteRows<'_>,
    class: Class,
    counters: &Counters,
) -> Result<(), StorageError> {
    let name = key::window(class, counters.minute);
    rows.write(TableId::Windows, &name, Some(&record::encode(counters)?))
}

/// What the counters of `class` said at the end of `minute`, given what they say `now`.
pub(crate) fn at_end_of(
    rows: &impl Rows,
    class: Class,
    minute: u64,
    now: &Counters,
) -> Result<Counters, StorageError> {
    if now.minute <= minute {
        return Ok(now.clone());
    }
    let (from, to) = (key::window(class, 0), key::window(class, minute.saturating_add(1)));
    let found = rows.last(TableId::Windows, &from, &to)?;
    // Nothing had happened yet.
    found.map_or_else(|| Ok(Counters::default()), |row| window(&row))
}

/// The windows of `class` from minute `from` to minute `to`, both included.
pub(crate) fn windows(
    rows: &impl Rows,
    class: Class,
    from: u64,
    to: u64,
) -> Result<Vec<Counters>, StorageError> {
    let (from, to) = (key::window(class, from), key::window(class, to.saturating_add(1)));
    rows.range(TableId::Windows, &from, &to, usize::MAX)?.iter().map(window).collect()
}

fn window((name, value): &Row) -> Result<Counters, StorageError> {
    let damaged = |damage: Damage| damage.in_row(TableId::Windows.name(), name);
    record::decode(value).map_err(|damage| damaged(damage).into())
}

/// Drops up to `count_max` windows of `class` of minutes before `oldest`, but for the latest of them.
/// Returns how many were dropped and the minute of the first one that is left, if any was.
pub(crate) fn prune_windows(
    rows: &mut WriteRows<'_>,
    class: Class,
    oldest: u64,
    count_max: usize,
) -> Result<Option<(u64, u64)>, StorageError> {
    let (from, to) = (key::window(class, 0), key::window(class, oldest));
    let old = rows.range(TableId::Windows, &from, &to, count_max.saturating_add(1))?;
    let Some(((left, _), dropped)) = old.split_last() else { return Ok(None) };
    for (name, _) in dropped {
        rows.write(TableId::Windows, name, None)?;
    }
    let count = u64::try_from(dropped.len()).unwrap_or(u64::MAX);
    Ok(if count == 0 { None } else { Some((count, key::read_window(left)?.1)) })
}
