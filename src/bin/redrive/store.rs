//! Opening the file.

use std::path::Path;

use redrive::{Clock, OpenError, Options, QueueStats, Redrive, Signal, SystemClock};

use crate::exit::{Status, Trouble};
use crate::output;

/// Opens a store that must exist: a command that only looks does not create one.
pub(crate) fn open_existing(path: &Path, options: Options) -> Result<Redrive, Trouble> {
    if let Err(error) = std::fs::metadata(path)
        && error.kind() == std::io::ErrorKind::NotFound
    {
        return Err(Trouble::new(
            Status::Missing,
            format_args!(
                "{} does not exist: name the file with -f or REDRIVE_FILE; the first \
                 `redrive enqueue` creates it",
                path.display()
            ),
        ));
    }
    open(path, options)
}

/// Opens a store, or creates it.
pub(crate) fn open(path: &Path, options: Options) -> Result<Redrive, Trouble> {
    let jobs = open_patiently(path, &options)?;
    let recovered = jobs.recovered();
    if recovered.expired > 0 {
        output::note(format_args!(
            "redrive: the last process that had {} open died with {} jobs in its hands: {} go on \
             as suspects, one at a time; {} are dead",
            path.display(),
            recovered.expired,
            recovered.expired.saturating_sub(recovered.died),
            recovered.died,
        ));
    }
    Ok(jobs)
}

/// A process that was killed while it started a command can leave its lock with that command until the
/// command's program is loaded: a file that is in use is asked for again for a moment.
fn open_patiently(path: &Path, options: &Options) -> Result<Redrive, OpenError> {
    const PATIENCE_MS: u64 = 1_000;
    const PAUSE_MS: u64 = 20;
    let clock = SystemClock::new();
    loop {
        let opened = options.clone().open(path);
        let now_ms = clock.monotonic_ms();
        if !matches!(opened, Err(OpenError::InUse { .. })) || now_ms >= PATIENCE_MS {
            return opened;
        }
        clock.wait(&Signal::new(), Some(now_ms + PAUSE_MS));
    }
}

/// The counts of a queue that must exist: one comes into being with its first job.
pub(crate) fn known_queue(jobs: &Redrive, queue: &str) -> Result<QueueStats, Trouble> {
    let mut stats = jobs.stats()?;
    if let Some(found) = stats.queues.remove(queue) {
        return Ok(found);
    }
    let known: Vec<&str> = stats.queues.keys().map(String::as_str).collect();
    let known = if known.is_empty() {
        "this file has no queues yet".to_owned()
    } else {
        format!("the queues of this file are: {}", known.join(", "))
    };
    Err(Trouble::new(Status::Missing, format_args!("queue {queue:?} never had a job; {known}")))
}
