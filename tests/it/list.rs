//! Jobs that are on their way, page by page.

use redrive::{JobId, JobPage, NewJob, OnTheirWay};

use crate::support::{Bench, secs};

fn ids(bench: &Bench, which: OnTheirWay, queue: Option<&str>, limit: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    let mut page: Option<JobPage> = bench.jobs.list(which, queue, None, limit).unwrap();
    while let Some(found) = page {
        assert!(found.jobs.len() <= limit && found.unreadable.is_empty());
        ids.extend(found.jobs.iter().map(|job| job.id));
        page = bench.jobs.list(which, queue, Some(&found), limit).unwrap();
    }
    ids
}

#[test]
fn jobs_on_their_way_are_listed_page_by_page() {
    let bench = Bench::new();
    for n in 0..25_u64 {
        bench.add("x");
        bench.add_with(NewJob::new("r", "k").priority(u8::try_from(n).unwrap()));
        bench.add_with(
            NewJob::new(["q", "r"][usize::try_from(n % 2).unwrap()], "late").delay(secs(100 - n)),
        );
    }
    std::mem::forget(bench.claim(3));
    for limit in [1, 7, 1_000] {
        assert_eq!(ids(&bench, OnTheirWay::Ready, None, limit).len(), 47);
        assert_eq!(ids(&bench, OnTheirWay::Ready, Some("q"), limit).len(), 22);
        assert_eq!(ids(&bench, OnTheirWay::Ready, Some("r"), limit).len(), 25);
        assert_eq!(ids(&bench, OnTheirWay::Delayed, Some("q"), limit).len(), 13);
        assert_eq!(ids(&bench, OnTheirWay::Leased, None, limit).len(), 3);
        assert!(ids(&bench, OnTheirWay::Leased, Some("r"), limit).is_empty());
        assert!(ids(&bench, OnTheirWay::Ready, Some("never heard of"), limit).is_empty());
    }
    // By due time: those enqueued last are due first.
    let delayed = ids(&bench, OnTheirWay::Delayed, None, 4);
    assert!(delayed.is_sorted_by(|a, b| a > b) && delayed.len() == 25, "{delayed:?}");
    assert!(bench.jobs.list(OnTheirWay::Ready, None, None, 0).unwrap().is_none());
}
