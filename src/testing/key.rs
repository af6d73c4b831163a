//! Keys in the reference model: what a request finds under its key, and what becomes of both.

use std::collections::BTreeSet;

use crate::domain::history::{HistoryEntry, HistoryEvent};
use crate::domain::id::JobId;
use crate::domain::job::{JobState, Lane};
use crate::domain::key::OnDuplicate;
use crate::handle::key::KeyState;
use crate::handle::redrive::Redrive;
use crate::testing::commands::Accepted;
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::EPOCH_MS;
use crate::testing::life::{Life, Place, Spot};
use crate::testing::model::{Model, state, time};
use crate::testing::op::{Item, KEYS, QUEUES, When};

/// What is done with a request whose key has an owner.
enum Fate {
    Duplicate,
    Conflict,
    Replace,
    Succeed,
}

impl Life {
    fn result(&self) -> Option<Vec<u8>> {
        match &self.place {
            Place::Done { result, .. } => result.clone(),
            Place::Ready(_)
            | Place::Delayed { .. }
            | Place::Leased(_)
            | Place::Cancelled { .. }
            | Place::Dead(_)
            | Place::Blocked { .. } => None,
        }
    }

    fn alive(&self) -> bool {
        match self.place {
            Place::Ready(_) | Place::Delayed { .. } | Place::Leased(_) | Place::Blocked { .. } => {
                true
            }
            Place::Done { .. } | Place::Cancelled { .. } | Place::Dead(_) => false,
        }
    }

    fn meets(&self, item: &Item) -> Fate {
        let dead = matches!(self.place, Place::Dead(_));
        let waits = self.alive() && self.hold().is_none();
        let same = self.kind == item.kind && self.payload == item.payload();
        match item.on_duplicate {
            OnDuplicate::AfterDead if dead => Fate::Succeed,
            OnDuplicate::Replace
                if waits && self.kind == item.kind && self.deliveries + self.redrives == 0 =>
            {
                Fate::Replace
            }
            _ if same => Fate::Duplicate,
            _ => Fate::Conflict,
        }
    }
}

impl Model {
    pub(super) fn owner(&self, queue: usize, key: Option<&String>) -> Option<&Life> {
        let key = key?;
        let now = self.now;
        self.jobs
            .values()
            .find(|job| job.queue == queue && job.key.as_ref() == Some(key) && job.owns_key(now))
    }

    /// The answer for a request whose key has an owner that stays it; `None` when a new job is to be made.
    pub(super) fn under_its_key(&mut self, item: &Item) -> Option<Accepted> {
        let key = item.key()?;
        let owner = self.owner(item.queue, Some(&key))?;
        let (id, class, fate) = (owner.id, (owner.queue, owner.kind), owner.meets(item));
        let (state, result) = (state(owner), owner.result());
        let now = time(self.now);
        let asked = self.jobs.get_mut(&id).map(|job| &mut job.asked)?;
        let (count, flow, answer) = match fate {
            Fate::Succeed => return None,
            Fate::Duplicate => (
                &mut asked.duplicates,
                "duplicates_suppressed",
                Accepted::Duplicate(id, state, result),
            ),
            Fate::Conflict => {
                (&mut asked.conflicts, "key_conflicts", Accepted::Conflict(key, id, state))
            }
            Fate::Replace => (&mut asked.replaced, "replaced", Accepted::Replaced(id)),
        };
        *count += 1;
        asked.last_at = Some(now);
        if matches!(fate, Fate::Replace) {
            self.replace(id, item);
        }
        self.count(class, vec![flow]);
        Some(answer)
    }

    fn replace(&mut self, id: JobId, item: &Item) {
        let (now, seq) = (self.now, self.next);
        let due = Some(self.due(item)).filter(|&due| due > now);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let lane = Lane::Fresh;
        job.place = match (&job.place, due) {
            (Place::Blocked { .. }, due) => Place::Blocked { lane, due },
            (_, Some(due)) => Place::Delayed { lane, due },
            (Place::Ready(spot), None) => Place::Ready(*spot),
            (_, None) => {
                self.next += 1;
                Place::Ready(Spot { lane, seq })
            }
        };
        job.payload = item.payload();
        job.priority = item.priority;
        job.history.push(HistoryEntry { at: time(now), event: HistoryEvent::Replaced });
    }

    pub(super) fn due(&self, item: &Item) -> u64 {
        match item.when {
            When::Now => self.now,
            When::After(ms) => self.now + ms,
            When::At(at) => EPOCH_MS + at,
        }
    }

    /// `id` takes its key: from the job that had it before, if that is still there.
    pub(super) fn take_key(&mut self, id: JobId) {
        let Some(job) = self.jobs.get(&id) else { return };
        let Some(key) = job.key.clone() else { return };
        let at = (job.queue, key);
        let last = self.keys.insert(at, id).filter(|last| *last != id);
        let Some(before) = last.and_then(|last| self.jobs.get_mut(&last)) else { return };
        let dead = matches!(before.place, Place::Dead(_));
        if dead {
            before.taken_by = Some(id);
        }
        if let Some(job) = self.jobs.get_mut(&id) {
            job.previous = last;
        }
    }

    /// A job that lay dead is alive: it owns its key.
    pub(super) fn own_again(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get(&id)
            && let Some(key) = job.key.clone()
        {
            self.keys.insert((job.queue, key), id);
        }
    }

    /// The job's row is gone.
    pub(super) fn drop_key(&mut self, id: JobId) {
        self.keys.retain(|_, last| *last != id);
    }

    pub(super) fn first_refusal(&self, items: &[Item]) -> Option<(usize, Accepted)> {
        // What the call has made of each key so far.
        let mut within: Vec<(usize, &Item)> = Vec::new();
        for (place, item) in items.iter().enumerate() {
            let Some(key) = item.key() else { continue };
            let met = within
                .iter_mut()
                .find(|(_, other)| other.queue == item.queue && other.key().as_ref() == Some(&key));
            if let Some(met) = met {
                let differs = met.1.kind != item.kind || met.1.payload() != item.payload();
                if item.on_duplicate == OnDuplicate::Replace && met.1.kind == item.kind {
                    *met = (place, item);
                } else if differs {
                    return Some((place, Accepted::ConflictInCall(key, met.0)));
                }
                continue;
            }
            let owner = self.owner(item.queue, Some(&key));
            match owner.map(|owner| (owner, owner.meets(item))) {
                Some((_, Fate::Duplicate)) => {}
                Some((owner, Fate::Conflict)) => {
                    return Some((place, Accepted::Conflict(key, owner.id, state(owner))));
                }
                Some((_, Fate::Replace | Fate::Succeed)) | None => within.push((place, item)),
            }
        }
        None
    }

    /// P7: at most one live job per key, and the ledger says what the model says.
    pub(super) fn compare_keys(&self, jobs: &Redrive) -> Verdict {
        let trouble = |error| format!("the ledger cannot be read: {error}");
        for (queue, &name) in QUEUES.iter().enumerate() {
            for key in (0..KEYS).map(|key| format!("key-{key}")) {
                let under = |job: &&Life| job.queue == queue && job.key.as_ref() == Some(&key);
                let alive = self.jobs.values().filter(under).filter(|job| job.alive()).count();
                if alive > 1 {
                    return Err(format!("{alive} live jobs under {name} {key}"));
                }
                let owner = self.owner(queue, Some(&key));
                let expected = owner.map(|job| (job.id, state(job), job.result()));
                let found = jobs.key(name, &key).map_err(trouble)?;
                let unknown = found.as_ref().is_some_and(|key| key.state == KeyState::Unknown);
                let doubt = owner.is_some_and(|job| job.alive() && job.unknown.is_some());
                same("whether the outcome is unknown", &unknown, &doubt)?;
                let found = found.map(|info| {
                    let (state, result) = match info.state {
                        KeyState::Done { result } => (JobState::Done, result),
                        KeyState::Dead => (JobState::Dead, None),
                        KeyState::Cancelled => (JobState::Cancelled, None),
                        KeyState::Live | KeyState::Unknown => {
                            (owner.map_or(JobState::Done, state), None)
                        }
                    };
                    (info.owner, state, result)
                });
                same(&format!("the owner of {name} {key}"), &found, &expected)?;
                let found = jobs.lineage(name, &key).map_err(trouble)?;
                let found = found.map(|lineage| {
                    let ids: BTreeSet<JobId> = lineage.jobs.iter().map(|job| job.id).collect();
                    (ids, lineage.enqueues, lineage.deliveries)
                });
                let expected = self.lineage(queue, &key);
                same(&format!("the lineage of {name} {key}"), &found, &expected)?;
            }
        }
        Ok(())
    }

    fn lineage(&self, queue: usize, key: &str) -> Option<(BTreeSet<JobId>, u64, u64)> {
        let last = *self.keys.get(&(queue, key.to_owned()))?;
        let (mut found, mut ahead) = (BTreeSet::new(), vec![last]);
        let (mut enqueues, mut deliveries) = (0, 0);
        while let Some(id) = ahead.pop() {
            let Some(job) = self.jobs.get(&id) else { continue };
            if !found.insert(id) {
                continue;
            }
            ahead.extend([job.previous, job.taken_by].into_iter().flatten());
            let asked = job.asked;
            enqueues += 1 + u64::from(asked.duplicates + asked.conflicts + asked.replaced);
            deliveries += u64::from(job.deliveries);
        }
        Some((found, enqueues, deliveries))
    }
}
