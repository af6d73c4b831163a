//! Requests that meet others under their key: one key, one logical job (P7).

use std::collections::HashMap;

use crate::domain::counter::Flow;
use crate::domain::event::Event;
use crate::domain::id::{JobId, QueueId};
use crate::domain::job::{Done, Job, Payload, State};
use crate::domain::key::{
    KeyClaim, Meeting, Misplaced, OnDuplicate, RequestHash, holds_key, meet, misplaced,
};
use crate::domain::transition::Step;
use crate::domain::transition::key::Replacement;
use crate::error::{EnqueueError, StorageError};
use crate::store::job::Held;
use crate::store::{alone, job as job_store, key as key_store};
use crate::writer::batch::Batch;
use crate::writer::command::{Enqueued, Prepared};
use crate::writer::enqueue::Outcome;

/// What there is under a key.
pub(super) enum Under {
    /// Nobody owns it. Perhaps the row of the job that had it last still lies there.
    Free {
        last: Option<Box<Job>>,
    },
    Owned(Box<Job>),
    /// Nobody can tell: not accepted, and not overwritten.
    Damaged(StorageError),
}

/// What an all-or-nothing call has made of a key so far.
struct Met<'i> {
    place: usize,
    kind: &'i str,
    hash: RequestHash,
}

impl Batch<'_, '_> {
    pub(super) fn under(&self, item: &Prepared) -> Result<Under, StorageError> {
        let (Some(claim), Some(queue)) = (&item.key, self.core.registry.queue_id(&item.queue))
        else {
            return Ok(Under::Free { last: None });
        };
        Ok(match alone(self.last_owner(queue, &claim.key))? {
            Ok(Some((owner, true))) => Under::Owned(Box::new(owner)),
            Ok(last) => Under::Free { last: last.map(|(last, _)| Box::new(last)) },
            Err(damage) => Under::Damaged(damage),
        })
    }

    /// The job that took the key last, and whether it still owns it.
    pub(super) fn last_owner(
        &self,
        queue: QueueId,
        key: &str,
    ) -> Result<Option<(Job, bool)>, StorageError> {
        let Some(owner) = key_store::owner(&*self.rows, queue, key)? else {
            return Ok(None);
        };
        let Some(owner) = job_store::read(&*self.rows, owner)? else {
            return Ok(None);
        };
        let policy = self.core.registry.policy(owner.policy)?;
        let holds = holds_key(&owner, policy, self.time.now);
        Ok(Some((owner, holds)))
    }

    pub(super) fn meet(&self, owner: &Job, item: &Prepared, hash: RequestHash) -> Meeting {
        let same_kind = self.core.registry.kind_id(&item.kind) == Some(owner.class.kind);
        meet(owner, same_kind, hash, item.on_duplicate)
    }

    /// Answers a request that the owner of its key stands for, or that it is refused for; notes it on
    /// the owner.
    pub(super) fn known(
        &mut self,
        mut owner: Job,
        how: Meeting,
        key: &str,
    ) -> Result<Outcome, StorageError> {
        let (id, state) = (owner.id, owner.state.name());
        let flow = if how == Meeting::Duplicate { Flow::Duplicate } else { Flow::Conflict };
        self.core.books.count(owner.class, flow);
        if let Some(claim) = &mut owner.key {
            claim.asked.note(how, self.time.now);
            job_store::rewrite(self.rows, &owner)?;
        }
        if how == Meeting::Conflict {
            return Ok(Err(EnqueueError::KeyConflict { key: key.to_owned(), owner: id, state }));
        }
        let result = match owner.state {
            State::Done(Done { result, .. }) => result.map(|blob| blob.0),
            State::Ready(_)
            | State::Delayed(_)
            | State::Leased(_)
            | State::Dead(_)
            | State::Cancelled(_)
            | State::Blocked(_) => None,
        };
        Ok(Ok(Enqueued::Duplicate { of: id, state, result }))
    }

    /// Puts the request in the place of the one that was never claimed.
    pub(super) fn replace(
        &mut self,
        owner: &Job,
        item: Prepared,
        hash: RequestHash,
    ) -> Result<Outcome, StorageError> {
        let payload = Payload::of(&item.payload);
        let stored = matches!(payload, Payload::Stored { .. });
        let (priority, start) = (item.priority, item.start);
        let event = Event::Replace(Replacement { payload, hash, priority, start });
        let step = match alone(self.plan(owner, event))? {
            Ok(Ok(step)) => step,
            Ok(Err(_)) => {
                return Err(StorageError::internal("a job that was met cannot be replaced"));
            }
            Err(damage) => return Ok(Err(damage.into())),
        };
        if stored {
            job_store::put_payload(self.rows, owner.id, &item.payload)?;
        }
        self.apply(owner, step)?;
        Ok(Ok(Enqueued::Replaced(owner.id)))
    }

    /// Another job takes the key of this one, which ended before it: links the two, and a dead one knows
    /// that it no longer owns it.
    pub(super) fn succeed(
        &mut self,
        last: &Job,
        by: JobId,
        claim: &mut KeyClaim,
    ) -> Result<(), StorageError> {
        claim.previous = Some(last.id);
        let State::Dead(_) = &last.state else {
            return Ok(());
        };
        let policy = self.core.registry.policy(last.policy)?;
        let mut after = last.clone();
        if let Some(claim) = &mut after.key {
            claim.taken_by = Some(by);
        }
        let held = |job| Held { job, holds_key: holds_key(job, policy, self.time.now) };
        job_store::replace(self.rows, Some(held(last)), Some(held(&after)))
    }

    /// What is to become of a job whose turn has come, should another have its key. Only a job that was in
    /// the quarantine can have lost it.
    pub(super) fn misplaced(&self, job: &Job) -> Result<Option<Misplaced>, StorageError> {
        let Some(claim) = job.key.as_ref().filter(|_| job.redrives > 0) else {
            return Ok(None);
        };
        // A damaged row of the ledger tells nothing, and holds up nobody.
        let owner = alone(self.last_owner(job.class.queue, &claim.key))?.ok().flatten();
        let other = owner.filter(|(owner, holds)| *holds && owner.id != job.id);
        Ok(other.map(|(owner, _)| misplaced(job, &owner)))
    }

    /// What was noted on a job by requests of its own delivery is not lost with the step that ends it.
    pub(super) fn keep_asked(&self, step: &mut Step) -> Result<(), StorageError> {
        let Some(claim) = &mut step.job.key else {
            return Ok(());
        };
        if let Ok(Some(Job { key: Some(noted), .. })) =
            alone(job_store::read(&*self.rows, step.job.id))?
        {
            claim.asked = noted.asked;
        }
        Ok(())
    }

    /// The first item of an all-or-nothing call that its key would refuse.
    pub(super) fn first_conflict(
        &self,
        items: &[Prepared],
    ) -> Result<Option<(usize, EnqueueError)>, StorageError> {
        let mut within: HashMap<(&str, &str), Met<'_>> = HashMap::new();
        for (place, item) in items.iter().enumerate() {
            let Some(claim) = &item.key else {
                if let Some(refused) = self.quarantine_full(item) {
                    return Ok(Some((place, refused)));
                }
                continue;
            };
            let at = (item.queue.as_str(), claim.key.as_str());
            let now = Met { place, kind: &item.kind, hash: claim.hash };
            if let Some(met) = within.get_mut(&at) {
                if item.on_duplicate == OnDuplicate::Replace && met.kind == now.kind {
                    *met = now;
                } else if met.hash != now.hash {
                    let (key, earlier) = (claim.key.clone(), met.place);
                    return Ok(Some((place, EnqueueError::KeyConflictInCall { key, earlier })));
                }
                continue;
            }
            let owner = match self.under(item)? {
                Under::Free { .. } => None,
                Under::Owned(owner) => Some(owner),
                Under::Damaged(damage) => return Ok(Some((place, damage.into()))),
            };
            let how = owner.as_ref().map(|owner| self.meet(owner, item, claim.hash));
            match (how, owner) {
                (Some(Meeting::Duplicate), _) => {}
                (Some(Meeting::Conflict), Some(owner)) => {
                    let (key, state) = (claim.key.clone(), owner.state.name());
                    let owner = owner.id;
                    return Ok(Some((place, EnqueueError::KeyConflict { key, owner, state })));
                }
                (Some(Meeting::Replace), _) => drop(within.insert(at, now)),
                (None | Some(_), _) => {
                    if let Some(refused) = self.quarantine_full(item) {
                        return Ok(Some((place, refused)));
                    }
                    within.insert(at, now);
                }
            }
        }
        Ok(None)
    }
}
