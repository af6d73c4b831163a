//! Writing the member list, a slice per commit.

use super::Tracked;
use crate::domain::blob::Blob;
use crate::domain::cohort::{Member, MemberOutcome, Selection, Stage};
use crate::domain::id::{CohortId, JobId};
use crate::error::StorageError;
use crate::store::cohort as cohort_store;
use crate::store::dead::Scope;
use crate::store::selection::Selector;
use crate::writer::batch::Batch;
use crate::writer::command::SweepReport;

impl Batch<'_, '_> {
    /// Writes the next slice of a member list.
    pub(super) fn select(
        &mut self,
        tracked: &mut Tracked,
        budget: &mut usize,
        report: &mut SweepReport,
    ) -> Result<(), StorageError> {
        match tracked.cohort.selection().cloned() {
            Some(Selection::Scan { after }) => self.scan(tracked, after, budget, report)?,
            Some(Selection::Trim { after, kept }) => {
                self.trim(tracked, after, kept, budget, report)?;
            }
            None => {}
        }
        tracked.dirty = true;
        Ok(())
    }

    fn scan(
        &mut self,
        tracked: &mut Tracked,
        after: Option<Blob>,
        budget: &mut usize,
        report: &mut SweepReport,
    ) -> Result<(), StorageError> {
        let cohort = &mut tracked.cohort;
        let others: Vec<CohortId> = self.core.cohorts.live().collect();
        let selector = Selector {
            plan: &cohort.plan,
            names: &self.core.registry,
            cohort: Some(cohort.id),
            started_at: cohort.started_at,
            others: &others,
            now: self.time.now,
        };
        let scope = Scope::of(&cohort.plan.filter, &self.core.registry);
        let after = after.as_ref().map(|after| after.0.as_slice());
        let slice = selector.slice(&*self.rows, &scope, after, *budget)?;
        *budget -= slice.looked.min(*budget);
        report.selected += u64::try_from(slice.looked).unwrap_or(u64::MAX);
        for found in slice.selected {
            cohort.counts.join(found.outcome);
            let member = Member { outcome: found.outcome, cause: found.cause };
            cohort_store::put_member(self.rows, cohort.id, found.job, Some(&member))?;
        }
        let within = cohort.plan.limit.is_none_or(|limit| cohort.counts.held <= limit);
        match slice.next {
            Some(next) => {
                cohort.stage = Stage::Selecting(Selection::Scan { after: Some(Blob(next)) });
            }
            None if within => cohort.selected(self.time.now),
            None => cohort.stage = Stage::Selecting(Selection::Trim { after: None, kept: 0 }),
        }
        Ok(())
    }

    /// Leaves out the members beyond the limit: the list is in the order of acceptance only once it is
    /// whole.
    fn trim(
        &mut self,
        tracked: &mut Tracked,
        after: Option<JobId>,
        mut kept: u64,
        budget: &mut usize,
        report: &mut SweepReport,
    ) -> Result<(), StorageError> {
        let cohort = &mut tracked.cohort;
        let limit = cohort.plan.limit.unwrap_or(u64::MAX);
        let members = cohort_store::members(&*self.rows, cohort.id, after, *budget)?;
        let more = members.len() == *budget;
        let last = members.last().map(|(job, _)| *job);
        *budget -= members.len().min(*budget);
        report.selected += u64::try_from(members.len()).unwrap_or(u64::MAX);
        for (job, member) in members {
            if !member.is_ok_and(|member| member.outcome == MemberOutcome::Held) {
                continue;
            }
            if kept < limit {
                kept += 1;
            } else {
                cohort.counts.leave(MemberOutcome::Held);
                cohort_store::put_member(self.rows, cohort.id, job, None)?;
            }
        }
        if more {
            cohort.stage = Stage::Selecting(Selection::Trim { after: last, kept });
        } else {
            cohort.selected(self.time.now);
        }
        Ok(())
    }
}
