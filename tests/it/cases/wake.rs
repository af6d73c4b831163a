//! O-20: ready work does not wait while a worker is idle. The clock stands still here, so nothing in
//! these tests can be saved by a backstop.

use std::sync::mpsc;
use std::time::Duration;

use redrive::{ClaimRequest, Completion, NewJob, Workers};

use crate::support::{Bench, full, secs};

/// a: an enqueue wakes an idle worker; d: so it does in thousands of rounds that race with going to
/// sleep.
#[test]
fn o_20_an_enqueue_wakes_an_idle_worker_every_time() {
    let bench = Bench::new();
    let (done, finished) = mpsc::channel();
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |job| {
        done.send(job.id()).unwrap();
        Ok(Completion::new())
    });
    let workers = workers.start().unwrap();
    for _ in 0..if full() { 10_000 } else { 1_000 } {
        let id = bench.add("x");
        assert_eq!(finished.recv().unwrap(), id);
    }
    workers.shutdown(secs(60));
    bench.check();
}

/// b: a job enqueued while the only worker is busy starts when it is free.
#[test]
fn o_20_a_freed_slot_takes_what_waits() {
    let bench = Bench::new();
    let (started, start) = mpsc::channel();
    let (let_go, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |job| {
        started.send(job.id()).unwrap();
        hold.lock().unwrap().recv().unwrap();
        Ok(Completion::new())
    });
    let workers = workers.start().unwrap();
    let first = bench.add("1");
    assert_eq!(start.recv().unwrap(), first);
    let second = bench.add("2");
    let_go.send(()).unwrap();
    assert_eq!(start.recv().unwrap(), second);
    let_go.send(()).unwrap();
    workers.shutdown(secs(60));
    bench.check();
}

/// c: a store that holds nothing but a delayed job wakes for it.
#[test]
fn o_20_a_lone_delayed_job_wakes_the_worker() {
    let bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").delay(Duration::from_millis(200)));
    let waiting = bench.jobs.clone();
    let waiter = std::thread::spawn(move || {
        waiting.claim(ClaimRequest::new("q").wait(secs(3600))).unwrap().remove(0).id()
    });
    // However the two threads race, the claim is either there before the time comes or after.
    bench.clock.advance(Duration::from_millis(200));
    assert_eq!(waiter.join().unwrap(), id);
}

/// A wait that is over is answered, with nothing.
#[test]
fn a_claim_that_waited_in_vain_is_answered() {
    let bench = Bench::new();
    let waiting = bench.jobs.clone();
    let waiter =
        std::thread::spawn(move || waiting.claim(ClaimRequest::new("q").wait(secs(5))).unwrap());
    while !waiter.is_finished() {
        bench.advance(1);
        std::thread::yield_now();
    }
    assert!(waiter.join().unwrap().is_empty());
}
