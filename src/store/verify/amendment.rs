//! Original payloads: every amended job has one, and nobody else. Marks of imports: the same.

use super::Check;
use crate::domain::id::JobId;
use crate::domain::job::Job;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::amendment::Original;
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;
use crate::store::{alone, import};

impl<R: Rows> Check<'_, R> {
    pub(super) fn job_amendment(&mut self, job: &Job) -> Result<(), StorageError> {
        let found = self.rows.with(TableId::Amendments, &key::job(job.id), |_| Ok(()))?;
        if found.is_some() != job.amended {
            let what = if job.amended { "missing" } else { "of a job that was not amended" };
            self.problem(TableId::Amendments, job.id, what);
        }
        if let Some(marker) = job.imported
            && !matches!(alone(import::read(self.rows, marker))?, Ok(Some(id)) if id == job.id)
        {
            self.problem(TableId::Imports, job.id, "missing");
        }
        Ok(())
    }

    pub(super) fn import_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        match record::decode::<JobId>(value) {
            Ok(id) => {
                if let Some(job) = self.read_job(TableId::Imports, id)
                    && job.imported.is_none_or(|marker| marker.as_slice() != name)
                {
                    self.problem(TableId::Imports, id, "the job is known by another mark");
                }
            }
            Err(damage) => self.problem(TableId::Imports, hex(name), damage.0),
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
