//! Tables of the user's own: every row belongs to a table, and the tables are numbered without gaps.

use std::collections::BTreeSet;

use crate::domain::blob::Blob;
use crate::domain::job::Job;
use crate::domain::mark::Marker;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::effect::Known;
use crate::store::mark;
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;
use crate::store::verify::Check;

impl<R: Rows> Check<'_, R> {
    /// The job's markers: as many as it says.
    pub(super) fn steps(&mut self, job: &Job) -> Result<(), StorageError> {
        let found = mark::count(self.rows, job.id)?;
        if u32::try_from(found) != Ok(job.steps) {
            self.problem(TableId::Effects, job.id, format!("{found} steps, not {}", job.steps));
        }
        Ok(())
    }

    fn marker_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        if let Err(damage) = record::decode::<Marker>(value) {
            self.problem(TableId::Effects, hex(name), damage.0);
        }
        match key::read_marker(name) {
            Ok((id, _)) => drop(self.read_job(TableId::Effects, id)),
            Err(damage) => self.problem(TableId::Effects, hex(name), damage.0),
        }
        Ok(())
    }

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
        self.each(TableId::Effects, Check::marker_row)?;
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
