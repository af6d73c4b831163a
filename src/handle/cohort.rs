//! Redriving dead jobs: cohorts, and what they would be.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::domain::abort::AbortReason;
use crate::domain::cohort::{Cohort, CohortCounts, CohortState, MemberOutcome, Stage};
use crate::domain::id::{CohortId, JobId};
use crate::domain::limits::{REASON_BYTES_MAX, cut};
use crate::domain::plan::RedrivePlan;
use crate::domain::time::Timestamp;
use crate::error::{CohortError, RedriveError, StorageError};
use crate::handle::redrive::Redrive;
use crate::store::cohort as cohort_store;
use crate::store::dead::Scope;
use crate::store::names::Known;
use crate::store::rows::Rows;
use crate::store::selection::Selector;
use crate::writer::command::{CohortOrder, Command};

/// Rows of the quarantine that a preview reads at a time, each time from a fresh snapshot.
const PAGE: usize = 10_000;
/// Jobs that a preview names.
const FIRST: usize = 100;

/// A cohort as of the last commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CohortInfo {
    /// Its id.
    pub id: CohortId,
    /// Why these jobs go back.
    pub reason: String,
    /// The queue that the plan's filter names, if it names one.
    pub queue: Option<String>,
    /// What is known about unknown outcomes among them, if they are not skipped.
    pub reconciled: Option<String>,
    /// The state it is in.
    pub state: CohortState,
    /// When it was started.
    pub started_at: Timestamp,
    /// When it was finished or aborted.
    pub ended_at: Option<Timestamp>,
    /// Why it was aborted.
    pub aborted: Option<AbortReason>,
    /// Where its members are; the sum holds at every moment.
    pub counts: CohortCounts,
    /// Batches released after the canary.
    pub batches: u32,
    /// When the next batch may be released; for a running cohort that still holds members.
    pub next_release: Option<Timestamp>,
}

/// One member of a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CohortMember {
    /// The job.
    pub job: JobId,
    /// What became of it.
    pub outcome: MemberOutcome,
}

/// What a plan would do, found out without writing anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Preview {
    /// What the cohort would begin with: `held` jobs would be released, the others not, for the reason
    /// given.
    pub counts: CohortCounts,
    /// Jobs that could be released and lie beyond the plan's limit: they would not be selected.
    pub beyond_limit: u64,
    /// The first 100 jobs to be released, in their order.
    pub first: Vec<JobId>,
    /// How many of the held ones would be the canary.
    pub canary: u64,
    /// How many batches would follow it, if all goes well.
    pub batches: u64,
    /// The shortest time from the first batch to the last, in milliseconds.
    pub shortest_ms: u64,
}

impl CohortInfo {
    fn of(cohort: Cohort) -> Self {
        let state = cohort.state();
        let next_release = (state == CohortState::Running && cohort.counts.held > 0)
            .then_some(cohort.next_release);
        let (ended_at, aborted) = match cohort.stage {
            Stage::Aborted { at, why } => (Some(at), Some(why)),
            Stage::Finished { at } => (Some(at), None),
            Stage::Selecting(_) | Stage::Canary | Stage::Running => (None, None),
        };
        Self {
            id: cohort.id,
            queue: cohort.plan.filter.queue_name().map(str::to_owned),
            reason: cohort.plan.reason,
            reconciled: cohort.plan.reconciled,
            state,
            started_at: cohort.started_at,
            ended_at,
            aborted,
            counts: cohort.counts,
            batches: cohort.batches,
            next_release,
        }
    }
}

impl Redrive {
    /// Starts a cohort: sends dead jobs back to their queues as `plan` says. It goes on by itself, also
    /// after a restart or a crash, until every member has an outcome or a rule stops it.
    ///
    /// The member list is decided at this moment: what dies later does not join. It is written in
    /// slices of 1,000 that let claims through; then the canary is released. A redriven job has its id,
    /// key, payload, delivery count and whole history, and a fresh budget of attempts.
    ///
    /// # Errors
    ///
    /// [`RedriveError`]: the plan cannot be used, 100 cohorts have not ended, or the store's own
    /// trouble. Nothing was written then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{Filter, PlanError, RedriveError, RedrivePlan};
    ///
    /// let plan = RedrivePlan::new(Filter::new().queue("charges").code("E_SCHEMA"));
    /// let refused = jobs.redrive(plan.clone());
    /// assert!(matches!(refused, Err(RedriveError::Plan { why: PlanError::NoReason })));
    ///
    /// let plan = plan.reason("parser fixed in 2.4.1");
    /// println!("{:?}", jobs.preview(&plan)?);
    /// let cohort = jobs.redrive(plan)?;
    /// println!("{:?}", jobs.cohort(cohort)?);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn redrive(&self, plan: RedrivePlan) -> Result<CohortId, RedriveError> {
        let plan = plan.check().map_err(|why| RedriveError::Plan { why })?;
        self.ask(|reply| Command::Redrive { plan: Box::new(plan), reply })?
    }

    /// What [`redrive`](Self::redrive) would select with this plan now, and skip, and why. Writes
    /// nothing. Started at once afterwards, with nothing changed meanwhile, the cohort begins with
    /// exactly these counts.
    ///
    /// # Errors
    ///
    /// [`RedriveError`]: the plan cannot be used, or the quarantine cannot be read.
    pub fn preview(&self, plan: &RedrivePlan) -> Result<Preview, RedriveError> {
        let plan = plan.clone().check().map_err(|why| RedriveError::Plan { why })?;
        let mut preview = Preview::default();
        let mut first = BTreeSet::new();
        let mut after: Option<Vec<u8>> = None;
        loop {
            let slice = self.store().read(|rows| {
                let names = Known::read(rows)?;
                let now = self.now(rows)?;
                let selector = Selector {
                    plan: &plan,
                    names: &names,
                    cohort: None,
                    started_at: now,
                    others: &live(rows)?,
                    now,
                };
                selector.slice(rows, &Scope::of(&plan.filter, &names), after.as_deref(), PAGE)
            })?;
            for selected in slice.selected {
                preview.counts.join(selected.outcome);
                if selected.outcome == MemberOutcome::Held {
                    first.insert(selected.job);
                    if first.len() > FIRST {
                        first.pop_last();
                    }
                }
            }
            match slice.next {
                Some(next) => after = Some(next),
                None => break,
            }
        }
        preview.first = first.into_iter().collect();
        preview.reckon(&plan);
        Ok(preview)
    }

    /// One cohort; `None` when there is no such cohort. Ended ones are kept up to 1,000, the latest.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when its rows cannot be read.
    pub fn cohort(&self, cohort: CohortId) -> Result<Option<CohortInfo>, StorageError> {
        let found = self.store().read(|rows| cohort_store::read(rows, cohort))?;
        Ok(found.map(CohortInfo::of))
    }

    /// Up to `limit` cohorts, oldest first, from after `after`.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when their rows cannot be read.
    pub fn cohorts(
        &self,
        after: Option<CohortId>,
        limit: usize,
    ) -> Result<Vec<CohortInfo>, StorageError> {
        self.store().read(|rows| {
            let ids = cohort_store::ids(rows, after, limit)?;
            let read = |id| cohort_store::read(rows, id).transpose();
            ids.into_iter().filter_map(read).map(|found| found.map(CohortInfo::of)).collect()
        })
    }

    /// Up to `limit` members of a cohort, in the order in which they are released, from after `after`.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when their rows cannot be read.
    pub fn cohort_members(
        &self,
        cohort: CohortId,
        after: Option<JobId>,
        limit: usize,
    ) -> Result<Vec<CohortMember>, StorageError> {
        let members =
            self.store().read(|rows| cohort_store::members(rows, cohort, after, limit))?;
        let one = |(job, member): (JobId, Result<crate::domain::cohort::Member, _>)| {
            Ok(CohortMember { job, outcome: member?.outcome })
        };
        members.into_iter().map(one).collect()
    }

    /// Releases no more members until [`cohort_resume`](Self::cohort_resume). Those that are out go on,
    /// and the rules that stop a cohort go on looking.
    ///
    /// # Errors
    ///
    /// [`CohortError`]: no such cohort, or it has ended or is paused.
    pub fn cohort_pause(&self, cohort: CohortId) -> Result<(), CohortError> {
        self.ask(|reply| Command::Cohort { cohort, order: CohortOrder::Pause, reply })?
    }

    /// Goes on after [`cohort_pause`](Self::cohort_pause).
    ///
    /// # Errors
    ///
    /// [`CohortError`]: no such cohort, or it is not paused.
    pub fn cohort_resume(&self, cohort: CohortId) -> Result<(), CohortError> {
        self.ask(|reply| Command::Cohort { cohort, order: CohortOrder::Resume, reply })?
    }

    /// Stops a cohort for good. What was not released stays dead, with its evidence as it was; what is
    /// out goes on, and is still counted. The reason is cut to 256 bytes.
    ///
    /// # Errors
    ///
    /// [`CohortError`]: no such cohort, it has ended, or no reason was given.
    pub fn cohort_abort(
        &self,
        cohort: CohortId,
        reason: impl Into<String>,
    ) -> Result<(), CohortError> {
        let reason = cut(reason.into(), REASON_BYTES_MAX);
        if reason.trim().is_empty() {
            return Err(CohortError::NoReason);
        }
        self.ask(|reply| Command::Cohort { cohort, order: CohortOrder::Abort(reason), reply })?
    }
}

impl Preview {
    /// What follows from the plan and the number of jobs.
    fn reckon(&mut self, plan: &RedrivePlan) {
        let limit = plan.limit.unwrap_or(u64::MAX);
        self.beyond_limit = self.counts.held.saturating_sub(limit);
        self.counts.held -= self.beyond_limit;
        self.counts.selected -= self.beyond_limit;
        self.first.truncate(usize::try_from(self.counts.held).unwrap_or(usize::MAX));
        self.canary = self.counts.held.min(u64::from(plan.canary));
        let mut left = self.counts.held - self.canary;
        let mut done = 0;
        while left > 0 && plan.batch_size(done) < plan.ramp_to {
            left = left.saturating_sub(u64::from(plan.batch_size(done)));
            done += 1;
        }
        let full = u64::from(plan.batch_size(done)).max(1);
        self.batches = u64::from(done) + left.div_ceil(full);
        self.shortest_ms = self.batches.saturating_sub(1).saturating_mul(plan.every_ms);
    }
}

/// The cohorts that may have a dead job.
fn live(rows: &impl Rows) -> Result<Vec<CohortId>, StorageError> {
    let mut live = Vec::new();
    for id in cohort_store::ids(rows, None, usize::MAX)? {
        if let Ok(Some(cohort)) = crate::store::alone(cohort_store::read(rows, id))?
            && cohort.is_live()
        {
            live.push(id);
        }
    }
    Ok(live)
}
