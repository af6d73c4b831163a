//! What is done to dead jobs: removed, amended, written down elsewhere and put back, evicted.

use std::time::Duration;

use crate::domain::filter::Filter;
use crate::domain::history::{HistoryEntry, HistoryEvent};
use crate::domain::id::JobId;
use crate::domain::job::JobState;
use crate::domain::key::Asked;
use crate::domain::retention::{DeadRetention, RetentionBound};
use crate::error::AmendError;
use crate::handle::import::ImportRefusal;
use crate::testing::expect::{Verdict, kept, same};
use crate::testing::harness::{Harness, text};
use crate::testing::life::{Corpse, Identity, Life, Place};
use crate::testing::model::{Model, state, time};
use crate::testing::op::Retained;

/// What an export wrote, and the job as it was.
#[derive(Debug)]
pub(super) struct Exported {
    lines: Vec<u8>,
    life: Life,
}

/// What becomes of the line of an export.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Imported,
    AlreadyHere,
    KeyTaken(JobId),
}

impl Retained {
    pub(super) fn retention(self) -> DeadRetention {
        let mut retention = DeadRetention::new();
        if let Some(jobs) = self.jobs {
            retention = retention.jobs(jobs);
        }
        if let Some(bytes) = self.bytes {
            retention = retention.bytes(bytes);
        }
        if let Some(ms) = self.age_ms {
            retention = retention.age(Duration::from_millis(ms));
        }
        retention
    }
}

impl Harness {
    pub(super) fn discard(&mut self, job: usize) -> Verdict {
        let id = self.some_dead(job);
        let filter = Filter::new().ids([id]);
        let done = self.jobs.dead().discard(&filter, "the model says so").map_err(text)?;
        let expected = self.model.round(|model| model.discard(id));
        self.acked();
        same("the answer to discard", &(done.jobs, done.not_dead), &expected)
    }

    pub(super) fn amend(&mut self, job: usize, payload: u8) -> Verdict {
        let id = self.some_dead(job);
        let payload = vec![payload; if payload.is_multiple_of(3) { 600 } else { 5 }];
        let note = "the model says so";
        let answer = match self.jobs.dead().amend(id, payload.clone(), note) {
            Ok(()) => Ok(()),
            Err(AmendError::NotFound { .. }) => Err(None),
            Err(AmendError::WrongState { state, .. }) => Err(Some(state)),
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.round(|model| model.amend(id, &payload, note));
        self.acked();
        same("the answer to amend", &answer, &expected)
    }

    pub(super) fn export(&mut self, job: usize) -> Verdict {
        let id = self.some_dead(job);
        let life = self.model.jobs.get(&id).filter(|life| state(life) == JobState::Dead).cloned();
        let mut lines = Vec::new();
        let done = self.jobs.dead().export(&Filter::new().ids([id]), &mut lines).map_err(text)?;
        same("what an export wrote", &done.jobs, &u64::from(life.is_some()))?;
        // What is known of it must be what is there, not what the model thinks of it later.
        let found = self.jobs.job(id).map_err(text)?;
        if let (Some(mut life), Some(found)) = (life, found) {
            life.history = kept(&life, &found);
            self.exports.push(Exported { lines, life });
        }
        Ok(())
    }

    pub(super) fn import(&mut self, export: usize) -> Verdict {
        let place = export.checked_rem(self.exports.len());
        let Some(export) = place.and_then(|place| self.exports.get(place)) else {
            return self.export(export);
        };
        let done = self.jobs.dead().import(&mut export.lines.as_slice()).map_err(text)?;
        let answer = match (done.imported, done.already_here, done.refused.as_slice()) {
            (1, 0, []) => Answer::Imported,
            (0, 1, []) => Answer::AlreadyHere,
            (0, 0, [(1, ImportRefusal::KeyTaken { owner })]) => Answer::KeyTaken(*owner),
            _ => return Err(format!("an import of one line did {done:?}")),
        };
        let life = export.life.clone();
        let expected = self.model.round(|model| model.import(life));
        self.acked();
        same("the answer to import", &answer, &expected)
    }

    /// A dead job, if there is one and the choice is not to look elsewhere.
    fn some_dead(&self, choice: usize) -> JobId {
        let dead = self.model.jobs.values().filter(|job| state(job) == JobState::Dead);
        let count = dead.clone().count();
        let place = choice.checked_rem(count).filter(|_| !choice.is_multiple_of(5));
        let chosen = place.and_then(|place| dead.clone().nth(place)).map(|job| job.id);
        chosen.unwrap_or_else(|| self.some_job(choice))
    }
}

impl Life {
    fn identity(&self) -> Identity {
        (self.id, self.queue, self.kind, self.enqueued_at, self.key.clone())
    }
}

impl Model {
    /// How many are gone, and how many were not dead; a discard draws a number.
    pub(super) fn discard(&mut self, id: JobId) -> (u64, u64) {
        if self.jobs.get(&id).is_none_or(|job| state(job) != JobState::Dead) {
            return (0, 1);
        }
        self.bury(id, "discarded");
        self.next += 1;
        (1, 0)
    }

    /// `Err` holds the state that forbids it.
    pub(super) fn amend(
        &mut self,
        id: JobId,
        payload: &[u8],
        note: &str,
    ) -> Result<(), Option<JobState>> {
        let now = self.now;
        let job = self.jobs.get_mut(&id).ok_or(None)?;
        if !matches!(job.place, Place::Dead(_)) {
            return Err(Some(state(job)));
        }
        payload.clone_into(&mut job.payload);
        job.amended = true;
        let event = HistoryEvent::Amended { note: note.to_owned() };
        job.history.push(HistoryEntry { at: time(now), event });
        let class = (job.queue, job.kind);
        self.count(class, vec!["amended"]);
        Ok(())
    }

    fn import(&mut self, life: Life) -> Answer {
        let identity = life.identity();
        let known =
            |job: &Life| job.import.as_ref() == Some(&identity) || job.identity() == identity;
        if self.jobs.values().any(known) {
            return Answer::AlreadyHere;
        }
        if life.rules.dead_keeps_key
            && let Some(owner) = self.owner(life.queue, life.key.as_ref())
        {
            return Answer::KeyTaken(owner.id);
        }
        let (id, class) = (JobId::new(self.next), (life.queue, life.kind));
        let mut job = Life {
            id,
            import: Some(identity),
            order: None,
            halts: false,
            cohort: None,
            previous: None,
            taken_by: None,
            asked: Asked::default(),
            transient: 0,
            throttled: 0,
            ambiguous: 0,
            crashes: 0,
            snoozes: 0,
            releases: 0,
            reconciles: 0,
            ..life.clone()
        };
        let event = HistoryEvent::Imported { from: life.id };
        job.history.push(HistoryEntry { at: time(self.now), event });
        if let Place::Dead(corpse) = &mut job.place {
            corpse.seq = self.next;
        }
        self.next += 1;
        if job.sequence.is_some() {
            job.sequence = Some(self.outbox.take());
        }
        if !self.kinds.contains(&job.kind) {
            self.kinds.push(job.kind);
        }
        self.classes.insert(class);
        self.met.insert(id, class);
        let keeps = job.rules.dead_keeps_key;
        self.jobs.insert(id, job);
        if keeps {
            self.own_again(id);
        }
        self.count(class, vec!["imported"]);
        Answer::Imported
    }

    /// Whether any queue does not keep all its dead jobs.
    pub(super) fn retains(&self) -> bool {
        self.kept.iter().any(|kept| *kept != Retained::default())
    }

    /// The dead jobs that go by the rules of their queues, oldest first.
    pub(super) fn evict(&mut self) {
        for queue in 0..self.kept.len() {
            while let Some((id, bound)) = self.evicted(queue) {
                let minute = self.now / 60_000;
                if self.evictions.insert((queue, bound), minute) != Some(minute) {
                    self.next += 1;
                }
                self.bury(id, "evicted");
                self.restless = true;
            }
        }
    }

    fn evicted(&self, queue: usize) -> Option<(JobId, RetentionBound)> {
        let kept = self.kept.get(queue)?;
        let dead = |job: &Life| match &job.place {
            Place::Dead(Corpse { at, .. }) if job.queue == queue => Some((*at, job.id)),
            _ => None,
        };
        let (at, id) = self.jobs.values().filter_map(dead).min()?;
        let here: Vec<&Life> = self.jobs.values().filter(|job| dead(job).is_some()).collect();
        let bytes: usize = here.iter().map(|job| job.payload.len()).sum();
        let over = |most: Option<u64>, count: usize| {
            most.is_some_and(|most| u64::try_from(count).is_ok_and(|count| count > most))
        };
        let bound = if kept.age_ms.is_some_and(|most| self.now.saturating_sub(at) > most) {
            RetentionBound::Age
        } else if over(kept.jobs, here.len()) {
            RetentionBound::Jobs
        } else if over(kept.bytes, bytes) {
            RetentionBound::Bytes
        } else {
            return None;
        };
        Some((id, bound))
    }

    /// A dead job goes; whoever waited behind it does no longer.
    fn bury(&mut self, id: JobId, flow: &'static str) {
        let Some(job) = self.jobs.remove(&id) else { return };
        self.gone.push(id);
        self.drop_key(id);
        if let Some(line) = job.line() {
            self.promote(&line);
        }
        self.count((job.queue, job.kind), vec![flow]);
    }
}
