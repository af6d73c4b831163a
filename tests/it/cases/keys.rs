//! P7: one key, one logical job.

use redrive::{
    DeadKey, EnqueueError, Enqueued, Failure, Filter, JobId, JobPolicy, JobState, NewJob,
    OnDuplicate, RedrivePlan, SkipReason, SweepReport,
};

use crate::support::{Bench, every_second, secs};

fn keyed(policy: JobPolicy) -> NewJob {
    NewJob::new("q", "k").bytes("same").key("K").policy(policy)
}

fn duplicate_of(outcome: Result<Enqueued, EnqueueError>) -> (JobId, JobState) {
    match outcome {
        Ok(Enqueued::Duplicate { of, state, .. }) => (of, state),
        other => panic!("not a duplicate: {other:?}"),
    }
}

fn discard(bench: &Bench, job: JobId) {
    let gone = bench.jobs.dead().discard(&Filter::new().ids([job]), "old").unwrap();
    assert_eq!(gone.jobs, 1);
}

/// O-09 a: a key is free when its job is deleted.
#[test]
fn o_09_a_deleted_job_frees_its_key() {
    let bench = Bench::new();
    let policy = JobPolicy::new().keep_key_after_cancel(secs(0));
    let first = bench.add_with(keyed(policy.clone()).delay(secs(60)));
    bench.jobs.cancel(first).unwrap();
    assert!(bench.jobs.job(first).unwrap().is_none());
    let second = bench.add_with(keyed(policy));
    assert_ne!(first, second);
    bench.check();
}

/// O-09 b: deleting an old job does not free a key that a newer one owns by now.
#[test]
fn o_09_a_key_is_released_by_its_owner_only() {
    let bench = Bench::new();
    let first = bench.add_with(keyed(JobPolicy::new().dead_key(DeadKey::Release)));
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    let second = bench.add_with(keyed(JobPolicy::new()));
    let gone = bench.jobs.dead().discard(&Filter::new().ids([first]), "old").unwrap();
    assert_eq!(gone.jobs, 1);
    assert_eq!(
        duplicate_of(bench.jobs.enqueue(keyed(JobPolicy::new()))),
        (second, JobState::Ready)
    );
    bench.check();
}

/// O-09: the same when the old job goes because its time is over.
#[test]
fn o_09_an_old_row_that_expires_leaves_the_new_owner_alone() {
    let bench = Bench::new();
    let policy = JobPolicy::new().keep_key_after_done(secs(10)).keep_finished(secs(100));
    let first = bench.add_with(keyed(policy));
    bench.claim_one().complete().unwrap();
    bench.advance(11);
    let second = bench.add_with(keyed(JobPolicy::new()));
    bench.advance(100);
    while bench.jobs.job(first).unwrap().is_some() {
        bench.jobs.sweep().unwrap();
    }
    assert_eq!(duplicate_of(bench.jobs.enqueue(keyed(JobPolicy::new()))).0, second);
    bench.check();
}

/// O-09 b, where the key was taken over on request: it stays with the newer job when the dead one goes,
/// and comes free with the newer one.
#[test]
fn o_09_a_key_that_was_taken_over_stays_where_it_is() {
    let bench = Bench::new();
    let take = || keyed(JobPolicy::new()).on_duplicate(OnDuplicate::AfterDead);
    let first = bench.add_with(take());
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    let second = bench.add_with(take());
    discard(&bench, first);
    assert_eq!(duplicate_of(bench.jobs.enqueue(take())), (second, JobState::Ready));
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    discard(&bench, second);
    assert!(bench.jobs.key("q", "K").unwrap().is_none());
    bench.add_with(take());
    bench.check();
}

/// O-10 with two jobs of one key: the one that died comes back while its successor stands in line. It is
/// skipped, visibly, and a hundred others are not held up; when the successor has done the same request,
/// it is a duplicate.
#[test]
fn o_10_a_job_that_comes_back_to_a_key_that_is_taken_is_settled_alone() {
    let bench = Bench::new();
    let take = || keyed(every_second()).on_duplicate(OnDuplicate::AfterDead);
    let first = bench.add_with(take());
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    let second = bench.add_with(take());
    let others = (0..100).map(|n| NewJob::new("q", "k").key(format!("other {n}")));
    bench.jobs.enqueue_many(others, redrive::BatchRule::PerItem).unwrap();
    let redrive = || {
        let plan = RedrivePlan::new(Filter::new().everything()).reason("fixed").canary(0);
        let cohort = bench.jobs.redrive(plan).unwrap();
        while bench.jobs.sweep().unwrap() != SweepReport::default() {}
        bench.jobs.cohort(cohort).unwrap().unwrap().counts
    };
    let counts = redrive();
    assert_eq!((counts.selected, counts.in_flight), (1, 0));
    assert_eq!(counts.skipped.into_iter().collect::<Vec<_>>(), [(SkipReason::KeyTaken, 1)]);
    let mut ran = Vec::new();
    loop {
        let leases = bench.claim(10);
        if leases.is_empty() {
            break;
        }
        for lease in leases {
            ran.push(lease.id());
            lease.complete().unwrap();
        }
    }
    assert_eq!(ran.len(), 101);
    assert!(ran.contains(&second) && !ran.contains(&first));
    assert_eq!(redrive().suppressed, 1);
    assert!(bench.claim(10).is_empty());
    let lineage = bench.jobs.lineage("q", "K").unwrap().unwrap();
    assert_eq!(lineage.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [first, second]);
    bench.check();
}

/// O-10: a job that waits for its retry and a new one with its key: the new one is told so, and a
/// hundred others are not held up.
#[test]
fn o_10_one_key_never_holds_up_the_others() {
    let bench = Bench::new();
    let first = bench.add_with(keyed(every_second()));
    bench.claim_one().fail(Failure::transient("E")).unwrap();
    assert_eq!(duplicate_of(bench.jobs.enqueue(keyed(every_second()))), (first, JobState::Delayed));
    let others = (0..100).map(|n| NewJob::new("q", "k").key(format!("other {n}")));
    let outcomes = bench.jobs.enqueue_many(others, redrive::BatchRule::PerItem).unwrap();
    assert!(outcomes.iter().all(Result::is_ok));
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let mut ran = Vec::new();
    loop {
        let leases = bench.claim(10);
        if leases.is_empty() {
            break;
        }
        for lease in leases {
            ran.push(lease.key().unwrap().to_owned());
            lease.complete().unwrap();
        }
    }
    assert_eq!(ran.len(), 101);
    assert_eq!(ran.iter().filter(|key| *key == "K").count(), 1);
    bench.check();
}

/// P7: a duplicate is told about the owner in every state, with its result; another request under
/// the key is a conflict in every state; and the key expires when it is said to.
#[test]
fn p_07_a_duplicate_names_the_owner_its_state_and_its_result() {
    let bench = Bench::new();
    let policy = every_second().keep_key_after_done(secs(100));
    let again = || bench.jobs.enqueue(keyed(every_second()));
    let conflict = |expected| {
        let other = NewJob::new("q", "k").bytes("other").key("K");
        match bench.jobs.enqueue(other) {
            Err(EnqueueError::KeyConflict { state, .. }) => assert_eq!(state, expected),
            outcome => panic!("{outcome:?}"),
        }
    };
    let id = bench.add_with(keyed(policy));
    assert_eq!(duplicate_of(again()), (id, JobState::Ready));
    conflict(JobState::Ready);
    let lease = bench.claim_one();
    assert_eq!(duplicate_of(again()), (id, JobState::Leased));
    conflict(JobState::Leased);
    lease.fail(Failure::transient("E")).unwrap();
    assert_eq!(duplicate_of(again()), (id, JobState::Delayed));
    conflict(JobState::Delayed);
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    bench.claim_one().complete_with("receipt").unwrap();
    match again().unwrap() {
        Enqueued::Duplicate { of, state: JobState::Done, result } => {
            assert_eq!((of, result.as_deref()), (id, Some(b"receipt".as_slice())));
        }
        other => panic!("{other:?}"),
    }
    conflict(JobState::Done);
    // Another queue has keys of its own.
    bench.add_with(NewJob::new("r", "k").bytes("other").key("K"));
    bench.advance(100);
    bench.add_with(keyed(every_second()));
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.flow("duplicates_suppressed"), total.flow("key_conflicts")), (4, 4));
    bench.check();
}

/// P7: a key never expires while its job is alive, and a dead job keeps it.
#[test]
fn p_07_a_key_outlives_any_wait_of_its_job() {
    let bench = Bench::new();
    let id = bench.add_with(keyed(JobPolicy::new()));
    bench.advance(365 * 86_400);
    assert_eq!(duplicate_of(bench.jobs.enqueue(keyed(JobPolicy::new()))), (id, JobState::Ready));
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    bench.advance(365 * 86_400);
    bench.jobs.sweep().unwrap();
    assert_eq!(duplicate_of(bench.jobs.enqueue(keyed(JobPolicy::new()))), (id, JobState::Dead));
    bench.check();
}

/// An all-or-nothing call with one refused item writes nothing; a per-item call writes the rest.
#[test]
fn p_02_all_or_nothing_is_what_it_says() {
    let bench = Bench::new();
    bench.add_with(NewJob::new("q", "k").bytes("a").key("taken"));
    let call = || {
        [
            NewJob::new("q", "k").bytes("1"),
            NewJob::new("q", "k").bytes("b").key("taken"),
            NewJob::new("q", "k").bytes("2"),
        ]
    };
    let outcomes = bench.jobs.enqueue_many(call(), redrive::BatchRule::AllOrNothing).unwrap();
    assert!(matches!(outcomes[0], Err(EnqueueError::Withheld { refused: 1 })));
    assert!(matches!(outcomes[1], Err(EnqueueError::KeyConflict { .. })));
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 1);
    let outcomes = bench.jobs.enqueue_many(call(), redrive::BatchRule::PerItem).unwrap();
    assert!(outcomes[0].is_ok() && outcomes[1].is_err() && outcomes[2].is_ok());
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 3);
    let clash = [("x", "1"), ("x", "2")].map(|(key, b)| NewJob::new("q", "k").bytes(b).key(key));
    let outcomes = bench.jobs.enqueue_many(clash, redrive::BatchRule::AllOrNothing).unwrap();
    assert!(matches!(outcomes[0], Err(EnqueueError::Withheld { refused: 1 })));
    assert!(matches!(outcomes[1], Err(EnqueueError::KeyConflictInCall { earlier: 0, .. })));
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 3);
    bench.check();
}
