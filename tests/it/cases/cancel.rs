//! O-17: a cancel is not overwritten.

use redrive::{Cancelled, Failure, JobPolicy, JobState, NewJob};

use crate::support::{Bench, secs};

fn remembered() -> NewJob {
    let policy = JobPolicy::new().lease(secs(30)).keep_finished(secs(3600));
    NewJob::new("q", "k").policy(policy)
}

/// However the delivery ends after the request, there is no retry, and one final state.
#[test]
fn o_17_no_retry_after_a_cancel_request() {
    for end in ["complete", "fail", "lease ends", "snooze", "release", "crash"] {
        let mut bench = Bench::new();
        let id = bench.add_with(remembered());
        let lease = bench.claim_one();
        assert_eq!(bench.jobs.cancel(id).unwrap(), Cancelled::Requested);
        assert_eq!(bench.jobs.cancel(id).unwrap(), Cancelled::Requested, "asking twice is no harm");
        if end != "crash" {
            assert!(lease.heartbeat().unwrap().cancel_requested);
        }
        match end {
            "complete" => lease.complete().unwrap(),
            "fail" => drop(lease.fail(Failure::transient("E")).unwrap()),
            "snooze" => drop(lease.snooze(secs(5)).unwrap()),
            "release" => drop(lease.release().unwrap()),
            "lease ends" => {
                bench.advance(30);
                bench.jobs.sweep().unwrap();
                assert!(lease.complete().is_err());
            }
            _ => {
                std::mem::forget(lease);
                bench.reopen();
            }
        }
        let info = bench.jobs.job(id).unwrap().unwrap();
        let expected = if end == "complete" { JobState::Done } else { JobState::Cancelled };
        assert_eq!(info.state, expected, "{end}");
        let requested =
            info.history.iter().any(|entry| entry.event == redrive::HistoryEvent::CancelRequested);
        assert!(requested, "both facts are recorded: {info:#?}");
        bench.advance(3_000);
        bench.jobs.sweep().unwrap();
        assert!(bench.claim(1).is_empty());
        assert!(bench.jobs.cancel(id).is_err());
        bench.check();
    }
}

/// Cancel raced against claim: whoever is first, the story is one of the two.
#[test]
fn o_17_cancel_races_claim() {
    let bench = Bench::new();
    let mut outcomes = [0, 0];
    for _ in 0..1_000 {
        let id = bench.add_with(remembered());
        let (cancelled, claimed) = std::thread::scope(|scope| {
            let cancel = scope.spawn(|| bench.jobs.cancel(id).unwrap());
            let claimed = bench.claim(1).pop();
            (cancel.join().unwrap(), claimed)
        });
        match (cancelled, claimed) {
            (Cancelled::Now, None) => outcomes[0] += 1,
            (Cancelled::Requested, Some(lease)) => {
                outcomes[1] += 1;
                assert_eq!(lease.fail(Failure::transient("E")).unwrap(), JobState::Cancelled);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(bench.jobs.job(id).unwrap().unwrap().state, JobState::Cancelled);
    }
    assert_eq!(bench.jobs.stats().unwrap().total.cancelled, 1_000, "{outcomes:?}");
    bench.check();
}
