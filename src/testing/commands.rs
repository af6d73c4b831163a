//! The calls of the reference model, each within one round.

use crate::domain::id::JobId;
use crate::domain::job::{JobState, Lane};
use crate::domain::key::Asked;
use crate::error::EnqueueError;
use crate::testing::harness::text;
use crate::testing::life::{Ending, Hold, Life, Place, Spot};
use crate::testing::model::{ClassKey, Lease, Model, state};
use crate::testing::op::{Item, KINDS, Retained};
use crate::testing::report::{COMPLETED_AFTER, attempts};
use crate::testing::rules::{RULES, Rules};
use crate::writer::command::Enqueued;

/// What an enqueue is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Accepted {
    New(JobId),
    Duplicate(JobId, JobState, Option<Vec<u8>>),
    Replaced(JobId),
    Conflict(String, JobId, JobState),
    ConflictInCall(String, usize),
    BadKey,
    Withheld(usize),
}

pub(super) fn accepted(answer: Result<Enqueued, EnqueueError>) -> Result<Accepted, String> {
    Ok(match answer {
        Ok(Enqueued::New(id)) => Accepted::New(id),
        Ok(Enqueued::Duplicate { of, state, result }) => Accepted::Duplicate(of, state, result),
        Ok(Enqueued::Replaced(id)) => Accepted::Replaced(id),
        Err(error) => refused(error)?,
    })
}

/// Why a job was not accepted.
pub(super) fn refused(error: EnqueueError) -> Result<Accepted, String> {
    Ok(match error {
        EnqueueError::KeyConflict { key, owner, state } => Accepted::Conflict(key, owner, state),
        EnqueueError::KeyConflictInCall { key, earlier } => Accepted::ConflictInCall(key, earlier),
        EnqueueError::BadName { .. } => Accepted::BadKey,
        EnqueueError::Withheld { refused } => Accepted::Withheld(refused),
        error => return Err(text(error)),
    })
}

impl Model {
    pub(super) fn enqueue(&mut self, item: &Item) -> Accepted {
        if let Some(answer) = self.under_its_key(item) {
            return answer;
        }
        let id = JobId::new(self.next);
        let seq = self.next;
        self.next += 1;
        let due = self.due(item);
        let lane = Lane::Fresh;
        let place = if due > self.now {
            Place::Delayed { lane, due }
        } else {
            Place::Ready(Spot { lane, seq })
        };
        let default = self.queues.get(item.queue).map(|queue| queue.0);
        let own = item.rules.and_then(|rules| RULES.get(rules % RULES.len()));
        if !self.kinds.contains(&item.kind) {
            self.kinds.push(item.kind);
        }
        self.classes.insert((item.queue, item.kind));
        self.count((item.queue, item.kind), vec!["enqueued"]);
        self.met.insert(id, (item.queue, item.kind));
        if let Some(rules) = own.copied().or(default) {
            let halts = self.queues.get(item.queue).is_some_and(|queue| queue.2);
            let mut life = Life { halts, ..item.life(id, self.now, rules, place) };
            self.posted(&mut life, item);
            self.jobs.insert(id, life);
            self.take_key(id);
            self.arrange(id, false);
        }
        Accepted::New(id)
    }

    /// All of them or none; what the first refused one says stands for it.
    pub(super) fn enqueue_all(&mut self, items: &[Item]) -> Vec<Accepted> {
        match self.first_refusal(items) {
            None => items.iter().map(|item| self.enqueue(item)).collect(),
            Some((refused, why)) => (0..items.len())
                .map(
                    |place| {
                        if place == refused { why.clone() } else { Accepted::Withheld(refused) }
                    },
                )
                .collect(),
        }
    }

    pub(super) fn claim(
        &mut self,
        queue: usize,
        (kinds, reconciles): (&[usize], &[usize]),
        jobs: usize,
        followers: bool,
        worker: &str,
    ) -> Vec<JobId> {
        let mut claimed = Vec::new();
        while claimed.len() < jobs
            && let Some((id, spot)) = self.best(queue, kinds, reconciles)
        {
            let by_itself = followers && self.jobs.get(&id).is_some_and(Life::runs_by_itself);
            if by_itself && !claimed.is_empty() {
                break;
            }
            let alone = !followers || !self.may_lead(id, spot);
            self.lease(id, spot, worker);
            claimed.push(id);
            if by_itself {
                break;
            }
            while !alone
                && claimed.len() < jobs
                && let Some((id, spot)) = self.follower(id)
            {
                self.lease(id, spot, worker);
                claimed.push(id);
            }
        }
        claimed
    }

    fn lease(&mut self, id: JobId, from: Spot, worker: &str) {
        let (now, mono) = (self.now, self.mono);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        job.deliveries += 1;
        job.place = Place::Leased(Hold {
            from,
            at: now,
            deadline: now + job.rules.lease_ms,
            worker: worker.to_owned(),
            cancel: false,
        });
        let hard_end = job.rules.deadline_ms.map(|ms| mono + ms);
        let lease = Lease {
            delivery: job.deliveries,
            ends: (mono + job.rules.lease_ms).min(hard_end.unwrap_or(u64::MAX)),
            length: job.rules.lease_ms,
            hard_end,
        };
        let class = (job.queue, job.kind);
        self.looks.insert((lease.ends, id, lease.delivery));
        self.leases.insert(id, lease);
        self.count(class, vec!["claimed"]);
    }

    /// Highest priority first, then longest in line; a retry or a reconciliation only within their
    /// share while fresh work waits; a suspect only when no other is in flight anywhere; what waits for
    /// a reconciler only for one.
    fn best(&self, queue: usize, kinds: &[usize], reconciles: &[usize]) -> Option<(JobId, Spot)> {
        const SUSPECT: [Lane; 2] = [Lane::Suspect, Lane::SuspectReconcile];
        const AGAIN: [Lane; 2] = [Lane::Retry, Lane::Reconcile];
        const ASKED: [Lane; 2] = [Lane::Reconcile, Lane::SuspectReconcile];
        let suspects = self.held_in(None, &SUSPECT);
        let mut ready: Vec<(u8, u64, JobId, Spot)> = Vec::new();
        for job in self.jobs.values().filter(|job| job.queue == queue) {
            if let Place::Ready(spot) = job.place
                && match ASKED.contains(&spot.lane) {
                    true => reconciles.contains(&job.kind),
                    false => kinds.is_empty() || kinds.contains(&job.kind),
                }
                && !self.stopped((job.queue, job.kind))
                && !(SUSPECT.contains(&spot.lane) && suspects > 0)
            {
                ready.push((u8::MAX - job.priority, spot.seq, job.id, spot));
            }
        }
        let fresh_waits = ready.iter().any(|(.., spot)| spot.lane == Lane::Fresh);
        let retries = self.held_in(Some(queue), &AGAIN);
        let held = self.held_in(Some(queue), &Lane::ALL);
        let share = self.queues.get(queue).map_or(0, |queue| queue.1);
        let within = (retries + 1) * 100 <= share * (held + 1) || (retries == 0 && share > 0);
        ready.retain(|(.., spot)| !AGAIN.contains(&spot.lane) || !fresh_waits || within);
        ready.sort_unstable_by_key(|&(priority, seq, ..)| (priority, seq));
        ready.first().map(|&(_, _, id, spot)| (id, spot))
    }

    fn held_in(&self, queue: Option<usize>, lanes: &[Lane]) -> u64 {
        let held = self.jobs.values().filter(|job| {
            queue.is_none_or(|queue| queue == job.queue)
                && job.hold().is_some_and(|hold| lanes.contains(&hold.from.lane))
        });
        held.map(|_| 1).sum()
    }

    /// Whether delivery `delivery` of the job is its present lease.
    pub(super) fn current(&self, id: JobId, delivery: u32) -> bool {
        let job = self.jobs.get(&id);
        job.is_some_and(|job| job.hold().is_some() && job.deliveries == delivery)
    }

    /// The class of a job that there is or was.
    pub(super) fn class_of(&self, id: JobId) -> Option<ClassKey> {
        self.met.get(&id).copied()
    }

    /// The job's present lease.
    pub(super) fn lease_of(&self, id: JobId) -> Option<u32> {
        let job = self.jobs.get(&id)?;
        job.hold().map(|_| job.deliveries)
    }

    pub(super) fn complete(&mut self, id: JobId, result: Option<Vec<u8>>) -> Option<JobState> {
        let now = self.now;
        let job = self.jobs.get_mut(&id)?;
        let (class, tries) = ((job.queue, job.kind), job.attempts + 1);
        let hold = job.hold().cloned();
        let counted = job.complete(now, result);
        self.leases.remove(&id);
        if let Some(hold) = hold {
            self.worked(class, &hold, u64::MAX);
        }
        self.add(class, attempts(COMPLETED_AFTER, tries), 1);
        self.count(class, counted);
        self.owed(id);
        self.arrange(id, true);
        Some(JobState::Done)
    }

    pub(super) fn settle(&mut self, id: JobId, ending: &Ending) -> Option<JobState> {
        self.end(id, ending)
    }

    pub(super) fn stale(&mut self, class: ClassKey) {
        self.count(class, vec!["stale_calls_refused"]);
    }

    /// Left, cancel requested, deadline passed; `None` when the token is not current.
    pub(super) fn heartbeat(&mut self, id: JobId, delivery: u32) -> Option<(u64, bool, bool)> {
        let cancel = self.jobs.get(&id)?.hold()?.cancel;
        let mono = self.mono;
        let lease = self.leases.get_mut(&id)?;
        if lease.delivery != delivery {
            return None;
        }
        let full = (mono + lease.length).min(lease.hard_end.unwrap_or(u64::MAX));
        lease.ends = lease.ends.max(full);
        let passed = lease.hard_end.is_some_and(|end| end <= mono);
        Some((lease.ends - mono, cancel, passed))
    }

    /// `Ok(true)` when it was cancelled at once; `Err` holds the state that forbids it.
    pub(super) fn cancel(&mut self, id: JobId) -> Result<bool, Option<JobState>> {
        let now = self.now;
        let job = self.jobs.get_mut(&id).ok_or(None)?;
        let at_once = match job.place {
            Place::Ready(_) | Place::Delayed { .. } | Place::Blocked { .. } => true,
            Place::Leased(_) => false,
            Place::Done { .. } | Place::Cancelled { .. } | Place::Dead(_) => {
                return Err(Some(state(job)));
            }
        };
        let (class, counted) = ((job.queue, job.kind), job.cancel(now));
        self.count(class, counted);
        self.owed(id);
        self.arrange(id, true);
        Ok(at_once)
    }

    pub(super) fn set_queue(
        &mut self,
        queue: usize,
        rules: Option<Rules>,
        share: Option<u8>,
        halt: Option<bool>,
        retention: Option<Retained>,
    ) {
        if let Some(queue) = self.queues.get_mut(queue) {
            queue.0 = rules.unwrap_or(queue.0);
            queue.1 = share.map_or(queue.1, u64::from);
            queue.2 = halt.unwrap_or(queue.2);
        }
        if let (Some(kept), Some(retention)) = (self.kept.get_mut(queue), retention) {
            *kept = retention;
        }
        self.wrote = true;
    }
}

impl Item {
    pub(super) fn key(&self) -> Option<String> {
        self.key.map(|key| format!("key-{key}"))
    }

    pub(super) fn order_key(&self) -> Option<String> {
        self.order.map(|order| format!("order-{order}"))
    }

    /// Lengths on both sides of the one from which payloads live in a table of their own.
    pub(super) fn payload(&self) -> Vec<u8> {
        let bytes = match self.payload % 8 {
            0..=3 => 3,
            4 => 0,
            5 => 512,
            6 => 513,
            _ => 5_000,
        };
        vec![self.payload / 4; bytes]
    }

    pub(super) fn kind_name(&self) -> &'static str {
        KINDS.get(self.kind).copied().unwrap_or_default()
    }

    fn life(&self, id: JobId, now: u64, rules: Rules, place: Place) -> Life {
        Life {
            id,
            queue: self.queue,
            kind: self.kind,
            key: self.key(),
            payload: self.payload(),
            priority: self.priority,
            enqueued_at: now,
            rules,
            deliveries: 0,
            attempts: 0,
            transient: 0,
            throttled: 0,
            ambiguous: 0,
            crashes: 0,
            snoozes: 0,
            releases: 0,
            redrives: 0,
            cohort: None,
            amended: false,
            unknown: None,
            reconciles: 0,
            asked: Asked::default(),
            previous: None,
            taken_by: None,
            first_failed_at: None,
            history: Vec::new(),
            steps: std::collections::BTreeMap::new(),
            place,
            order: self.order_key(),
            sequence: None,
            headers: Vec::new(),
            halts: false,
            import: None,
        }
    }
}
