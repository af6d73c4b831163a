//! Batches in order: with a job that has an ordering key, those that wait behind it are leased too, so
//! that one commit and one delivery serve many.

use crate::domain::counter::Gauge;
use crate::domain::order::follows;
use crate::error::StorageError;
use crate::store::order;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;
use crate::writer::claim::{Haul, Stand};
use crate::writer::command::Request;
use crate::writer::heads::Head;

/// Most rows read ahead from one ordering key.
const READ_AHEAD: usize = 64;

impl Batch<'_, '_> {
    /// Leases those that wait behind `head`, which was just leased, in their order, as far as there is
    /// room. Ends at the first one that may not go along.
    pub(super) fn lease_followers(
        &mut self,
        head: &Head,
        request: &Request,
        haul: &mut Haul,
    ) -> Result<(), StorageError> {
        let Ok(leased) = self.read_job(head.id)? else { return Ok(()) };
        let Some(order) = &leased.order else { return Ok(()) };
        let (queue, name) = (head.class.queue, &order.key);
        if order::oldest_holder(&*self.rows, queue, name, head.id)?.is_some() {
            // A part of an earlier batch is still in flight.
            return Ok(());
        }
        while haul.has_room(request) {
            let count = haul.room(request).min(READ_AHEAD);
            let ahead = order::waiting(&*self.rows, queue, name, count)?;
            if ahead.is_empty() {
                return Ok(());
            }
            for ((row, _), id) in ahead {
                let job = self.read_job(id)?;
                let goes = job
                    .as_ref()
                    .is_ok_and(|job| follows(&leased, job, self.time.now) && !self.goes_alone(job));
                if !goes || !haul.has_room(request) {
                    return Ok(());
                }
                let counted = (head.class, Gauge::Blocked);
                let at = Stand { table: TableId::Order, row: &row, id, counted };
                match self.lease(&at, job, request)? {
                    Some(claimed) => haul.add(claimed),
                    None => return Ok(()),
                }
            }
        }
        Ok(())
    }
}
