//! Tables of the user's own: every row belongs to a table, and the tables are numbered without gaps.

use std::collections::BTreeSet;

use crate::domain::blob::Blob;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::effect::Known;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::verify::Check;

impl<R: Rows> Check<'_, R> {
    pub(super) fn effects(&mut self) -> Result<(), StorageError> {
        let mut numbers = BTreeSet::new();
        let mut unreadable = false;
        self.each(TableId::EffectTables, |check, (name, value)| {
            match record::decode::<Known>(value) {
                Ok(known) => {
                    if !numbers.insert(known.number) {
                        let what = format!("another table has number {}, too", known.number);
                        check.problem(TableId::EffectTables, hex(name), what);
                    }
                }
                Err(damage) => {
                    unreadable = true;
                    check.problem(TableId::EffectTables, hex(name), damage.0);
                }
            }
            Ok(())
        })?;
        let count = numbers.len();
        let last = numbers.last().and_then(|&last| usize::try_from(last).ok());
        if !unreadable && last.is_some_and(|last| last + 1 != count) {
            self.problem(TableId::EffectTables, "all", "the numbers have a gap");
        }
        self.each(TableId::EffectRows, |check, (name, value)| {
            match key::read_effect_row(name) {
                Ok((table, _)) if numbers.contains(&table) || unreadable => {}
                Ok((table, _)) => {
                    let what = format!("belongs to table {table}, which does not exist");
                    check.problem(TableId::EffectRows, hex(name), what);
                }
                Err(damage) => check.problem(TableId::EffectRows, hex(name), damage.0),
            }
            if let Err(damage) = record::decode::<Blob>(value) {
                check.problem(TableId::EffectRows, hex(name), damage.0);
            }
            Ok(())
        })
    }
}
