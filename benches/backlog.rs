//! Does a claim cost more when more jobs lie ready? With 1,000 and with 1,000,000, and with 900,000
//! jobs of a kind the worker does not know ahead of 100 that it does. The stores are measured in
//! turns, so that a slow moment of the disk meets all of them.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench stops at the first surprise and takes its own time"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod common;

use std::time::{Duration, Instant};

use common::{Disk, PAYLOAD, criterion, percentile, print_percentiles, size};
use redrive::{BatchRule, ClaimRequest, NewJob};

const QUEUE: &str = "backlog";

/// A store with a backlog.
struct Backlog {
    name: &'static str,
    disk: Disk,
    claims: Vec<Duration>,
    completes: Vec<Duration>,
}

impl Backlog {
    /// `ahead` jobs of a kind nobody asks for, then `ready` that are asked for.
    fn new(name: &'static str, ahead: usize, ready: usize) -> Self {
        let backlog = Self { name, disk: Disk::new(), claims: Vec::new(), completes: Vec::new() };
        println!(
            "backlog/{name}: {ready} ready jobs behind {ahead} of a kind that is not asked for"
        );
        backlog.disk.describe();
        let (start, before) = (Instant::now(), backlog.disk.traffic());
        let fills = backlog.fill("unknown", ahead) + backlog.fill("work", ready);
        let rate = (ahead + ready) as f64 / start.elapsed().as_secs_f64();
        backlog.disk.report("filling", ahead + ready, fills, before);
        println!("  filled at {rate:.0} jobs/s");
        backlog
    }

    /// Returns the number of calls.
    fn fill(&self, kind: &str, count: usize) -> usize {
        let all: Vec<usize> = (0..count).collect();
        let chunks = all.chunks(20_000);
        let calls = chunks.len();
        for chunk in chunks {
            let job = |_| NewJob::new(QUEUE, kind).bytes(PAYLOAD);
            let fill = chunk.iter().map(job);
            let outcomes = self.disk.jobs.enqueue_many(fill, BatchRule::AllOrNothing);
            assert!(outcomes.unwrap().iter().all(Result::is_ok));
        }
        calls
    }

    /// Claims and completes one job; the backlog gets another one, which is not timed.
    fn one(&mut self) -> Duration {
        let start = Instant::now();
        let request = ClaimRequest::new(QUEUE).kinds(["work"]);
        let lease = self.disk.jobs.claim(request).unwrap().pop().unwrap();
        let claimed = start.elapsed();
        lease.complete().unwrap();
        let completed = start.elapsed();
        self.claims.push(claimed);
        self.completes.push(completed - claimed);
        let again = NewJob::new(QUEUE, "work").bytes(PAYLOAD);
        self.disk.jobs.enqueue(again).unwrap();
        completed
    }
}

fn main() {
    let mut criterion = criterion();
    let mut small = Backlog::new("small", 0, 1_000);
    let mut large = Backlog::new("large", 0, size(1_000_000, 5_000));
    let mut behind = Backlog::new("behind_unknown", size(900_000, 4_000), 100);

    let rounds = size(2_000, 20);
    for _ in 0..rounds {
        for backlog in [&mut small, &mut large, &mut behind] {
            backlog.one();
        }
    }
    for backlog in [&mut small, &mut large, &mut behind] {
        println!("backlog/{}, {rounds} rounds in turns:", backlog.name);
        print_percentiles("claim", &mut backlog.claims);
        print_percentiles("complete", &mut backlog.completes);
    }
    for other in [&mut large, &mut behind] {
        let name = other.name;
        for share in [0.5, 0.99] {
            let mut ratio = |of: fn(&mut Backlog) -> &mut Vec<Duration>| {
                let numerator = percentile(of(other), share);
                numerator.as_secs_f64() / percentile(of(&mut small), share).as_secs_f64()
            };
            println!(
                "  {} to small at p{:.0}: claim {:.2}, complete {:.2}",
                name,
                share * 100.0,
                ratio(|backlog| &mut backlog.claims),
                ratio(|backlog| &mut backlog.completes),
            );
        }
    }
    let mut group = criterion.benchmark_group("backlog");
    for backlog in [&mut small, &mut large, &mut behind] {
        group.bench_function(backlog.name, |bencher| {
            bencher.iter_custom(|rounds| (0..rounds).map(|_| backlog.one()).sum());
        });
    }
    group.finish();
    criterion.final_summary();
}
