//! O-18: a paused queue runs nothing.

use std::sync::mpsc;

use redrive::{Completion, JobState, NewJob, Options, Pause, RunningWorkers, Scope, Workers};

use crate::support::{Bench, secs};

fn worker(bench: &Bench, ran: &mpsc::Sender<redrive::JobId>) -> RunningWorkers {
    let ran = ran.clone();
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |job| {
        ran.send(job.id()).unwrap();
        Ok(Completion::new())
    });
    workers.start().unwrap()
}

/// The case as it is written: a worker that is blocked in its claim when the pause returns takes
/// nothing; a job that falls due does not either; a restart changes nothing; after the resume both run.
#[test]
fn o_18_nothing_is_claimed_from_a_paused_queue_until_it_is_resumed() {
    for scope in [Scope::queue("q"), Scope::class("q", "k")] {
        let mut bench = Bench::new();
        let (sender, ran) = mpsc::channel();
        // (1) A worker blocked in its claim: it has just done what there was.
        let first = worker(&bench, &sender);
        let before = bench.add("before");
        assert_eq!(ran.recv().unwrap(), before);
        // (2)
        bench.jobs.pause(scope.clone(), Pause::new("provider is down").by("ada")).unwrap();
        // (3)
        let now = bench.add("now");
        let late = bench.add_with(NewJob::new("q", "k").delay(secs(1)));
        let waits = |bench: &Bench| {
            for _ in 0..5 {
                bench.advance(1);
                bench.jobs.sweep().unwrap();
            }
            let stats = bench.jobs.stats().unwrap().total;
            assert_eq!((stats.flow("claimed"), stats.leased), (1, 0));
            for id in [now, late] {
                assert_eq!(bench.jobs.job(id).unwrap().unwrap().state, JobState::Ready);
            }
        };
        waits(&bench);
        first.shutdown(secs(60));
        bench.reopen();
        let second = worker(&bench, &sender);
        waits(&bench);
        assert!(ran.try_recv().is_err());
        // (4)
        let lifted = bench.jobs.resume(scope.clone()).unwrap();
        assert_eq!((lifted.len(), &lifted[0].scope, lifted[0].by.as_str()), (1, &scope, "ada"));
        let both = [ran.recv().unwrap(), ran.recv().unwrap()];
        assert!(both.contains(&now) && both.contains(&late), "{both:?}");
        second.shutdown(secs(60));
        bench.check();
    }
}

/// A job that runs when its queue is paused finishes normally, and a failed one waits like the others.
#[test]
fn o_18_jobs_that_run_at_the_time_finish_normally() {
    let bench = Bench::new();
    bench.add("1");
    bench.add("2");
    let (one, two) = (bench.claim_one(), bench.claim_one());
    bench.jobs.pause(Scope::queue("q"), Pause::new("maintenance")).unwrap();
    one.heartbeat().unwrap();
    let (done, claimed) = one.complete_then_claim(redrive::ClaimRequest::new("q"));
    assert!(done.is_ok() && claimed.unwrap().is_empty());
    assert_eq!(two.release().unwrap(), JobState::Ready);
    assert!(bench.claim(10).is_empty());
    bench.jobs.resume(Scope::queue("q")).unwrap();
    assert_eq!(bench.claim(10).len(), 1);
    bench.check();
}

/// The resume itself wakes who waits: the clock stands still.
#[test]
fn o_18_a_resume_wakes_the_claims_that_wait() {
    let bench = Bench::new();
    bench.jobs.pause(Scope::class("q", "k"), Pause::new("why")).unwrap();
    let id = bench.add("x");
    let waiting = bench.jobs.clone();
    let claim = redrive::ClaimRequest::new("q").wait(secs(3_600));
    let waiter = std::thread::spawn(move || waiting.claim(claim).unwrap().remove(0).id());
    bench.jobs.sweep().unwrap();
    bench.jobs.resume(Scope::class("q", "k")).unwrap();
    assert_eq!(waiter.join().unwrap(), id);
}

/// The same on the clocks of the machine, over a power cut's worth of process death.
#[test]
fn o_18_a_pause_is_durable_when_it_returns() {
    let disk = redrive::testing::CrashDisk::new();
    let jobs = Options::new().open_backend(disk.backend()).unwrap();
    jobs.pause(Scope::queue("q"), Pause::new("why").by("ada")).unwrap();
    // What was synced is all that is left.
    let image = disk.image(redrive::testing::Survival::Nothing);
    let image = redrive::testing::CrashDisk::from_image(image);
    let after = Options::new().open_backend(image.backend()).unwrap();
    after.enqueue(NewJob::new("q", "k")).unwrap();
    assert!(after.claim(redrive::ClaimRequest::new("q")).unwrap().is_empty());
    assert_eq!(after.pauses().unwrap(), jobs.pauses().unwrap());
}
