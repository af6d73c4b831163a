//! Accepting jobs.

use std::collections::BTreeSet;

use crate::domain::arrival::Arrival;
use crate::domain::blob::Blob;
use crate::domain::id::{Class, JobId};
use crate::domain::job::Payload;
use crate::domain::key::Meeting;
use crate::domain::limits::PAYLOAD_INLINE_BYTES_MAX;
use crate::domain::order::OrderKey;
use crate::domain::outbox;
use crate::domain::policy::JobPolicy;
use crate::error::{EnqueueError, StorageError};
use crate::store::job as job_store;
use crate::writer::batch::Batch;
use crate::writer::command::{BatchRule, Enqueue, Enqueued, Prepared};
use crate::writer::key::Under;
use crate::writer::registry::Full;

pub(super) type Outcome = Result<Enqueued, EnqueueError>;

impl Batch<'_, '_> {
    pub(super) fn enqueue(&mut self, enqueue: Enqueue) -> Result<(), StorageError> {
        let Enqueue { items, rule, reply } = enqueue;
        let count = items.len();
        let refused = match rule {
            BatchRule::PerItem => None,
            BatchRule::AllOrNothing => self.first_refusal(&items)?,
        };
        let outcomes = match refused {
            Some((refused, error)) => withheld(count, refused, &error),
            None => items.into_iter().map(|item| self.accept(item)).collect::<Result<_, _>>()?,
        };
        self.answer_with(reply, Ok(outcomes));
        Ok(())
    }

    /// Accepts one job, or says why not.
    pub(super) fn accept(&mut self, item: Prepared) -> Result<Outcome, StorageError> {
        let last = match (self.under(&item)?, &item.key) {
            (Under::Damaged(damage), _) => return Ok(Err(damage.into())),
            (Under::Free { last }, _) => last,
            (Under::Owned(_), None) => None,
            (Under::Owned(owner), Some(claim)) => match self.meet(&owner, &item, claim.hash) {
                Meeting::Succeed => Some(owner),
                Meeting::Replace => {
                    let hash = claim.hash;
                    return self.replace(&owner, item, hash);
                }
                how @ (Meeting::Duplicate | Meeting::Conflict) => {
                    return self.known(*owner, how, &claim.key);
                }
            },
        };
        if let Some(refused) = self.quarantine_full(&item) {
            return Ok(Err(refused));
        }
        if let Err(full) = self.room([&item].into_iter()) {
            return Ok(Err(too_many(full)));
        }
        let Some(next) = self.core.meta.next.checked_add(1) else {
            return Ok(Err(too_many_jobs()));
        };
        let id = JobId::new(std::mem::replace(&mut self.core.meta.next, next));
        let registry = &mut self.core.registry;
        let queue = registry.intern_queue(self.rows, &item.queue)?;
        let kind = registry.intern_kind(self.rows, &item.kind)?;
        let policy = match &item.policy {
            Some(policy) => registry.intern_policy(self.rows, policy)?,
            None => match registry.queue(queue)?.0.policy {
                Some(policy) => policy,
                None if item.headers.is_some() => {
                    registry.intern_policy(self.rows, &outbox::default_policy())?
                }
                None => registry.intern_policy(self.rows, &JobPolicy::default())?,
            },
        };
        let rules = std::sync::Arc::clone(registry.policy(policy)?);
        let own = &registry.queue(queue)?.0;
        let on_dead = own.on_dead;
        let order = match item.headers {
            Some(_) => own.message_order.key(item.order),
            None => item.order,
        };
        let order = order.map(|key| OrderKey { key, on_dead });
        let post = item.headers.map(|headers| self.posted(queue, headers)).transpose()?;
        let payload = self.payload(id, item.payload)?;
        let mut key = item.key;
        if let (Some(last), Some(claim)) = (&last, &mut key) {
            self.succeed(last, id, claim)?;
        }
        let arrival = Arrival {
            id,
            class: Class { queue, kind },
            policy,
            priority: item.priority,
            key,
            payload,
            start: item.start,
            order,
            post,
        };
        self.insert(arrival.enqueue(self.time.now), &rules)?;
        Ok(Ok(Enqueued::New(id)))
    }

    fn payload(&mut self, id: JobId, payload: Blob) -> Result<Payload, StorageError> {
        if payload.0.len() <= PAYLOAD_INLINE_BYTES_MAX {
            return Ok(Payload::Inline(payload));
        }
        job_store::put_payload(self.rows, id, &payload)?;
        Ok(Payload::Stored { bytes: u64::try_from(payload.0.len()).unwrap_or(u64::MAX) })
    }

    /// The refusal of a queue whose quarantine is full, and whose rule it is to accept nothing then.
    pub(super) fn quarantine_full(&self, item: &Prepared) -> Option<EnqueueError> {
        let queue = self.core.registry.queue_id(&item.queue)?;
        let retention = self.retention(queue)?;
        let (jobs, bytes) = self.buried(queue);
        retention.refuses(jobs, bytes).then(|| EnqueueError::QuarantineFull {
            queue: item.queue.clone(),
            jobs,
            bytes,
        })
    }

    /// Whether the names and policies of `items` fit.
    fn room<'i>(&self, items: impl Iterator<Item = &'i Prepared>) -> Result<(), Full> {
        let registry = &self.core.registry;
        let (mut queues, mut kinds, mut policies) =
            (BTreeSet::new(), BTreeSet::new(), std::collections::HashSet::new());
        let (default, of_messages) = (JobPolicy::default(), outbox::default_policy());
        for item in items {
            if registry.queue_id(&item.queue).is_none() {
                queues.insert(item.queue.as_str());
            }
            if registry.kind_id(&item.kind).is_none() {
                kinds.insert(item.kind.as_str());
            }
            let own = registry.queue_id(&item.queue).map(|queue| registry.queue(queue));
            let queue_has_one =
                own.is_some_and(|own| own.is_ok_and(|(queue, _)| queue.policy.is_some()));
            let default = if item.headers.is_some() { &of_messages } else { &default };
            let policy = item.policy.as_ref().or((!queue_has_one).then_some(default));
            if let Some(policy) = policy
                && registry.policy_id(policy).is_none()
            {
                policies.insert(policy);
            }
        }
        registry.room(queues.len(), kinds.len(), policies.len())
    }

    /// What an all-or-nothing call would be refused for.
    pub(super) fn first_refusal(
        &self,
        items: &[Prepared],
    ) -> Result<Option<(usize, EnqueueError)>, StorageError> {
        if items.is_empty() {
            return Ok(None);
        }
        if let Err(full) = self.room(items.iter()) {
            return Ok(Some((0, too_many(full))));
        }
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        if self.core.meta.next.checked_add(count).is_none() {
            return Ok(Some((0, too_many_jobs())));
        }
        self.first_conflict(items)
    }
}

fn too_many(full: Full) -> EnqueueError {
    EnqueueError::TooMany { what: full.what, count_max: full.count_max }
}

fn too_many_jobs() -> EnqueueError {
    EnqueueError::TooMany { what: "jobs", count_max: usize::MAX }
}

fn withheld(count: usize, refused: usize, error: &EnqueueError) -> Vec<Outcome> {
    let answer = |place| {
        Err(if place == refused { error.clone() } else { EnqueueError::Withheld { refused } })
    };
    (0..count).map(answer).collect()
}
