//! Messages: their sequence, given out inside the commit that accepts them, and their place in order.

use crate::domain::id::{JobId, QueueId};
use crate::domain::outbox::{Headers, Post};
use crate::error::StorageError;
use crate::store::outbox;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;
use crate::writer::sweep::SLICE;

impl Batch<'_, '_> {
    /// What makes a message of a job that is accepted in this moment.
    pub(super) fn posted(
        &mut self,
        queue: QueueId,
        headers: Headers,
    ) -> Result<Post, StorageError> {
        let sequence = self.core.registry.take_sequence(queue)?;
        Ok(Post { sequence, headers })
    }

    /// A job that cannot be read was set aside: if it was a message, nobody waits for it any longer.
    /// Only the table can say so: a look at all of it, for a case that should never be.
    pub(super) fn free_outbox(&mut self, job: JobId) -> Result<(), StorageError> {
        let mut from = Vec::new();
        loop {
            let page = self.rows.range(TableId::Outbox, &from, &[u8::MAX; 16], SLICE)?;
            for (row, value) in &page {
                if matches!(outbox::read_value(value), Ok((id, _)) if id == job) {
                    return self.rows.write(TableId::Outbox, row, None);
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == SLICE => {
                    from.clone_from(last);
                    from.push(0);
                }
                _ => return Ok(()),
            }
        }
    }
}
