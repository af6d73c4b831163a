//! Original payloads: every amended job has one, and nobody else.

use super::Check;
use crate::domain::job::Job;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::amendment::Original;
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;

impl<R: Rows> Check<'_, R> {
    pub(super) fn job_amendment(&mut self, job: &Job) -> Result<(), StorageError> {
        let found = self.rows.with(TableId::Amendments, &key::job(job.id), |_| Ok(()))?;
        if found.is_some() != job.amended {
            let what = if job.amended { "missing" } else { "of a job that was not amended" };
            self.problem(TableId::Amendments, job.id, what);
        }
        Ok(())
    }

    pub(super) fn amendment_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        if let Err(damage) = record::decode::<Original>(value) {
            self.problem(TableId::Amendments, hex(name), damage.0);
        }
        match key::read_job(name) {
            Ok(id) => drop(self.read_job(TableId::Amendments, id)),
            Err(damage) => self.problem(TableId::Amendments, hex(name), damage.0),
        }
        Ok(())
    }
}
