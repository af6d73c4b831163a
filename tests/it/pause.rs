//! Pauses and holds: their scopes, what they cost, what ends them, what is refused.

use redrive::{
    ClaimRequest, Failure, Hold, JobState, Lease, NewJob, Options, Pause, PauseError, Scope,
};

use crate::support::{Bench, every_second, secs};

fn why() -> Pause {
    Pause::new("why").by("ada")
}

fn kinds(bench: &Bench) -> Vec<String> {
    let claimed = bench.claim(100);
    let kinds = claimed.iter().map(|lease| lease.kind().to_owned()).collect();
    for lease in claimed {
        lease.release().unwrap();
    }
    kinds
}

#[test]
fn a_pause_stops_its_scope_and_nothing_else() {
    let bench = Bench::new();
    for kind in ["a", "b"] {
        bench.add_with(NewJob::new("q", kind));
        bench.add_with(NewJob::new("r", kind));
    }
    let other = || bench.jobs.claim(ClaimRequest::new("r").up_to(9)).unwrap().len();
    bench.jobs.pause(Scope::class("q", "a"), why()).unwrap();
    assert_eq!((kinds(&bench), other()), (vec!["b".to_owned()], 2));
    bench.jobs.pause(Scope::queue("q"), why()).unwrap();
    assert_eq!((kinds(&bench).len(), other()), (0, 2));
    // A kind stays paused when its queue is resumed, and the other way round.
    bench.jobs.resume(Scope::queue("q")).unwrap();
    assert_eq!(kinds(&bench), ["b"]);
    bench.jobs.pause(Scope::queue("q"), why()).unwrap();
    bench.jobs.resume(Scope::class("q", "a")).unwrap();
    assert!(kinds(&bench).is_empty());
    bench.jobs.resume(Scope::queue("q")).unwrap();
    assert_eq!(kinds(&bench), ["a", "b"]);
    bench.check();
}

/// Pausing redrive leaves all other work alone and answers for what it covers.
#[test]
fn a_pause_of_redrive_stops_no_work() {
    let bench = Bench::new();
    bench.add("x");
    let by = |queue: &str, kind: &str| {
        let found = bench.jobs.redrive_paused(queue, kind).unwrap();
        found.map(|paused| (paused.scope, paused.by))
    };
    assert_eq!(by("q", "k"), None);
    bench.jobs.pause(Scope::redrive_class("q", "k"), why()).unwrap();
    let class = (Scope::redrive_class("q", "k"), "ada".to_owned());
    assert_eq!((by("q", "k"), by("q", "other"), by("other", "k")), (Some(class), None, None));
    bench.jobs.pause(Scope::redrive(), why().by("bob")).unwrap();
    let all = Some((Scope::redrive(), "bob".to_owned()));
    assert_eq!((by("q", "k"), by("never", "heard of")), (all.clone(), all));
    assert_eq!(bench.claim(1).len(), 1);
    bench.jobs.resume(Scope::redrive()).unwrap();
    assert_eq!(by("q", "other"), None);
    bench.check();
}

#[test]
fn a_second_pause_replaces_the_first_and_a_resume_of_nothing_lifts_nothing() {
    let mut bench = Bench::new();
    assert!(bench.jobs.resume(Scope::queue("q")).unwrap().is_empty());
    // A queue can be paused before anybody has enqueued.
    assert_eq!(bench.jobs.pause(Scope::queue("q"), why()).unwrap(), None);
    bench.advance(7);
    let earlier = bench.jobs.pause(Scope::queue("q"), Pause::new("worse").by("bob")).unwrap();
    assert_eq!(
        earlier.map(|paused| (paused.reason, paused.by)),
        Some(("why".into(), "ada".into()))
    );
    bench.reopen();
    let pauses = bench.jobs.pauses().unwrap();
    assert_eq!(pauses.len(), 1);
    assert_eq!((pauses[0].reason.as_str(), pauses[0].by.as_str()), ("worse", "bob"));
    assert!(!pauses[0].is_hold());
    bench.add("x");
    assert!(bench.claim(1).is_empty());
    assert_eq!(bench.jobs.resume(Scope::queue("q")).unwrap(), pauses);
    assert!(bench.jobs.pauses().unwrap().is_empty());
    assert_eq!(bench.claim(1).len(), 1);
    bench.check();
}

#[test]
fn a_pause_without_reason_or_with_a_bad_name_is_refused_and_writes_nothing() {
    let bench = Bench::new();
    bench.add("x");
    for reason in ["", " \n"] {
        let refused = bench.jobs.pause(Scope::queue("q"), Pause::new(reason));
        assert!(matches!(refused, Err(PauseError::NoReason)), "{refused:?}");
    }
    for scope in [Scope::queue(""), Scope::class("q", "a\u{7}"), Scope::redrive_class("", "k")] {
        let refused = bench.jobs.pause(scope.clone(), why());
        assert!(matches!(refused, Err(PauseError::BadName { .. })), "{refused:?}");
        assert!(matches!(bench.jobs.resume(scope), Err(PauseError::BadName { .. })));
    }
    assert!(bench.jobs.pauses().unwrap().is_empty());
    assert_eq!(bench.claim(1).len(), 1);
}

/// P15, O-19: what is paused is not looked at, however much it is.
#[test]
fn p_15_a_paused_class_costs_claims_nothing() {
    let bench = Bench::new();
    let cost = || {
        let before = bench.jobs.rows_touched();
        bench.claim_one().complete().unwrap();
        bench.jobs.rows_touched() - before
    };
    for _ in 0..10 {
        bench.add("x");
    }
    cost();
    let alone = cost();
    for kind in 0..50 {
        let jobs = vec![NewJob::new("q", format!("paused-{kind}")).priority(255); 20];
        bench.jobs.enqueue_many(jobs, redrive::BatchRule::PerItem).unwrap();
        bench.jobs.pause(Scope::class("q", format!("paused-{kind}")), why()).unwrap();
    }
    assert_eq!(cost(), alone);
    bench.check();
}

fn throttled(lease: Lease, wait: u64, hold: Hold) -> JobState {
    lease
        .fail(Failure::throttled("429").message("slow").retry_after(secs(wait)).hold(hold))
        .unwrap()
}

/// A throttled failure holds back its class or its queue, also over a restart, and no longer than it
/// asked; the end wakes who waits.
#[test]
fn a_throttled_failure_holds_back_its_class_or_its_queue_until_its_time() {
    for (hold, scope, open) in
        [(Hold::Class, Scope::class("q", "k"), 1), (Hold::Queue, Scope::queue("q"), 0)]
    {
        let mut bench = Bench::new();
        bench.add_with(NewJob::new("q", "k").policy(every_second()));
        let second = bench.add_with(NewJob::new("q", "k"));
        assert_eq!(throttled(bench.claim_one(), 30, hold), JobState::Delayed);
        bench.add_with(NewJob::new("q", "other"));
        bench.add_with(NewJob::new("r", "k"));
        let held = bench.jobs.pauses().unwrap();
        assert_eq!((held.len(), &held[0].scope, held[0].is_hold()), (1, &scope, true));
        assert_eq!((held[0].reason.as_str(), held[0].by.as_str()), ("429: slow", "job 1"));
        assert_eq!(held[0].until.unwrap().as_millis() - held[0].since.as_millis(), 30_000);
        bench.reopen();
        assert_eq!(bench.jobs.pauses().unwrap(), held);
        assert_eq!(bench.claim(9).into_iter().map(|lease| lease.complete().unwrap()).count(), open);
        assert_eq!(bench.jobs.claim(ClaimRequest::new("r")).unwrap().len(), 1);
        bench.clock.advance(std::time::Duration::from_millis(29_999));
        assert!(bench.claim(9).is_empty());
        let waiting = bench.jobs.clone();
        let claim = ClaimRequest::new("q").kinds(["k"]).wait(secs(3_600));
        let waiter = std::thread::spawn(move || waiting.claim(claim).unwrap().remove(0));
        bench.clock.advance(std::time::Duration::from_millis(1));
        assert_eq!(waiter.join().unwrap().id(), second);
        assert!(bench.jobs.pauses().unwrap().is_empty());
        bench.check();
    }
}

#[test]
fn holds_are_bounded_the_later_one_counts_and_a_resume_lifts_them() {
    let bench = Bench::new();
    for _ in 0..4 {
        bench.add_with(NewJob::new("q", "k"));
    }
    let [a, b, c, d] = <[Lease; 4]>::try_from(bench.claim(4)).unwrap();
    let until = || {
        let held = bench.jobs.pauses().unwrap().remove(0);
        held.until.unwrap().as_millis() - held.since.as_millis()
    };
    throttled(a, 30, Hold::Class);
    bench.advance(10);
    throttled(b, 10, Hold::Class);
    assert_eq!(until(), 30_000, "the later end counts");
    throttled(c, 1_000_000, Hold::Class);
    assert_eq!(until(), 3_610_000, "no hold is longer than an hour");
    // Failures of a lease that is over hold nothing.
    let stale = d.twin();
    d.complete().unwrap();
    bench.jobs.resume(Scope::class("q", "k")).unwrap();
    let failure = Failure::throttled("429").retry_after(secs(60)).hold(Hold::Class);
    assert!(stale.fail(failure).is_err());
    assert!(bench.jobs.pauses().unwrap().is_empty());
    bench.check();
}

/// P14: a pause whose row is damaged goes on stopping, because its key says what; `verify` names it.
#[test]
fn p_14_a_damaged_pause_goes_on_stopping() {
    let bench = Bench::new();
    bench.add("x");
    bench.jobs.pause(Scope::queue("q"), why()).unwrap();
    bench.jobs.clone().close().unwrap();
    crate::verify::tamper(&bench.path, "redrive/pauses", |_, _| Some(vec![1, 2, 3]), &[]);
    let jobs = Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    assert!(jobs.claim(ClaimRequest::new("q")).unwrap().is_empty());
    let problems = jobs.verify().unwrap().problems;
    assert!(problems.iter().all(|p| p.table == "redrive/pauses") && problems.len() == 1);
    assert_eq!(jobs.resume(Scope::queue("q")).unwrap().len(), 1);
    assert_eq!(jobs.claim(ClaimRequest::new("q")).unwrap().len(), 1);
    assert!(jobs.verify().unwrap().is_clean());
}
