//! Accepting jobs.

use std::collections::{BTreeSet, HashMap};

use crate::domain::arrival::Arrival;
use crate::domain::blob::Blob;
use crate::domain::counter::Flow;
use crate::domain::id::{Class, JobId, QueueId};
use crate::domain::job::{Done, Job, Payload, State};
use crate::domain::key::KeyClaim;
use crate::domain::limits::PAYLOAD_INLINE_BYTES_MAX;
use crate::domain::order::OrderKey;
use crate::domain::outbox;
use crate::domain::policy::JobPolicy;
use crate::domain::transition::holds_key;
use crate::error::{EnqueueError, StorageError};
use crate::store::alone;
use crate::store::{job as job_store, key as key_store};
use crate::writer::batch::Batch;
use crate::writer::command::{BatchRule, Enqueue, Enqueued, Prepared};
use crate::writer::registry::Full;

type Outcome = Result<Enqueued, EnqueueError>;

/// What is known about a key that has an owner.
struct Known {
    /// The owner's class, on which the outcome is counted.
    owner: Option<Class>,
    outcome: Outcome,
}

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
        if let Some(known) = self.known_key(&item)? {
            let flow = match &known.outcome {
                Ok(_) => Some(Flow::Duplicate),
                Err(EnqueueError::KeyConflict { .. }) => Some(Flow::Conflict),
                Err(_) => None,
            };
            if let (Some(class), Some(flow)) = (known.owner, flow) {
                self.core.books.count(class, flow);
            }
            return Ok(known.outcome);
        }
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
        let arrival = Arrival {
            id,
            class: Class { queue, kind },
            policy,
            priority: item.priority,
            key: item.key,
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

    /// The answer for an item whose key has an owner.
    fn known_key(&self, item: &Prepared) -> Result<Option<Known>, StorageError> {
        let (Some(claim), Some(queue)) = (&item.key, self.core.registry.queue_id(&item.queue))
        else {
            return Ok(None);
        };
        let owner = match alone(self.owner(queue, claim))? {
            Ok(owner) => owner,
            // Nobody can tell whether it is the same request: not accepted, and not overwritten.
            Err(damage) => return Ok(Some(Known { owner: None, outcome: Err(damage.into()) })),
        };
        Ok(owner.map(|owner| {
            let (class, state) = (owner.class, owner.state.name());
            let outcome = if owner.key.as_ref().is_some_and(|owned| owned.hash == claim.hash) {
                let result = match owner.state {
                    State::Done(Done { result, .. }) => result.map(|blob| blob.0),
                    State::Ready(_)
                    | State::Delayed(_)
                    | State::Leased(_)
                    | State::Dead(_)
                    | State::Cancelled(_)
                    | State::Blocked(_) => None,
                };
                Ok(Enqueued::Duplicate { of: owner.id, state, result })
            } else {
                Err(EnqueueError::KeyConflict { key: claim.key.clone(), owner: owner.id, state })
            };
            Known { owner: Some(class), outcome }
        }))
    }

    pub(super) fn owner(
        &self,
        queue: QueueId,
        claim: &KeyClaim,
    ) -> Result<Option<Job>, StorageError> {
        let Some(owner) = key_store::owner(&*self.rows, queue, &claim.key)? else {
            return Ok(None);
        };
        let Some(owner) = job_store::read(&*self.rows, owner)? else {
            return Ok(None);
        };
        let policy = self.core.registry.policy(owner.policy)?;
        Ok(holds_key(&owner, policy, self.time.now).then_some(owner))
    }

    /// The refusal of a queue whose quarantine is full, and whose rule it is to accept nothing then.
    fn quarantine_full(&self, item: &Prepared) -> Option<EnqueueError> {
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
        let mut within: HashMap<(&str, &str), (usize, &KeyClaim)> = HashMap::new();
        for (place, item) in items.iter().enumerate() {
            match self.known_key(item)? {
                Some(Known { outcome: Err(error), .. }) => return Ok(Some((place, error))),
                Some(Known { outcome: Ok(_), .. }) => {}
                None => {
                    if let Some(refused) = self.quarantine_full(item) {
                        return Ok(Some((place, refused)));
                    }
                }
            }
            let Some(claim) = &item.key else { continue };
            let (earlier, first) =
                *within.entry((&item.queue, &claim.key)).or_insert((place, claim));
            if first.hash != claim.hash {
                let key = claim.key.clone();
                return Ok(Some((place, EnqueueError::KeyConflictInCall { key, earlier })));
            }
        }
        Ok(None)
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
