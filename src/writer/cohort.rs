//! Cohorts: the writer keeps those that something can still happen to in memory, equal to their rows,
//! and carries out what `domain::cohort` decides. A member's row changes in the same commit as its
//! job, so no member is ever released twice, whatever dies when (P10).

mod release;
mod select;
mod weather;

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::abort::AbortReason;
use crate::domain::cohort::{Cohort, CohortState, Member, MemberOutcome, SkipReason};
use crate::domain::id::{CohortId, JobId};
use crate::domain::job::{Job, State};
use crate::domain::limits::{COHORTS_ENDED_MAX, COHORTS_LIVE_MAX};
use crate::domain::plan::RedrivePlan;
use crate::domain::time::Timestamp;
use crate::domain::transition::owed;
use crate::error::{CohortError, RedriveError, StorageError};
use crate::store::rows::Rows;
use crate::store::{alone, cohort as cohort_store};
use crate::writer::batch::Batch;
use crate::writer::command::{CohortOrder, SweepReport};
use crate::writer::events::EventKind;
use crate::writer::sweep::SLICE;

/// What the writer knows of cohorts.
#[derive(Default)]
pub(super) struct Cohorts {
    /// Those that have not ended, or whose released members have not.
    tracked: BTreeMap<CohortId, Tracked>,
    /// Those that have ended and are kept.
    ended: BTreeSet<CohortId>,
    /// Something has happened since the last pass.
    news: bool,
    next_look: Option<Timestamp>,
}

struct Tracked {
    cohort: Cohort,
    /// Differs from its row.
    dirty: bool,
    /// The state that was last told of.
    told: Option<CohortState>,
}

impl Cohorts {
    pub(super) fn load(rows: &impl Rows) -> Result<Self, StorageError> {
        let mut cohorts = Self::default();
        for id in cohort_store::ids(rows, None, usize::MAX)? {
            // One whose rows are damaged releases nothing more; `verify` tells of it.
            if let Ok(Some(cohort)) = alone(cohort_store::read(rows, id))? {
                if cohort.is_over() {
                    cohorts.ended.insert(id);
                } else {
                    cohorts
                        .tracked
                        .insert(id, Tracked { told: Some(cohort.state()), cohort, dirty: false });
                }
            }
        }
        cohorts.news = !cohorts.tracked.is_empty();
        Ok(cohorts)
    }

    /// Whether there is something to look at now, whatever the time.
    pub(super) const fn has_news(&self) -> bool {
        self.news
    }

    /// When to look although nothing has happened by then.
    pub(super) const fn next_look(&self) -> Option<Timestamp> {
        self.next_look
    }

    /// What stopped a release may be gone.
    pub(super) fn look_again(&mut self) {
        self.news |= !self.tracked.is_empty();
    }

    fn live(&self) -> impl Iterator<Item = CohortId> + '_ {
        let live = self.tracked.iter().filter(|(_, tracked)| tracked.cohort.is_live());
        live.map(|(&id, _)| id)
    }
}

impl Batch<'_, '_> {
    /// Starts a cohort: from here on its member list is decided, and nothing that dies later joins it.
    pub(super) fn start_cohort(
        &mut self,
        plan: RedrivePlan,
    ) -> Result<Result<CohortId, RedriveError>, StorageError> {
        if self.core.cohorts.live().count() >= COHORTS_LIVE_MAX {
            return Ok(Err(RedriveError::TooManyCohorts { count_max: COHORTS_LIVE_MAX }));
        }
        let Some(next) = self.core.meta.next.checked_add(1) else {
            return Ok(Err(StorageError::internal("the numbers are used up").into()));
        };
        let id = CohortId::new(std::mem::replace(&mut self.core.meta.next, next));
        let cohort = Cohort::new(id, plan, self.time.now);
        cohort_store::insert(self.rows, &cohort)?;
        self.core.cohorts.tracked.insert(id, Tracked { cohort, dirty: false, told: None });
        self.core.cohorts.news = true;
        Ok(Ok(id))
    }

    /// Pauses, resumes or aborts a cohort.
    pub(super) fn order_cohort(
        &mut self,
        id: CohortId,
        order: CohortOrder,
    ) -> Result<Result<(), CohortError>, StorageError> {
        let now = self.time.now;
        let Some(tracked) = self.core.cohorts.tracked.get_mut(&id) else {
            return Ok(Err(match alone(cohort_store::read(&*self.rows, id))? {
                Ok(Some(cohort)) => CohortError::WrongState { cohort: id, state: cohort.state() },
                Ok(None) => CohortError::NotFound { cohort: id },
                Err(damage) => damage.into(),
            }));
        };
        let cohort = &mut tracked.cohort;
        let state = cohort.state();
        let wrong = Ok(Err(CohortError::WrongState { cohort: id, state }));
        match (order, state) {
            (_, CohortState::Aborted | CohortState::Finished)
            | (CohortOrder::Pause, CohortState::Paused)
            | (
                CohortOrder::Resume,
                CohortState::Selecting | CohortState::Canary | CohortState::Running,
            ) => return wrong,
            (CohortOrder::Pause, _) => cohort.paused = Some(now),
            (CohortOrder::Resume, CohortState::Paused) => cohort.paused = None,
            (CohortOrder::Abort(reason), _) => {
                cohort.abort(AbortReason::Operator { reason }, now);
            }
        }
        tracked.dirty = true;
        self.core.cohorts.news = true;
        Ok(Ok(()))
    }

    /// One bounded pass over all cohorts. Returns whether there may be more to do at once.
    pub(super) fn cohorts(&mut self, report: &mut SweepReport) -> Result<bool, StorageError> {
        let now = self.time.now;
        let known = &mut self.core.cohorts;
        if !known.news && known.next_look.is_none_or(|at| at > now) {
            return Ok(false);
        }
        known.news = false;
        let (selecting, releasing): (Vec<CohortId>, Vec<CohortId>) = known
            .tracked
            .keys()
            .partition(|&id| known.tracked.get(id).is_some_and(Tracked::is_selecting));
        let mut budget = SLICE;
        let mut more = false;
        for id in releasing.into_iter().chain(selecting) {
            // Taken out for as long as it is worked on: nothing below asks for it.
            let Some(mut tracked) = self.core.cohorts.tracked.remove(&id) else { continue };
            let worked = self.work(&mut tracked, &mut budget, report);
            self.core.cohorts.tracked.insert(id, tracked);
            more |= worked?;
        }
        more |= self.forget_cohorts(&mut budget)?;
        let tracked = self.core.cohorts.tracked.values();
        let next_look = tracked.filter_map(|tracked| tracked.cohort.next_look(now)).min();
        self.core.cohorts.next_look = next_look;
        self.core.cohorts.news |= more;
        Ok(more)
    }

    /// Goes on with one cohort. Returns whether it is to be looked at again at once.
    fn work(
        &mut self,
        tracked: &mut Tracked,
        budget: &mut usize,
        report: &mut SweepReport,
    ) -> Result<bool, StorageError> {
        if tracked.is_selecting() {
            if *budget > 0 {
                self.select(tracked, budget, report)?;
            }
            if tracked.is_selecting() {
                return Ok(true);
            }
        }
        self.release(tracked, budget, report)
    }

    /// Writes the cohorts that changed, and lets go of those to which nothing can happen any more.
    pub(super) fn flush_cohorts(&mut self) -> Result<(), StorageError> {
        let (mut over, mut news) = (Vec::new(), Vec::new());
        for (&id, tracked) in &mut self.core.cohorts.tracked {
            if std::mem::take(&mut tracked.dirty) {
                cohort_store::put(self.rows, &tracked.cohort)?;
                let state = tracked.cohort.state();
                if tracked.told.replace(state) != Some(state) {
                    news.push(EventKind::Cohort {
                        cohort: id,
                        state,
                        aborted: tracked.cohort.aborted().cloned(),
                    });
                }
                over.extend(tracked.cohort.is_over().then_some(id));
            }
        }
        for what in news {
            self.tell(|_| Ok(what));
        }
        for id in over {
            self.core.cohorts.tracked.remove(&id);
            self.core.cohorts.ended.insert(id);
            self.core.cohorts.news |= self.core.cohorts.ended.len() > COHORTS_ENDED_MAX;
        }
        Ok(())
    }

    /// Tells the cohort that released a job how it ended, if it did.
    pub(super) fn tell_cohort(&mut self, before: &Job, after: &Job) -> Result<(), StorageError> {
        let Some((cohort, outcome)) = owed(before, after) else {
            return Ok(());
        };
        let cause = match &after.state {
            State::Dead(dead) => Some(dead.cause),
            State::Ready(_)
            | State::Delayed(_)
            | State::Leased(_)
            | State::Done(_)
            | State::Cancelled(_)
            | State::Blocked(_) => None,
        };
        self.member_moved(cohort, before.id, outcome, cause)
    }

    /// A job cannot be used any more: a cohort that has released it will not hear of it again.
    pub(super) fn tell_cohorts_of_loss(&mut self, job: JobId) -> Result<(), StorageError> {
        let out = self.core.cohorts.tracked.iter();
        let out = out.filter(|(_, tracked)| tracked.cohort.counts.in_flight > 0);
        let out: Vec<CohortId> = out.map(|(&id, _)| id).collect();
        for cohort in out {
            if let Ok(Some(member)) = alone(cohort_store::member(&*self.rows, cohort, job))?
                && member.outcome == MemberOutcome::InFlight
            {
                let lost = MemberOutcome::Skipped(SkipReason::Damaged);
                self.member_moved(cohort, job, lost, None)?;
            }
        }
        Ok(())
    }

    fn member_moved(
        &mut self,
        cohort: CohortId,
        job: JobId,
        to: MemberOutcome,
        cause: Option<u64>,
    ) -> Result<(), StorageError> {
        let Some(tracked) = self.core.cohorts.tracked.get_mut(&cohort) else {
            return Ok(());
        };
        let unreadable = Member { outcome: MemberOutcome::InFlight, cause: 0 };
        let member = alone(cohort_store::member(&*self.rows, cohort, job))?.ok().flatten();
        let member = member.unwrap_or(unreadable);
        tracked.cohort.told(member.outcome, to, cause == Some(member.cause));
        tracked.dirty = true;
        self.core.cohorts.news = true;
        let member = Member { outcome: to, ..member };
        cohort_store::put_member(self.rows, cohort, job, Some(&member))
    }

    /// Drops the oldest of the ended cohorts that are too many, with its members, in slices.
    fn forget_cohorts(&mut self, budget: &mut usize) -> Result<bool, StorageError> {
        if self.core.cohorts.ended.len() <= COHORTS_ENDED_MAX {
            return Ok(false);
        }
        let Some(&oldest) = self.core.cohorts.ended.first() else {
            return Ok(false);
        };
        let members = cohort_store::members(&*self.rows, oldest, None, *budget)?;
        for (job, _) in &members {
            cohort_store::put_member(self.rows, oldest, *job, None)?;
        }
        if members.len() < *budget {
            cohort_store::remove(self.rows, oldest)?;
            self.core.cohorts.ended.remove(&oldest);
        }
        *budget -= members.len();
        Ok(self.core.cohorts.ended.len() > COHORTS_ENDED_MAX)
    }
}

impl Tracked {
    const fn is_selecting(&self) -> bool {
        self.cohort.selection().is_some()
    }
}
