//! How many lives per second when callers bring their own batches: 1,000 jobs per enqueue, up to
//! 1,000 per claim, settled one by one from as many threads as it takes to share commits.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench stops at the first surprise and takes its own time"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use common::{Disk, criterion, keyed, size};
use criterion::{BenchmarkId, SamplingMode, Throughput};
use redrive::{BatchRule, ClaimRequest, Lease, Redrive};

const BATCH: usize = 1_000;

fn main() {
    let mut criterion = criterion();
    let batches = size(20, 1);
    let lives = batches * BATCH;
    let mut group = criterion.benchmark_group("batch");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(u64::try_from(lives).unwrap()));
    for settlers in [64, 256] {
        println!("batch/{settlers}: batches of {BATCH}, {settlers} threads that settle, with keys");
        let disk = Disk::new();
        disk.describe();
        let before = disk.traffic();
        let took = lives_in_batches(&disk.jobs, 0, batches, settlers);
        disk.report("life", lives, 2 * batches + lives, before);
        println!("  first run: {:.0} lives/s", lives as f64 / took.as_secs_f64());
        let mut run = 0;
        group.bench_function(BenchmarkId::from_parameter(settlers), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        run += 1;
                        lives_in_batches(&disk.jobs, run * lives, batches, settlers)
                    })
                    .sum()
            });
        });
        assert_eq!(disk.jobs.stats().unwrap().total.residual, 0);
    }
    group.finish();
    criterion.final_summary();
}

fn lives_in_batches(jobs: &Redrive, first_key: usize, batches: usize, settlers: usize) -> Duration {
    let start = Instant::now();
    let done = AtomicUsize::new(0);
    let (hand_out, leases) = sync_channel::<Lease>(2 * BATCH);
    let leases = Mutex::new(leases);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for batch in 0..batches {
                let keys = first_key + batch * BATCH..first_key + (batch + 1) * BATCH;
                let batch = keys.map(|key| keyed("batch", key));
                let outcomes = jobs.enqueue_many(batch, BatchRule::AllOrNothing).unwrap();
                assert!(outcomes.iter().all(Result::is_ok));
            }
        });
        for _ in 0..settlers {
            scope.spawn(|| settle(&leases, &done));
        }
        let mut claimed = 0;
        while claimed < batches * BATCH {
            let request = ClaimRequest::new("batch").up_to(BATCH).wait(Duration::from_secs(60));
            for lease in jobs.claim(request).unwrap() {
                claimed += 1;
                hand_out.send(lease).unwrap();
            }
        }
        drop(hand_out);
    });
    assert_eq!(done.into_inner(), batches * BATCH);
    start.elapsed()
}

fn settle(leases: &Mutex<Receiver<Lease>>, done: &AtomicUsize) {
    loop {
        // The lock is given back before the lease is settled.
        let next = leases.lock().unwrap().recv();
        let Ok(lease) = next else { return };
        lease.complete().unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
}
