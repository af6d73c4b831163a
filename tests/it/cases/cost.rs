//! O-19, P15: the cost of a claim does not grow with what it does not take.

use redrive::{ClaimRequest, NewJob};

use crate::support::{Bench, full};

fn fill(bench: &Bench, kind: &str, count: usize) {
    let mut left = count;
    while left > 0 {
        let batch = left.min(10_000);
        let jobs = vec![NewJob::new("q", kind); batch];
        bench.jobs.enqueue_many(jobs, redrive::BatchRule::PerItem).unwrap();
        left -= batch;
    }
}

/// Counted in rows, not in time (the benches time it): a claim among many reads as many rows as a
/// claim among few.
#[test]
fn o_19_a_claim_reads_the_same_rows_whatever_the_backlog() {
    let bench = Bench::new();
    let cost = |kinds: &[&str]| {
        let before = bench.jobs.rows_touched();
        let lease = bench
            .jobs
            .claim(ClaimRequest::new("q").kinds(kinds.iter().copied()))
            .unwrap()
            .remove(0);
        lease.complete().unwrap();
        bench.jobs.rows_touched() - before
    };
    fill(&bench, "known", 1_000);
    cost(&["known"]);
    let small = cost(&["known"]);
    fill(&bench, "unknown", if full() { 900_000 } else { 30_000 });
    fill(&bench, "known", if full() { 100_000 } else { 10_000 });
    assert_eq!(cost(&["known"]), small);
    bench.check();
}
