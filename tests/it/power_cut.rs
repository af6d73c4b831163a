//! A power cut in every write and every sync of a script (P1, P2). What is left is opened again and
//! must be what the model says: everything acknowledged, and the one call in flight whole or absent.
//!
//! The main test tries every cut. The others take every few, from a place that differs from run to
//! run (`REDRIVE_POWER_CUT_SEED`); with `REDRIVE_POWER_CUT=full` they try every cut too.

use std::sync::OnceLock;
use std::time::Duration;

use redrive::testing::{
    Ack, Brakes, CrashDisk, Fault, Harness, Item, Model, Op, Pausing, Survival, When,
    ops_from_bytes,
};
use redrive::{Durability, FailureClass, ManualClock, NewJob, OnDuplicate, Options};

use crate::support::{Random, seed};

const FLUSH_EVERY_MS: u64 = 1_000;

/// About a hundred steps, always the same ones: the first sequence of chance in which everything happens
/// that a cut could come between, then a cohort, then outcomes that nobody knows.
fn script() -> Vec<Op> {
    static SCRIPT: OnceLock<Vec<Op>> = OnceLock::new();
    let whole = |mut ops: Vec<Op>| {
        ops.extend(cohort());
        ops.extend(doubt());
        ops
    };
    let first = || {
        let mut telling = (0..).map(steps).filter(|ops| is_telling(ops)).map(whole);
        telling.find(|ops| sends_back(&recorded(CrashDisk::new(), Durability::Immediate, ops)))
    };
    SCRIPT.get_or_init(|| first().expect("there is one")).clone()
}

fn recorded(disk: CrashDisk, durability: Durability, ops: &[Op]) -> Harness {
    let mut harness = Harness::recorded(disk, durability).expect("opens");
    for op in ops {
        harness.run(op).expect("agrees with the model");
    }
    harness
}

/// Whether the cohort went its way: what chance has left in line can come between.
fn sends_back(harness: &Harness) -> bool {
    harness.jobs().stats().expect("reads").total.flow("redriven") > 2
}

/// Steps that make the same commits in every run: a killed process goes on with a copy of the disk,
/// and a dropped lease is sometimes given back in a commit of its own.
fn steps(seed: u64) -> Vec<Op> {
    let ops = ops_from_bytes(&Random(seed).bytes(2_000));
    let ops = ops.into_iter().filter(|op| match op {
        Op::Kill | Op::Drop { .. } => false,
        Op::Churn { times, .. } => *times < 4,
        // One that is refused gives its lease back, as a drop does.
        Op::CompleteWith { fault, follow_ups, .. } => {
            *fault == Fault::None && follow_ups.iter().all(|item| item.key.is_none() && !item.bad)
        }
        _ => true,
    });
    ops.take(80).collect()
}

/// A script without these would say nothing of them.
fn is_telling(ops: &[Op]) -> bool {
    let count = |of: fn(&Op) -> bool| ops.iter().filter(|op| of(op)).count();
    let effects = |op: &Op| matches!(op, Op::CompleteWith { changes, .. } if !changes.is_empty());
    let ordered = |op: &Op| matches!(op, Op::Enqueue(item) if item.order == Some(0));
    let batches = |op: &Op| matches!(op, Op::Claim { jobs: 2.., followers: true, .. });
    let marked = |op: &Op| matches!(op, Op::Step { changes, .. } if !changes.is_empty());
    let pauses = |op: &Op| matches!(op, Op::Pause { .. });
    let holds = |op: &Op| matches!(op, Op::Throttle { .. });
    let emitted = |op: &Op| matches!(op, Op::Enqueue(Item { queue: 2, bad: false, .. }));
    let relayed = |op: &Op| matches!(op, Op::Claim { queue: 2, kinds: 0, .. });
    let transactions = |op: &Op| matches!(op, Op::Transact { gives_up: false, .. });
    count(effects) > 1
        && count(marked) > 1
        && count(transactions) > 1
        && count(ordered) > 3
        && count(batches) > 2
        && count(pauses) > 0
        && count(holds) > 0
        && count(emitted) > 2
        && count(relayed) > 0
}

/// Four jobs that are ahead of all others, and a claim for them.
fn four(rules: usize) -> (Op, impl Fn(usize) -> Op) {
    let item = Item {
        queue: 1,
        kind: 2,
        key: None,
        on_duplicate: OnDuplicate::Return,
        payload: 0,
        priority: 255,
        when: When::Now,
        rules: Some(rules),
        order: None,
        bad: false,
    };
    let claim = |jobs| Op::Claim { queue: 1, kinds: 4, reconciles: 4, jobs, followers: false };
    (Op::EnqueueMany { items: vec![item; 4], all_or_nothing: true }, claim)
}

/// Outcomes become unknown and are reconciled: one happened, one did not, one stays unknown, and the
/// lease of one ends.
fn doubt() -> Vec<Op> {
    let (enqueue, claim) = four(6);
    let lost = Op::Fail { lease: 0, class: FailureClass::Ambiguous, retry_after_ms: None, text: 0 };
    let mut ops = vec![Op::Reopen, enqueue, claim(4)];
    ops.extend(vec![lost; 3]);
    ops.extend([Op::Advance { ms: 1_000 }, claim(4)]);
    ops.extend([0, 1, 2].map(|answer| Op::Reconcile { lease: 0, answer }));
    ops.extend([claim(2), Op::Complete { lease: 0, result: None }]);
    ops
}

/// Four jobs die and go back as a cohort: one is done, one dies again, and is discarded; one is amended.
fn cohort() -> Vec<Op> {
    let (enqueue, claim) = four(0);
    let resume = |queue, kind| Op::Resume { scope: Pausing { redrive: false, queue, kind } };
    let go_on = Pausing { redrive: true, queue: 1, kind: None };
    let go_on_class = Pausing { redrive: true, queue: 1, kind: Some(2) };
    let fail = Op::Fail { lease: 0, class: FailureClass::Permanent, retry_after_ms: None, text: 1 };
    let complete = Op::Complete { lease: 0, result: None };
    let brakes = Brakes {
        queue: Some(1),
        code: None,
        canary: 1,
        batch: 2,
        ramp_to: 0,
        every_ms: 10,
        in_flight_max: 0,
        limit: None,
        reconciled: true,
        dead_percent: Some(60),
        same_cause: None,
        bad: false,
    };
    let amend = Op::Amend { job: usize::MAX, payload: 3 };
    let mut ops = vec![
        Op::Reopen,
        resume(1, None),
        resume(1, Some(2)),
        Op::Resume { scope: go_on },
        Op::Resume { scope: go_on_class },
        enqueue,
        claim(4),
    ];
    ops.extend(vec![fail.clone(); 4]);
    ops.extend([amend, Op::Redrive(brakes), claim(1), complete.clone()]);
    ops.extend([claim(2), complete, fail, Op::Advance { ms: 10 }, claim(2)]);
    ops.push(Op::Discard { job: usize::MAX - 1 });
    ops
}

struct Recording {
    disk: CrashDisk,
    acks: Vec<Ack>,
}

impl Recording {
    fn new(durability: Durability) -> Self {
        let disk = CrashDisk::new().recording();
        let mut harness = recorded(disk.clone(), durability, &script());
        assert!(sends_back(&harness));
        let acks = harness.acks().to_vec();
        harness.close().expect("closes");
        Self { disk, acks }
    }

    /// Every change of the disk after the creation of the store.
    fn cuts(&self) -> Vec<u64> {
        (self.acks[0].operations..self.disk.operations()).collect()
    }

    /// The place of the last acknowledgement before the cut.
    fn acked(&self, cut: u64) -> usize {
        self.acks.partition_point(|ack| ack.operations <= cut) - 1
    }

    /// The model after the call in flight, if there was one.
    fn in_flight(&self, cut: u64) -> &Model {
        let next = (self.acked(cut) + 1).min(self.acks.len() - 1);
        &self.acks[next].model
    }

    fn image(&self, cut: u64, survival: Survival) -> CrashDisk {
        let cut = usize::try_from(cut).expect("small");
        CrashDisk::from_image(self.disk.image_at(cut, survival))
    }

    /// Opens what the cut left; it must hold what was acknowledged, and perhaps the call in flight.
    fn check(&self, disk: &CrashDisk, cut: u64, what: &str) {
        let acked = &self.acks[self.acked(cut)].model;
        let next = self.in_flight(cut);
        if let Err(differences) = Harness::recovered(disk, next, &[next, acked]) {
            panic!("cut in change {cut}, {what}: {differences}");
        }
    }
}

fn survivals(cut: u64) -> [Survival; 5] {
    [
        Survival::Nothing,
        Survival::Some(cut),
        Survival::Torn(cut),
        Survival::Torn(!cut),
        Survival::Everything,
    ]
}

/// All of `cuts` on demand, otherwise every `stride`th of them.
fn thinned(cuts: Vec<u64>, stride: usize) -> Vec<u64> {
    if std::env::var("REDRIVE_POWER_CUT").is_ok_and(|wish| wish == "full") {
        return cuts;
    }
    let stride = stride.max(1);
    let seed = seed("REDRIVE_POWER_CUT_SEED");
    println!("REDRIVE_POWER_CUT_SEED={seed}");
    let start = usize::try_from(seed % 1_000).expect("small") % stride;
    cuts.into_iter().skip(start).step_by(stride).collect()
}

fn in_two_threads(cuts: &[u64], check: impl Fn(u64) + Sync) {
    let (left, right) = cuts.split_at(cuts.len() / 2);
    std::thread::scope(|scope| {
        for half in [left, right] {
            scope.spawn(|| half.iter().for_each(|&cut| check(cut)));
        }
    });
}

#[test]
fn what_was_acknowledged_survives_a_cut_in_any_write_or_sync() {
    let recording = Recording::new(Durability::Immediate);
    let cuts = thinned(recording.cuts(), 1);
    println!("{} cuts of {}", cuts.len(), recording.cuts().len());
    in_two_threads(&cuts, |cut| {
        for survival in survivals(cut) {
            let disk = recording.image(cut, survival);
            recording.check(&disk, cut, &format!("{survival:?}"));
        }
    });
}

#[test]
fn a_second_cut_during_the_recovery_loses_nothing_either() {
    let recording = Recording::new(Durability::Immediate);
    let cuts = thinned(recording.cuts(), 41);
    in_two_threads(&cuts, |cut| {
        let disk = recording.image(cut, Survival::Torn(cut)).recording();
        recording.check(&disk, cut, "first recovery");
        for again in (0..disk.operations()).step_by(3) {
            let place = usize::try_from(again).expect("small");
            let left = CrashDisk::from_image(disk.image_at(place, Survival::Torn(again)));
            recording.check(&left, cut, &format!("cut again in change {again}"));
        }
    });
}

/// The process is killed, another one opens the store, and while it recovers the power goes: what the
/// dead one had written without a sync was readable then and is gone now.
#[test]
fn a_cut_after_a_kill_loses_nothing_either() {
    let recording = Recording::new(Durability::Immediate);
    let cuts = thinned(recording.cuts(), 17);
    in_two_threads(&cuts, |cut| {
        let disk = recording.disk.killed_at(usize::try_from(cut).expect("small"));
        let inherited = disk.operations();
        recording.check(&disk, cut, "after the kill");
        for again in (inherited..disk.operations()).step_by(2) {
            let place = usize::try_from(again).expect("small");
            for survival in [Survival::Nothing, Survival::Some(again), Survival::Torn(again)] {
                let left = CrashDisk::from_image(disk.image_at(place, survival));
                recording.check(&left, cut, &format!("cut in change {again}, {survival:?}"));
            }
        }
    });
}

/// The recording looks back at cuts that never happened; real ones end the calls in flight, and
/// leave no less.
#[test]
fn a_real_cut_ends_the_calls_and_leaves_what_was_acknowledged() {
    let recording = Recording::new(Durability::Immediate);
    for cut in thinned(recording.cuts(), 23) {
        let disk = CrashDisk::new();
        disk.cut_at(cut);
        let mut harness = Harness::recorded(disk.clone(), Durability::Immediate).expect("opens");
        let stopped = script().iter().find_map(|op| harness.run(op).err());
        assert!(stopped.is_some() || harness.close().is_err());
        let acks = harness.acks();
        let acked = &acks[acks.len() - 1].model;
        let next = &recording.acks[acks.len().min(recording.acks.len() - 1)].model;
        for survival in survivals(cut) {
            let left = CrashDisk::from_image(disk.image(survival));
            if let Err(differences) = Harness::recovered(&left, next, &[next, acked]) {
                panic!("cut in change {cut}, {survival:?}: {differences}");
            }
        }
    }
}

/// Deferred commits: a cut takes back whole calls, the latest ones only, and none that was
/// answered longer ago than the stated time.
#[test]
fn deferred_durability_loses_a_bounded_suffix_of_calls() {
    let durability = Durability::Deferred { flush_every_ms: FLUSH_EVERY_MS };
    let recording = Recording::new(durability);
    let lost_most = std::sync::atomic::AtomicUsize::new(0);
    in_two_threads(&thinned(recording.cuts(), 2), |cut| {
        let last = recording.acked(cut);
        let now_ms = recording.acks[last].model.monotonic_ms();
        let old = |ack: &Ack| ack.model.monotonic_ms() + FLUSH_EVERY_MS <= now_ms;
        let sure = recording.acks.iter().rposition(old).unwrap_or(0);
        let next = recording.in_flight(cut);
        let mut candidates = vec![next];
        candidates.extend(recording.acks[sure..=last].iter().rev().map(|ack| &ack.model));
        for survival in survivals(cut) {
            let disk = recording.image(cut, survival);
            match Harness::recovered(&disk, next, &candidates) {
                Ok(place) => {
                    lost_most.fetch_max(place, std::sync::atomic::Ordering::Relaxed);
                }
                Err(differences) => panic!("cut in change {cut}, {survival:?}: {differences}"),
            }
        }
    });
    // Otherwise the commits were not deferred and the test says nothing.
    assert!(lost_most.into_inner() > 2);
}

/// The flush comes by itself, also when nothing more is written.
#[test]
fn a_deferred_commit_is_flushed_in_time_without_further_writes() {
    let disk = CrashDisk::new();
    let clock = ManualClock::new();
    let options = Options::new()
        .clock(clock.clone())
        .durability(Durability::Deferred { flush_every_ms: FLUSH_EVERY_MS });
    let jobs = options.open_backend(disk.backend()).expect("opens");
    let id = jobs.enqueue(NewJob::new("mail", "welcome")).expect("accepts").job();
    clock.advance(Duration::from_millis(FLUSH_EVERY_MS));
    jobs.sweep().expect("sweeps");
    let left = CrashDisk::from_image(disk.image(Survival::Nothing));
    let after = Options::new().open_backend(left.backend()).expect("opens");
    assert!(after.job(id).expect("reads").is_some());
}
