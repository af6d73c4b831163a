//! P13: time may jump, and delays are not leases.

use std::sync::mpsc;
use std::time::{Duration, SystemTime};

use redrive::{
    ClaimRequest, Completion, DeliveryEnd, HistoryEvent, JobPolicy, JobState, NewJob, Timestamp,
    Workers,
};

use crate::support::{Bench, full, secs};

/// O-06 a: the wall clock goes back an hour; what was due in a minute is due in a minute.
#[test]
fn o_06_a_clock_set_back_delays_nothing() {
    let bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").delay(secs(60)));
    bench.clock.jump_wall_back(secs(3600));
    bench.advance(59);
    assert_eq!(bench.jobs.sweep().unwrap().due, 0);
    assert!(bench.claim(1).is_empty());
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    assert_eq!(bench.claim_one().id(), id);
    bench.check();
}

/// O-06 b: the wall clock goes forward a day; a lease whose holder beats is kept, due jobs come in
/// bounded batches.
#[test]
fn o_06_a_clock_set_forward_takes_no_live_lease() {
    let bench = Bench::new();
    bench.add_with(NewJob::new("q", "live").policy(JobPolicy::new().lease(secs(60))));
    let live = bench.claim_one();
    let later = NewJob::new("q", "later").delay(secs(12 * 3600));
    let jobs = vec![later; 1_500];
    bench.jobs.enqueue_many(jobs, redrive::BatchRule::PerItem).unwrap();
    bench.clock.jump_wall(secs(24 * 3600));
    bench.jobs.sweep().unwrap();
    live.heartbeat().unwrap();
    for _ in 0..4 {
        bench.advance(15);
        bench.jobs.sweep().unwrap();
        live.heartbeat().unwrap();
    }
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.leased, total.ready, total.flow("lease_expired")), (1, 1_500, 0));
    live.complete().unwrap();
    bench.check();
}

/// O-06 c: set back an hour, then closed and opened: nothing outlives its time by more than it had.
#[test]
fn o_06_a_clock_set_back_over_a_restart_keeps_order_and_bounds() {
    let mut bench = Bench::new();
    let policy = JobPolicy::new().lease(secs(60)).keep_finished(secs(600));
    let id = bench.add_with(NewJob::new("q", "k").policy(policy));
    bench.add_with(NewJob::new("r", "k").delay(secs(60)));
    std::mem::forget(bench.claim_one());
    bench.advance(10);
    bench.jobs.sweep().unwrap();
    bench.clock.jump_wall_back(secs(3600));
    bench.reopen();
    // The lease of the earlier instance is recovered at once, whatever the clocks say.
    let again = bench.claim_one();
    assert_eq!((again.id(), again.delivery()), (id, 2));
    again.complete().unwrap();
    // The delay has lost at most the time since the last commit.
    bench.advance(60);
    bench.jobs.sweep().unwrap();
    assert_eq!(bench.jobs.claim(ClaimRequest::new("r")).unwrap().len(), 1);
    let info = bench.jobs.job(id).unwrap().unwrap();
    for entry in &info.history {
        let HistoryEvent::DeliveryEnded { claimed_at, end, .. } = &entry.event else {
            panic!("{entry:?}")
        };
        assert!(entry.at >= *claimed_at && *end == DeliveryEnd::Crashed);
    }
    bench.check();
}

/// O-07: a job delayed for twelve leases is claimed once, when it is due.
#[test]
fn o_07_a_long_delay_is_not_a_lost_job() {
    let bench = Bench::new();
    let policy = JobPolicy::new().lease(secs(5));
    bench.add_with(NewJob::new("q", "k").delay(secs(60)).policy(policy));
    let (done, finished) = mpsc::channel();
    let workers = Workers::new(&bench.jobs).queue("q", 3).handle("k", move |job| {
        done.send(job.delivery()).unwrap();
        Ok(Completion::new())
    });
    let workers = workers.start().unwrap();
    for _ in 0..59 {
        bench.advance(1);
        bench.jobs.sweep().unwrap();
    }
    assert_eq!(bench.jobs.stats().unwrap().total.flow("claimed"), 0);
    bench.advance(1);
    assert_eq!(finished.recv().unwrap(), 1);
    for _ in 0..30 {
        bench.advance(1);
        bench.jobs.sweep().unwrap();
    }
    workers.shutdown(secs(60));
    assert_eq!(bench.jobs.stats().unwrap().total.flow("claimed"), 1);
    bench.check();
}

/// O-08: many delayed jobs fall due at once; each step moves a bounded number, claims go on between
/// the steps, none is lost or run twice. 1,000,000 with `REDRIVE_FULL=1`.
#[test]
fn o_08_a_flood_of_due_jobs_comes_in_slices() {
    let bench = Bench::new();
    let count: u64 = if full() { 1_000_000 } else { 10_000 };
    let job = NewJob::new("q", "k").bytes(vec![7; 200]).delay(secs(60));
    let mut added = 0;
    while added < count {
        let batch = vec![job.clone(); 5_000];
        bench.jobs.enqueue_many(batch, redrive::BatchRule::PerItem).unwrap();
        added += 5_000;
    }
    bench.advance(60);
    let first = bench.jobs.sweep().unwrap();
    assert!(first.due <= 1_000, "{first:?}");
    assert!(!bench.claim(1).is_empty(), "claims go on between the slices");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| drain(&bench, count));
        }
    });
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.done, total.flow("claimed")), (count, count + 1));
    bench.check();
}

/// Claims and completes until all `count` jobs are done. The one that was claimed and given back
/// before comes with its second delivery; every other with its first.
fn drain(bench: &Bench, count: u64) {
    while bench.jobs.stats().unwrap().total.done < count {
        for lease in bench.claim(100) {
            assert!(lease.delivery() <= 2);
            lease.complete().unwrap();
        }
    }
}

/// O-12: instants at the end of time are accepted and sort last; nothing overflows.
#[test]
fn o_12_the_far_future_sorts_last() {
    let bench = Bench::new();
    let far = bench.add_with(NewJob::new("q", "k").delay(Duration::MAX));
    let farther = SystemTime::UNIX_EPOCH + Duration::from_millis(u64::MAX / 2_000_000);
    bench.add_with(NewJob::new("q", "k").run_at(farther));
    let near = bench.add_with(NewJob::new("q", "k").delay(secs(1)));
    let long_ago = SystemTime::UNIX_EPOCH - secs(1);
    let past = bench.add_with(NewJob::new("q", "k").run_at(long_ago));
    assert_eq!(bench.jobs.job(far).unwrap().unwrap().due, Some(Timestamp::MAX));
    assert_eq!(bench.claim_one().id(), past, "the past means now");
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let lease = bench.claim(10).pop().unwrap();
    assert_eq!(lease.id(), near);
    assert_eq!(lease.snooze(Duration::MAX).unwrap(), JobState::Delayed);
    assert_eq!(bench.jobs.job(near).unwrap().unwrap().due, Some(Timestamp::MAX));
    bench.check();
}
