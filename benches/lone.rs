//! What does one caller wait for who awaits each call? A durable enqueue, and a full life.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench stops at the first surprise and takes its own time"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod common;

use std::time::Instant;

use common::{Disk, criterion, is_new, keyed, print_percentiles, size};
use redrive::ClaimRequest;

fn main() {
    let mut criterion = criterion();
    enqueue(&mut criterion);
    life(&mut criterion);
    criterion.final_summary();
}

fn enqueue(criterion: &mut criterion::Criterion) {
    println!("lone/enqueue: one caller, each enqueue awaited, with a key");
    let disk = Disk::new();
    disk.describe();
    let mut next = 0;
    let mut one = || {
        next += 1;
        assert!(is_new(&disk.jobs.enqueue(keyed("lone", next)).unwrap()));
    };
    let (rounds, before) = (size(1_000, 20), disk.traffic());
    let mut durations: Vec<_> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            one();
            start.elapsed()
        })
        .collect();
    disk.report("enqueue", rounds, rounds, before);
    print_percentiles("enqueue", &mut durations);
    criterion.bench_function("lone/enqueue", |bencher| bencher.iter(&mut one));
}

fn life(criterion: &mut criterion::Criterion) {
    println!("lone/life: one caller; enqueue, claim, complete, each awaited, with a key");
    let disk = Disk::new();
    disk.describe();
    let mut next = 0;
    let mut one = || {
        next += 1;
        assert!(is_new(&disk.jobs.enqueue(keyed("lone", next)).unwrap()));
        let mut leases = disk.jobs.claim(ClaimRequest::new("lone")).unwrap();
        leases.pop().unwrap().complete().unwrap();
    };
    let (rounds, before) = (size(1_000, 20), disk.traffic());
    let mut durations: Vec<_> = (0..rounds)
        .map(|_| {
            let start = Instant::now();
            one();
            start.elapsed()
        })
        .collect();
    disk.report("life", rounds, 3 * rounds, before);
    print_percentiles("life", &mut durations);
    criterion.bench_function("lone/life", |bencher| bencher.iter(&mut one));
}
