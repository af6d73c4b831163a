//! O-08: a million delayed jobs fall due at one moment while four workers serve them. How soon does
//! the first one start, how long is the longest write transaction, how much memory does it take?
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    reason = "a bench stops at the first surprise and takes its own time"
)]

#[allow(dead_code, reason = "each bench uses its part")]
mod common;

use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use common::{Disk, size};
use redrive::{BatchRule, Completion, NewJob, Workers};

static FIRST: OnceLock<Instant> = OnceLock::new();

fn main() {
    let jobs = size(1_000_000, 5_000);
    let disk = Disk::new();
    println!("flood: {jobs} jobs of 200 bytes with one due time, 4 workers with empty handlers");
    disk.describe();
    let idle = memory_kib("VmRSS:");
    let filling = Instant::now();
    let due = SystemTime::now() + Duration::from_secs(if jobs > 100_000 { 20 } else { 1 });
    let job = NewJob::new("flood", "k").bytes(vec![7; 200]).run_at(due);
    for first in (0..jobs).step_by(5_000) {
        let batch = vec![job.clone(); 5_000.min(jobs - first)];
        disk.jobs.enqueue_many(batch, BatchRule::AllOrNothing).unwrap();
    }
    println!("  filled in {:.1?}, longest write {} ms", filling.elapsed(), longest(&disk));
    let workers = Workers::new(&disk.jobs)
        .queue("flood", 4)
        .handle("k", |_| {
            FIRST.get_or_init(Instant::now);
            Ok(Completion::new())
        })
        .start()
        .unwrap();
    let wait = due.duration_since(SystemTime::now());
    assert!(wait.is_ok(), "filling took longer than the delay: nothing was measured");
    let start = Instant::now() + wait.unwrap_or_default();
    let wanted = jobs as u64;
    while disk.jobs.stats().unwrap().total.done < wanted {
        std::thread::sleep(Duration::from_millis(20));
    }
    let took = start.elapsed();
    let first = FIRST.get().unwrap().saturating_duration_since(start);
    workers.shutdown(Duration::from_secs(10));
    let total = disk.jobs.stats().unwrap().total;
    assert_eq!((total.done, total.flow("claimed")), (wanted, wanted), "lost, or run twice");
    println!(
        "  first start {first:.1?} after the due time, {:.0} lives/s",
        jobs as f64 / took.as_secs_f64()
    );
    println!("  longest write transaction {} ms", longest(&disk));
    if let (Some(idle), Some(peak)) = (idle, memory_kib("VmHWM:")) {
        println!("  peak memory {:.1} MiB above an idle store", (peak - idle) as f64 / 1024.0);
    }
}

fn longest(disk: &Disk) -> u64 {
    disk.jobs.stats().unwrap().longest_write_ms
}

/// What Linux says of this process; elsewhere nothing is said.
fn memory_kib(field: &str) -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
