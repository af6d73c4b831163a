//! The `removals` table: number -> which dead jobs were removed, and why. Bounded.

use crate::domain::limits::REMOVALS_MAX;
use crate::domain::removal::Removal;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

pub(crate) fn read(rows: &impl Rows, number: u64) -> Result<Option<Removal>, StorageError> {
    rows.get(TableId::Removals, &key::removal(number))
}

/// Writes a record; a new one takes the place of the oldest when there are too many.
pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    number: u64,
    removal: &Removal,
) -> Result<(), StorageError> {
    rows.write(TableId::Removals, &key::removal(number), Some(&record::encode(removal)?))?;
    if rows.count(TableId::Removals)? > REMOVALS_MAX
        && let Some((oldest, _)) = rows.first(TableId::Removals, &[], &[u8::MAX; 9])?
    {
        rows.write(TableId::Removals, &oldest, None)?;
    }
    Ok(())
}

/// All records, oldest first.
pub(crate) fn all(rows: &impl Rows) -> Result<Vec<Removal>, StorageError> {
    let found = rows.range(TableId::Removals, &[], &[u8::MAX; 9], usize::MAX)?;
    let decode = |(name, value): &(Vec<u8>, Vec<u8>)| {
        record::decode(value).map_err(|damage| damage.in_row(TableId::Removals.name(), name).into())
    };
    found.iter().map(decode).collect()
}
