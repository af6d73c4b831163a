//! P6, P7: whatever happens in between (duplicates, crashes, power cuts in the middle of a commit, leases
//! that ended, keys that expire), each key that is done has had its effect once.
//!
//! `REDRIVE_MODEL_SEED` repeats a run, `REDRIVE_MODEL_RUNS` sets how many there are.

use std::collections::{BTreeMap, BTreeSet};

use redrive::testing::{CrashDisk, Survival};
use redrive::{
    ClaimRequest, Completion, EffectTable, Enqueued, Failure, JobId, JobPolicy, JobState, Lease,
    ManualClock, NewJob, OnDuplicate, OnUnknown, Options, QueuePolicy, Redrive, Schedule,
};

use crate::support::{Random, check, number, secs, seed};

/// How often each key had its effect.
const EFFECTS: EffectTable<str, u64> = EffectTable::new("effects");
const KEYS: u64 = 5;

struct World {
    random: Random,
    disk: CrashDisk,
    clock: std::sync::Arc<ManualClock>,
    jobs: Redrive,
    held: Vec<Lease>,
    /// Jobs that were accepted and have not been seen done; the key of each.
    open: BTreeMap<JobId, String>,
    /// Jobs that were seen done; how many, by key.
    ended: BTreeSet<JobId>,
    done: BTreeMap<String, u64>,
    /// What has happened, so that the test can tell whether it tests anything.
    seen: BTreeMap<&'static str, u64>,
}

fn open(disk: &CrashDisk, clock: &std::sync::Arc<ManualClock>) -> Redrive {
    Options::new().clock(clock.clone()).open_backend(disk.backend()).unwrap()
}

impl World {
    fn new(seed: u64) -> Self {
        let (disk, clock) = (CrashDisk::new(), ManualClock::new());
        let jobs = open(&disk, &clock);
        let policy = JobPolicy::new()
            .max_deliveries(8)
            .schedule(Schedule::list([secs(1)]).jitter_percent(0))
            .lease(secs(10))
            .keep_key_after_done(secs(60))
            .keep_finished(secs(0))
            .on_unknown(OnUnknown::Retry);
        jobs.set_queue("q", QueuePolicy::new().jobs(policy)).unwrap();
        Self {
            random: Random(seed),
            disk,
            clock,
            jobs,
            held: Vec::new(),
            open: BTreeMap::new(),
            ended: BTreeSet::new(),
            done: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn note(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    fn step(&mut self) {
        // Sometimes the power goes in the middle of what comes next.
        if self.random.below(12) == 0 {
            let within = self.random.below(30);
            self.disk.cut_at(self.disk.operations() + within);
        }
        match self.random.below(16) {
            0..=4 => self.enqueue(),
            5..=7 => self.claim(),
            8..=11 => self.complete(),
            12 => self.fail(),
            // Leases end, retries come due, keys expire.
            13 => self.advance(1),
            14 => self.advance(10),
            _ => self.advance(60),
        }
        if self.jobs.poisoned().is_some() || self.random.below(20) == 0 {
            self.crash();
        }
        self.compare();
    }

    fn enqueue(&mut self) {
        let key = format!("K{}", self.random.below(KEYS));
        let choice = match self.random.below(4) {
            0 => OnDuplicate::Replace,
            1 => OnDuplicate::AfterDead,
            _ => OnDuplicate::Return,
        };
        let job = NewJob::new("q", "k").key(key.as_str()).bytes(key.as_str()).on_duplicate(choice);
        match self.jobs.enqueue(job) {
            Ok(Enqueued::New(id)) => drop(self.open.insert(id, key)),
            Ok(Enqueued::Duplicate { of, .. }) => {
                let known = self.open.contains_key(&of) || self.jobs.job(of).unwrap().is_some();
                assert!(known, "a duplicate of a job that nobody knows: {of}");
                self.note("duplicate");
            }
            Ok(_) => self.note("replaced"),
            Err(error) => assert!(self.jobs.poisoned().is_some(), "{error}"),
        }
    }

    fn claim(&mut self) {
        let count = 1 + usize::try_from(self.random.below(3)).unwrap();
        if let Ok(leases) = self.jobs.claim(ClaimRequest::new("q").up_to(count)) {
            self.held.extend(leases);
        }
    }

    fn lease(&mut self) -> Option<Lease> {
        let count = u64::try_from(self.held.len()).unwrap();
        let place = self.random.next().checked_rem(count)?;
        Some(self.held.swap_remove(usize::try_from(place).unwrap()))
    }

    /// The effect: one more for the key. Whether the lease is still good is the store's business.
    fn complete(&mut self) {
        let Some(lease) = self.lease() else { return };
        let key = lease.key().unwrap().to_owned();
        let Ok(before) = self.jobs.read(|reader| reader.get(EFFECTS, key.as_str())) else { return };
        let effect = Completion::new().put(EFFECTS, key.as_str(), &(before.unwrap_or(0) + 1));
        match lease.complete_with(effect) {
            Ok(()) => {}
            Err(_) if self.jobs.poisoned().is_some() => self.note("cut in a completion"),
            Err(error) => {
                assert!(error.to_string().contains("lease"), "{error}");
                self.note("stale");
            }
        }
    }

    fn fail(&mut self) {
        let Some(lease) = self.lease() else { return };
        let failure = match self.random.below(3) {
            0 => Failure::permanent("E"),
            1 => Failure::ambiguous("lost"),
            _ => Failure::transient("down"),
        };
        drop(lease.fail(failure));
    }

    fn advance(&self, seconds: u64) {
        self.clock.advance(secs(seconds));
        drop(self.jobs.sweep());
    }

    /// The process dies, or the power goes.
    fn crash(&mut self) {
        let survival = match self.random.below(4) {
            0 => Survival::Nothing,
            1 => Survival::Some(self.random.next()),
            2 => Survival::Torn(self.random.next()),
            _ => Survival::Everything,
        };
        let disk = CrashDisk::from_image(self.disk.image(survival));
        drop(self.jobs.clone().close());
        self.held.clear();
        (self.jobs, self.disk) = (open(&disk, &self.clock), disk);
        self.note("crash");
        self.adopt();
    }

    /// Takes note of jobs that an enqueue has left whose answer was lost.
    fn adopt(&mut self) {
        for key in (0..KEYS).map(|key| format!("K{key}")) {
            let info = self.jobs.key("q", &key).unwrap();
            if let Some(info) = info.filter(|info| !self.ended.contains(&info.owner)) {
                self.open.entry(info.owner).or_insert(key);
            }
        }
    }

    fn compare(&mut self) {
        let open: BTreeSet<JobId> = self.open.keys().copied().collect();
        for id in open {
            let info = self.jobs.job(id).unwrap();
            if info.as_ref().is_some_and(|info| info.state == JobState::Done) {
                let key = self.open.remove(&id).unwrap();
                self.ended.insert(id);
                *self.done.entry(key).or_default() += 1;
            }
        }
        let effects = self.jobs.read(|reader| reader.range(EFFECTS, .., 100)).unwrap();
        let effects: BTreeMap<String, u64> = effects.into_iter().collect();
        assert_eq!(effects, self.done, "effects, and jobs done, by key");
        let sum: u64 = effects.values().sum();
        assert_eq!(sum, self.jobs.stats().unwrap().total.flow("completed"));
    }
}

#[test]
fn p6_effects_of_keys_happen_once_each_whatever_happens_in_between() {
    let seed = seed("REDRIVE_MODEL_SEED");
    println!("REDRIVE_MODEL_SEED={seed}");
    let (mut seen, mut done) = (BTreeMap::<&str, u64>::new(), 0);
    for run in 0..number("REDRIVE_MODEL_RUNS", 30) {
        let mut world = World::new(seed.wrapping_add(run));
        for _ in 0..150 {
            world.step();
        }
        check(&world.jobs);
        for (what, count) in world.seen {
            *seen.entry(what).or_default() += count;
        }
        done += world.done.values().sum::<u64>();
    }
    println!("{done} done; {seen:?}");
    for what in ["duplicate", "replaced", "stale", "crash", "cut in a completion"] {
        assert!(seen.contains_key(what), "{what} never happened: {seen:?}");
    }
    assert!(done > 100, "{done}");
}
