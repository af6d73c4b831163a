//! How many lives per second do many callers get together? 64 producers await each enqueue while
//! 16, 64 or 256 workers hold one job at a time and complete it together with their next claim.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench stops at the first surprise and takes its own time"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod common;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};

use common::{Disk, criterion, is_new, keyed, size};
use criterion::{BenchmarkId, SamplingMode, Throughput};
use redrive::{ClaimRequest, Lease, Redrive};

const PRODUCERS: usize = 64;

fn main() {
    let mut criterion = criterion();
    let lives = size(12_800, 256);
    let mut group = criterion.benchmark_group("crowd");
    group.sampling_mode(SamplingMode::Flat);
    group.throughput(Throughput::Elements(u64::try_from(lives).unwrap()));
    for workers in [16, 64, 256] {
        println!("crowd/{workers}: {PRODUCERS} producers, {workers} workers, with keys");
        let disk = Disk::new();
        disk.describe();
        let before = disk.traffic();
        let took = crowd(&disk.jobs, 0, lives, workers);
        // An enqueue and a complete-then-claim per life.
        disk.report("life", lives, 2 * lives, before);
        println!("  first run: {:.0} lives/s", lives as f64 / took.as_secs_f64());
        let mut run = 0;
        group.bench_function(BenchmarkId::from_parameter(workers), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        run += 1;
                        crowd(&disk.jobs, run * lives, lives, workers)
                    })
                    .sum()
            });
        });
        let stats = disk.jobs.stats().unwrap();
        assert_eq!(stats.total.residual, 0);
    }
    group.finish();
    criterion.final_summary();
}

/// From the moment everybody stands ready until the last of `lives` jobs is done.
fn crowd(jobs: &Redrive, first_key: usize, lives: usize, workers: usize) -> Duration {
    let done = AtomicUsize::new(0);
    let next = AtomicUsize::new(0);
    let ended = Mutex::new(None);
    let ready = Barrier::new(PRODUCERS + workers + 1);
    let start = std::thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                ready.wait();
                loop {
                    let place = next.fetch_add(1, Ordering::Relaxed);
                    if place >= lives {
                        return;
                    }
                    let job = keyed("crowd", first_key + place);
                    assert!(is_new(&jobs.enqueue(job).unwrap()));
                }
            });
        }
        for _ in 0..workers {
            scope.spawn(|| {
                ready.wait();
                work(jobs, &done, lives, || {
                    *ended.lock().unwrap() = Some(Instant::now());
                });
            });
        }
        ready.wait();
        Instant::now()
    });
    ended.into_inner().unwrap().unwrap() - start
}

fn work(jobs: &Redrive, done: &AtomicUsize, lives: usize, last: impl Fn()) {
    // The wait only ends workers that have nothing left to do; it is no part of what is timed.
    let request = || ClaimRequest::new("crowd").wait(Duration::from_millis(100));
    let mut held: Vec<Lease> = Vec::new();
    while done.load(Ordering::Relaxed) < lives {
        held = match held.pop() {
            None => jobs.claim(request()).unwrap(),
            Some(lease) => {
                let (completed, claimed) = lease.complete_then_claim(request());
                completed.unwrap();
                if done.fetch_add(1, Ordering::Relaxed) + 1 == lives {
                    last();
                }
                claimed.unwrap()
            }
        };
    }
}
