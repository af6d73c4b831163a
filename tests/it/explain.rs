//! Why a job is not running: every reason there is.

use redrive::{
    ClaimRequest, Failure, Filter, Hold, JobId, JobPolicy, JobState, NewJob, OnDead, OnUnknown,
    Options, Pause, QueuePolicy, Reason, RedrivePlan, Scope,
};

use crate::support::{Bench, every_second, secs};

fn why(bench: &Bench, job: JobId) -> Vec<Reason> {
    let why = bench.jobs.explain(job).unwrap();
    assert_eq!(why.job, job);
    assert!(why.to_string().lines().count() == why.reasons.len() + 1, "{why}");
    why.reasons
}

fn ahead(reasons: &[Reason]) -> Option<(u64, bool)> {
    reasons.iter().find_map(|reason| match reason {
        Reason::Behind { ahead } => Some((ahead.count, ahead.at_least)),
        _ => None,
    })
}

#[test]
fn a_ready_job_says_what_stands_before_it_and_who_could_take_it() {
    let bench = Bench::new();
    let first = bench.add("1");
    assert_eq!(why(&bench, first), [Reason::NoWorker]);
    assert!(bench.jobs.claim(ClaimRequest::new("q").kinds(["other"])).unwrap().is_empty());
    assert_eq!(why(&bench, first), [Reason::NoHandler]);
    bench.claim_one().release().unwrap();
    assert_eq!(why(&bench, first), [Reason::Next]);
    let second = bench.add_with(NewJob::new("q", "other"));
    let third = bench.add("3");
    assert_eq!(ahead(&why(&bench, second)), Some((1, false)));
    assert_eq!(ahead(&why(&bench, third)), Some((2, false)));
    bench.add_with(NewJob::new("q", "k").priority(200));
    bench.add_with(NewJob::new("q", "k").priority(7));
    assert_eq!(ahead(&why(&bench, third)), Some((3, false)));
    // What is paused does not stand before anybody.
    bench.jobs.pause(Scope::class("q", "other"), Pause::new("why")).unwrap();
    assert_eq!(ahead(&why(&bench, third)), Some((2, false)));
    bench
        .jobs
        .enqueue_many(vec![NewJob::new("q", "k"); 2_000], redrive::BatchRule::PerItem)
        .unwrap();
    let last = bench.add("last");
    assert_eq!(ahead(&why(&bench, last)), Some((1_000, true)));
    bench.check();
}

/// A claim that waits counts as a worker, also when it came before the queue.
#[test]
fn a_waiting_claim_is_a_worker() {
    let bench = Bench::new();
    bench.jobs.pause(Scope::queue("other"), Pause::new("why")).unwrap();
    let waiting = bench.jobs.clone();
    let claim = ClaimRequest::new("q").kinds(["never"]).wait(secs(3_600));
    let waiter = std::thread::spawn(move || drop(waiting.claim(claim)));
    let id = bench.add("x");
    while why(&bench, id) == [Reason::NoWorker] {
        std::thread::yield_now();
    }
    assert_eq!(why(&bench, id), [Reason::NoHandler]);
    bench.jobs.close().unwrap();
    waiter.join().unwrap();
}

#[test]
fn a_stopped_job_says_by_whom_and_why() {
    let bench = Bench::new();
    let id = bench.add("x");
    bench.claim_one().release().unwrap();
    bench.jobs.pause(Scope::queue("q"), Pause::new("down").by("ada")).unwrap();
    bench.jobs.pause(Scope::class("q", "other"), Pause::new("not this one")).unwrap();
    let reasons = why(&bench, id);
    let [Reason::Paused { pause }] = reasons.as_slice() else { panic!("{reasons:#?}") };
    assert_eq!((pause.by.as_str(), pause.reason.as_str()), ("ada", "down"));
    bench.jobs.resume(Scope::queue("q")).unwrap();
    bench.add("y");
    let limit = Failure::throttled("429").retry_after(secs(30)).hold(Hold::Queue);
    bench.claim_one().fail(limit).unwrap();
    let reasons = why(&bench, id);
    let [Reason::Delayed { .. }, Reason::Held { hold }] = reasons.as_slice() else {
        panic!("{reasons:#?}")
    };
    assert!(hold.until.is_some() && hold.by == format!("job {id}"));
    bench.check();
}

#[test]
fn every_state_says_what_it_is() {
    let bench = Bench::new();
    assert_eq!(why(&bench, JobId::new(77)), [Reason::Unknown]);
    let done = bench.add_with(NewJob::new("q", "k").key("a"));
    bench.claim_one().complete().unwrap();
    assert!(matches!(why(&bench, done)[..], [Reason::Done { .. }]));
    let cancelled = bench.add_with(NewJob::new("q", "k").key("b"));
    bench.jobs.cancel(cancelled).unwrap();
    assert!(matches!(why(&bench, cancelled)[..], [Reason::Cancelled { .. }]));
    let delayed = bench.add_with(NewJob::new("q", "k").delay(secs(60)));
    let reasons = why(&bench, delayed);
    let [Reason::Delayed { until }] = reasons[..] else { panic!("{reasons:#?}") };
    assert_eq!(Some(until), bench.jobs.job(delayed).unwrap().unwrap().due);
    let leased = bench.add("x");
    let lease = bench.jobs.claim(ClaimRequest::new("q").worker("w1")).unwrap().remove(0);
    bench.jobs.cancel(leased).unwrap();
    let reasons = why(&bench, leased);
    let [Reason::Leased { worker, cancel_requested: true, .. }] = &reasons[..] else {
        panic!("{reasons:#?}")
    };
    assert_eq!(worker, "w1");
    lease.complete().unwrap();
}

#[test]
fn a_dead_job_says_of_what_and_whether_it_goes_back() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.add("x");
        bench.claim_one().fail(Failure::permanent("E_SCHEMA").message("field 7")).unwrap();
    }
    let last = JobId::new(3);
    let reasons = why(&bench, last);
    let [Reason::Dead { code, message, .. }] = &reasons[..] else { panic!("{reasons:#?}") };
    assert_eq!((code.as_str(), message.as_str()), ("E_SCHEMA", "field 7"));
    bench.jobs.pause(Scope::redrive(), Pause::new("not yet").by("ada")).unwrap();
    let plan = RedrivePlan::new(Filter::new().queue("q")).reason("fixed");
    let id = bench.jobs.redrive(plan).unwrap();
    while bench.jobs.sweep().unwrap() != redrive::SweepReport::default() {}
    let reasons = why(&bench, last);
    let [_, Reason::InCohort { cohort }, Reason::RedrivePaused { pause }] = &reasons[..] else {
        panic!("{reasons:#?}")
    };
    assert_eq!((*cohort, pause.by.as_str()), (id, "ada"));
    bench.check();
}

/// P12: suspects run one at a time, and say who is before them.
#[test]
fn p_12_a_suspect_waits_for_the_one_that_runs() {
    let mut bench = Bench::new();
    let ids = [bench.add("1"), bench.add("2")];
    bench.claim(2).into_iter().for_each(std::mem::forget);
    bench.jobs.clone().close().unwrap();
    bench.jobs = Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    let running = bench.claim(2);
    assert_eq!(running.len(), 1);
    assert_eq!(why(&bench, ids[1]), [Reason::SuspectWaits { running: Some(ids[0]) }]);
    drop(running);
    bench.jobs.sweep().unwrap();
    assert_eq!(ahead(&why(&bench, ids[1])), Some((1, false)));
}

/// O-11: a retry says that its share is used up.
#[test]
fn o_11_a_retry_says_that_its_share_is_used_up() {
    let bench = Bench::new();
    bench.jobs.set_queue("q", QueuePolicy::new().retry_share(0.5)).unwrap();
    for _ in 0..2 {
        bench.add_with(NewJob::new("q", "k").policy(every_second()));
    }
    for lease in bench.claim(2) {
        lease.fail(Failure::transient("E")).unwrap();
    }
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let first = bench.claim_one();
    bench.add("fresh");
    let waits = JobId::new(3 - first.id().get());
    assert_eq!(bench.jobs.job(waits).unwrap().unwrap().state, JobState::Ready);
    let share = Reason::RetryShare { share_percent: 50, retries: 1, leases: 1 };
    assert_eq!(why(&bench, waits), [share]);
    let fresh = bench.claim(1);
    assert_eq!(why(&bench, waits), [Reason::Next], "no fresh work waits");
    assert_eq!(fresh.len(), 1);
    bench.check();
}

/// A job that waits for its turn under an ordering key says for whom, and that a dead one holds it.
#[test]
fn a_blocked_job_says_who_holds_its_ordering_key() {
    let bench = Bench::new();
    bench.jobs.set_queue("q", QueuePolicy::new().on_dead(OnDead::Halt)).unwrap();
    let add = || bench.add_with(NewJob::new("q", "k").order_key("doc"));
    let (first, _, third) = (add(), add(), add());
    let lease = bench.claim_one();
    let blocked = |state| {
        let reasons = why(&bench, third);
        let [Reason::Blocked { key, ahead, head, head_state }] = &reasons[..] else {
            panic!("{reasons:#?}")
        };
        assert_eq!((key.as_str(), ahead.count, ahead.at_least), ("doc", 2, false));
        assert_eq!((*head, *head_state), (Some(first), Some(state)));
    };
    blocked(JobState::Leased);
    lease.fail(Failure::permanent("E")).unwrap();
    blocked(JobState::Dead);
    bench.check();
}

/// P8: a job whose outcome is to be asked for first says so, and whether anybody could ask.
#[test]
fn p_8_a_job_that_waits_for_a_reconciler_says_so() {
    let bench = Bench::new();
    let policy = JobPolicy::new().on_unknown(OnUnknown::Reconcile);
    let id = bench.add_with(NewJob::new("q", "k").policy(policy));
    bench.claim_one().fail(Failure::ambiguous("timeout")).unwrap();
    assert_eq!(why(&bench, id).last(), Some(&Reason::Reconciler { seen: false }));
    let level = || {
        let health = bench.jobs.health().unwrap();
        health.checks.iter().find(|check| check.name == "unreconciled").unwrap().level
    };
    assert_eq!(level(), redrive::Level::Ok);
    bench.advance(600);
    bench.jobs.sweep().unwrap();
    assert_eq!(level(), redrive::Level::Warning);
    let asks = ClaimRequest::new("q").kinds(["other"]).reconciles(["k"]);
    let lease = bench.jobs.claim(asks).unwrap().remove(0);
    lease.release().unwrap();
    assert_eq!(why(&bench, id), [Reason::Reconciler { seen: true }]);
    bench.check();
}
