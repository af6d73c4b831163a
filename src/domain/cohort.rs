//! A cohort: dead jobs that are sent back together, with brakes (P10). Pure decisions: who is skipped,
//! how many are released now, when it ends. The writer carries them out.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::abort::{AbortReason, Watch, Weather};
use crate::domain::blob::Blob;
use crate::domain::failure::FailureClass;
use crate::domain::filter::{DeadFacts, Filter};
use crate::domain::id::{CohortId, JobId};
use crate::domain::plan::RedrivePlan;
use crate::domain::time::Timestamp;

mod counts;

pub(crate) use counts::Member;
pub use counts::{CohortCounts, MemberOutcome, SkipReason};

/// A cohort: the whole row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Cohort {
    pub(crate) id: CohortId,
    /// In a row of its own, which does not change.
    #[serde(skip, default = "no_plan")]
    pub(crate) plan: RedrivePlan,
    pub(crate) started_at: Timestamp,
    pub(crate) stage: Stage,
    /// Since when nothing is released, if an operator said so.
    pub(crate) paused: Option<Timestamp>,
    pub(crate) counts: CohortCounts,
    /// Members up to this one have been released, or decided about.
    pub(crate) cursor: Option<JobId>,
    /// Batches released after the canary.
    pub(crate) batches: u32,
    /// The next batch is not released before this.
    pub(crate) next_release: Timestamp,
    pub(crate) watch: Watch,
}

fn no_plan() -> RedrivePlan {
    RedrivePlan::new(Filter::new())
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// The member list is being written.
    Selecting(Selection),
    Canary,
    Running,
    Aborted {
        at: Timestamp,
        why: AbortReason,
    },
    Finished {
        at: Timestamp,
    },
}

/// How far the member list is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Selection {
    /// Looking through the quarantine, from after this row.
    Scan { after: Option<Blob> },
    /// Leaving out those beyond the limit, from after this member; so many are within.
    Trim { after: Option<JobId>, kept: u64 },
}

/// The state a cohort is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CohortState {
    /// The member list is being written, in slices of 1,000.
    Selecting,
    /// The first jobs are out, and all of them must succeed.
    Canary,
    /// Batches are being released.
    Running,
    /// An operator stopped the release; it can go on.
    Paused,
    /// Stopped for good: what was not released stays dead.
    Aborted,
    /// Every member has an outcome.
    Finished,
}

impl CohortState {
    /// The state's name as used in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Selecting => "selecting",
            Self::Canary => "canary",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Aborted => "aborted",
            Self::Finished => "finished",
        }
    }
}

impl fmt::Display for CohortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// To whom the key of a dead job belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOwner {
    /// To itself, to nobody, or it has none.
    Itself,
    /// To a job that has done the same request.
    DoneTheSame,
    /// To another job.
    Another,
}

/// What a plan does with a dead job that its filter holds for.
pub(crate) fn judge(
    plan: &RedrivePlan,
    facts: &DeadFacts,
    redrives_max: u32,
    key: KeyOwner,
    started_at: Timestamp,
) -> MemberOutcome {
    let too_old = |most: u64| started_at.ms_since(facts.enqueued_at) > most;
    let unknown = match facts.class {
        FailureClass::Ambiguous | FailureClass::Crashed => plan.reconciled.is_none(),
        FailureClass::Permanent | FailureClass::Transient | FailureClass::Throttled => false,
    };
    if facts.redrives >= redrives_max {
        MemberOutcome::Skipped(SkipReason::Budget)
    } else if plan.age_ms_max.is_some_and(too_old) {
        MemberOutcome::Skipped(SkipReason::TooOld)
    } else if unknown {
        MemberOutcome::Skipped(SkipReason::UnknownOutcome)
    } else {
        match key {
            KeyOwner::Itself => MemberOutcome::Held,
            KeyOwner::DoneTheSame => MemberOutcome::Suppressed,
            KeyOwner::Another => MemberOutcome::Skipped(SkipReason::KeyTaken),
        }
    }
}

impl Cohort {
    pub(crate) fn new(id: CohortId, plan: RedrivePlan, now: Timestamp) -> Self {
        Self {
            id,
            plan,
            started_at: now,
            stage: Stage::Selecting(Selection::Scan { after: None }),
            paused: None,
            counts: CohortCounts::default(),
            cursor: None,
            batches: 0,
            next_release: now,
            watch: Watch::default(),
        }
    }

    pub(crate) const fn state(&self) -> CohortState {
        match (&self.stage, self.paused) {
            (Stage::Aborted { .. }, _) => CohortState::Aborted,
            (Stage::Finished { .. }, _) => CohortState::Finished,
            (_, Some(_)) => CohortState::Paused,
            (Stage::Selecting(_), None) => CohortState::Selecting,
            (Stage::Canary, None) => CohortState::Canary,
            (Stage::Running, None) => CohortState::Running,
        }
    }

    /// Why it was aborted, if it was.
    pub(crate) const fn aborted(&self) -> Option<&AbortReason> {
        match &self.stage {
            Stage::Aborted { why, .. } => Some(why),
            Stage::Selecting(_) | Stage::Canary | Stage::Running | Stage::Finished { .. } => None,
        }
    }

    /// Whether it may still release members.
    pub(crate) const fn is_live(&self) -> bool {
        match self.stage {
            Stage::Selecting(_) | Stage::Canary | Stage::Running => true,
            Stage::Aborted { .. } | Stage::Finished { .. } => false,
        }
    }

    /// Whether anything can still happen to it.
    pub(crate) const fn is_over(&self) -> bool {
        !self.is_live() && self.counts.in_flight == 0
    }

    pub(crate) const fn selection(&self) -> Option<&Selection> {
        match &self.stage {
            Stage::Selecting(selection) => Some(selection),
            Stage::Canary | Stage::Running | Stage::Aborted { .. } | Stage::Finished { .. } => None,
        }
    }

    /// The member list is whole; the release begins.
    pub(crate) fn selected(&mut self, now: Timestamp) {
        self.stage = if self.plan.canary == 0 { Stage::Running } else { Stage::Canary };
        self.next_release = now;
    }

    /// A member has moved on.
    pub(crate) fn told(&mut self, from: MemberOutcome, to: MemberOutcome, same_cause: bool) {
        self.counts.moved(from, to);
        match to {
            MemberOutcome::Completed | MemberOutcome::Cancelled => self.watch.result(false, false),
            MemberOutcome::DiedAgain => self.watch.result(true, same_cause),
            MemberOutcome::Held
            | MemberOutcome::InFlight
            | MemberOutcome::Suppressed
            | MemberOutcome::Skipped(_) => {}
        }
    }

    pub(crate) fn abort(&mut self, why: AbortReason, now: Timestamp) {
        self.stage = Stage::Aborted { at: now, why };
        self.paused = None;
    }

    /// What follows from the results and from time: stops it, ends the canary, finishes it.
    pub(crate) fn advance(&mut self, weather: Weather, now: Timestamp) {
        let counts = &self.counts;
        let nothing_left = counts.held == 0 && counts.in_flight == 0;
        let canary = match self.stage {
            Stage::Canary => true,
            Stage::Running => false,
            Stage::Selecting(_) | Stage::Aborted { .. } | Stage::Finished { .. } => return,
        };
        if canary && counts.died_again > 0 {
            self.abort(AbortReason::CanaryDied, now);
        } else if nothing_left {
            self.stage = Stage::Finished { at: now };
            self.paused = None;
        } else if let Some(why) = self.watch.look(&self.plan.aborts, weather, now) {
            self.abort(why, now);
        } else if canary && self.counts.completed >= u64::from(self.plan.canary) {
            self.stage = Stage::Running;
            self.next_release = now;
        }
    }

    /// How many to release now.
    pub(crate) fn due(&self, now: Timestamp) -> u64 {
        if self.paused.is_some() || self.counts.held == 0 {
            return 0;
        }
        let out = self.counts.in_flight;
        match self.stage {
            Stage::Canary => {
                u64::from(self.plan.canary).saturating_sub(self.counts.completed + out)
            }
            Stage::Running if self.next_release > now => 0,
            Stage::Running => {
                let size = u64::from(self.plan.batch_size(self.batches));
                match self.plan.in_flight_max {
                    0 if out > 0 => 0,
                    0 => size,
                    most => size.min(u64::from(most).saturating_sub(out)),
                }
            }
            Stage::Selecting(_) | Stage::Aborted { .. } | Stage::Finished { .. } => 0,
        }
    }

    /// A batch was released.
    pub(crate) fn released(&mut self, now: Timestamp) {
        if matches!(self.stage, Stage::Running) {
            self.batches = self.batches.saturating_add(1);
            self.next_release = now.plus_ms(self.plan.every_ms);
        }
    }

    /// Nothing could be released although it was time: tries again an interval later. Returns whether
    /// that changes anything; a canary is tried again when something happens.
    pub(crate) fn postponed(&mut self, now: Timestamp) -> bool {
        let running = matches!(self.stage, Stage::Running);
        if running {
            self.next_release = now.plus_ms(self.plan.every_ms);
        }
        running
    }

    /// When to look next although nothing has happened by then; seen from a look at `now`.
    pub(crate) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let running = match self.stage {
            Stage::Canary => false,
            Stage::Running => true,
            Stage::Selecting(_) | Stage::Aborted { .. } | Stage::Finished { .. } => return None,
        };
        let waits = self.paused.is_some() || self.counts.held == 0;
        let room = match self.plan.in_flight_max {
            0 => self.counts.in_flight == 0,
            most => self.counts.in_flight < u64::from(most),
        };
        let release = (running && !waits && room).then_some(self.next_release);
        let watch = self.plan.aborts.look_every_ms().map(|ms| now.plus_ms(ms));
        release.into_iter().chain(watch).min()
    }
}

#[cfg(test)]
mod tests;
