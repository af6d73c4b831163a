//! Ordering keys: each row from its job and back, and nobody waits for nobody.

use super::{Check, hex};
use crate::domain::job::Job;
use crate::domain::order::Standing;
use crate::error::StorageError;
use crate::format::key;
use crate::store::order;
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;

impl<R: Rows> Check<'_, R> {
    /// The row by which a job holds its ordering key; that of a waiting one is its state row.
    pub(super) fn order_of(&mut self, job: &Job) -> Result<(), StorageError> {
        let Some(row) = order::holder_row(job) else { return Ok(()) };
        match self.rows.with(TableId::Order, &row, |value| Ok(value.to_vec()))? {
            None => self.problem(TableId::Order, job.id, "missing"),
            Some(found) if found != order::value(job)? => {
                self.problem(TableId::Order, job.id, "another value than the job says");
            }
            Some(_) => {}
        }
        Ok(())
    }

    pub(super) fn order_row(&mut self, (name, _): &Row) -> Result<(), StorageError> {
        let (standing, id) = match key::read_order(name) {
            Ok(read) => read,
            Err(damage) => {
                self.problem(TableId::Order, hex(name), damage.0);
                return Ok(());
            }
        };
        if let Some(job) = self.read_job(TableId::Order, id)
            && key::order_row(&job).as_ref() != Some(name)
        {
            let what = format!("stands here, but the job is {}", job.state.name());
            self.problem(TableId::Order, id, what);
        }
        if standing == Standing::Waits
            && let Ok((queue, key)) = key::read_order_key(name)
        {
            let first = order::first(self.rows, queue, key)?;
            if !matches!(first, Some((_, Standing::Holds, _))) {
                self.problem(TableId::Order, id, "waits, but nobody holds its ordering key");
            }
        }
        Ok(())
    }
}
