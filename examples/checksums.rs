//! Hashes every file of a folder, one job per file, on four threads.
//!
//! One more job fails twice before it succeeds, and one is poison: it ends in the quarantine with its
//! evidence. A second round with the same jobs shows that nothing runs twice.
//!
//! `cargo run --release --example checksums [FOLDER]` (default: this crate's own sources).

#![expect(
    clippy::disallowed_methods,
    clippy::indexing_slicing,
    reason = "an example may sleep, and a read fills no more than it was given"
)]

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redrive::{
    BatchRule, Completion, Delivery, Enqueued, Failure, Filter, JobPolicy, NewJob, Redrive,
    Schedule, Workers,
};
use sha2::{Digest, Sha256};

const QUEUE: &str = "sums";

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(own_sources, PathBuf::from);
    let files = files_of(&folder)?;
    if files.is_empty() {
        return Err(format!("there are no files in {}", folder.display()).into());
    }
    let store = std::env::temp_dir().join(format!("checksums-{}.redb", std::process::id()));
    println!("{} files of {}; the queue is {}", files.len(), folder.display(), store.display());

    let first = round(&store, &files)?;
    let second = round(&store, &files)?;
    std::fs::remove_file(&store)?;
    if first == 0 || second != 0 {
        return Err(format!("{first} and then {second} deliveries: something ran twice").into());
    }
    println!("\nThe second round found all of it done: nothing ran twice.");
    Ok(())
}

/// Opens the store, enqueues a job for each file, works until all have ended. Returns how many
/// deliveries that took.
fn round(store: &Path, files: &[PathBuf]) -> Result<u64, Box<dyn Error>> {
    let jobs = Redrive::open(store)?;

    // The key says what the work is. The same key again is the same job, not another one.
    let policy = JobPolicy::new()
        .schedule(Schedule::list([Duration::from_millis(200)]))
        .keep_finished(Duration::from_secs(3_600));
    let names = files.iter().map(|file| file.display().to_string());
    let mut work: Vec<NewJob> =
        names.map(|name| NewJob::new(QUEUE, "file").bytes(name.as_str()).key(cut(name))).collect();
    work.push(NewJob::new(QUEUE, "flaky").bytes("twice").key("flaky"));
    work.push(NewJob::new(QUEUE, "poison").bytes("not a path \u{1f4a3}").key("poison"));
    let work = work.into_iter().map(|job| job.policy(policy.clone()));

    let (mut ids, mut new) = (Vec::new(), 0);
    for outcome in jobs.enqueue_many(work, BatchRule::PerItem)? {
        let outcome = outcome?;
        new += usize::from(matches!(outcome, Enqueued::New(_)));
        ids.push(outcome.job());
    }
    println!("\n{new} new jobs, {} known already", ids.len() - new);

    let deliveries = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&deliveries);
    let workers = Workers::new(&jobs)
        .queue(QUEUE, 4)
        .handle_any(move |job| {
            counted.fetch_add(1, Ordering::Relaxed);
            run(job)
        })
        .start()?;
    loop {
        let left = jobs.stats()?.total;
        if left.ready + left.delayed + left.leased == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    workers.shutdown(Duration::from_secs(10));

    show(&jobs, &ids)?;
    jobs.close()?;
    Ok(deliveries.load(Ordering::Relaxed))
}

/// What a worker does with a job.
fn run(job: &Delivery) -> Result<Completion, Failure> {
    let payload = std::str::from_utf8(job.payload())?;
    match job.kind() {
        // An error of the system may go away: `?` makes it a failure that is retried.
        "file" => Ok(Completion::new().result(checksum(Path::new(payload))?)),
        "flaky" if job.attempt() <= 2 => {
            Err(Failure::transient("E_BUSY").message(format!("attempt {} of 3", job.attempt())))
        }
        "flaky" => Ok(Completion::new().result("at the third attempt")),
        // It will never succeed: no retry.
        _ => Err(Failure::permanent("E_PATH").message(format!("cannot hash {payload:?}"))),
    }
}

fn checksum(file: &Path) -> std::io::Result<String> {
    let (mut file, mut hasher) = (File::open(file)?, Sha256::new());
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&hasher.finalize())),
            bytes => hasher.update(&chunk[..bytes]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn show(jobs: &Redrive, ids: &[redrive::JobId]) -> Result<(), Box<dyn Error>> {
    for &id in ids.iter().take(3).chain(ids.iter().rev().nth(1)) {
        if let Some(job) = jobs.job(id)? {
            let result = String::from_utf8_lossy(job.result.as_deref().unwrap_or_default());
            let key = job.key.unwrap_or_default();
            println!("  job {id} {}: {result}  {key}", job.state);
        }
    }
    println!("  ... and so on");
    for job in jobs.dead().list(&Filter::new(), None, 10)?.jobs {
        if let Some(dead) = job.dead {
            let (class, code, message) = (dead.class, dead.code, dead.message);
            println!("  job {} dead after {}: {class} {code}: {message}", job.id, job.deliveries);
        }
    }
    let total = jobs.stats()?.total;
    println!(
        "  {} enqueued, {} done, {} dead, {} retries, {} duplicates; the books are out by {}",
        total.flow("enqueued"),
        total.done,
        total.dead,
        total.flow("retried_transient"),
        total.flow("duplicates_suppressed"),
        total.residual,
    );
    Ok(())
}

fn own_sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files_of(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            // Links are not followed: they may go round in circles.
            match entry.file_type()? {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Keys have at most 512 bytes; a longer path is told by its hash.
fn cut(path: String) -> String {
    if path.len() <= 512 {
        return path;
    }
    hex(&Sha256::digest(path.as_bytes()))
}
