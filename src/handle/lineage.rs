//! Everything under one key, in order: a producer that keeps asking told apart from a retry that does not
//! stop.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::domain::id::JobId;
use crate::error::StorageError;
use crate::handle::job::JobInfo;
use crate::handle::redrive::Redrive;
use crate::store::names::queue_id;
use crate::store::rows::Rows;
use crate::store::{alone, job as job_store, key as key_store};

/// Most jobs that one lineage shows.
const JOBS_MAX: usize = 100;

/// Every job under one key that is still there, oldest first, each with its history.
///
/// Jobs are linked when one takes the key of another whose row is still there: of a dead one, or of a
/// finished one that is kept. What was forgotten is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lineage {
    /// The queue.
    pub queue: String,
    /// The key.
    pub key: String,
    /// The jobs, in the order in which they were accepted; the latest 100.
    pub jobs: Vec<JobInfo>,
    /// There were more, or a job in the line cannot be read.
    pub incomplete: bool,
    /// How often the key was asked for: the jobs, and what they stood for, refused or replaced.
    pub enqueues: u64,
    /// Of these, the same request again: nothing was added.
    pub duplicates: u64,
    /// Of these, another request: refused.
    pub conflicts: u64,
    /// Of these, another request in the place of the one before, which was never claimed.
    pub replaced: u64,
    /// How often the jobs were handed out, reconciliations included.
    pub deliveries: u64,
    /// How often an operator sent one back from the quarantine.
    pub redrives: u64,
    /// Where the repetition comes from.
    pub repeats: Repeats,
}

/// Where repeated work under one key comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Repeats {
    /// Nowhere: it was asked for once and handed out at most once.
    Nothing,
    /// From whoever enqueues: the key was asked for more than once, and no job was handed out twice.
    Producer,
    /// From retries or redrives: the key was asked for once, and its job was handed out more than once.
    Deliveries,
    /// From both.
    Both,
}

impl Repeats {
    /// The name as used in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Producer => "producer",
            Self::Deliveries => "deliveries",
            Self::Both => "both",
        }
    }
}

impl Lineage {
    fn of(queue: &str, key: &str, jobs: Vec<JobInfo>, incomplete: bool) -> Self {
        let sum = |of: fn(&JobInfo) -> u32| jobs.iter().map(|job| u64::from(of(job))).sum::<u64>();
        let (duplicates, conflicts) =
            (sum(|job| job.asked.duplicates), sum(|job| job.asked.conflicts));
        let replaced = sum(|job| job.asked.replaced);
        let count = u64::try_from(jobs.len()).unwrap_or(u64::MAX);
        let enqueues = count + duplicates + conflicts + replaced;
        let again = jobs.iter().any(|job| job.deliveries > 1);
        let repeats = match (enqueues > 1, again) {
            (false, false) => Repeats::Nothing,
            (true, false) => Repeats::Producer,
            (false, true) => Repeats::Deliveries,
            (true, true) => Repeats::Both,
        };
        let (deliveries, redrives) = (sum(|job| job.deliveries), sum(|job| job.redrives));
        Self {
            queue: queue.to_owned(),
            key: key.to_owned(),
            incomplete,
            enqueues,
            duplicates,
            conflicts,
            replaced,
            deliveries,
            redrives,
            repeats,
            jobs,
        }
    }
}

/// The jobs that are linked with `last`, oldest first, and whether all of them could be read.
fn linked(rows: &impl Rows, last: JobId) -> Result<(BTreeSet<JobId>, bool), StorageError> {
    let (mut found, mut complete) = (BTreeSet::new(), true);
    let mut ahead = vec![last];
    while let Some(id) = ahead.pop() {
        if found.contains(&id) {
            continue;
        }
        if found.len() == JOBS_MAX {
            return Ok((found, false));
        }
        match alone(job_store::read(rows, id))? {
            Ok(Some(job)) => {
                found.insert(id);
                let links = job.key.map(|claim| [claim.previous, claim.taken_by]);
                ahead.extend(links.into_iter().flatten().flatten());
            }
            // Finished long ago, or discarded.
            Ok(None) => {}
            Err(_) => complete = false,
        }
    }
    Ok((found, complete))
}

impl Redrive {
    /// Every job under `key` in `queue`, in order, each with its events, and what they add up to: whether a
    /// producer keeps asking for the same thing, or one job is retried again and again. `None` when the
    /// ledger has nothing under the key.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the ledger cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{NewJob, Repeats};
    ///
    /// for _minute in 0..3 {
    ///     jobs.enqueue(NewJob::new("search", "index").bytes("r7").key("index:ws-1:r7"))?;
    /// }
    /// let lineage = jobs.lineage("search", "index:ws-1:r7")?.ok_or("nothing")?;
    /// assert_eq!((lineage.enqueues, lineage.duplicates, lineage.deliveries), (3, 2, 0));
    /// assert_eq!(lineage.repeats, Repeats::Producer);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn lineage(&self, queue: &str, key: &str) -> Result<Option<Lineage>, StorageError> {
        self.store().read(|rows| {
            let Some(id) = queue_id(rows, queue)? else { return Ok(None) };
            let Some(last) = key_store::owner(rows, id, key)? else { return Ok(None) };
            let (found, complete) = linked(rows, last)?;
            let mut jobs = Vec::with_capacity(found.len());
            for id in found {
                jobs.extend(JobInfo::read(rows, id)?);
            }
            Ok(Some(Lineage::of(queue, key, jobs, !complete)))
        })
    }
}
