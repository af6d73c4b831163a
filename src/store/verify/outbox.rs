//! The outbox: each unsent message has its row, and each row its message; no sequence is above the
//! destination's next one.

use super::{Check, hex};
use crate::domain::job::Job;
use crate::error::StorageError;
use crate::format::key;
use crate::store::names;
use crate::store::outbox;
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;

impl<R: Rows> Check<'_, R> {
    pub(super) fn outbox_of(&mut self, job: &Job) -> Result<(), StorageError> {
        let Some(post) = &job.post else { return Ok(()) };
        let queue = names::queue(self.rows, job.class.queue)?;
        if queue.is_some_and(|queue| post.sequence >= queue.next_message) {
            let what = format!("sequence {} was never given out", post.sequence);
            self.problem(TableId::Jobs, job.id, what);
        }
        let Some(row) = outbox::row(job) else { return Ok(()) };
        match self.rows.with(TableId::Outbox, &row, |value| Ok(value.to_vec()))? {
            None => self.problem(TableId::Outbox, job.id, "missing"),
            Some(found) if found != outbox::value(job)? => {
                self.problem(TableId::Outbox, job.id, "another value than the job says");
            }
            Some(_) => {}
        }
        Ok(())
    }

    pub(super) fn outbox_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        match outbox::read_value(value) {
            Ok((id, _)) => {
                if let Some(job) = self.read_job(TableId::Outbox, id)
                    && outbox::row(&job).as_ref() != Some(name)
                {
                    let what = format!("stands here, but the job is {}", job.state.name());
                    self.problem(TableId::Outbox, id, what);
                }
            }
            Err(why) => self.problem(TableId::Outbox, hex(name), why),
        }
        if let Err(damage) = key::read_outbox(name) {
            self.problem(TableId::Outbox, hex(name), damage.0);
        }
        Ok(())
    }
}
