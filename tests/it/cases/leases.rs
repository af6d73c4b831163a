//! Leases are fenced, kept alive, and end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use redrive::{
    ClaimRequest, Completion, Failure, JobPolicy, JobState, NewJob, SettleError, Workers,
};

use crate::support::{Bench, every_second, secs};

/// O-03: what becomes of an ended lease is decided from stored data, not from the handlers that
/// happen to be registered.
#[test]
fn o_03_an_ended_lease_of_an_unknown_kind_goes_back() {
    let mut bench = Bench::new();
    let policy = JobPolicy::new().lease(secs(10));
    let id = bench.add_with(NewJob::new("q", "b").policy(policy));
    std::mem::forget(bench.claim_one());
    bench.reopen();
    let only_a = Workers::new(&bench.jobs).queue("q", 1).handle("a", |_| Ok(Completion::new()));
    let only_a = only_a.start().unwrap();
    bench.advance(20);
    bench.jobs.sweep().unwrap();
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.state, info.deliveries, info.crashes), (JobState::Ready, 1, 1));
    only_a.shutdown(secs(0));

    let (done, finished) = mpsc::channel();
    let with_b = Workers::new(&bench.jobs).queue("q", 1).handle("b", move |job| {
        done.send(job.delivery()).unwrap();
        Ok(Completion::new())
    });
    let with_b = with_b.start().unwrap();
    assert_eq!(finished.recv().unwrap(), 2);
    with_b.shutdown(secs(60));
    bench.check();
}

/// O-04 a and b: a job five times as long as its lease is claimed once, also when the first two of
/// every three beats fail.
#[test]
fn o_04_beats_keep_a_long_job_even_when_two_of_three_fail() {
    for lossy in [false, true] {
        let bench = Bench::new();
        bench.add_with(NewJob::new("q", "k").policy(JobPolicy::new().lease(secs(3))));
        let clock = bench.clock.clone();
        let starts = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&starts);
        let beats = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&beats);
        let (done, finished) = mpsc::channel();
        let workers = Workers::new(&bench.jobs)
            .queue("q", 2)
            .handle("k", move |job| {
                counted.fetch_add(1, Ordering::SeqCst);
                // 15 s in steps of a beat; each step waits until its beat has happened.
                for step in 1..=20 {
                    clock.advance(std::time::Duration::from_millis(750));
                    while seen.load(Ordering::SeqCst) < step {
                        std::thread::yield_now();
                    }
                }
                done.send(job.should_stop()).unwrap();
                Ok(Completion::new())
            })
            .filter_heartbeats(move |number| {
                beats.fetch_add(1, Ordering::SeqCst);
                !lossy || number % 3 == 2
            })
            .start()
            .unwrap();
        assert_eq!(finished.recv().unwrap(), None, "the lease was kept");
        let report = workers.report();
        workers.shutdown(secs(60));
        assert_eq!(starts.load(Ordering::SeqCst), 1);
        assert_eq!(report.heartbeat_errors > 10, lossy, "{report:?}");
        let total = bench.jobs.stats().unwrap().total;
        assert_eq!((total.flow("claimed"), total.done), (1, 1));
        bench.check();
    }
}

/// O-04 c: a handler that ignores everything loses its lease at its deadline; others go on, and the
/// stuck one is told.
#[test]
fn o_04_a_stuck_handler_loses_its_lease_at_the_deadline() {
    let bench = Bench::new();
    let policy = every_second().lease(secs(2)).deadline(secs(5));
    let stuck = bench.add_with(NewJob::new("q", "stuck").policy(policy));
    let (started, start) = mpsc::channel();
    let (let_go, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let (done, finished) = mpsc::channel();
    let beats = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&beats);
    let workers = Workers::new(&bench.jobs)
        .queue("q", 2)
        .filter_heartbeats(move |_| {
            beats.fetch_add(1, Ordering::SeqCst);
            true
        })
        .handle("stuck", move |job| {
            started.send(()).unwrap();
            if job.delivery() == 1 {
                let _ = hold.lock().unwrap().recv();
            }
            Ok(Completion::new())
        })
        .handle("other", move |_| {
            done.send(()).unwrap();
            Ok(Completion::new())
        })
        .start()
        .unwrap();
    start.recv().unwrap();
    // The lease is kept alive, beat by beat, until the deadline.
    for beat in 1..10 {
        bench.clock.advance(std::time::Duration::from_millis(500));
        while seen.load(Ordering::SeqCst) < beat {
            std::thread::yield_now();
        }
    }
    assert_eq!(bench.jobs.sweep().unwrap().expired, 0);
    bench.clock.advance(std::time::Duration::from_millis(500));
    while bench.jobs.job(stuck).unwrap().is_some_and(|job| job.history.is_empty()) {
        bench.jobs.sweep().unwrap();
    }
    // It was delivered again to the other thread, with its outcome marked as unknown.
    start.recv().unwrap();
    bench.add_with(NewJob::new("q", "other"));
    finished.recv().unwrap();
    while bench.jobs.stats().unwrap().total.done < 2 {
        std::thread::yield_now();
    }
    while workers.report().stuck.is_empty() {
        bench.advance(1);
        std::thread::yield_now();
    }
    let_go.send(()).unwrap();
    workers.shutdown(secs(3600));
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.flow("lease_expired"), total.done), (1, 2));
    bench.check();
}

/// O-05, P5, P13: the machine sleeps for 8 hours; another worker takes over; the first one wakes up
/// and can change nothing.
#[test]
fn o_05_after_a_sleep_the_old_lease_is_fenced() {
    let bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").policy(JobPolicy::new().lease(secs(300))));
    let sleeper = bench.claim_one();
    bench.clock.jump_wall(secs(8 * 3600));
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    // It gets half a lease of waking time to show that it is alive; it does not.
    bench.advance(150);
    bench.jobs.sweep().unwrap();
    let taker = bench.claim_one();
    assert!(taker.token().delivery > sleeper.token().delivery);

    let before = bench.jobs.job(id).unwrap();
    assert!(matches!(sleeper.heartbeat(), Err(SettleError::StaleLease { .. })));
    let token = sleeper.token();
    let stale = |outcome: Result<JobState, SettleError>| match outcome {
        Err(SettleError::StaleLease { presented, current }) => {
            assert_eq!((presented, current), (token, Some(taker.token())));
        }
        other => panic!("{other:?}"),
    };
    stale(sleeper.twin().complete().map(|()| JobState::Done));
    stale(sleeper.twin().fail(Failure::permanent("late")));
    stale(sleeper.twin().snooze(secs(1)));
    stale(sleeper.twin().release());
    assert_eq!(bench.jobs.job(id).unwrap(), before, "nothing changed, history included");
    assert_eq!(bench.jobs.stats().unwrap().total.flow("stale_calls_refused"), 4);
    taker.complete().unwrap();
    drop(sleeper);
    bench.check();
}

/// A lease that is dropped gives the job back to its old place, uncharged.
#[test]
fn a_dropped_lease_is_released_uncharged() {
    let bench = Bench::new();
    let first = bench.add("1");
    bench.add("2");
    drop(bench.claim_one());
    let lease = bench.claim_one();
    assert_eq!((lease.id(), lease.delivery(), lease.attempt()), (first, 2, 1));
    drop(lease);
    bench.jobs.sweep().unwrap();
    bench.check();
}

/// Claims with a stop in the middle: what was claimed and not started goes back uncharged.
#[test]
fn a_shutdown_gives_unfinished_work_back_uncharged() {
    let bench = Bench::new();
    let id = bench.add("1");
    let (started, start) = mpsc::channel();
    let (let_go, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |_| {
        started.send(()).unwrap();
        let _ = hold.lock().unwrap().recv();
        Ok(Completion::new())
    });
    let workers = workers.start().unwrap();
    start.recv().unwrap();
    assert_eq!(workers.shutdown(secs(0)).given_back, 1);
    bench.jobs.sweep().unwrap();
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.state, info.attempts, info.deliveries), (JobState::Ready, 0, 1));
    assert!(info.outcome_unknown, "it had been started (P8)");
    let_go.send(()).unwrap();
    let lease = bench.jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    assert_eq!(lease.delivery(), 2);
    lease.complete().unwrap();
    bench.check();
}

/// A worker that waits for its next job has no job: nothing is kept alive, stuck or given back for it.
#[test]
fn an_idle_worker_holds_nothing() {
    let bench = Bench::new();
    bench.add_with(NewJob::new("q", "k").policy(JobPolicy::new().lease(secs(4))));
    let beats = Arc::new(AtomicU32::new(0));
    let seen = Arc::clone(&beats);
    let workers = Workers::new(&bench.jobs)
        .queue("q", 1)
        .handle("k", |_| Ok(Completion::new()))
        .filter_heartbeats(move |_| {
            seen.fetch_add(1, Ordering::SeqCst);
            true
        })
        .start()
        .unwrap();
    while workers.report().completed == 0 {
        std::thread::yield_now();
    }
    let before = beats.load(Ordering::SeqCst);
    for _ in 0..20 {
        bench.advance(1);
        bench.jobs.sweep().unwrap();
    }
    assert_eq!(beats.load(Ordering::SeqCst), before);
    assert!(workers.report().stuck.is_empty());
    assert_eq!(workers.shutdown(secs(0)).given_back, 0);
    assert_eq!(bench.jobs.stats().unwrap().total.flow("stale_calls_refused"), 0);
}

/// A handler may give its job back: unstarted it is as if it had not been claimed, started its outcome
/// is unknown; neither is charged.
#[test]
fn a_handler_gives_its_job_back() {
    for started in [false, true] {
        let bench = Bench::new();
        let id = bench.add("1");
        let (done, finished) = mpsc::channel();
        let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |job| {
            done.send(job.delivery()).unwrap();
            Ok(match (job.delivery(), started) {
                (2, _) => Completion::new(),
                (_, true) => Completion::give_back_started(),
                (_, false) => Completion::give_back_unstarted(),
            })
        });
        let workers = workers.start().unwrap();
        assert_eq!(finished.recv().unwrap(), 1);
        assert_eq!(finished.recv().unwrap(), 2);
        workers.shutdown(secs(60));
        let total = bench.jobs.stats().unwrap().total;
        assert_eq!((total.done, total.flow("released")), (1, 1));
        assert!(bench.jobs.job(id).unwrap().is_none());
        bench.check();
    }
}

/// A handler may put its job off: uncharged, and it runs when the time has come.
#[test]
fn a_handler_snoozes_its_job() {
    let bench = Bench::new();
    let id = bench.add("1");
    let (done, finished) = mpsc::channel();
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |job| {
        done.send(job.attempt()).unwrap();
        Ok(match job.delivery() {
            1 => Completion::snooze(secs(60)),
            _ => Completion::new(),
        })
    });
    let workers = workers.start().unwrap();
    assert_eq!(finished.recv().unwrap(), 1);
    while bench.jobs.job(id).unwrap().unwrap().state != JobState::Delayed {
        std::thread::yield_now();
    }
    bench.advance(60);
    assert_eq!(finished.recv().unwrap(), 1, "the first attempt still");
    workers.shutdown(secs(60));
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.done, total.flow("snoozed")), (1, 1));
    bench.check();
}
