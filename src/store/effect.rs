//! Tables of the user's own. All their rows stand in one table of ours, behind the number of theirs,
//! so that every write goes the one narrow way.

use serde::{Deserialize, Serialize};

use crate::domain::blob::Blob;
use crate::domain::effect::TableSpec;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Row, Rows, WriteRows};
use crate::store::tables::TableId;

/// What is known of one of the user's tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) number: u32,
    pub(crate) key: String,
    pub(crate) value: String,
}

impl Known {
    /// Whether the table was made with these types.
    pub(crate) fn fits(&self, spec: TableSpec) -> bool {
        self.key == spec.key && self.value == spec.value
    }
}

pub(crate) fn known(rows: &impl Rows, name: &str) -> Result<Option<Known>, StorageError> {
    rows.get(TableId::EffectTables, name.as_bytes())
}

/// How many there are: the number of the next one.
pub(crate) fn count(rows: &impl Rows) -> Result<u64, StorageError> {
    rows.count(TableId::EffectTables)
}

pub(crate) fn put_table(
    rows: &mut WriteRows<'_>,
    number: u32,
    spec: TableSpec,
) -> Result<(), StorageError> {
    let known = Known { number, key: spec.key.to_owned(), value: spec.value.to_owned() };
    rows.write(TableId::EffectTables, spec.name.as_bytes(), Some(&record::encode(&known)?))
}

/// Puts a value, or deletes the row.
pub(crate) fn write(
    rows: &mut WriteRows<'_>,
    table: u32,
    name: &[u8],
    value: Option<Vec<u8>>,
) -> Result<(), StorageError> {
    let value = value.map(|value| record::encode(&Blob(value))).transpose()?;
    rows.write(TableId::EffectRows, &key::effect_row(table, name), value.as_deref())
}

pub(crate) fn get(
    rows: &impl Rows,
    table: u32,
    name: &[u8],
) -> Result<Option<Vec<u8>>, StorageError> {
    let found: Option<Blob> = rows.get(TableId::EffectRows, &key::effect_row(table, name))?;
    Ok(found.map(|blob| blob.0))
}

/// Up to `count_max` rows of one table whose own keys are at least `from` and less than `to`; no `to`
/// is the end of the table.
pub(crate) fn range(
    rows: &impl Rows,
    table: u32,
    from: &[u8],
    to: Option<&[u8]>,
    count_max: usize,
) -> Result<Vec<Row>, StorageError> {
    let from = key::effect_row(table, from);
    let to = match to {
        Some(to) => key::effect_row(table, to),
        None => key::after_prefix(&key::effect_row(table, &[])),
    };
    if from >= to {
        return Ok(Vec::new());
    }
    let found = rows.range(TableId::EffectRows, &from, &to, count_max)?;
    let one = |(name, value): &Row| {
        let (_, own) = key::read_effect_row(name)?;
        let damaged =
            |damage: crate::format::Damage| damage.in_row(TableId::EffectRows.name(), name);
        let value: Blob = record::decode(value).map_err(damaged)?;
        Ok((own.to_vec(), value.0))
    };
    found.iter().map(one).collect()
}
