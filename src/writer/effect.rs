//! Writing what belongs to something else: rows in tables of the user's own, and follow-up jobs.

use std::collections::BTreeMap;

use crate::domain::effect::TableSpec;
use crate::domain::limits::EFFECT_TABLES_MAX;
use crate::error::{EffectError, SettleError, StorageError};
use crate::store::alone;
use crate::store::effect::{self as effect_store, Known};
use crate::writer::batch::Batch;
use crate::writer::command::WriteSet;

/// The tables that a write set touches, by name.
pub(super) type Tables = BTreeMap<&'static str, Table>;

#[derive(Clone, Copy)]
pub(super) struct Table {
    spec: TableSpec,
    number: u32,
    /// It is to be made.
    is_new: bool,
}

impl Batch<'_, '_> {
    /// Whether all of `set` can be written. Writes nothing.
    pub(super) fn plan_effects(
        &self,
        set: &WriteSet,
    ) -> Result<Result<Tables, SettleError>, StorageError> {
        let mut tables = Tables::new();
        for change in &set.changes {
            if let Err(refused) = self.plan_table(&mut tables, change.table)? {
                return Ok(Err(refused.into()));
            }
        }
        if let Some((place, why)) = self.first_refusal(&set.follow_ups)? {
            return Ok(Err(SettleError::FollowUp { place, why: Box::new(why) }));
        }
        Ok(Ok(tables))
    }

    fn plan_table(
        &self,
        tables: &mut Tables,
        spec: TableSpec,
    ) -> Result<Result<(), EffectError>, StorageError> {
        if let Some(table) = tables.get(spec.name) {
            let asked = (table.spec.key, table.spec.value);
            return Ok(if asked == (spec.key, spec.value) {
                Ok(())
            } else {
                Err(EffectError::other_types(spec, table.spec.key, table.spec.value))
            });
        }
        let known: Option<Known> = match alone(effect_store::known(&*self.rows, spec.name))? {
            Ok(known) => known,
            Err(damage) => return Ok(Err(damage.into())),
        };
        let table = match known {
            Some(known) if known.fits(spec) => Table { spec, number: known.number, is_new: false },
            Some(known) => {
                return Ok(Err(EffectError::other_types(spec, &known.key, &known.value)));
            }
            None => {
                let planned = tables.values().filter(|table| table.is_new).count();
                let there = usize::try_from(effect_store::count(&*self.rows)?);
                let number = there.unwrap_or(usize::MAX).saturating_add(planned);
                match u32::try_from(number) {
                    Ok(small) if number < EFFECT_TABLES_MAX => {
                        Table { spec, number: small, is_new: true }
                    }
                    _ => {
                        let count_max = EFFECT_TABLES_MAX;
                        return Ok(Err(EffectError::TooManyTables { count_max }));
                    }
                }
            }
        };
        tables.insert(spec.name, table);
        Ok(Ok(()))
    }

    /// Writes what was planned.
    pub(super) fn apply_effects(
        &mut self,
        set: WriteSet,
        tables: &Tables,
    ) -> Result<(), StorageError> {
        for table in tables.values().filter(|table| table.is_new) {
            effect_store::put_table(self.rows, table.number, table.spec)?;
        }
        let unplanned = || StorageError::internal("an effect table was not planned");
        for change in set.changes {
            let table = tables.get(change.table.name).ok_or_else(unplanned)?;
            effect_store::write(self.rows, table.number, &change.key, change.value)?;
        }
        for job in set.follow_ups {
            let refused = |_| StorageError::internal("a follow-up job was refused after its plan");
            self.accept(job)?.map_err(refused)?;
        }
        Ok(())
    }
}
