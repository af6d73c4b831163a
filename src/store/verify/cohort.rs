//! Cohorts: their members and jobs agree, and their counts are those of their members.

use super::Check;
use crate::domain::cohort::{Cohort, Member, MemberOutcome};
use crate::domain::job::Job;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;
use crate::store::{alone, cohort as cohort_store, job as job_store};

impl<R: Rows> Check<'_, R> {
    /// A job whose outcome is owed is a member that was released.
    pub(super) fn job_cohort(&mut self, job: &Job) -> Result<(), StorageError> {
        let Some(cohort) = job.cohort else {
            return Ok(());
        };
        // A member's row that cannot be read is told of by the pass over the members.
        let member = alone(cohort_store::member(self.rows, cohort, job.id))?;
        let released = |member: Option<Member>| {
            member.is_some_and(|member| member.outcome == MemberOutcome::InFlight)
        };
        if member.is_ok_and(|member| !released(member)) {
            let what = format!("owes its outcome to cohort {cohort}, which does not wait for it");
            self.problem(TableId::CohortMembers, job.id, what);
        }
        Ok(())
    }

    pub(super) fn member_row(&mut self, (name, value): &Row) -> Result<(), StorageError> {
        let (cohort, id) = match key::read_member(name) {
            Ok(ids) => ids,
            Err(damage) => {
                self.problem(TableId::CohortMembers, hex(name), damage.0);
                return Ok(());
            }
        };
        let member: Member = match record::decode(value) {
            Ok(member) => member,
            Err(damage) => {
                self.problem(TableId::CohortMembers, hex(name), damage.0);
                return Ok(());
            }
        };
        self.members.entry(cohort).or_default().join(member.outcome);
        if member.outcome == MemberOutcome::InFlight {
            // A row that cannot be read is told of by the pass over the jobs.
            let job = alone(job_store::read(self.rows, id))?;
            if job.is_ok_and(|job| job.is_none_or(|job| job.cohort != Some(cohort))) {
                let what = format!("cohort {cohort} waits for it, but it owes nothing to that");
                self.problem(TableId::CohortMembers, id, what);
            }
        }
        Ok(())
    }

    pub(super) fn cohorts(&mut self) -> Result<(), StorageError> {
        let mut members = std::mem::take(&mut self.members);
        for id in cohort_store::ids(self.rows, None, usize::MAX)? {
            self.report.rows += 2;
            let mut found = members.remove(&id).unwrap_or_default();
            let cohort: Cohort = match alone(cohort_store::read(self.rows, id))? {
                Ok(Some(cohort)) => cohort,
                Ok(None) => continue,
                Err(damage) => {
                    self.problem(TableId::Cohorts, id, damage);
                    continue;
                }
            };
            let mut told = cohort.counts.clone();
            for counts in [&mut told, &mut found] {
                counts.skipped.retain(|_, count| *count > 0);
            }
            if told != found {
                let what = format!("says {told:?}, its members say {found:?}");
                self.problem(TableId::Cohorts, id, what);
            }
        }
        for id in members.keys() {
            self.problem(TableId::Cohorts, id, "missing, but has members");
        }
        Ok(())
    }
}
