//! The proof (P11): recomputes indexes and gauges from the job rows and names every difference.

mod books;
mod effect;
mod order;
mod outbox;
mod pause;

use std::collections::BTreeMap;

use crate::domain::cohort::CohortCounts;
use crate::domain::counter::{Counters, Gauge};
use crate::domain::history::kept;
use crate::domain::id::{Class, CohortId, JobId};
use crate::domain::job::{Job, Payload};
use crate::domain::key::holds_key;
use crate::domain::policy::JobPolicy;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::job::{self as job_store, Held};
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;
use crate::store::{history, key as key_store, names};

mod amendment;
mod cohort;

/// Rows read at a time.
const PAGE: usize = 1_000;
/// After every key there is: none of ours is so long or begins so.
const LAST: [u8; 2_048] = [u8::MAX; 2_048];
/// Problems told in full; more are only counted.
const PROBLEMS_MAX: usize = 1_000;

/// What `verify` found.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct VerifyReport {
    /// Job rows that were read.
    pub jobs: u64,
    /// Rows of all other tables that were read.
    pub rows: u64,
    /// Damaged rows that were set aside earlier; their jobs are counted as such.
    pub set_aside: u64,
    /// How many differences there are.
    pub problem_count: u64,
    /// The first 1,000 of them.
    pub problems: Vec<Problem>,
}

/// One difference between what a row says and what follows from the job rows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct Problem {
    /// The table the row is in.
    pub table: &'static str,
    /// The row, readable.
    pub row: String,
    /// What is wrong with it.
    pub what: String,
}

impl VerifyReport {
    /// Whether everything agrees.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.problem_count == 0
    }
}

/// Reads the whole store from one snapshot, in pages, so memory stays bounded.
pub(crate) fn verify(rows: &impl Rows, now: Timestamp) -> Result<VerifyReport, StorageError> {
    let mut check = Check {
        rows,
        now,
        policies: names::policies(rows)?,
        queues: names::queues(rows)?.len(),
        kinds: names::kinds(rows)?.len(),
        finished: 0,
        buried: 0,
        counters: BTreeMap::new(),
        members: BTreeMap::new(),
        report: VerifyReport::default(),
    };
    check.each(TableId::Jobs, Check::job)?;
    for table in [TableId::Ready, TableId::Delayed, TableId::Leased, TableId::Dead] {
        check.each(table, |check, row| check.state_row(table, row))?;
    }
    check.each(TableId::Order, Check::order_row)?;
    check.each(TableId::Outbox, Check::outbox_row)?;
    check.each(TableId::Keys, Check::key_row)?;
    check.each(TableId::Payloads, Check::payload_row)?;
    check.each(TableId::History, Check::history_row)?;
    check.each(TableId::Tombstones, Check::tombstone_row)?;
    check.each(TableId::Pauses, Check::pause_row)?;
    check.each(TableId::Amendments, Check::amendment_row)?;
    check.each(TableId::Imports, Check::import_row)?;
    check.each(TableId::CohortMembers, Check::member_row)?;
    check.cohorts()?;
    if check.finished != check.buried {
        let what = format!("name {} of {} finished jobs", check.buried, check.finished);
        check.problem(TableId::Tombstones, "all", what);
    }
    check.effects()?;
    check.counters()?;
    check.report.set_aside = rows.count(TableId::Damaged)?;
    Ok(check.report)
}

struct Check<'r, R> {
    rows: &'r R,
    now: Timestamp,
    policies: Vec<JobPolicy>,
    queues: usize,
    kinds: usize,
    /// Finished jobs that have a row, and how many jobs the tombstones name: each once.
    finished: u64,
    buried: u64,
    /// Recomputed counts of cohorts.
    members: BTreeMap<CohortId, CohortCounts>,
    /// Recomputed gauges.
    counters: BTreeMap<Class, Counters>,
    report: VerifyReport,
}

impl<R: Rows> Check<'_, R> {
    fn each(
        &mut self,
        table: TableId,
        mut look: impl FnMut(&mut Self, &Row) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        let mut from = Vec::new();
        loop {
            let page = self.rows.range(table, &from, &LAST, PAGE)?;
            for row in &page {
                self.report.rows += u64::from(table != TableId::Jobs);
                look(self, row)?;
            }
            match page.last() {
                Some((last, _)) if page.len() == PAGE => {
                    from.clone_from(last);
                    from.push(0);
                }
                _ => return Ok(()),
            }
        }
    }

    fn problem(&mut self, table: TableId, row: impl ToString, what: impl ToString) {
        self.report.problem_count += 1;
        if self.report.problems.len() < PROBLEMS_MAX {
            self.report.problems.push(Problem {
                table: table.name(),
                row: row.to_string(),
                what: what.to_string(),
            });
        }
    }

    fn job(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        self.report.jobs += 1;
        let job: Job = match record::decode(value) {
            Ok(job) => job,
            Err(damage) => {
                let set_aside = key::damaged(TableId::Jobs.number(), name);
                if self.rows.with(TableId::Damaged, &set_aside, |_| Ok(()))?.is_none() {
                    self.problem(TableId::Jobs, hex(name), damage.0);
                }
                return Ok(());
            }
        };
        if key::read_job(name) != Ok(job.id) {
            self.problem(TableId::Jobs, hex(name), format!("holds job {}", job.id));
        }
        let counters = self.counters.entry(job.class).or_default();
        counters.enter(Gauge::of(&job));
        counters.weigh(Gauge::DeadBytes, 0, job.dead_bytes());
        self.finished += u64::from(job.state.tombstone().is_some());
        self.job_state(&job)?;
        self.order_of(&job)?;
        self.outbox_of(&job)?;
        self.job_names(&job);
        self.job_cohort(&job)?;
        self.job_amendment(&job)?;
        self.steps(&job)?;
        let found = history::read(self.rows, job.id)?.rows;
        let expected = kept(job.history_next, &job.history_pinned).0.count();
        if found != expected {
            self.problem(TableId::History, job.id, format!("{found} entries, not {expected}"));
        }
        if let Payload::Stored { bytes } = job.payload {
            match job_store::payload(self.rows, &job) {
                Ok(Some(payload)) if u64::try_from(payload.len()) == Ok(bytes) => {}
                Ok(_) => {
                    self.problem(TableId::Payloads, job.id, "another length than the job says")
                }
                Err(error) => self.problem(TableId::Payloads, job.id, error),
            }
        }
        Ok(())
    }

    fn job_state(&mut self, job: &Job) -> Result<(), StorageError> {
        let (Some(table), Some(name)) = (job_store::state_table(&job.state), key::state(job))
        else {
            return Ok(());
        };
        let found = self.rows.with(table, &name, |value| Ok(value.to_vec()))?;
        let policy = usize::try_from(job.policy.get()).ok();
        let policy = policy.and_then(|place| self.policies.get(place));
        let holds_key = policy.is_some_and(|policy| holds_key(job, policy, self.now));
        match (found, job_store::state_value(Held { job, holds_key })?) {
            (None, _) => self.problem(table, job.id, "missing"),
            (found, expected) if found != expected => {
                self.problem(table, job.id, "another value than the job says");
            }
            _ => {}
        }
        Ok(())
    }

    fn job_names(&mut self, job: &Job) {
        let known = |number: u32, count| usize::try_from(number).is_ok_and(|n| n < count);
        let class = job.class;
        if !known(class.queue.get(), self.queues) || !known(class.kind.get(), self.kinds) {
            self.problem(TableId::Jobs, job.id, "names an unknown queue or kind");
        }
        let policy = usize::try_from(job.policy.get()).ok();
        let policy = policy.and_then(|place| self.policies.get(place)).cloned();
        let (Some(policy), Some(claim)) = (&policy, &job.key) else {
            if policy.is_none() {
                self.problem(TableId::Jobs, job.id, "names an unknown policy");
            }
            return;
        };
        if holds_key(job, policy, self.now) {
            match key_store::owner(self.rows, class.queue, &claim.key) {
                Ok(Some(owner)) if owner == job.id => {}
                Ok(owner) => self.problem(
                    TableId::Keys,
                    format!("{:?}", claim.key),
                    format!("owned by {owner:?}, not by job {}", job.id),
                ),
                Err(error) => self.problem(TableId::Keys, format!("{:?}", claim.key), error),
            }
        }
    }

    fn read_job(&mut self, table: TableId, id: JobId) -> Option<Job> {
        match job_store::read(self.rows, id) {
            Ok(Some(job)) => Some(job),
            Ok(None) => {
                self.problem(table, id, "names a job that does not exist");
                None
            }
            // Told once, by the pass over the jobs.
            Err(_) => None,
        }
    }

    fn state_row(&mut self, table: TableId, (name, value): &Row) -> Result<(), StorageError> {
        let id = if table == TableId::Ready {
            record::decode::<(JobId, Timestamp)>(value).map(|(id, _)| id)
        } else {
            // The other state tables end in the job's id.
            let tail = name.len().saturating_sub(8);
            key::read_job(name.get(tail..).unwrap_or_default())
        };
        match id {
            Ok(id) => {
                if let Some(job) = self.read_job(table, id)
                    && (job_store::state_table(&job.state) != Some(table)
                        || key::state(&job).as_ref() != Some(name))
                {
                    let what = format!("stands here, but the job is {}", job.state.name());
                    self.problem(table, id, what);
                }
            }
            Err(damage) => self.problem(table, hex(name), damage.0),
        }
        Ok(())
    }

    fn key_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        match record::decode::<JobId>(value) {
            Ok(owner) => {
                if let Some(job) = self.read_job(TableId::Keys, owner) {
                    let expected =
                        job.key.as_ref().map(|claim| key::key(job.class.queue, &claim.key));
                    if expected.as_ref() != Some(name) {
                        self.problem(TableId::Keys, hex(name), "its owner has another key");
                    }
                }
            }
            Err(damage) => self.problem(TableId::Keys, hex(name), damage.0),
        }
        Ok(())
    }

    fn payload_row(&mut self, (name, _): &Row) -> Result<(), StorageError> {
        match key::read_job(name) {
            Ok(id) => {
                if let Some(job) = self.read_job(TableId::Payloads, id)
                    && !matches!(job.payload, Payload::Stored { .. })
                {
                    self.problem(TableId::Payloads, id, "no job needs it");
                }
            }
            Err(damage) => self.problem(TableId::Payloads, hex(name), damage.0),
        }
        Ok(())
    }

    fn history_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        if let Err(damage) = record::decode::<crate::domain::history::HistoryEntry>(value) {
            self.problem(TableId::History, hex(name), damage.0);
        }
        match key::read_job(name.get(..8).unwrap_or_default()) {
            Ok(id) => drop(self.read_job(TableId::History, id)),
            Err(damage) => self.problem(TableId::History, hex(name), damage.0),
        }
        Ok(())
    }

    fn tombstone_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        match record::decode::<Vec<JobId>>(value) {
            Ok(ids) => {
                for id in ids {
                    self.buried += 1;
                    if let Some(job) = self.read_job(TableId::Tombstones, id)
                        && job.state.tombstone().is_none()
                    {
                        self.problem(TableId::Tombstones, id, "the job has not finished");
                    }
                }
            }
            Err(damage) => self.problem(TableId::Tombstones, hex(name), damage.0),
        }
        Ok(())
    }
}
