//! P7: the ledger. What requests under one key mean to each other, and what can be asked about a key.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use redrive::{
    BatchRule, ClaimRequest, DeadKey, DeathReason, EnqueueError, Enqueued, Failure, Filter,
    HistoryEvent, JobId, JobPolicy, JobState, KeyState, NewJob, OnDuplicate, OnUnknown,
    RedrivePlan, Repeats, SkipReason, SweepReport,
};

use crate::support::{Bench, every_second, full, secs};
use crate::verify::tamper;

fn request(payload: &str, choice: OnDuplicate) -> NewJob {
    NewJob::new("q", "k").bytes(payload).key("K").on_duplicate(choice).policy(every_second())
}

impl Bench {
    fn redrive_all(&self) -> redrive::CohortCounts {
        let plan = RedrivePlan::new(Filter::new().everything()).reason("fixed");
        let plan = plan.canary(0).batch(100).without_abort_rules();
        let cohort = self.jobs.redrive(plan).unwrap();
        while self.jobs.sweep().unwrap() != SweepReport::default() {}
        self.jobs.cohort(cohort).unwrap().unwrap().counts
    }
}

/// `Replace`: the latest request stands for all, for as long as none was claimed; then it is told about
/// the owner like any other.
#[test]
fn p_07_a_request_that_was_never_claimed_is_replaced() {
    let bench = Bench::new();
    let debounce = |payload: &str| {
        bench.jobs.enqueue(request(payload, OnDuplicate::Replace).delay(secs(5)).priority(7))
    };
    let id = bench.add_with(request("r1", OnDuplicate::Return));
    for (revision, large) in [("r2", false), ("r3", true), ("r4", true), ("r5", false)] {
        let payload = if large { revision.repeat(1_000) } else { revision.to_owned() };
        assert_eq!(debounce(&payload).unwrap(), Enqueued::Replaced(id));
        assert_eq!(bench.jobs.payload(id).unwrap().unwrap(), payload.as_bytes());
        bench.advance(4);
        bench.check();
    }
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.state, info.priority, info.asked.replaced), (JobState::Delayed, 7, 4));
    assert!(info.history.iter().all(|entry| entry.event == HistoryEvent::Replaced));
    // The request is the new one from now on.
    assert!(matches!(
        bench.jobs.enqueue(request("r1", OnDuplicate::Return)),
        Err(EnqueueError::KeyConflict { .. })
    ));
    // Another kind of work is not the same work, whatever the key.
    let other = NewJob::new("q", "other").key("K").on_duplicate(OnDuplicate::Replace);
    assert!(matches!(bench.jobs.enqueue(other), Err(EnqueueError::KeyConflict { .. })));

    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let lease = bench.claim_one();
    assert_eq!((lease.id(), lease.payload()), (id, b"r5".as_slice()));
    assert!(matches!(debounce("r6"), Err(EnqueueError::KeyConflict { .. })));
    assert!(matches!(debounce("r5").unwrap(), Enqueued::Duplicate { of, .. } if of == id));
    // Given back it has been claimed all the same.
    lease.release().unwrap();
    assert!(matches!(debounce("r6"), Err(EnqueueError::KeyConflict { .. })));
    let flow = |name| bench.jobs.stats().unwrap().total.flow(name);
    assert_eq!(["replaced", "key_conflicts", "duplicates_suppressed"].map(flow), [4, 4, 1]);
    bench.check();
}

/// A request that may start now keeps the place in line of the one that it replaces.
#[test]
fn a_replaced_job_keeps_its_place_in_line() {
    let bench = Bench::new();
    let first = bench.add_with(request("r1", OnDuplicate::Return));
    let second = bench.add("another");
    bench.jobs.enqueue(request("r2", OnDuplicate::Replace)).unwrap();
    let order: Vec<JobId> = bench.claim(2).iter().map(redrive::Lease::id).collect();
    assert_eq!(order, [first, second]);
    bench.check();
}

/// `AfterDead`: a new job with the key, whatever its request; the dead one keeps its evidence, and comes
/// back only when the key is free.
#[test]
fn p_07_a_new_job_takes_the_key_of_a_dead_one() {
    let bench = Bench::new();
    let dead = bench.add_with(request("wrong", OnDuplicate::AfterDead));
    let again = |payload| bench.jobs.enqueue(request(payload, OnDuplicate::AfterDead)).unwrap();
    assert!(matches!(again("wrong"), Enqueued::Duplicate { .. }));
    bench.claim_one().fail(Failure::permanent("E_SCHEMA")).unwrap();
    let Enqueued::New(id) = again("right") else { panic!("not new") };
    let old = bench.jobs.job(dead).unwrap().unwrap();
    assert_eq!((old.state, old.taken_by), (JobState::Dead, Some(id)));
    assert_eq!(old.dead.unwrap().code, "E_SCHEMA");
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().previous, Some(dead));
    bench.check();

    // One live job per key, ever.
    let counts = bench.redrive_all();
    assert_eq!(counts.skipped.into_iter().collect::<Vec<_>>(), [(SkipReason::KeyTaken, 1)]);
    bench.claim_one().complete().unwrap();
    // The other request is done, not this one.
    let counts = bench.redrive_all();
    assert_eq!(counts.skipped.into_iter().collect::<Vec<_>>(), [(SkipReason::KeyTaken, 1)]);
    assert_eq!(bench.jobs.key("q", "K").unwrap().unwrap().owner, id);
    // The key is free after seven days.
    bench.advance(7 * 86_400);
    bench.jobs.sweep().unwrap();
    assert_eq!(bench.redrive_all().in_flight, 1);
    let info = bench.jobs.key("q", "K").unwrap().unwrap();
    assert_eq!((info.owner, info.state), (dead, KeyState::Live));
    bench.claim_one().complete().unwrap();
    bench.check();
}

/// A dead job whose request another one under its key has done is suppressed as a duplicate.
#[test]
fn p_07_a_redrive_of_what_another_has_done_is_a_duplicate() {
    for keep in [DeadKey::Keep, DeadKey::Release] {
        let bench = Bench::new();
        let policy = || every_second().dead_key(keep);
        let job = || request("same", OnDuplicate::AfterDead).policy(policy());
        let dead = bench.add_with(job());
        bench.claim_one().fail(Failure::permanent("E")).unwrap();
        let twin = bench.add_with(job());
        bench.claim_one().complete().unwrap();
        assert_eq!(bench.redrive_all().suppressed, 1);
        assert_eq!(bench.jobs.key("q", "K").unwrap().unwrap().owner, twin);
        assert_eq!(bench.jobs.job(dead).unwrap().unwrap().state, JobState::Dead);
        assert!(bench.claim(10).is_empty());
        bench.check();
    }
}

/// Should a job come to its turn although another has its key (which only a damaged ledger can bring
/// about), it is not run: done as a duplicate, or dead with the reason.
#[test]
fn p_07_a_job_without_its_key_is_not_run() {
    for twin_is_done in [true, false] {
        let mut bench = Bench::new();
        let twin = bench.add_with(NewJob::new("q", "k").bytes("same").key("a"));
        if twin_is_done {
            bench.claim_one().complete().unwrap();
        }
        let id = bench.add_with(NewJob::new("q", "k").bytes("same").key("b").priority(200));
        bench.claim_one().fail(Failure::permanent("E")).unwrap();
        assert_eq!(bench.redrive_all().in_flight, 1);
        bench.jobs.clone().close().unwrap();
        let twin_row = RefCell::new(Vec::new());
        let named = |key: &[u8], name: &[u8]| key.ends_with(name);
        let look = |key: &[u8], value: &[u8]| {
            if named(key, b"a") {
                *twin_row.borrow_mut() = value.to_vec();
            }
            Some(value.to_vec())
        };
        tamper(&bench.path, "redrive/keys", look, &[]);
        let change = |key: &[u8], value: &[u8]| {
            Some(if named(key, b"b") { twin_row.borrow().clone() } else { value.to_vec() })
        };
        tamper(&bench.path, "redrive/keys", change, &[]);
        bench.jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();

        let claimed: Vec<JobId> = bench.claim(10).iter().map(redrive::Lease::id).collect();
        let info = bench.jobs.job(id).unwrap();
        let total = bench.jobs.stats().unwrap().total;
        assert_eq!(total.residual, 0);
        if twin_is_done {
            assert!(claimed.is_empty() && info.is_none(), "{claimed:?} {info:?}");
            assert_eq!((total.flow("done_as_duplicate"), total.done), (1, 2));
        } else {
            assert_eq!(claimed, [twin]);
            assert_eq!(info.unwrap().dead.unwrap().reason, DeathReason::KeyTaken);
        }
    }
}

/// What the ledger says of a key, in every state.
#[test]
fn p_07_a_key_tells_what_has_become_of_its_request() {
    let bench = Bench::new();
    let state = || bench.jobs.key("q", "K").unwrap().map(|info| info.state);
    assert_eq!(bench.jobs.key("never", "K").unwrap(), None);
    let policy = every_second().keep_key_after_done(secs(100)).on_unknown(OnUnknown::Reconcile);
    let id = bench.add_with(request("p", OnDuplicate::Return).policy(policy));
    assert_eq!(state(), Some(KeyState::Live));
    bench.claim_one().fail(Failure::ambiguous("timeout")).unwrap();
    assert_eq!(state(), Some(KeyState::Unknown));
    let lease = bench.jobs.claim(ClaimRequest::new("q").reconciles(["k"])).unwrap().remove(0);
    lease.complete_with("receipt").unwrap();
    let info = bench.jobs.key("q", "K").unwrap().unwrap();
    assert_eq!((info.owner, info.request.len()), (id, 32));
    assert_eq!(info.state, KeyState::Done { result: Some(b"receipt".to_vec()) });
    let left = info.until.unwrap().as_millis()
        - bench.jobs.job(id).unwrap().unwrap().finished_at.unwrap().as_millis();
    assert_eq!(left, 100_000);
    bench.advance(100);
    assert_eq!(state(), None);
    let id = bench.add_with(request("p", OnDuplicate::Return));
    bench.jobs.cancel(id).unwrap();
    assert_eq!(state(), Some(KeyState::Cancelled));
    bench.advance(7 * 86_400);
    bench.add_with(request("p", OnDuplicate::Return));
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    assert_eq!(state(), Some(KeyState::Dead));
    bench.check();
}

/// The question of the cron job: a producer that keeps asking for the same thing is told apart from a
/// retry that does not stop.
#[test]
fn a_producer_that_repeats_is_told_apart_from_a_retry_that_does() {
    let bench = Bench::new();
    let lineage = || bench.jobs.lineage("q", "K").unwrap().unwrap();
    assert_eq!(bench.jobs.lineage("q", "K").unwrap(), None);
    let kept = || {
        let policy = every_second().keep_key_after_done(secs(30)).keep_finished(secs(3_600));
        request("r7", OnDuplicate::Return).policy(policy)
    };
    bench.add_with(kept());
    assert_eq!(lineage().repeats, Repeats::Nothing);
    // Every minute the same request; each one done long before the next.
    for _ in 0..4 {
        bench.claim_one().complete().unwrap();
        bench.jobs.enqueue(kept()).unwrap();
        bench.advance(60);
        bench.add_with(kept());
    }
    let found = lineage();
    let mut ids: Vec<JobId> = found.jobs.iter().map(|job| job.id).collect();
    assert_eq!((ids.len(), found.enqueues, found.duplicates, found.deliveries), (5, 9, 4, 4));
    assert!(ids.is_sorted() && !found.incomplete);
    assert_eq!(found.repeats, Repeats::Producer);
    assert!(found.jobs.iter().all(|job| job.attempts == 0));

    // And now it fails.
    for _ in 0..3 {
        bench.claim_one().fail(Failure::transient("503")).unwrap();
        bench.advance(1);
        bench.jobs.sweep().unwrap();
    }
    assert_eq!(lineage().repeats, Repeats::Both);
    let failing = ids.pop();
    let events = |id| lineage().jobs.into_iter().find(|job| Some(job.id) == id).unwrap().history;
    assert_eq!(events(failing).len(), 3);
    // What was forgotten is not shown.
    bench.advance(3_600);
    bench.jobs.sweep().unwrap();
    let found = lineage();
    assert_eq!((found.jobs.len(), found.enqueues, found.deliveries), (1, 1, 3));
    assert_eq!(found.repeats, Repeats::Deliveries);
    bench.check();
}

/// All or nothing, with the choices mixed.
#[test]
fn p_02_a_call_may_replace_its_own_items() {
    let bench = Bench::new();
    let replace = |payload| request(payload, OnDuplicate::Replace);
    let call = [request("a", OnDuplicate::Return), replace("b"), replace("c")];
    let outcomes = bench.jobs.enqueue_many(call, BatchRule::AllOrNothing).unwrap();
    let outcomes: Vec<Enqueued> = outcomes.into_iter().collect::<Result<_, _>>().unwrap();
    let id = outcomes[0].job();
    assert_eq!(outcomes, [Enqueued::New(id), Enqueued::Replaced(id), Enqueued::Replaced(id)]);
    assert_eq!(bench.jobs.payload(id).unwrap().unwrap(), b"c");
    let call = [replace("d"), request("a", OnDuplicate::AfterDead)];
    let outcomes = bench.jobs.enqueue_many(call, BatchRule::AllOrNothing).unwrap();
    assert!(matches!(outcomes[1], Err(EnqueueError::KeyConflictInCall { earlier: 0, .. })));
    assert_eq!(bench.jobs.payload(id).unwrap().unwrap(), b"c");
    bench.check();
}

/// A million keys that expire at one moment: no enqueue waits longer than 50 ms for their clean-up. Run
/// with `REDRIVE_FULL=1 cargo test --release ledger`; otherwise a hundredth of them, and no clock.
#[test]
#[expect(clippy::disallowed_methods, reason = "how long it takes is what is asked")]
fn p_15_expired_keys_do_not_hold_up_an_enqueue() {
    let (keys, limit) =
        if full() { (1_000_000, Duration::from_millis(50)) } else { (5_000, secs(60)) };
    let bench = Bench::new();
    let policy = JobPolicy::new().keep_key_after_done(secs(3_600));
    bench.jobs.set_queue("q", redrive::QueuePolicy::new().jobs(policy)).unwrap();
    for first in (0..keys).step_by(10_000) {
        // Business keys come in no order.
        let name = |n: u64| format!("{:016x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let batch = (first..keys.min(first + 10_000)).map(|n| NewJob::new("q", "k").key(name(n)));
        bench.jobs.enqueue_many(batch, BatchRule::PerItem).unwrap();
        let leases = bench.claim(10_000);
        std::thread::scope(|scope| {
            let mut leases = leases.into_iter();
            while leases.len() > 0 {
                let some: Vec<_> = leases.by_ref().take(200).collect();
                scope.spawn(|| some.into_iter().for_each(|lease| lease.complete().unwrap()));
            }
        });
    }
    assert_eq!(bench.jobs.stats().unwrap().total.done, keys);
    let last = JobId::new(keys);
    assert!(bench.jobs.job(last).unwrap().is_some());
    bench.advance(3_600);
    let (mut worst, mut count, started) = (Duration::ZERO, 0_u32, Instant::now());
    while bench.jobs.job(last).unwrap().is_some() {
        let before = Instant::now();
        bench.add(&count.to_string());
        worst = worst.max(before.elapsed());
        count += 1;
    }
    println!(
        "{keys} keys forgotten in {:?}; worst of {count} enqueues: {worst:?}",
        started.elapsed()
    );
    assert!(worst < limit, "{worst:?}");
}
