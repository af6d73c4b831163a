//! The quarantine: looking at dead jobs, amending them, discarding them.

use std::collections::HashMap;

use serde::Serialize;

use crate::domain::blob::Blob;
use crate::domain::failure::FailureClass;
use crate::domain::filter::{DeadFacts, DeadPlace, Filter};
use crate::domain::id::JobId;
use crate::domain::limits::{REASON_BYTES_MAX, cut};
use crate::domain::removal::Removal;
use crate::domain::time::Timestamp;
use crate::error::{AmendError, DeadError, StorageError};
use crate::handle::job::JobInfo;
use crate::handle::new_job::request_hash;
use crate::handle::redrive::Redrive;
use crate::store::database::Store;
use crate::store::dead::{DeadRow, Scope, scan};
use crate::store::names::{Known, Names};
use crate::store::rows::Rows;
use crate::store::{alone, amendment, job as job_store, removal};
use crate::writer::command::{Amend, Command, Discard, Resume};

/// Rows of the quarantine that are looked at in one read.
const SCAN: usize = 10_000;
/// Causes that are told in full.
const CAUSES_MAX: usize = 1_000;

/// The quarantine of a store, from [`Redrive::dead`].
#[derive(Clone, Debug)]
pub struct Quarantine {
    jobs: Redrive,
}

/// A page of dead jobs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeadPage {
    /// The jobs, by queue, kind and time of death; named ones by id.
    pub jobs: Vec<JobInfo>,
    /// Jobs whose rows cannot be read, and why.
    pub unreadable: Vec<(JobId, StorageError)>,
    /// Where to go on; none when there are no more.
    pub next: Option<DeadCursor>,
}

/// A place in a list of dead jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadCursor(Vec<u8>);

/// Dead jobs by what they died of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Causes {
    /// How many dead jobs there are.
    pub jobs: u64,
    /// How many causes there are.
    pub causes: usize,
    /// The 1,000 largest causes, largest first.
    pub largest: Vec<Cause>,
}

/// Dead jobs that died of one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cause {
    /// The fingerprint; as 16 hexadecimal digits in JSON.
    #[serde(with = "crate::domain::cause::hex")]
    pub cause: u64,
    /// The queue of its jobs.
    pub queue: String,
    /// The kind of its jobs.
    pub kind: String,
    /// The class of their last failure.
    pub class: FailureClass,
    /// The code of their last failure.
    pub code: String,
    /// The message of the sample's last failure; empty where it cannot be read.
    pub message: String,
    /// How many jobs.
    pub jobs: u64,
    /// When the first of them died.
    pub first_died_at: Timestamp,
    /// When the last of them died.
    pub last_died_at: Timestamp,
    /// One of them: the last that died.
    pub sample: JobId,
}

/// A dead job with its payload.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeadJob {
    /// The job, its evidence and its history.
    pub job: JobInfo,
    /// Its payload; an error where it is damaged.
    pub payload: Result<Vec<u8>, StorageError>,
    /// The payload it was enqueued with, if it was amended and that could be read.
    pub original: Option<Vec<u8>>,
}

/// What a discard did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Discarded {
    /// Jobs that are gone.
    pub jobs: u64,
    /// Jobs that the filter names and that are not dead.
    pub not_dead: u64,
    /// Dead jobs whose rows cannot be read: they stay.
    pub unreadable: u64,
}

impl Redrive {
    /// The quarantine: dead jobs with their evidence.
    #[must_use]
    pub fn dead(&self) -> Quarantine {
        Quarantine { jobs: self.clone() }
    }
}

impl Quarantine {
    pub(crate) const fn jobs(&self) -> &Redrive {
        &self.jobs
    }

    pub(crate) fn store(&self) -> &Store {
        self.jobs.store()
    }

    /// Up to `limit` dead jobs that `filter` holds for, with their evidence: the first ones, or those
    /// after the end of an earlier page.
    ///
    /// Each page is a short read of its own, of the last commit at that moment: a job that dies or leaves
    /// the quarantine between two pages may be missing, but none is told twice. A page looks at 10,000
    /// rows at most, so one with few jobs, or none, may have a next one.
    ///
    /// # Errors
    ///
    /// [`DeadError`]: the filter contradicts itself, or the quarantine cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{FailureClass, Filter};
    ///
    /// let filter = Filter::new().class(FailureClass::Permanent);
    /// let mut after = None;
    /// loop {
    ///     let page = jobs.dead().list(&filter, after.as_ref(), 100)?;
    ///     for job in &page.jobs {
    ///         println!("{} {:?}", job.id, job.dead);
    ///     }
    ///     after = page.next;
    ///     if after.is_none() {
    ///         break;
    ///     }
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(
        &self,
        filter: &Filter,
        after: Option<&DeadCursor>,
        limit: usize,
    ) -> Result<DeadPage, DeadError> {
        check(filter)?;
        let mut page = DeadPage::default();
        self.jobs.store().read(|rows| {
            let names = Known::read(rows)?;
            let now = self.jobs.now(rows)?;
            let mut after = after.map(|cursor| cursor.0.clone());
            let mut looked = 0;
            let told = |page: &DeadPage| page.jobs.len() + page.unreadable.len();
            while told(&page) < limit && looked < SCAN {
                // No more than what may all match.
                let wanted = (limit - told(&page)).clamp(1, SCAN - looked);
                let scope = Scope::of(filter, &names);
                let found = scan(rows, &scope, after.as_deref(), wanted)?;
                looked += wanted;
                for row in &found.found {
                    page.add(rows, filter, &names, row, now)?;
                }
                after = found.end;
                if !found.more {
                    return Ok(());
                }
            }
            page.next = after.map(DeadCursor);
            Ok(())
        })?;
        Ok(page)
    }

    /// What the dead jobs that `filter` holds for died of: "412 jobs, 3 causes", with a sample of each.
    /// Read in slices of 10,000, from the quarantine's index alone.
    ///
    /// # Errors
    ///
    /// [`DeadError`]: the filter contradicts itself, or the quarantine cannot be read.
    pub fn causes(&self, filter: &Filter) -> Result<Causes, DeadError> {
        check(filter)?;
        let mut causes: HashMap<u64, Cause> = HashMap::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let more = self.jobs.store().read(|rows| {
                let names = Known::read(rows)?;
                let now = self.jobs.now(rows)?;
                let found = scan(rows, &Scope::of(filter, &names), after.as_deref(), SCAN)?;
                for row in &found.found {
                    if let Ok(facts) = &row.facts
                        && filter.matches(place(&names, row), facts, now)
                    {
                        Cause::add(&mut causes, &names, row, facts);
                    }
                }
                after = found.end;
                Ok(found.more)
            })?;
            if !more {
                break;
            }
        }
        let mut largest: Vec<Cause> = causes.into_values().collect();
        largest.sort_by_key(|cause| (std::cmp::Reverse(cause.jobs), cause.cause));
        let told = Causes {
            jobs: largest.iter().map(|cause| cause.jobs).sum(),
            causes: largest.len(),
            largest: Vec::new(),
        };
        largest.truncate(CAUSES_MAX);
        self.jobs.store().read(|rows| {
            for cause in &mut largest {
                if let Ok(Some(job)) = alone(JobInfo::read(rows, cause.sample))? {
                    cause.message = job.dead.map(|dead| dead.message).unwrap_or_default();
                }
            }
            Ok(())
        })?;
        Ok(Causes { largest, ..told })
    }

    /// One dead job with its payload; `None` when there is no such job, or it is not dead.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the job's row cannot be read.
    pub fn get(&self, job: JobId) -> Result<Option<DeadJob>, StorageError> {
        self.jobs.store().read(|rows| {
            let Some(job) = job_store::read(rows, job)? else {
                return Ok(None);
            };
            let payload = alone(job_store::payload(rows, &job))?;
            let original = if job.amended {
                alone(amendment::read(rows, job.id))?.ok().flatten()
            } else {
                None
            };
            let original = original.and_then(|original| original.payload).map(|blob| blob.0);
            let info = JobInfo::of(rows, job)?;
            let payload = payload.map(Option::unwrap_or_default);
            Ok(info.dead.is_some().then_some(DeadJob { job: info, payload, original }))
        })
    }

    /// Replaces the payload of a dead job, so that it can be redriven with it. The job keeps its id, its
    /// evidence and its key, which stands for the new request from then on: the amended request under
    /// that key is a duplicate of this job, the original one a conflict. The first payload is kept for
    /// as long as the job's row, and the history tells of every amendment. The note is cut to 256 bytes.
    ///
    /// # Errors
    ///
    /// [`AmendError`]: there is no such job, it is not dead, the payload is too large, no note was
    /// given, or the store's own trouble. Nothing was written then.
    pub fn amend(
        &self,
        job: JobId,
        payload: impl Into<Vec<u8>>,
        note: impl Into<String>,
    ) -> Result<(), AmendError> {
        let (payload, note) = (payload.into(), cut(note.into(), REASON_BYTES_MAX));
        if note.trim().is_empty() {
            return Err(AmendError::NoNote);
        }
        let bytes_max = self.jobs.payload_bytes_max();
        if payload.len() > bytes_max {
            return Err(AmendError::PayloadTooLarge { bytes: payload.len(), bytes_max });
        }
        let found = self.jobs.job(job)?.ok_or(AmendError::NotFound { job })?;
        let headers = found.message.map(|message| message.headers).unwrap_or_default();
        let hash = request_hash(&found.queue, &found.kind, &payload, &headers);
        let amend = Box::new(Amend { job, payload: Blob(payload), hash, note });
        self.jobs.ask(|reply| Command::Amend { amend, reply })?
    }

    /// Removes the dead jobs that `filter` holds for, with their payloads, evidence and history, and frees
    /// their keys. What dies after the call began stays. A record of it is kept, see
    /// [`removals`](Self::removals). The reason is cut to 256 bytes.
    ///
    /// Done in slices of 1,000 jobs, each in one commit: a crash in the middle leaves the rest dead.
    ///
    /// # Errors
    ///
    /// [`DeadError`]: no reason, a filter without criteria that does not say that everything is meant
    /// ([`Filter::everything`]), one that contradicts itself, or the store's own trouble.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{DeadError, Filter};
    ///
    /// let refused = jobs.dead().discard(&Filter::new(), "spring cleaning");
    /// assert!(matches!(refused, Err(DeadError::Filter { .. })));
    /// let old = Filter::new().queue("mail").dead_for(std::time::Duration::from_secs(90 * 86_400));
    /// println!("{} gone", jobs.dead().discard(&old, "older than a quarter")?.jobs);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn discard(
        &self,
        filter: &Filter,
        reason: impl Into<String>,
    ) -> Result<Discarded, DeadError> {
        filter.check_to_change().map_err(|why| DeadError::Filter { why })?;
        let reason = cut(reason.into(), REASON_BYTES_MAX);
        if reason.trim().is_empty() {
            return Err(DeadError::NoReason);
        }
        let mut discarded = Discarded::default();
        let mut from: Option<Resume> = None;
        loop {
            let (filter, reason) = (filter.clone(), reason.clone());
            let slice = Box::new(Discard { filter, reason, from });
            let slice = self.jobs.ask(|reply| Command::Discard { slice, reply })??;
            discarded.jobs += slice.discarded;
            discarded.not_dead += slice.not_dead;
            discarded.unreadable += slice.unreadable;
            match slice.next {
                Some(next) => from = Some(next),
                None => return Ok(discarded),
            }
        }
    }

    /// What is remembered of dead jobs that were removed, oldest first: the latest 1,000 records.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the records cannot be read.
    pub fn removals(&self) -> Result<Vec<Removal>, StorageError> {
        self.jobs.store().read(removal::all)
    }
}

impl DeadPage {
    fn add(
        &mut self,
        rows: &impl Rows,
        filter: &Filter,
        names: &Known,
        row: &DeadRow,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        match &row.facts {
            Ok(facts) if !filter.matches(place(names, row), facts, now) => return Ok(()),
            Ok(_) => {}
            Err(why) => {
                self.unreadable.push((row.id, why.clone()));
                return Ok(());
            }
        }
        match alone(JobInfo::read(rows, row.id))? {
            Ok(Some(job)) => self.jobs.push(job),
            Ok(None) => {
                let why = StorageError::corrupt("the job's row is missing");
                self.unreadable.push((row.id, why));
            }
            Err(why) => self.unreadable.push((row.id, why)),
        }
        Ok(())
    }
}

impl Cause {
    fn add(causes: &mut HashMap<u64, Self>, names: &Known, row: &DeadRow, facts: &DeadFacts) {
        let cause = causes.entry(facts.cause).or_insert_with(|| Self {
            cause: facts.cause,
            queue: names.queue_name(row.class.queue).to_owned(),
            kind: names.kind_name(row.class.kind).to_owned(),
            class: facts.class,
            code: facts.code.clone(),
            message: String::new(),
            jobs: 0,
            first_died_at: row.died_at,
            last_died_at: row.died_at,
            sample: row.id,
        });
        cause.jobs += 1;
        cause.first_died_at = cause.first_died_at.min(row.died_at);
        if row.died_at >= cause.last_died_at {
            (cause.last_died_at, cause.sample) = (row.died_at, row.id);
        }
    }
}

fn check(filter: &Filter) -> Result<(), DeadError> {
    filter.check().map_err(|why| DeadError::Filter { why })
}

fn place<'a>(names: &'a Known, row: &DeadRow) -> DeadPlace<'a> {
    DeadPlace {
        id: row.id,
        queue: names.queue_name(row.class.queue),
        kind: names.kind_name(row.class.kind),
        died_at: row.died_at,
    }
}
