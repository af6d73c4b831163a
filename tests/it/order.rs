//! Ordering keys (O-26): one at a time per key, in the order of acceptance, whatever fails.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use redrive::{
    BadName, ClaimRequest, Completion, EnqueueError, Failure, Filter, JobId, JobState, Lease,
    NewJob, OnDead, OnUnknown, QueuePolicy, RedrivePlan, Workers,
};

use crate::support::{Bench, every_second, secs};

fn step(key: &str, n: u32) -> NewJob {
    NewJob::new("q", "k").bytes(format!("{key}{n}")).order_key(key).policy(every_second())
}

fn states(bench: &Bench, ids: &[JobId]) -> Vec<JobState> {
    ids.iter().map(|&id| bench.jobs.job(id).unwrap().unwrap().state).collect()
}

fn batch(bench: &Bench, count: usize) -> Vec<Lease> {
    let request = ClaimRequest::new("q").up_to(count).with_followers();
    bench.jobs.claim(request).unwrap()
}

fn texts(leases: &[Lease]) -> Vec<String> {
    leases.iter().map(|lease| String::from_utf8(lease.payload().to_vec()).unwrap()).collect()
}

/// P8: what a lost delivery may be the end of is in no batch, with an ordering key or without.
#[test]
fn p_08_a_job_that_may_not_be_repeated_blindly_is_claimed_by_itself() {
    let bench = Bench::new();
    let careful = || every_second().on_unknown(OnUnknown::Quarantine);
    let timed = || every_second().deadline(secs(60));
    for (n, policy) in
        [every_second(), every_second(), careful(), every_second(), timed()].into_iter().enumerate()
    {
        let n = u32::try_from(n).unwrap();
        bench.add_with(step("A", n).policy(policy.clone()));
    }
    for (text, policy) in [("b", every_second()), ("c", timed()), ("d", every_second())] {
        bench.add_with(NewJob::new("q", "k").bytes(text).policy(policy));
    }
    let mut claimed = Vec::new();
    loop {
        let leases = batch(&bench, 100);
        if leases.is_empty() {
            break;
        }
        claimed.push(texts(&leases).join(" "));
        leases.into_iter().for_each(|lease| lease.complete().unwrap());
    }
    assert_eq!(claimed, ["A0 A1 b", "A2", "A3", "A4", "c", "d"]);
    bench.check();
}

/// O-26: key K, jobs 1 to 5, job 2 fails twice; 4 workers; 100 jobs of other keys.
#[test]
fn o_26_a_failed_head_keeps_its_key_and_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let jobs = redrive::Redrive::open(dir.path().join("jobs.redb")).unwrap();
    let slow = every_second().schedule(redrive::Schedule::list([Duration::from_millis(300)]));
    for n in 1..=5 {
        jobs.enqueue(step("K", n).policy(slow.clone())).unwrap();
    }
    for n in 0..100 {
        jobs.enqueue(step(&format!("other {n} "), n)).unwrap();
    }
    let log: Mutex<Vec<String>> = Mutex::default();
    let log: &'static Mutex<Vec<String>> = Box::leak(Box::new(log));
    let workers = Workers::new(&jobs)
        .queue("q", 4)
        .handle("k", move |job| {
            let text = String::from_utf8(job.payload().to_vec()).unwrap();
            if text == "K2" && job.attempt() <= 2 {
                return Err(Failure::transient("busy"));
            }
            log.lock().unwrap().push(text);
            Ok(Completion::new())
        })
        .start()
        .unwrap();
    let signal = redrive::Signal::new();
    let clock = redrive::SystemClock::new();
    while jobs.stats().unwrap().total.done < 105 {
        use redrive::Clock;
        clock.wait(&signal, Some(clock.monotonic_ms() + 5));
    }
    workers.shutdown(secs(10));
    let log = log.lock().unwrap();
    let of_k: Vec<&String> = log.iter().filter(|text| text.starts_with('K')).collect();
    assert_eq!(of_k, ["K1", "K2", "K3", "K4", "K5"]);
    // All the others were done while K waited for its second job.
    let second = log.iter().position(|text| text == "K2").unwrap();
    assert_eq!(second, 101, "{log:?}");
    crate::support::check(&jobs);
}

/// O-26: what blocks: a lease, a delay, a failed head that waits for its next attempt. What does not:
/// an end of any kind, with the default rule.
#[test]
fn o_26_the_next_one_moves_when_the_head_ends_and_not_before() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (1..=5).map(|n| bench.add_with(step("K", n))).collect();
    let [ready, blocked] = [JobState::Ready, JobState::Blocked];
    assert_eq!(states(&bench, &ids), [ready, blocked, blocked, blocked, blocked]);
    let head = bench.claim(5);
    assert_eq!(head.len(), 1);
    for lease in head {
        assert_eq!(lease.fail(Failure::transient("E")).unwrap(), JobState::Delayed);
    }
    assert_eq!(bench.claim(5).len(), 0);
    bench.advance(1);
    bench.claim_one().complete().unwrap();
    let second = bench.claim_one();
    assert_eq!(second.id(), ids[1]);
    second.fail(Failure::permanent("E")).unwrap();
    bench.jobs.cancel(ids[2]).unwrap();
    bench.jobs.cancel(ids[4]).unwrap();
    let fourth = bench.claim_one();
    assert_eq!(fourth.id(), ids[3]);
    fourth.complete().unwrap();
    assert_eq!(bench.jobs.stats().unwrap().total.blocked, 0);
    bench.check();
}

/// The other rule: nobody passes a dead head until somebody has dealt with it.
#[test]
fn o_26_a_dead_head_halts_its_key_where_the_queue_says_so() {
    let bench = Bench::new();
    bench.jobs.set_queue("q", QueuePolicy::new().on_dead(OnDead::Halt)).unwrap();
    let ids: Vec<JobId> = (1..=2).map(|n| bench.add_with(step("K", n))).collect();
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    assert_eq!(states(&bench, &ids), [JobState::Dead, JobState::Blocked]);
    // The rule is stored with the job: changing the queue's moves nobody.
    bench.jobs.set_queue("q", QueuePolicy::new().on_dead(OnDead::Skip)).unwrap();
    assert_eq!(bench.claim(5).len(), 0);
    bench.check();
    bench.jobs.dead().discard(&Filter::new().ids([ids[0]]), "junk").unwrap();
    let next = bench.claim_one();
    assert_eq!(next.id(), ids[1]);
    next.complete().unwrap();
    bench.check();
}

/// O-26: three of K in quarantine, redriven: they run in the original order, before what waits, under
/// either rule.
#[test]
fn o_26_redriven_jobs_run_in_their_original_order() {
    for rule in [OnDead::Skip, OnDead::Halt] {
        let bench = Bench::new();
        bench.jobs.set_queue("q", QueuePolicy::new().on_dead(rule)).unwrap();
        for n in 1..=6 {
            bench.add_with(step("K", n));
        }
        // As one batch, because with `Halt` only the first of them would die otherwise.
        for lease in batch(&bench, 3) {
            lease.fail(Failure::permanent("E")).unwrap();
        }
        // With `Skip` another one is running by then; it is not interrupted.
        let running = bench.claim(1);
        assert_eq!(running.len(), usize::from(rule == OnDead::Skip));
        let plan = RedrivePlan::new(Filter::new().queue("q")).reason("fixed").without_abort_rules();
        bench.jobs.redrive(plan.canary(0).batch(10)).unwrap();
        while bench.jobs.sweep().unwrap() != redrive::SweepReport::default() {}
        bench.check();
        assert_eq!(bench.jobs.stats().unwrap().total.dead, 0);
        let mut order = texts(&running);
        running.into_iter().for_each(|lease| lease.complete().unwrap());
        while let Some(lease) = bench.claim(9).pop() {
            order.extend(texts(std::slice::from_ref(&lease)));
            lease.complete().unwrap();
        }
        let expected = match rule {
            OnDead::Skip => ["K4", "K1", "K2", "K3", "K5", "K6"],
            _ => ["K1", "K2", "K3", "K4", "K5", "K6"],
        };
        assert_eq!(order, expected);
        bench.check();
    }
}

/// A job that is not to run yet holds its key all the same; one that waits keeps its time.
#[test]
fn a_delayed_job_holds_its_key() {
    let mut bench = Bench::new();
    bench.add_with(step("K", 1).delay(secs(10)));
    let second = bench.add_with(step("K", 2));
    let third = bench.add_with(step("K", 3).delay(secs(60)));
    assert_eq!(bench.claim(5).len(), 0);
    bench.reopen();
    bench.advance(10);
    bench.claim_one().complete().unwrap();
    let lease = bench.claim_one();
    assert_eq!(lease.id(), second);
    lease.complete().unwrap();
    let info = bench.jobs.job(third).unwrap().unwrap();
    assert_eq!((info.state, info.order_key.as_deref()), (JobState::Delayed, Some("K")));
    bench.advance(50);
    assert_eq!(bench.claim_one().id(), third);
}

/// A batch: the head and those behind it under one lease each. What was not reached goes back in order.
#[test]
fn a_batch_that_is_given_back_stands_in_its_old_order() {
    let bench = Bench::new();
    for n in 1..=6 {
        bench.add_with(step("K", n));
    }
    bench.add_with(step("L", 1));
    let leases = batch(&bench, 5);
    assert_eq!(texts(&leases), ["K1", "K2", "K3", "K4", "K5"]);
    // While a part of the batch is in flight, nothing of K starts.
    let other = batch(&bench, 5);
    assert_eq!(texts(&other), ["L1"]);
    let mut leases = leases.into_iter();
    leases.next().unwrap().complete().unwrap();
    leases.next().unwrap().fail(Failure::transient("E")).unwrap();
    for lease in leases {
        assert_eq!(lease.release().unwrap(), JobState::Blocked);
    }
    assert_eq!(batch(&bench, 5).len(), 0);
    bench.check();
    bench.advance(1);
    // What failed before is tried alone.
    let leases = batch(&bench, 5);
    assert_eq!(texts(&leases), ["K2"]);
    leases.into_iter().for_each(|lease| lease.complete().unwrap());
    let leases = batch(&bench, 5);
    assert_eq!(texts(&leases), ["K3", "K4", "K5", "K6"]);
    // Given back from the last one on, they come back in the same order.
    for lease in leases.into_iter().rev() {
        lease.release().unwrap();
    }
    assert_eq!(texts(&batch(&bench, 2)), ["K3", "K4"]);
    bench.check();
}

/// P12: a batch in flight when the process died comes back one by one, in order.
#[test]
fn p_12_a_batch_that_crashed_comes_back_one_by_one() {
    let mut bench = Bench::new();
    for n in 1..=3 {
        bench.add_with(step("K", n));
    }
    batch(&bench, 3).into_iter().for_each(std::mem::forget);
    bench.reopen();
    for n in 1..=3 {
        let leases = batch(&bench, 3);
        assert_eq!(texts(&leases), [format!("K{n}")]);
        assert_eq!(leases[0].lane(), redrive::Lane::Suspect);
        leases.into_iter().for_each(|lease| lease.complete().unwrap());
    }
    bench.check();
}

/// P15: neither a claim nor an enqueue looks at those that are blocked.
#[test]
fn p_15_the_cost_does_not_grow_with_what_is_blocked() {
    let bench = Bench::new();
    let cost = || {
        let before = bench.jobs.rows_touched();
        bench.add_with(step("K", 0));
        let lease = bench.jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
        lease.complete().unwrap();
        bench.jobs.rows_touched() - before
    };
    bench.add_with(step("K", 0));
    cost();
    let small = cost();
    let many = vec![step("K", 0); 20_000];
    bench.jobs.enqueue_many(many, redrive::BatchRule::PerItem).unwrap();
    assert_eq!(cost(), small);
}

#[test]
fn bad_ordering_keys_are_refused() {
    let bench = Bench::new();
    let long = "x".repeat(513);
    for (key, expected) in [
        ("", BadName::Empty),
        ("a\0b", BadName::ControlCharacter),
        (long.as_str(), BadName::TooLong { bytes: 513, bytes_max: 512 }),
    ] {
        match bench.jobs.enqueue(NewJob::new("q", "k").order_key(key)) {
            Err(EnqueueError::BadName { what: "ordering key", why }) => assert_eq!(why, expected),
            other => panic!("{other:?}"),
        }
    }
    let widest = "x".repeat(512);
    for _ in 0..2 {
        bench.add_with(NewJob::new("q", "k").order_key(widest.as_str()));
    }
    bench.check();
}

/// Keys belong to their queue, and one that begins like another is another.
#[test]
fn ordering_keys_do_not_touch_each_other() {
    let bench = Bench::new();
    for key in ["a", "ab", "a b", "b"] {
        bench.add_with(step(key, 1));
    }
    bench.add_with(NewJob::new("other", "k").order_key("a"));
    assert_eq!(bench.claim(9).len(), 4);
    assert_eq!(bench.jobs.claim(ClaimRequest::new("other")).unwrap().len(), 1);
    let by_state: BTreeMap<_, _> = bench
        .jobs
        .stats()
        .unwrap()
        .queues
        .into_iter()
        .map(|(q, s)| (q, s.counts.blocked))
        .collect();
    assert_eq!(by_state, BTreeMap::from([("other".into(), 0), ("q".into(), 0)]));
}
