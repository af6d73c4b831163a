//! Kinds that a build does not know.

use redrive::{Completion, NewJob, Workers};

use crate::support::{Bench, secs};

/// O-15: kinds without a handler stay ready, are charged nothing and are shown.
#[test]
fn o_15_unknown_kinds_stay_ready_and_are_shown() {
    let bench = Bench::new();
    for kind in ["new", "old"].repeat(5) {
        bench.add_with(NewJob::new("q", kind));
    }
    let done = |count| {
        while bench.jobs.stats().unwrap().total.done < count {
            std::thread::yield_now();
        }
    };
    let old_build =
        Workers::new(&bench.jobs).queue("q", 2).handle("old", |_| Ok(Completion::new()));
    let old_build = old_build.start().unwrap();
    done(5);
    let unknown = old_build.unknown_kinds().unwrap();
    assert_eq!(unknown.into_iter().collect::<Vec<_>>(), [("new".to_owned(), 5)]);
    old_build.shutdown(secs(60));
    let stats = bench.jobs.stats().unwrap();
    let new = &stats.queues["q"].kinds["new"];
    assert_eq!((new.ready, new.flow("claimed")), (5, 0));

    let new_build = Workers::new(&bench.jobs)
        .queue("q", 2)
        .handle("old", |_| Ok(Completion::new()))
        .handle("new", |_| Ok(Completion::new()));
    let new_build = new_build.start().unwrap();
    done(10);
    assert!(new_build.unknown_kinds().unwrap().is_empty());
    new_build.shutdown(secs(60));
    bench.check();
}
