//! What is told to those who subscribe: after the commit, in order, and without holding anybody up.

use std::time::Duration;

use redrive::{
    CohortState, Event, EventKind, Events, Failure, Filter, Hold, NewJob, Options, Pause,
    RedrivePlan, Scope,
};

use crate::support::{Bench, secs};

fn all(events: &mut Events) -> Vec<EventKind> {
    std::iter::from_fn(|| events.try_recv()).map(|event: Event| event.what).collect()
}

#[test]
fn what_happens_is_told_in_order() {
    let bench = Bench::new();
    let mut events = bench.jobs.events();
    let dead = bench.add("dead");
    bench.claim_one().fail(Failure::permanent("E_SCHEMA")).unwrap();
    bench.jobs.pause(Scope::queue("q"), Pause::new("why").by("ada")).unwrap();
    bench.jobs.resume(Scope::queue("q")).unwrap();
    bench.add("expires");
    std::mem::forget(bench.claim_one());
    bench.advance(30);
    bench.jobs.sweep().unwrap();
    let limit = Failure::throttled("429").retry_after(secs(5)).hold(Hold::Class);
    bench.claim_one().fail(limit).unwrap();
    bench.advance(5);
    bench.jobs.sweep().unwrap();
    let told = all(&mut events);
    let [EventKind::JobDied { job, queue, kind, code, .. }, rest @ ..] = told.as_slice() else {
        panic!("{told:#?}");
    };
    assert_eq!((*job, queue.as_str(), kind.as_str(), code.as_str()), (dead, "q", "k", "E_SCHEMA"));
    let [
        EventKind::Paused { pause },
        EventKind::Resumed { lifted },
        EventKind::LeaseExpired { job, .. },
        EventKind::Held { hold },
        EventKind::Resumed { lifted: ended },
    ] = rest
    else {
        panic!("{told:#?}");
    };
    assert_eq!((pause.by.as_str(), lifted), ("ada", pause));
    assert_eq!((job.get(), hold.is_hold(), ended), (2, true, hold));
    assert!(bench.jobs.events().try_recv().is_none(), "what was before is not told");
    bench.check();
}

#[test]
fn a_cohort_tells_how_it_goes() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.add("x");
        bench.claim_one().fail(Failure::permanent("E")).unwrap();
    }
    let mut events = bench.jobs.events();
    let plan = RedrivePlan::new(Filter::new().queue("q")).reason("fixed").canary(1);
    let id = bench.jobs.redrive(plan).unwrap();
    while bench.jobs.sweep().unwrap() != redrive::SweepReport::default() {}
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    while bench.jobs.sweep().unwrap() != redrive::SweepReport::default() {}
    let states: Vec<_> = all(&mut events)
        .into_iter()
        .filter_map(|what| match what {
            EventKind::Cohort { cohort, state, aborted } if cohort == id => {
                Some((state, aborted.is_some()))
            }
            _ => None,
        })
        .collect();
    assert_eq!(states.last(), Some(&(CohortState::Aborted, true)), "{states:?}");
    assert!(states.contains(&(CohortState::Canary, false)), "{states:?}");
    bench.check();
}

/// A subscriber that sleeps misses events, is told how many and where, and the writer goes on.
#[test]
fn who_does_not_keep_up_misses_events_and_is_told() {
    let bench = Bench::new();
    let mut events = bench.jobs.events();
    let die = |count: usize| {
        let jobs = vec![NewJob::new("q", "k"); count];
        bench.jobs.enqueue_many(jobs, redrive::BatchRule::PerItem).unwrap();
        for lease in bench.claim(count) {
            lease.fail(Failure::permanent("E")).unwrap();
        }
    };
    die(1_100);
    assert_eq!(events.dropped(), 76);
    for _ in 0..10 {
        assert!(matches!(events.try_recv().unwrap().what, EventKind::JobDied { .. }));
    }
    die(1);
    let told = all(&mut events);
    assert_eq!(told.len(), 1_024 - 10 + 2);
    assert_eq!(told[1_014], EventKind::Missed { count: 76 });
    assert!(matches!(told[1_015], EventKind::JobDied { .. }));
    // Missed at the very end.
    die(1_025);
    assert_eq!(all(&mut events).last(), Some(&EventKind::Missed { count: 1 }));
}

#[test]
fn a_subscriber_waits_and_learns_of_the_end() {
    let bench = Bench::new();
    let mut events = bench.jobs.events();
    let waiter = std::thread::spawn(move || {
        let first = events.recv(secs(3_600)).unwrap();
        (first.what, events.recv(secs(3_600)), events.is_closed())
    });
    bench.jobs.pause(Scope::queue("q"), Pause::new("why")).unwrap();
    bench.jobs.close().unwrap();
    let (first, second, closed) = waiter.join().unwrap();
    assert!(matches!(first, EventKind::Paused { .. }));
    assert_eq!((second, closed), (None, true));
}

#[test]
fn a_subscriber_is_told_of_a_recovery_first() {
    let mut bench = Bench::new();
    assert_eq!(bench.jobs.events().recv(Duration::ZERO), None);
    bench.add("x");
    std::mem::forget(bench.claim_one());
    bench.jobs.clone().close().unwrap();
    bench.jobs = Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    let told = all(&mut bench.jobs.events());
    assert_eq!(told, [EventKind::Recovered { leases: 1, died: 0 }]);
}

/// P14: the last word of a store that stopped is why, and nothing of the commit that failed is told.
#[test]
fn p_14_a_poisoned_store_says_so_last() {
    let disk = redrive::testing::CrashDisk::new();
    let (backend, switch) = redrive::testing::FaultBackend::new(disk.backend());
    let jobs = Options::new().open_backend(backend).unwrap();
    let mut events = jobs.events();
    switch.fail(switch.calls(), redrive::testing::Times::Forever, std::io::ErrorKind::Other);
    jobs.pause(Scope::queue("q"), Pause::new("why")).unwrap_err();
    let told = events.recv(secs(60)).unwrap().what;
    assert!(matches!(told, EventKind::Poisoned { .. }), "{told:?}");
    assert_eq!(events.recv(secs(60)), None);
}
