//! What time does to jobs: due ones become ready, leases end, finished rows are forgotten, and at an
//! opening the leases of the process that died are recovered. In bounded slices, each job on its own.

use crate::domain::counter::Gauge;
use crate::domain::event::Event;
use crate::domain::id::{Class, Instance, JobId};
use crate::domain::job::{Job, JobState, Lane};
use crate::domain::time::Timestamp;
use crate::domain::transition::{Step, forgettable};
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::alone;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::tombstone;
use crate::writer::batch::Batch;
use crate::writer::command::SweepReport;
use crate::writer::core::first_due;

/// Most jobs that one kind of pass moves in one commit.
pub(super) const SLICE: usize = 1_000;
/// No more finished jobs are forgotten in one commit once it has forgotten so many.
const FORGOTTEN_MAX: usize = 100;

impl Batch<'_, '_> {
    /// One bounded pass. Returns whether there may be more to do at once.
    pub(super) fn sweep(&mut self, report: &mut SweepReport) -> Result<bool, StorageError> {
        let due = self.due(report)?;
        let expired = self.expire(report)?;
        let forgotten = self.forget(report)?;
        self.end_holds()?;
        let evicted = self.evict(report)?;
        let cohorts = self.cohorts(report)?;
        Ok(due || expired || forgotten || evicted || cohorts)
    }

    fn due(&mut self, report: &mut SweepReport) -> Result<bool, StorageError> {
        let now = self.time.now;
        if self.core.next_due.is_none_or(|due| due > now) {
            return Ok(false);
        }
        let until = match now.as_millis().checked_add(1) {
            Some(after) => after.to_be_bytes().to_vec(),
            None => vec![u8::MAX; 17],
        };
        let rows = self.rows.range(TableId::Delayed, &[], &until, SLICE)?;
        for (name, value) in &rows {
            let (_, id) = key::read_timed(name)?;
            let planned = self.planned(id, name, Event::Due)?;
            match planned {
                Ok((job, step)) => {
                    self.apply(&job, step)?;
                    report.due += 1;
                }
                Err(why) => {
                    let counted = record::decode::<(Class, Lane)>(value).ok();
                    let counted = counted.map(|(class, lane)| (class, Gauge::delayed(lane)));
                    self.set_aside(TableId::Delayed, name, id, counted, &why)?;
                    report.set_aside += 1;
                }
            }
        }
        self.core.next_due = first_due(&*self.rows)?;
        Ok(rows.len() == SLICE)
    }

    /// What `event` does to the job that an index row names, or why the row cannot be gone by.
    pub(super) fn planned(
        &self,
        id: JobId,
        name: &[u8],
        event: Event,
    ) -> Result<Result<(Job, Step), StorageError>, StorageError> {
        let unfit = || StorageError::corrupt("the index row and the job's row disagree");
        match self.read_job(id)? {
            Ok(job) if key::state(&job).as_deref() == Some(name) => {
                let step = alone(self.plan(&job, event))?;
                Ok(step.and_then(|step| step.map_err(|_| unfit())).map(|step| (job, step)))
            }
            Ok(_) => Ok(Err(unfit())),
            Err(error) => Ok(Err(error)),
        }
    }

    /// Ends the leases that are over. Decided from stored data only, never from what handlers this
    /// process happens to have (O-03).
    fn expire(&mut self, report: &mut SweepReport) -> Result<bool, StorageError> {
        let ended = self.core.leases.take_ended(self.time.monotonic_ms, SLICE);
        for end in &ended {
            let deadline_exceeded = end.deadline_exceeded;
            let event = Event::Expire { token: end.token, deadline_exceeded };
            let planned = match self.read_job(end.token.job)? {
                Ok(job) => alone(self.plan(&job, event))?.map(|step| step.ok().map(|s| (job, s))),
                Err(why) => Err(why),
            };
            match planned {
                Ok(Some((job, step))) => {
                    report.expired += 1;
                    report.died += u64::from(step.job.state.name() == JobState::Dead);
                    self.apply(&job, step)?;
                }
                // It was settled in this moment.
                Ok(None) => {}
                Err(why) => self.set_lease_aside(end.token.job, &why, report)?,
            }
        }
        Ok(ended.len() == SLICE)
    }

    /// The job of a lease that has ended cannot be read: neither a suspect nor a cohort waits for it any
    /// longer.
    fn set_lease_aside(
        &mut self,
        job: JobId,
        why: &StorageError,
        report: &mut SweepReport,
    ) -> Result<(), StorageError> {
        let mut from = Vec::new();
        loop {
            let page = self.rows.range(TableId::Leased, &from, &[u8::MAX; 17], SLICE)?;
            for (name, value) in &page {
                if key::read_timed(name)?.1 == job {
                    report.set_aside += 1;
                    return self.set_aside(TableId::Leased, name, job, leased_in(value), why);
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == SLICE => from = after(last),
                _ => return Ok(()),
            }
        }
    }

    /// Forgets finished jobs whose time is over. Callers wait meanwhile, so it is a smaller slice than that
    /// of the work which they wait for.
    fn forget(&mut self, report: &mut SweepReport) -> Result<bool, StorageError> {
        let now = self.time.now;
        let mut jobs = 0;
        while self.core.next_tombstone.is_some_and(|until| until <= now) {
            if jobs >= FORGOTTEN_MAX {
                return Ok(true);
            }
            if let Some((name, row)) = tombstone::first_due(&*self.rows, now)? {
                jobs += 1 + self.forget_row(&name, row, report)?;
            }
            self.core.next_tombstone = tombstone::next(&*self.rows)?;
        }
        Ok(false)
    }

    /// Forgets the jobs of one tombstone row; returns how many it named.
    fn forget_row(
        &mut self,
        name: &[u8],
        row: Result<Vec<JobId>, StorageError>,
        report: &mut SweepReport,
    ) -> Result<usize, StorageError> {
        let table = TableId::Tombstones;
        let jobs = match row {
            Ok(jobs) => jobs,
            Err(why) => {
                report.set_aside += 1;
                return self.set_row_aside(table, name, table, name, &why).map(|()| 0);
            }
        };
        self.rows.write(table, name, None)?;
        for &id in &jobs {
            // A job that cannot be read cannot be told to be over: its row stays.
            if let Ok(job) = self.read_job(id)?
                && forgettable(&job, self.time.now)
            {
                self.remove(&job)?;
                report.forgotten += 1;
            }
        }
        Ok(jobs.len())
    }

    /// Recovers a slice of the leases that instances before `instance` held when they died, from
    /// the row after `from` on. Returns the last row looked at, if there may be more.
    pub(super) fn recover(
        &mut self,
        from: &[u8],
        report: &mut SweepReport,
    ) -> Result<Option<Vec<u8>>, StorageError> {
        let rows = self.rows.range(TableId::Leased, from, &[u8::MAX; 17], SLICE)?;
        for (name, value) in &rows {
            let (_, id): (Timestamp, JobId) = key::read_timed(name)?;
            let planned = self.planned(id, name, Event::Crash)?;
            match planned {
                Ok((job, step)) => {
                    report.expired += 1;
                    report.died += u64::from(step.job.state.name() == JobState::Dead);
                    self.apply(&job, step)?;
                }
                Err(why) => {
                    self.set_aside(TableId::Leased, name, id, leased_in(value), &why)?;
                    report.set_aside += 1;
                }
            }
        }
        Ok(rows.last().filter(|_| rows.len() == SLICE).map(|(name, _)| after(name)))
    }
}

/// Where the job of a `leased` row is counted, if the row tells.
fn leased_in(value: &[u8]) -> Option<(Class, Gauge)> {
    let (class, lane, _) = record::decode::<(Class, Lane, Instance)>(value).ok()?;
    Some((class, Gauge::leased(lane)))
}

/// The smallest key after `name`.
fn after(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}
