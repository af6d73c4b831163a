//! Poison jobs are counted before they start.

use redrive::{ClaimRequest, NewJob, Redrive, Workers};
use redrive::{DeathReason, DeliveryEnd, Failure, FailureClass, HistoryEvent, JobPolicy, JobState};

use crate::support::{Bench, check, child, child_argument, every_second, secs};

/// The child of O-01: serves the queue until the poison job aborts it, or nothing is left.
#[test]
fn o_01_child() {
    let Some(path) = child_argument() else { return };
    let jobs = Redrive::open(path).unwrap();
    let workers = Workers::new(&jobs).queue("q", 1).handle("k", |job| {
        println!("start {}", job.delivery());
        std::process::abort();
    });
    let workers = workers.start().unwrap();
    while jobs.stats().unwrap().total.ready + jobs.stats().unwrap().total.leased > 0 {
        std::thread::yield_now();
    }
    workers.shutdown(secs(1));
}

/// O-01, P4: a job that kills its process is started exactly as often as its budget says.
#[test]
fn o_01_a_job_that_kills_its_process_runs_out_of_budget() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.redb");
    let jobs = Redrive::open(&path).unwrap();
    let policy = JobPolicy::new().max_deliveries(3);
    let job = jobs.enqueue(NewJob::new("q", "k").policy(policy)).unwrap().job();
    jobs.close().unwrap();

    let mut starts = 0;
    for restart in 1..=10 {
        let output = child("cases::poison::o_01_child", &path).output().unwrap();
        starts += String::from_utf8_lossy(&output.stdout).matches("start ").count();
        assert_eq!(output.status.success(), restart > 3, "restart {restart}: {output:?}");
        if restart == 1 {
            let jobs = Redrive::open(&path).unwrap();
            assert_eq!(jobs.job(job).unwrap().unwrap().state, JobState::Ready, "not stuck");
        }
    }
    assert_eq!(starts, 3);

    let jobs = Redrive::open(&path).unwrap();
    check(&jobs);
    let info = jobs.job(job).unwrap().unwrap();
    let dead = info.dead.unwrap();
    assert_eq!((info.state, info.deliveries), (JobState::Dead, 3));
    assert_eq!((dead.class, dead.reason), (FailureClass::Crashed, DeathReason::ClassBudget));
    let crashes = info.history.iter().filter(|entry| {
        matches!(entry.event, HistoryEvent::DeliveryEnded { end: DeliveryEnd::Crashed, .. })
    });
    assert_eq!(crashes.count(), 3);
}

/// O-02: one exhausted job does not stop the recovery of the others.
#[test]
fn o_02_a_sweep_treats_each_job_on_its_own() {
    let bench = Bench::new();
    let policy = |deliveries| JobPolicy::new().max_deliveries(deliveries).lease(secs(10));
    let ids = [5, 1, 5]
        .map(|deliveries| bench.add_with(NewJob::new("q", "k").policy(policy(deliveries))));
    let leases = bench.claim(3);
    assert_eq!(leases.len(), 3);
    // The writer's own wake-up may sweep first: the states are what counts.
    bench.advance(10);
    bench.jobs.sweep().unwrap();
    let states = ids.map(|id| bench.jobs.job(id).unwrap().unwrap().state);
    assert_eq!(states, [JobState::Ready, JobState::Dead, JobState::Ready]);
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.flow("lease_expired"), total.flow("died_ambiguous")), (3, 1));
    drop(leases);
    bench.check();
}

/// P4: any mix of failures is bounded by the total, and by each class.
#[test]
fn p_04_one_total_bounds_any_mix_of_classes() {
    let bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").policy(every_second()));
    let mut claims = 0;
    loop {
        let Some(lease) = bench.claim(1).pop() else {
            break;
        };
        claims += 1;
        let failure = match claims % 3 {
            0 => Failure::transient("t"),
            1 => Failure::throttled("h"),
            _ => Failure::ambiguous("a"),
        };
        lease.fail(failure).unwrap();
        bench.advance(1);
        bench.jobs.sweep().unwrap();
    }
    assert_eq!(claims, 12);
    let dead = bench.jobs.job(id).unwrap().unwrap().dead.unwrap();
    assert_eq!(dead.reason, DeathReason::TotalBudget);
    bench.check();
}

/// A permanent failure is dead at once, with its evidence.
#[test]
fn p_09_a_permanent_failure_is_dead_at_once_with_evidence() {
    let bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").key("charge:1").bytes("{}"));
    let request = ClaimRequest::new("q").worker("till-3").version("2.4.0");
    let lease = bench.jobs.claim(request).unwrap().remove(0);
    let failure = Failure::permanent("E_SCHEMA").message("field 7 missing").provider_ref("req-1");
    assert_eq!(lease.fail(failure).unwrap(), JobState::Dead);
    let info = bench.jobs.job(id).unwrap().unwrap();
    let dead = info.dead.unwrap();
    assert_eq!((dead.code.as_str(), dead.message.as_str()), ("E_SCHEMA", "field 7 missing"));
    assert_eq!((dead.worker.as_str(), dead.version.as_str()), ("till-3", "2.4.0"));
    assert_eq!(dead.provider_ref.as_deref(), Some("req-1"));
    assert!(dead.first_failed_at.is_some() && dead.cause != 0);
    assert_eq!((info.history.len(), info.key.as_deref()), (1, Some("charge:1")));
    assert_eq!(bench.jobs.payload(id).unwrap().unwrap(), b"{}", "the payload stays with the dead");
    bench.check();
}
