//! What operators do to dead jobs, other than sending them back.

use crate::domain::blob::Blob;
use crate::domain::counter::Flow;
use crate::domain::event::Event;
use crate::domain::filter::DeadPlace;
use crate::domain::job::Payload;
use crate::domain::removal::{Removal, RemovalReason};
use crate::domain::transition::discard;
use crate::error::{AmendError, CancelError, StorageError};
use crate::store::amendment::Original;
use crate::store::dead::{DeadRow, Scope, scan};
use crate::store::names::Names;
use crate::store::{alone, amendment, job as job_store, removal};
use crate::writer::batch::Batch;
use crate::writer::command::{Amend, Discard, DiscardSlice, Resume};
use crate::writer::sweep::SLICE;

impl Batch<'_, '_> {
    /// Removes one slice of the dead jobs that a filter holds for, evidence and all. What died after the
    /// first slice stays.
    pub(super) fn discard(&mut self, discard: Discard) -> Result<DiscardSlice, StorageError> {
        let Discard { filter, reason, from } = discard;
        let (number, at, after) = match from {
            Some(Resume { number, at, after }) => (number, at, Some(after)),
            None => (self.core.meta.next, self.time.now, None),
        };
        let scope = Scope::of(&filter, &self.core.registry);
        let scan = scan(&*self.rows, &scope, after.as_deref(), SLICE)?;
        let not_dead = u64::try_from(scan.missing.len()).unwrap_or(u64::MAX);
        let mut slice = DiscardSlice { not_dead, ..DiscardSlice::default() };
        let earlier = alone(removal::read(&*self.rows, number))?.ok().flatten();
        let why = RemovalReason::Discarded { reason };
        let mut record = earlier.unwrap_or_else(|| Removal::new(why, at));
        for row in &scan.found {
            let registry = &self.core.registry;
            let place = DeadPlace {
                id: row.id,
                queue: registry.queue_name(row.class.queue),
                kind: registry.kind_name(row.class.kind),
                died_at: row.died_at,
            };
            match &row.facts {
                Ok(facts) if facts.seq > number || !filter.matches(place, facts, at) => {}
                Ok(_) if self.remove_dead(row, &mut record, Flow::Discarded)? => {
                    slice.discarded += 1;
                }
                Ok(_) | Err(_) => slice.unreadable += 1,
            }
        }
        if slice.discarded > 0 {
            removal::put(self.rows, number, &record)?;
        }
        let end = scan.end.filter(|_| scan.more);
        if slice.discarded > 0 || end.is_some() {
            // Nobody else is given this number.
            self.core.meta.next = self.core.meta.next.max(number.saturating_add(1));
        }
        slice.next = end.map(|after| Resume { number, at, after });
        Ok(slice)
    }

    /// Removes one dead job, and notes it. False when its row cannot be read: then it stays.
    pub(super) fn remove_dead(
        &mut self,
        row: &DeadRow,
        record: &mut Removal,
        flow: Flow,
    ) -> Result<bool, StorageError> {
        let Ok(job) = self.read_job(row.id)? else {
            return Ok(false);
        };
        if discard(&job).is_err() {
            return Ok(false);
        }
        self.remove(&job)?;
        // It may be a member that a cohort holds.
        self.core.cohorts.look_again();
        self.core.books.count(job.class, flow);
        if let Ok(facts) = &row.facts {
            record.add(row.id, facts);
        }
        Ok(true)
    }

    /// Replaces the payload of a dead job. The first one is kept.
    pub(super) fn amend(&mut self, amend: Amend) -> Result<Result<(), AmendError>, StorageError> {
        let Amend { job: id, payload, hash, note } = amend;
        let job = match self.named(id)? {
            Ok(job) => job,
            Err(CancelError::Storage(error)) => return Ok(Err(error.into())),
            Err(_) => return Ok(Err(AmendError::NotFound { job: id })),
        };
        let place = Payload::of(&payload);
        let stored = matches!(place, Payload::Stored { .. });
        let event = Event::Amend { payload: place, hash, note };
        let step = match alone(self.plan(&job, event))? {
            Ok(Ok(step)) => step,
            Ok(Err(refused)) => {
                return Ok(Err(AmendError::WrongState { job: id, state: refused.state() }));
            }
            Err(damage) => return Ok(Err(damage.into())),
        };
        if !job.amended {
            // One that cannot be read any more may be why it is replaced.
            let payload = alone(job_store::payload(&*self.rows, &job))?.ok().flatten().map(Blob);
            let original = Original { at: self.time.now, payload };
            amendment::put(self.rows, id, Some(&original))?;
        }
        if stored {
            job_store::put_payload(self.rows, id, &payload)?;
        }
        self.apply(&job, step)?;
        Ok(Ok(()))
    }
}
