//! The reference model: the whole queue as plain maps, one command at a time.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::id::JobId;
use crate::domain::job::{JobState, Lane};
use crate::domain::retention::RetentionBound;
use crate::domain::time::Timestamp;
use crate::testing::cohort::Herd;
use crate::testing::effects::EffectRows;
use crate::testing::life::{Counted, Ending, Hold, Life, Place, Spot};
use crate::testing::op::{QUEUES, Retained};
use crate::testing::outbox::Outbox;
use crate::testing::pause::Stops;
use crate::testing::report::{DIED_AFTER, Log, attempts};
use crate::testing::rules::{PLAIN, Rules};

/// Queue and kind, by their place among the names in play.
pub(super) type ClassKey = (usize, usize);

/// The reference model of one store.
#[derive(Clone, Debug)]
pub struct Model {
    pub(super) wall: u64,
    pub(super) mono: u64,
    /// The store's own time.
    pub(super) now: u64,
    seen_wall: u64,
    seen_mono: u64,
    /// The time of the last commit.
    latest: u64,
    /// The wall clock at that commit.
    latest_wall: u64,
    pub(super) next: u64,
    pub(super) jobs: BTreeMap<JobId, Life>,
    /// Ids of rows that are gone.
    pub(super) gone: Vec<JobId>,
    /// The class of every job there ever was.
    pub(super) met: BTreeMap<JobId, ClassKey>,
    /// Rules, retry share, whether a dead job halts its ordering key.
    pub(super) queues: [(Rules, u64, bool); QUEUES.len()],
    /// What is kept of the dead jobs of each queue.
    pub(super) kept: [Retained; QUEUES.len()],
    /// The minute of the latest record of removals for a queue and a bound, in this process.
    pub(super) evictions: BTreeMap<(usize, RetentionBound), u64>,
    pub(super) outbox: Outbox,
    /// In the order in which the store met them.
    pub(super) kinds: Vec<usize>,
    /// Classes that a claim of any kind looks at.
    pub(super) classes: BTreeSet<ClassKey>,
    pub(super) flows: BTreeMap<ClassKey, BTreeMap<&'static str, u64>>,
    pub(super) leases: BTreeMap<JobId, Lease>,
    /// When the store looks at a lease: (time, job, delivery).
    pub(super) looks: BTreeSet<(u64, JobId, u32)>,
    pub(super) refused: u64,
    pub(super) stops: Stops,
    /// Tables of the user's own.
    pub(super) rows: EffectRows,
    /// Who took each key last, by queue; for as long as that job's row is there.
    pub(super) keys: BTreeMap<(usize, String), JobId>,
    pub(super) herds: Vec<Herd>,
    /// Something has happened to a cohort since the last pass, or in it.
    pub(super) restless: bool,
    pub(super) log: Log,
    counted: bool,
    pub(super) wrote: bool,
}

/// A lease in the memory of the process.
#[derive(Clone, Debug)]
pub(super) struct Lease {
    pub(super) delivery: u32,
    pub(super) ends: u64,
    pub(super) length: u64,
    pub(super) hard_end: Option<u64>,
}

impl Model {
    /// A store just created, with both queues set.
    pub(super) fn new(wall: u64, mono: u64) -> Self {
        let mut model = Self {
            wall,
            mono,
            now: wall,
            seen_wall: wall,
            seen_mono: mono,
            latest: 0,
            latest_wall: wall,
            next: 1,
            jobs: BTreeMap::new(),
            gone: Vec::new(),
            met: BTreeMap::new(),
            queues: [(PLAIN, 50, false); QUEUES.len()],
            kept: [Retained::default(); QUEUES.len()],
            evictions: BTreeMap::new(),
            outbox: Outbox::new(),
            kinds: Vec::new(),
            classes: BTreeSet::new(),
            flows: BTreeMap::new(),
            leases: BTreeMap::new(),
            looks: BTreeSet::new(),
            refused: 0,
            stops: Stops::default(),
            rows: EffectRows::new(),
            keys: BTreeMap::new(),
            herds: Vec::new(),
            restless: false,
            log: Log::new(),
            counted: false,
            wrote: true,
        };
        model.commit();
        model
    }

    /// The process died or closed the store with its leases held, and it is opened again.
    pub(super) fn reopen(&mut self, wall: u64, mono: u64) {
        (self.wall, self.mono) = (wall, mono);
        (self.seen_wall, self.seen_mono) = (wall, mono);
        self.now = wall.max(self.latest + wall.saturating_sub(self.latest_wall));
        self.leases.clear();
        self.looks.clear();
        self.refused = 0;
        self.evictions.clear();
        self.classes.extend(self.flows.keys());
        for id in self.leased() {
            self.end(id, &Ending::Crashed);
        }
        // An opening always commits: its number, and the time.
        self.wrote = true;
        self.commit();
    }

    /// The reading of the monotonic clock.
    #[must_use]
    pub fn monotonic_ms(&self) -> u64 {
        self.mono
    }

    /// The time of the last commit.
    pub(super) fn latest(&self) -> u64 {
        self.latest
    }

    /// In the order in which a recovery meets them.
    fn leased(&self) -> Vec<JobId> {
        let held = |job: &Life| job.hold().map(|hold| (hold.deadline, job.id));
        let mut held: Vec<_> = self.jobs.values().filter_map(held).collect();
        held.sort_unstable();
        held.into_iter().map(|(_, id)| id).collect()
    }

    /// One commit: what time has done, then the command.
    pub(super) fn round<T>(&mut self, command: impl FnOnce(&mut Self) -> T) -> T {
        self.look();
        self.sweep();
        let answer = command(self);
        self.commit();
        answer
    }

    /// A commit in which time does nothing.
    pub(super) fn transaction<T>(&mut self, command: impl FnOnce(&mut Self) -> T) -> T {
        let answer = command(self);
        self.commit();
        answer
    }

    fn look(&mut self) {
        let elapsed = self.mono - self.seen_mono;
        let ahead = self.wall.saturating_sub(self.seen_wall);
        let jump = ahead.saturating_sub(elapsed);
        self.now = self.wall.max(self.now + elapsed);
        (self.seen_wall, self.seen_mono) = (self.wall, self.mono);
        if jump > 1_000 {
            self.looks.clear();
            for (&job, lease) in &mut self.leases {
                let grace = lease.ends.min(self.mono + lease.length / 2);
                lease.ends = lease.ends.saturating_sub(jump).max(grace);
                self.looks.insert((lease.ends, job, lease.delivery));
            }
        }
    }

    fn sweep(&mut self) {
        let now = self.now;
        let mut due: Vec<(u64, JobId, Lane)> = Vec::new();
        for job in self.jobs.values() {
            if let Place::Delayed { lane, due: at } = job.place
                && at <= now
            {
                due.push((at, job.id, lane));
            }
        }
        due.sort_unstable_by_key(|&(at, id, _)| (at, id));
        for (_, id, lane) in due {
            let seq = self.next;
            self.next += 1;
            self.counted = true;
            if let Some(job) = self.jobs.get_mut(&id) {
                job.place = Place::Ready(Spot { lane, seq });
            }
        }
        while let Some(&(at, id, delivery)) = self.looks.first()
            && at <= self.mono
        {
            self.looks.pop_first();
            let Some(lease) = self.leases.get(&id).filter(|l| l.delivery == delivery) else {
                continue;
            };
            if lease.ends > self.mono {
                self.looks.insert((lease.ends, id, delivery));
                continue;
            }
            let deadline = lease.hard_end.is_some_and(|end| end <= self.mono);
            self.end(id, &Ending::Expired { deadline });
        }
        self.forget();
        self.end_holds();
        self.evict();
        self.pass();
    }

    fn forget(&mut self) {
        let now = self.now;
        let over = |job: &Life| job.forgotten(now);
        let ids: Vec<JobId> = self.jobs.values().filter(|j| over(j)).map(|j| j.id).collect();
        for id in ids {
            self.jobs.remove(&id);
            self.drop_key(id);
            self.gone.push(id);
            self.counted = true;
        }
    }

    fn commit(&mut self) {
        // A job that nothing needs any longer goes with the commit that finished it.
        self.forget();
        if self.counted || self.wrote {
            self.latest = self.latest.max(self.now);
            self.latest_wall = self.seen_wall;
        }
        (self.counted, self.wrote) = (false, false);
    }

    pub(super) fn count(&mut self, class: ClassKey, flows: Counted) {
        self.flows.entry(class).or_default();
        for flow in flows {
            self.add(class, flow, 1);
        }
        self.wrote = true;
    }

    pub(super) fn add(&mut self, class: ClassKey, flow: &'static str, count: u64) {
        *self.flows.entry(class).or_default().entry(flow).or_default() += count;
        *self.log.entry((self.now / 60_000, class, flow)).or_default() += count;
        self.counted = true;
    }

    /// A lease of the job ends: the time it took, and the attempts if the job has ended, too.
    pub(super) fn worked(&mut self, class: ClassKey, hold: &Hold, known: u64) {
        let flow = match hold.from.lane {
            Lane::Fresh => "worked_ms_fresh",
            Lane::Retry => "worked_ms_retry",
            Lane::Suspect => "worked_ms_suspect",
            Lane::Reconcile | Lane::SuspectReconcile => "worked_ms_reconcile",
        };
        let ms = (self.now - hold.at).min(known);
        if ms > 0 {
            self.add(class, flow, ms);
        }
    }

    /// Ends the present delivery of a leased job.
    pub(super) fn end(&mut self, id: JobId, ending: &Ending) -> Option<JobState> {
        let (now, seq) = (self.now, self.next);
        let job = self.jobs.get_mut(&id)?;
        let hold = job.hold()?.clone();
        let counted = job.end(now, seq, &hold, ending);
        let class = (job.queue, job.kind);
        self.arrange(id, true);
        let job = self.jobs.get(&id)?;
        if let Place::Ready(spot) = job.place {
            self.next = self.next.max(spot.seq + 1);
        }
        let state = state(job);
        let known = match ending {
            Ending::Crashed => job.rules.lease_ms,
            Ending::Failed(..)
            | Ending::Snoozed { .. }
            | Ending::Released
            | Ending::DidNotHappen
            | Ending::Expired { .. } => u64::MAX,
        };
        let ended = (state == JobState::Dead).then(|| attempts(DIED_AFTER, job.attempts));
        self.leases.remove(&id);
        self.worked(class, &hold, known);
        if let Some(flow) = ended {
            self.add(class, flow, 1);
        }
        self.count(class, counted);
        self.counted = true;
        self.owed(id);
        Some(state)
    }
}

pub(super) fn state(job: &Life) -> JobState {
    match job.place {
        Place::Ready(_) => JobState::Ready,
        Place::Delayed { .. } => JobState::Delayed,
        Place::Leased(_) => JobState::Leased,
        Place::Done { .. } => JobState::Done,
        Place::Cancelled { .. } => JobState::Cancelled,
        Place::Dead(_) => JobState::Dead,
        Place::Blocked { .. } => JobState::Blocked,
    }
}

/// A time of the model as the crate says it.
pub(super) const fn time(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}
