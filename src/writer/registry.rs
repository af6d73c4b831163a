//! Queues, kinds and policies in memory, so that names cost no reads. Always equal to the tables.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::domain::id::{Class, KindId, PolicyId, QueueId};
use crate::domain::limits::{NAMES_MAX, POLICIES_MAX};
use crate::domain::policy::JobPolicy;
use crate::domain::queue::Queue;
use crate::error::StorageError;
use crate::store::names::{self, Names};
use crate::store::rows::{Rows, WriteRows};

#[derive(Default)]
pub(super) struct Registry {
    queues: Vec<(Queue, Arc<str>)>,
    queue_ids: HashMap<Arc<str>, QueueId>,
    kinds: Vec<Arc<str>>,
    kind_ids: HashMap<Arc<str>, KindId>,
    policies: Vec<Arc<JobPolicy>>,
    policy_ids: HashMap<Arc<JobPolicy>, PolicyId>,
    /// Queues whose next sequence is not written yet.
    unwritten: BTreeSet<QueueId>,
    /// The classes that have ever had a job, by queue.
    classes: HashMap<QueueId, BTreeSet<Class>>,
}

/// The file may hold no more of these.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    pub(super) what: &'static str,
    pub(super) count_max: usize,
}

impl Registry {
    pub(super) fn load(
        rows: &impl Rows,
        classes: impl Iterator<Item = Class>,
    ) -> Result<Self, StorageError> {
        let mut registry = Self {
            queues: Vec::new(),
            queue_ids: HashMap::new(),
            kinds: Vec::new(),
            kind_ids: HashMap::new(),
            policies: Vec::new(),
            policy_ids: HashMap::new(),
            classes: HashMap::new(),
            unwritten: BTreeSet::new(),
        };
        for queue in names::queues(rows)? {
            registry.add_queue(queue);
        }
        for kind in names::kinds(rows)? {
            registry.add_kind(&kind);
        }
        for policy in names::policies(rows)? {
            registry.add_policy(policy);
        }
        for class in classes {
            registry.note_class(class);
        }
        Ok(registry)
    }

    pub(super) fn queue_id(&self, name: &str) -> Option<QueueId> {
        self.queue_ids.get(name).copied()
    }

    pub(super) fn kind_id(&self, name: &str) -> Option<KindId> {
        self.kind_ids.get(name).copied()
    }

    pub(super) fn kind_count(&self) -> usize {
        self.kinds.len()
    }

    pub(super) fn policy_id(&self, policy: &JobPolicy) -> Option<PolicyId> {
        self.policy_ids.get(policy).copied()
    }

    pub(super) fn queue(&self, id: QueueId) -> Result<&(Queue, Arc<str>), StorageError> {
        let place = usize::try_from(id.get()).ok();
        place.and_then(|place| self.queues.get(place)).ok_or_else(|| unknown("queue", id.get()))
    }

    pub(super) fn kind(&self, id: KindId) -> Result<&Arc<str>, StorageError> {
        let place = usize::try_from(id.get()).ok();
        place.and_then(|place| self.kinds.get(place)).ok_or_else(|| unknown("kind", id.get()))
    }

    pub(super) fn policy(&self, id: PolicyId) -> Result<&Arc<JobPolicy>, StorageError> {
        let place = usize::try_from(id.get()).ok();
        place.and_then(|place| self.policies.get(place)).ok_or_else(|| unknown("policy", id.get()))
    }

    pub(super) fn classes(&self, queue: QueueId) -> impl Iterator<Item = Class> {
        self.classes.get(&queue).into_iter().flatten().copied()
    }

    /// The queues that keep only a part of their quarantine.
    pub(super) fn retained(&self) -> impl Iterator<Item = QueueId> {
        let set = |(queue, _): &(Queue, Arc<str>)| queue.retention.is_set();
        let numbered = (0..).zip(&self.queues);
        numbered.filter(move |(_, queue)| set(queue)).map(|(number, _)| QueueId::new(number))
    }

    pub(super) fn note_class(&mut self, class: Class) {
        self.classes.entry(class.queue).or_default().insert(class);
    }

    /// Room for so many more queues, kinds and policies, or what there is too much of.
    pub(super) fn room(&self, queues: usize, kinds: usize, policies: usize) -> Result<(), Full> {
        for (what, count, count_max) in [
            ("queues", self.queues.len() + queues, NAMES_MAX),
            ("kinds", self.kinds.len() + kinds, NAMES_MAX),
            ("policies", self.policies.len() + policies, POLICIES_MAX),
        ] {
            if count > count_max {
                return Err(Full { what, count_max });
            }
        }
        Ok(())
    }

    /// The queue's number; a new one is written. There must be room.
    pub(super) fn intern_queue(
        &mut self,
        rows: &mut WriteRows<'_>,
        name: &str,
    ) -> Result<QueueId, StorageError> {
        if let Some(id) = self.queue_id(name) {
            return Ok(id);
        }
        let queue = Queue::new(name);
        let id = self.add_queue(queue.clone());
        names::put_queue(rows, id, &queue)?;
        Ok(id)
    }

    pub(super) fn intern_kind(
        &mut self,
        rows: &mut WriteRows<'_>,
        name: &str,
    ) -> Result<KindId, StorageError> {
        if let Some(id) = self.kind_id(name) {
            return Ok(id);
        }
        let id = self.add_kind(name);
        names::put_kind(rows, id, name)?;
        Ok(id)
    }

    pub(super) fn intern_policy(
        &mut self,
        rows: &mut WriteRows<'_>,
        policy: &JobPolicy,
    ) -> Result<PolicyId, StorageError> {
        if let Some(id) = self.policy_id(policy) {
            return Ok(id);
        }
        let id = self.add_policy(policy.clone());
        names::put_policy(rows, id, policy)?;
        Ok(id)
    }

    pub(super) fn set_queue(
        &mut self,
        rows: &mut WriteRows<'_>,
        id: QueueId,
        change: impl FnOnce(&mut Queue),
    ) -> Result<(), StorageError> {
        let place = usize::try_from(id.get()).ok();
        let entry = place.and_then(|place| self.queues.get_mut(place));
        let (queue, _) = entry.ok_or_else(|| unknown("queue", id.get()))?;
        change(queue);
        names::put_queue(rows, id, queue)
    }

    /// Gives out the sequence of a message; [`flush`](Self::flush) writes down which one is next.
    pub(super) fn take_sequence(&mut self, id: QueueId) -> Result<u64, StorageError> {
        let place = usize::try_from(id.get()).ok();
        let entry = place.and_then(|place| self.queues.get_mut(place));
        let (queue, _) = entry.ok_or_else(|| unknown("queue", id.get()))?;
        let sequence = queue.next_message;
        queue.next_message = sequence.saturating_add(1);
        self.unwritten.insert(id);
        Ok(sequence)
    }

    /// Writes what was only kept in memory within a commit: one row per destination, not per message.
    pub(super) fn flush(&mut self, rows: &mut WriteRows<'_>) -> Result<(), StorageError> {
        for id in std::mem::take(&mut self.unwritten) {
            names::put_queue(rows, id, &self.queue(id)?.0)?;
        }
        Ok(())
    }

    fn add_queue(&mut self, queue: Queue) -> QueueId {
        let id = QueueId::new(next(self.queues.len()));
        let name: Arc<str> = queue.name.as_str().into();
        self.queue_ids.insert(Arc::clone(&name), id);
        self.queues.push((queue, name));
        id
    }

    fn add_kind(&mut self, name: &str) -> KindId {
        let id = KindId::new(next(self.kinds.len()));
        let name: Arc<str> = name.into();
        self.kind_ids.insert(Arc::clone(&name), id);
        self.kinds.push(name);
        id
    }

    fn add_policy(&mut self, policy: JobPolicy) -> PolicyId {
        let id = PolicyId::new(next(self.policies.len()));
        let policy = Arc::new(policy);
        self.policy_ids.insert(Arc::clone(&policy), id);
        self.policies.push(policy);
        id
    }
}

impl Names for Registry {
    fn find_queue(&self, name: &str) -> Option<QueueId> {
        self.queue_id(name)
    }

    fn find_kind(&self, name: &str) -> Option<KindId> {
        self.kind_id(name)
    }

    fn queue_name(&self, id: QueueId) -> &str {
        self.queue(id).map_or("", |(_, name)| name)
    }

    fn kind_name(&self, id: KindId) -> &str {
        self.kind(id).map_or("", |name| name)
    }

    fn policy(&self, id: PolicyId) -> Option<&JobPolicy> {
        Self::policy(self, id).ok().map(Arc::as_ref)
    }
}

/// List lengths are bounded far below this by `room`.
fn next(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn unknown(what: &str, number: u32) -> StorageError {
    StorageError::corrupt(format!("a job names {what} {number}, which does not exist"))
}
