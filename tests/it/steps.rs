//! Steps (P6): each is done once over all deliveries of its job, and only under the current lease.

use std::sync::atomic::{AtomicU64, Ordering};

use redrive::{
    ClaimRequest, Completion, EffectTable, Failure, FailureClass, Filter, JobPolicy, JobState,
    Lease, NewJob, OnUnknown, Redrive, Workers,
};
use serde::{Deserialize, Serialize};

use crate::support::{Bench, Random, every_second, secs, seed};

const STOCK: EffectTable<str, u64> = EffectTable::new("stock");

/// Runs the step on `lease`; says whether its body ran.
fn reserve(lease: &Lease, value: u64) -> (Result<u64, Failure>, bool) {
    let mut ran = false;
    let output = lease.step("reserve", |fx| {
        ran = true;
        fx.put(STOCK, "a", &value);
        fx.enqueue(NewJob::new("r", "notify").bytes(value.to_string()));
        Ok(value)
    });
    (output, ran)
}

fn code<T: std::fmt::Debug>(outcome: Result<T, Failure>) -> (FailureClass, String) {
    let failure = outcome.unwrap_err();
    (failure.class(), failure.code().to_owned())
}

/// The saved output comes back on every later delivery, over crashes, restarts and failures.
#[test]
fn p_06_a_step_is_done_once_over_all_deliveries() {
    let mut bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").policy(every_second()));
    let lease = bench.claim_one();
    let (output, ran) = reserve(&lease, 7);
    assert_eq!((output.unwrap(), ran), (7, true));
    // Visible at once, while the job goes on.
    assert_eq!(bench.jobs.read(|r| r.get(STOCK, "a")).unwrap(), Some(7));
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.state, info.steps.len()), (JobState::Leased, 1));
    let step = &info.steps[0];
    assert_eq!((step.name.as_str(), step.delivery, step.output.as_str()), ("reserve", 1, "7"));
    lease.fail(Failure::transient("E")).unwrap();
    bench.advance(1);
    let crashed = bench.claim_one();
    assert_eq!(reserve(&crashed, 8).0.unwrap(), 7);
    std::mem::forget(crashed);
    bench.reopen();
    let last = bench.claim_one();
    let (output, ran) = reserve(&last, 9);
    assert_eq!((output.unwrap(), ran), (7, false));
    assert_eq!(bench.jobs.stats().unwrap().queues["r"].counts.ready, 1);
    last.complete().unwrap();
    assert_eq!(bench.jobs.stats().unwrap().total.flow("steps_committed"), 1);
    bench.check();
}

/// P5: a lease that has ended commits nothing, and is told.
#[test]
fn p_05_a_stale_lease_commits_no_step() {
    let bench = Bench::new();
    bench.add("1");
    let stale = bench.claim_one();
    bench.advance(3_600);
    bench.jobs.sweep().unwrap();
    let stale_lease = (FailureClass::Transient, "stale_lease".to_owned());
    assert_eq!(code(reserve(&stale, 1).0), stale_lease);
    let current = bench.claim_one();
    assert_eq!(code(reserve(&stale, 2).0), stale_lease);
    assert_eq!(bench.jobs.read(|r| r.get(STOCK, "a")).unwrap(), None);
    assert_eq!(reserve(&current, 3).0.unwrap(), 3);
    // What the current one has committed, a stale one may read.
    assert_eq!(reserve(&stale, 4).0.unwrap(), 3);
    assert_eq!(bench.jobs.read(|r| r.get(STOCK, "a")).unwrap(), Some(3));
    bench.check();
}

/// One name, one step: the second use in a delivery is a mistake, told at once; so is a nested one.
#[test]
fn a_name_used_twice_in_a_delivery_is_refused() {
    let bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    let repeated = (FailureClass::Permanent, "step_repeated".to_owned());
    reserve(&lease, 1).0.unwrap();
    let (output, ran) = reserve(&lease, 2);
    assert_eq!((code(output), ran), (repeated.clone(), false));
    let nested = lease.step("outer", |fx| {
        fx.put(STOCK, "outer", &1);
        lease.step("outer", |fx| {
            fx.put(STOCK, "inner", &1);
            Ok(1)
        })
    });
    assert_eq!(code(nested), repeated);
    let found = bench.jobs.read(|r| Ok((r.get(STOCK, "outer")?, r.get(STOCK, "inner")?))).unwrap();
    assert_eq!(found, (None, Some(1)));
    // Other names are other steps.
    assert_eq!(lease.step("outer 2", |_| Ok(5)).unwrap(), 5);
    bench.check();
}

/// A body that fails writes nothing, and can be tried again in the same delivery.
#[test]
fn a_body_that_fails_leaves_nothing() {
    let bench = Bench::new();
    let id = bench.add("1");
    let lease = bench.claim_one();
    let failed: Result<u64, _> = lease.step("reserve", |fx| {
        fx.put(STOCK, "a", &1);
        Err(Failure::throttled("429"))
    });
    assert_eq!(code(failed), (FailureClass::Throttled, "429".into()));
    assert!(bench.jobs.job(id).unwrap().unwrap().steps.is_empty());
    assert_eq!(reserve(&lease, 2).0.unwrap(), 2);
    bench.check();
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Output {
    number: u64,
    #[serde(default)]
    added: String,
}

#[derive(Debug)]
struct Panics;

impl Serialize for Panics {
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("an encoder that panics")
    }
}

impl<'de> Deserialize<'de> for Panics {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        panic!("a decoder that panics")
    }
}

/// What cannot be kept or read back is a typed, permanent failure; the bounds are exact.
#[test]
fn bad_steps_are_permanent_failures() {
    let bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    let permanent = |text: &str| (FailureClass::Permanent, text.to_owned());
    let step = |name: &str, bytes: usize| lease.step(name, |_| Ok("x".repeat(bytes)));
    assert_eq!(code(step("", 1)), permanent("step_name"));
    assert_eq!(code(step(&"n".repeat(129), 1)), permanent("step_name"));
    assert_eq!(code(step("large", 64 * 1024 - 1)), permanent("step_too_large"));
    step("large", 64 * 1024 - 2).unwrap();
    assert_eq!(code(lease.step("panics", |_| Ok(Panics))), permanent("step_unencodable"));
    let reserved = EffectTable::<str, str>::new("redrive/jobs");
    let refused = lease.step("reserved", |fx| {
        fx.put(reserved, "a", "b");
        Ok(1)
    });
    assert_eq!(code(refused), permanent("effect_refused"));
    let refused = lease.step("bad job", |fx| {
        fx.enqueue(NewJob::new("", ""));
        Ok(1)
    });
    assert_eq!(code(refused), permanent("follow_up_refused"));
    for number in 1..256 {
        assert_eq!(lease.step(&format!("page {number}"), |_| Ok(number)).unwrap(), number);
    }
    assert_eq!(code(lease.step("one too many", |_| Ok(1))), permanent("too_many_steps"));
    lease.release().unwrap();
    let again = bench.claim_one();
    assert_eq!(code(again.step::<Panics>("page 1", |_| panic!())), permanent("step_undecodable"));
    assert_eq!(code(again.step::<Output>("page 1", |_| panic!())), permanent("step_undecodable"));
    again.complete().unwrap();
    bench.check();
}

/// A field that was added to the output since has its default.
#[test]
fn a_saved_output_tolerates_other_fields() {
    let bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    lease.step("s", |_| Ok(serde_json::json!({ "number": 5, "gone": true }))).unwrap();
    lease.release().unwrap();
    let output: Output = bench.claim_one().step("s", |_| panic!("runs once")).unwrap();
    assert_eq!(output, Output { number: 5, added: String::new() });
}

/// Markers live as long as the job and its key: through death, to the end of its time, and no longer.
#[test]
fn markers_go_with_their_job() {
    let bench = Bench::new();
    let policy = JobPolicy::new().on_unknown(OnUnknown::Retry);
    let dead = bench.add_with(NewJob::new("q", "k").policy(policy));
    let lease = bench.claim_one();
    reserve(&lease, 1).0.unwrap();
    lease.fail(Failure::permanent("E")).unwrap();
    assert_eq!(bench.jobs.job(dead).unwrap().unwrap().steps.len(), 1);
    bench.jobs.dead().discard(&Filter::new().ids([dead]), "old").unwrap();
    bench.check();

    let done = bench.add_with(NewJob::new("q", "k").key("a"));
    let lease = bench.claim_one();
    for name in ["one", "two", "three"] {
        lease.step(name, |_| Ok(name.to_owned())).unwrap();
    }
    lease.complete().unwrap();
    let info = bench.jobs.job(done).unwrap().expect("kept for its key");
    let names: Vec<_> = info.steps.iter().map(|step| step.output.as_str()).collect();
    assert_eq!((info.state, names.len()), (JobState::Done, 3), "{names:?}");
    bench.advance(400 * 24 * 3_600);
    while bench.jobs.sweep().unwrap().forgotten > 0 {}
    assert!(bench.jobs.job(done).unwrap().is_none());
    bench.check();

    // One that nothing needs any longer goes with the commit that finishes it, and its markers too.
    bench.add("no key");
    let lease = bench.claim_one();
    reserve(&lease, 1).0.unwrap();
    lease.complete().unwrap();
    bench.check();
}

/// In workers, failures of steps are those of the job.
#[test]
fn a_worker_passes_the_failure_of_a_step_on() {
    let bench = Bench::new();
    let id = bench.add("1");
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", |job| {
        let one: u64 = job.step("s", |_| Ok(1))?;
        let two: u64 = job.step("s", |_| Ok(2))?;
        Ok(Completion::new().result((one + two).to_string()))
    });
    let workers = workers.start().unwrap();
    while bench.jobs.stats().unwrap().total.dead == 0 {
        std::thread::yield_now();
    }
    workers.shutdown(secs(60));
    let dead = bench.jobs.job(id).unwrap().unwrap().dead.unwrap();
    assert_eq!(dead.code, "step_repeated");
    bench.check();
}

/// P6, as a property: whatever is delivered twice, crashes between two steps or loses its lease, the
/// number of effects is the number of jobs that got as far.
#[test]
fn p_06_effects_equal_jobs_under_random_crashes() {
    const COUNT: EffectTable<str, u64> = EffectTable::new("counted");
    let start = seed("REDRIVE_STEPS_SEED");
    println!("REDRIVE_STEPS_SEED={start}");
    let mut random = Random(start);
    let mut bench = Bench::new();
    let policy = JobPolicy::new().max_deliveries(10_000).budget(FailureClass::Ambiguous, 10_000);
    let policy = policy.budget(FailureClass::Crashed, 10_000);
    let ids: Vec<_> =
        (0..20).map(|_| bench.add_with(NewJob::new("q", "k").policy(policy.clone()))).collect();
    // Every run of a body gets a number of its own, and puts it: two runs that both counted would show.
    let runs = AtomicU64::new(0);
    let work = |jobs: &Redrive, lease: &Lease, step: &str| {
        let output = lease.step(step, |fx| {
            let run = runs.fetch_add(1, Ordering::Relaxed);
            fx.put(COUNT, &format!("{} {step} {run}", lease.id()), &run);
            Ok(run)
        });
        if let Ok(run) = output {
            let key = format!("{} {step} {run}", lease.id());
            assert_eq!(jobs.read(|r| r.get(COUNT, &key)).unwrap(), Some(run));
        }
    };
    let mut held: Vec<Lease> = Vec::new();
    for _ in 0..600 {
        let leases = u64::try_from(held.len()).unwrap();
        let place = usize::try_from(random.below(leases.max(1))).unwrap();
        match random.below(12) {
            0..=2 => held.extend(bench.jobs.claim(ClaimRequest::new("q").up_to(2)).unwrap()),
            3..=6 if !held.is_empty() => {
                let step = ["one", "two", "three"][usize::try_from(random.below(3)).unwrap()];
                work(&bench.jobs, &held[place], step);
            }
            7 if !held.is_empty() => {
                let lease = held.remove(place);
                let run = runs.fetch_add(1, Ordering::Relaxed);
                let key = format!("{} done {run}", lease.id());
                drop(lease.complete_with(Completion::new().put(COUNT, &key, &run)));
            }
            8 => bench.advance(random.below(40)),
            9 if !held.is_empty() => drop(held.remove(place).release()),
            10 if random.below(4) == 0 => {
                // The process dies with its leases.
                held.drain(..).for_each(std::mem::forget);
                bench.reopen();
            }
            _ => {}
        }
    }
    let rows = bench.jobs.read(|r| r.range(COUNT, .., 100_000)).unwrap();
    let count = |wanted: &dyn Fn(&str) -> bool| rows.iter().filter(|(key, _)| wanted(key)).count();
    let done = bench.jobs.stats().unwrap().total.done;
    assert_eq!(u64::try_from(count(&|key| key.contains(" done "))).unwrap(), done);
    for id in ids {
        for step in ["one", "two", "three", "done"] {
            let prefix = format!("{id} {step} ");
            let rows = count(&|key| key.starts_with(&prefix));
            assert!(rows <= 1, "{prefix}: {rows}");
            if let Some(info) = bench.jobs.job(id).unwrap()
                && step != "done"
            {
                let marked = info.steps.iter().filter(|marked| marked.name == step).count();
                assert_eq!(rows, marked, "{prefix}");
            }
        }
    }
    assert!(done > 0 && rows.len() > 20);
    bench.check();
}
