//! Ordering keys: who has to wait, and whose turn it is when a holder is through.

use crate::domain::counter::Gauge;
use crate::domain::event::Event;
use crate::domain::id::{JobId, QueueId};
use crate::domain::job::Job;
use crate::domain::order::{Standing, depends, in_turn};
use crate::domain::transition::Step;
use crate::error::StorageError;
use crate::format::key;
use crate::store::order;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;
use crate::writer::sweep::SLICE;

impl Batch<'_, '_> {
    /// What was decided, with the job blocked if others hold its ordering key. Writes nothing.
    pub(super) fn in_turn(
        &self,
        before: Option<&Job>,
        decided: Step,
    ) -> Result<Step, StorageError> {
        if !depends(before, &decided.job) {
            return Ok(decided);
        }
        let Some(order) = &decided.job.order else { return Ok(decided) };
        let (queue, id) = (decided.job.class.queue, decided.job.id);
        let oldest = order::oldest_holder(&*self.rows, queue, &order.key, id)?;
        Ok(in_turn(before, decided, oldest))
    }

    /// `through` holds its ordering key no longer: the next one's turn, in the same commit, unless
    /// others hold it still.
    pub(super) fn next_in_order(&mut self, through: &Job) -> Result<(), StorageError> {
        match &through.order {
            Some(order) => self.next_of_key(through.class.queue, &order.key),
            None => Ok(()),
        }
    }

    fn next_of_key(&mut self, queue: QueueId, name: &str) -> Result<(), StorageError> {
        // Each turn of the loop ends it or removes a damaged row.
        while let Some((row, standing, id)) = order::first(&*self.rows, queue, name)? {
            if standing == Standing::Holds {
                return Ok(());
            }
            match self.planned(id, &row.0, Event::Unblock)? {
                Ok((job, step)) => return self.apply(&job, step),
                Err(why) => {
                    let class = order::read_value(&row.1).ok();
                    let counted = class.map(|class| (class, Gauge::Blocked));
                    self.set_aside(TableId::Order, &row.0, id, counted, &why)?;
                }
            }
        }
        Ok(())
    }

    /// A job that cannot be read was set aside: if it held an ordering key, that must not hold up
    /// the others. Only the table itself can say so: a look at all of it, for a case that should never
    /// be.
    pub(super) fn free_order(&mut self, job: JobId) -> Result<(), StorageError> {
        let mut from = Vec::new();
        loop {
            let page = self.rows.range(TableId::Order, &from, &[u8::MAX; 1024], SLICE)?;
            for (row, _) in &page {
                if key::read_order(row)? == (Standing::Holds, job) {
                    return self.free_row(row);
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

    fn free_row(&mut self, row: &[u8]) -> Result<(), StorageError> {
        self.rows.write(TableId::Order, row, None)?;
        match key::read_order_key(row) {
            Ok((queue, name)) => self.next_of_key(queue, name),
            Err(_) => Ok(()),
        }
    }
}
