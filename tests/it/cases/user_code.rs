//! O-22: user code never runs while the writer's transaction is open.

use std::sync::mpsc;

use redrive::{Completion, EnqueueError, JobState, NewJob, Workers};
use serde::{Serialize, Serializer};

use crate::support::{Bench, secs};

struct Panics;

impl Serialize for Panics {
    fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        panic!("an encoder that panics")
    }
}

/// a: an encoder that panics gives a typed error each time, and the file does not grow.
#[test]
fn o_22_a_panicking_encoder_is_a_typed_error_and_costs_nothing() {
    let bench = Bench::new();
    bench.add("1");
    let bytes = std::fs::metadata(&bench.path).unwrap().len();
    for _ in 0..1_000 {
        let refused = NewJob::new("q", "k").json(&Panics);
        assert!(matches!(refused, Err(EnqueueError::Encode { .. })));
    }
    assert_eq!(std::fs::metadata(&bench.path).unwrap().len(), bytes);
    bench.add("2");
    bench.check();
}

/// b: a handler that enqueues, claims and looks while it runs does not block itself.
#[test]
fn o_22_a_handler_may_use_the_store() {
    let bench = Bench::new();
    let jobs = bench.jobs.clone();
    let (done, finished) = mpsc::channel();
    let workers = Workers::new(&bench.jobs)
        .queue("q", 1)
        .handle("k", move |job| {
            jobs.enqueue(NewJob::new("q", "next").key(format!("after {}", job.id())))?;
            assert_eq!(jobs.job(job.id())?.unwrap().state, JobState::Leased);
            jobs.sweep()?;
            Ok(Completion::new())
        })
        .handle("next", move |_| {
            done.send(()).unwrap();
            Ok(Completion::new())
        });
    let workers = workers.start().unwrap();
    bench.add("1");
    finished.recv().unwrap();
    workers.shutdown(secs(60));
    assert_eq!(bench.jobs.stats().unwrap().total.done, 2);
    bench.check();
}

struct Slow(mpsc::Sender<()>, std::sync::Mutex<mpsc::Receiver<()>>);

impl Serialize for Slow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.send(()).unwrap();
        self.1.lock().unwrap().recv().unwrap();
        serializer.serialize_unit()
    }
}

/// c: while an encoder takes its time, the others go on as if it were not there.
#[test]
fn o_22_a_slow_encoder_holds_up_nobody() {
    let bench = Bench::new();
    let (inside, entered) = mpsc::channel();
    let (let_go, hold) = mpsc::channel();
    let jobs = bench.jobs.clone();
    let slow = std::thread::spawn(move || {
        let job =
            NewJob::new("q", "slow").json(&Slow(inside, std::sync::Mutex::new(hold))).unwrap();
        jobs.enqueue(job).unwrap();
    });
    entered.recv().unwrap();
    for _ in 0..100 {
        bench.add("x");
        bench.claim_one().complete().unwrap();
    }
    let_go.send(()).unwrap();
    slow.join().unwrap();
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 1);
    bench.check();
}

/// A panic in a handler is a failure like any other: classified, noted, retried within budget.
#[test]
fn a_panic_in_a_handler_is_a_failure() {
    let bench = Bench::new();
    let (done, finished) = mpsc::channel();
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |_| {
        done.send(()).unwrap();
        panic!("on purpose")
    });
    let workers = workers.start().unwrap();
    let id = bench.add("1");
    finished.recv().unwrap();
    let report = workers.shutdown(secs(60));
    assert_eq!(report.given_back, 0);
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.state, info.attempts), (JobState::Delayed, 1));
    let text = serde_json::to_string(&info.history).unwrap();
    assert!(text.contains("panicked") && text.contains("on purpose"), "{text}");
    bench.check();
}
