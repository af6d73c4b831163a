//! Releasing members, oldest first.

use super::Tracked;
use crate::domain::cohort::{Cohort, Member, MemberOutcome, SkipReason, judge};
use crate::domain::event::Event;
use crate::domain::filter::DeadFacts;
use crate::domain::id::JobId;
use crate::domain::key::holds_key;
use crate::error::StorageError;
use crate::store::selection::key_owner;
use crate::store::{alone, cohort as cohort_store, job as job_store};
use crate::writer::batch::Batch;
use crate::writer::command::SweepReport;

/// What became of a look at one member.
enum Looked {
    Decided(MemberOutcome),
    /// Not now: somebody has paused the redrive of its class.
    Waits,
}

impl Batch<'_, '_> {
    /// Carries out what follows for a cohort from its results and from time. Returns whether it is to
    /// be looked at again at once.
    pub(super) fn release(
        &mut self,
        tracked: &mut Tracked,
        budget: &mut usize,
        report: &mut SweepReport,
    ) -> Result<bool, StorageError> {
        let now = self.time.now;
        let cohort = &mut tracked.cohort;
        let seen = (cohort.stage.clone(), cohort.watch.clone());
        let weather = self.weather(cohort)?;
        cohort.advance(weather, now);
        tracked.dirty |= seen != (cohort.stage.clone(), cohort.watch.clone());
        let due = cohort.due(now);
        if due == 0 {
            return Ok(false);
        }
        let cursor = cohort.cursor;
        let (released, more) = self.members(cohort, due, budget)?;
        tracked.dirty |= cohort.cursor != cursor;
        report.redriven += released;
        // Where all were passed over, the next ones are looked at; or it is over.
        let passed_over = released == 0 && cohort.cursor != cursor;
        report.passed_over += u64::from(passed_over);
        if released > 0 {
            cohort.released(now);
        } else if !more && !passed_over {
            tracked.dirty |= cohort.postponed(now);
        }
        Ok(more || passed_over)
    }

    /// Releases up to `count` members from the cursor on. Returns how many, and whether the budget
    /// ended before that.
    fn members(
        &mut self,
        cohort: &mut Cohort,
        count: u64,
        budget: &mut usize,
    ) -> Result<(u64, bool), StorageError> {
        let mut released = 0;
        while released < count {
            let wanted = usize::try_from(count - released).unwrap_or(usize::MAX);
            let page = wanted.min(*budget);
            if page == 0 {
                return Ok((released, true));
            }
            let members = cohort_store::members(&*self.rows, cohort.id, cohort.cursor, page)?;
            if members.is_empty() {
                break;
            }
            for (job, member) in members {
                *budget -= 1;
                // One that cannot be read is neither released nor held up for.
                let member = member.ok();
                let held = member.is_none_or(|member| member.outcome == MemberOutcome::Held);
                if held {
                    let looked = match member {
                        Some(_) => self.member(cohort, job)?,
                        None => Looked::Decided(MemberOutcome::Skipped(SkipReason::Damaged)),
                    };
                    let Looked::Decided(outcome) = looked else {
                        return Ok((released, false));
                    };
                    cohort.told(MemberOutcome::Held, outcome, false);
                    let cause = member.map_or(0, |member| member.cause);
                    let decided = Member { outcome, cause };
                    cohort_store::put_member(self.rows, cohort.id, job, Some(&decided))?;
                    released += u64::from(outcome == MemberOutcome::InFlight);
                }
                cohort.cursor = Some(job);
            }
        }
        Ok((released, false))
    }

    /// Decides about one member once more, as of now, and releases it.
    fn member(&mut self, cohort: &Cohort, id: JobId) -> Result<Looked, StorageError> {
        let skipped = |reason| Ok(Looked::Decided(MemberOutcome::Skipped(reason)));
        let job = match alone(job_store::read(&*self.rows, id))? {
            Ok(Some(job)) => job,
            Ok(None) => return skipped(SkipReason::Gone),
            Err(_) => return skipped(SkipReason::Damaged),
        };
        let registry = &self.core.registry;
        let policy = registry.policy(job.policy)?;
        let Some(facts) = DeadFacts::of(&job, holds_key(&job, policy, self.time.now)) else {
            return skipped(SkipReason::Gone);
        };
        // The rest of the cohort waits with it, so that the order stays.
        if self.core.pauses.stop_redrive(job.class) {
            return Ok(Looked::Waits);
        }
        let place = (id, job.class);
        let key = key_owner(&*self.rows, registry, place, &facts, self.time.now)?;
        let outcome = judge(&cohort.plan, &facts, policy.redrives_max, key, cohort.started_at);
        if outcome != MemberOutcome::Held {
            return Ok(Looked::Decided(outcome));
        }
        let event = Event::Redrive { cohort: cohort.id, reason: cohort.plan.reason.clone() };
        match alone(self.plan(&job, event))? {
            Ok(Ok(step)) => self.apply(&job, step)?,
            Ok(Err(_)) => return skipped(SkipReason::Gone),
            Err(_) => return skipped(SkipReason::Damaged),
        }
        Ok(Looked::Decided(MemberOutcome::InFlight))
    }
}
