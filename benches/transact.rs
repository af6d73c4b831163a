//! What does a transaction on the caller's thread cost beside a plain enqueue, alone and in a crowd? And a
//! completion with a row beside one without?
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench stops at the first surprise and takes its own time"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Disk, is_new, keyed, size};
use redrive::redb::TableDefinition;
use redrive::{ClaimRequest, Completion, EffectTable, Redrive};

const ORDERS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("orders");
const ROWS: EffectTable<u64, [u8]> = EffectTable::new("rows");
const THREADS: [u64; 2] = [1, 16];

fn main() {
    println!("transact: enqueues with a key, each awaited; the app's row has 100 bytes");
    for threads in THREADS {
        let plain = enqueues(threads, |jobs, number| {
            assert!(is_new(&jobs.enqueue(keyed("q", number)).unwrap()));
        });
        let transacted = enqueues(threads, |jobs, number| {
            let added = jobs.transact(|tx| {
                tx.open_table(ORDERS)?
                    .insert(u64::try_from(number).unwrap(), &common::PAYLOAD[..])?;
                tx.enqueue(keyed("q", number))
            });
            assert!(is_new(&added.unwrap()));
        });
        report(&format!("{threads} threads: enqueue"), plain, plain);
        report(&format!("{threads} threads: transact, row and enqueue"), transacted, plain);
    }
    let plain = completions(|_| Completion::new());
    let rows = completions(|number| Completion::new().put(ROWS, &number, &common::PAYLOAD));
    report("16 threads: complete", plain, plain);
    report("16 threads: complete with a row of 100 bytes", rows, plain);
}

fn report(what: &str, took: Duration, plain: Duration) {
    let (us, ratio) = (took.as_secs_f64() * 1e6, took.as_secs_f64() / plain.as_secs_f64());
    println!("  {what}: {us:.1} us a call in all, {ratio:.2} times the plain one");
}

/// The time per call of `one`, from so many threads at once.
fn enqueues(threads: u64, one: impl Fn(&Redrive, usize) + Sync) -> Duration {
    let disk = Disk::new();
    let next = AtomicU64::new(1);
    let calls = u64::try_from(size(2_000, 32)).unwrap();
    in_threads(threads, calls, || {
        one(&disk.jobs, usize::try_from(next.fetch_add(1, Ordering::Relaxed)).unwrap());
    })
}

/// The time per completion of a leased job.
fn completions(completion: impl Fn(u64) -> Completion + Sync) -> Duration {
    let disk = Disk::new();
    let calls = size(8_000, 32);
    for number in 0..calls {
        disk.jobs.enqueue(keyed("q", number)).unwrap();
    }
    let leases = disk.jobs.claim(ClaimRequest::new("q").up_to(calls)).unwrap();
    let leases = std::sync::Mutex::new(leases);
    in_threads(16, u64::try_from(calls).unwrap(), || {
        let lease = leases.lock().unwrap().pop().unwrap();
        let number = lease.id().get();
        lease.complete_with(completion(number)).unwrap();
    })
}

fn in_threads(threads: u64, calls: u64, one: impl Fn() + Sync) -> Duration {
    let left = AtomicU64::new(calls);
    let take = |left: u64| left.checked_sub(1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok() {
                    one();
                }
            });
        }
    });
    start.elapsed() / u32::try_from(calls).unwrap()
}
