//! Taking exported dead jobs in.

use crate::domain::arrival::{Return, returned};
use crate::domain::history::HistoryEvent;
use crate::domain::id::{Class, JobId};
use crate::domain::job::Payload;
use crate::domain::policy::DeadKey;
use crate::error::StorageError;
use crate::store::amendment::Original;
use crate::store::{alone, amendment, history, import, job as job_store, mark};
use crate::writer::batch::Batch;
use crate::writer::command::{Import, Imported};

/// Ids this far ahead of the file's own are not taken over: numbers are not to run out.
const AHEAD_MAX: u64 = 1 << 40;

impl Batch<'_, '_> {
    /// Takes dead jobs in; one outcome each.
    pub(super) fn import(&mut self, items: Vec<Import>) -> Result<Vec<Imported>, StorageError> {
        items.into_iter().map(|item| self.import_one(item)).collect()
    }

    fn import_one(&mut self, item: Import) -> Result<Imported, StorageError> {
        if let Some(known) = self.imported_earlier(&item)? {
            return Ok(known);
        }
        if let Some(refused) = self.key_of_another(&item)? {
            return Ok(refused);
        }
        if let Some(full) = self.no_room(&item) {
            return Ok(full);
        }
        let next = self.core.meta.next;
        // An id that this file has ever given out counts as taken, whether or not there is a row.
        let ahead = item.id.get().checked_sub(next).is_some_and(|ahead| ahead < AHEAD_MAX);
        let id = if ahead { item.id } else { JobId::new(next) };
        let Some(after) = id.get().checked_add(1) else {
            return Ok(Imported::TooMany("jobs"));
        };
        self.core.meta.next = after;
        let registry = &mut self.core.registry;
        let queue = registry.intern_queue(self.rows, &item.queue)?;
        let kind = registry.intern_kind(self.rows, &item.kind)?;
        let policy = registry.intern_policy(self.rows, &item.policy)?;
        let payload = Payload::of(&item.payload);
        if matches!(payload, Payload::Stored { .. }) {
            job_store::put_payload(self.rows, id, &item.payload)?;
        }
        let post = item.headers.map(|headers| self.posted(queue, headers)).transpose()?;
        let amended = item.original.is_some();
        if let Some(payload) = item.original {
            let original = Original { at: self.time.now, payload: Some(payload) };
            amendment::put(self.rows, id, Some(&original))?;
        }
        let pinned = item.history.iter().zip(0..).filter_map(|(entry, number)| {
            matches!(entry.event, HistoryEvent::Redriven { .. }).then_some(number)
        });
        let pinned: Vec<u32> = pinned.collect();
        let step = returned(
            Return {
                id,
                from: item.id,
                class: Class { queue, kind },
                policy,
                priority: item.priority,
                key: item.key,
                payload,
                enqueued_at: item.enqueued_at,
                deliveries: item.deliveries,
                redrives: item.redrives,
                first_failed_at: item.first_failed_at,
                unknown: item.unknown,
                amended,
                death: item.death,
                history: u32::try_from(item.history.len()).unwrap_or(u32::MAX),
                pinned,
                marker: item.marker,
                post,
                steps: u32::try_from(item.steps.len()).unwrap_or(u32::MAX),
            },
            self.time.now,
            next,
        );
        for (name, marker) in &item.steps {
            mark::put(self.rows, id, name, marker)?;
        }
        history::put_all(self.rows, &step.job, item.history.iter().chain(&step.history))?;
        import::put(self.rows, item.marker, Some(id))?;
        self.insert(step, &item.policy)?;
        Ok(Imported::New(id))
    }

    /// Where its queue, kind or policy would be one too many.
    fn no_room(&self, item: &Import) -> Option<Imported> {
        let registry = &self.core.registry;
        let new = [
            usize::from(registry.queue_id(&item.queue).is_none()),
            usize::from(registry.kind_id(&item.kind).is_none()),
            usize::from(registry.policy_id(&item.policy).is_none()),
        ];
        let [queues, kinds, policies] = new;
        if let Err(full) = registry.room(queues, kinds, policies) {
            return Some(Imported::TooMany(full.what));
        }
        None
    }

    /// The job itself, or what an earlier import made of it.
    fn imported_earlier(&self, item: &Import) -> Result<Option<Imported>, StorageError> {
        match alone(import::read(&*self.rows, item.marker))? {
            Ok(Some(id)) => return Ok(Some(Imported::AlreadyHere(id))),
            Ok(None) => {}
            Err(_) => return Ok(Some(Imported::Unreadable)),
        }
        let job = match alone(job_store::read(&*self.rows, item.id))? {
            Ok(Some(job)) => job,
            Ok(None) => return Ok(None),
            Err(_) => return Ok(Some(Imported::Unreadable)),
        };
        let registry = &self.core.registry;
        let class = registry.queue_id(&item.queue).zip(registry.kind_id(&item.kind));
        let same = class == Some((job.class.queue, job.class.kind))
            && job.enqueued_at == item.enqueued_at
            && job.key.as_ref().map(|claim| &claim.key)
                == item.key.as_ref().map(|claim| &claim.key);
        Ok(same.then_some(Imported::AlreadyHere(job.id)))
    }

    /// Whoever has its key, where it must have it itself.
    fn key_of_another(&self, item: &Import) -> Result<Option<Imported>, StorageError> {
        let queue = self.core.registry.queue_id(&item.queue);
        let (Some(claim), Some(queue)) = (&item.key, queue) else {
            return Ok(None);
        };
        if item.policy.dead_key != DeadKey::Keep {
            return Ok(None);
        }
        Ok(match alone(self.last_owner(queue, &claim.key))? {
            Ok(last) => {
                last.filter(|(_, holds)| *holds).map(|(owner, _)| Imported::KeyTaken(owner.id))
            }
            Err(_) => Some(Imported::Unreadable),
        })
    }
}
