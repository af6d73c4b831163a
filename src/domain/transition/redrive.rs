//! What can be done to a dead job short of removing it: its payload replaced, and the way back.

use super::{Next, Step};
use crate::domain::cohort::MemberOutcome;
use crate::domain::counter::Flow;
use crate::domain::failure::FailureClass;
use crate::domain::history::{Death, HistoryEntry, HistoryEvent};
use crate::domain::id::CohortId;
use crate::domain::job::{Cycle, Dead, Done, Job, Lane, Payload, State};
use crate::domain::key::RequestHash;
use crate::domain::unknown::lane_for;

impl Next<'_> {
    /// Another payload for the same job: the key stays, and stands for the new request from here on.
    pub(super) fn amend(mut self, payload: Payload, hash: RequestHash, note: String) -> Step {
        self.job.payload = payload;
        self.job.amended = true;
        if let Some(claim) = &mut self.job.key {
            claim.hash = hash;
        }
        let entry = HistoryEntry { at: self.context.now, event: HistoryEvent::Amended { note } };
        self.step(vec![Flow::Amended], Some(entry))
    }

    /// A fresh budget and nothing else: id, key, payload, deliveries, the first failure and the whole
    /// history stay, and the evidence of this death joins them (P10, O-14).
    ///
    /// It goes to the end of the retry lane, so that a redrive never holds more than the retry share
    /// while fresh work waits, and keeps the order in which the cohort releases (O-26). What was
    /// convicted of crashes goes on as a suspect: it runs alone among its like (P12). A job whose outcome
    /// nobody could find out is asked about anew, where its policy says so (P8).
    pub(super) fn redrive(mut self, dead: &Dead, cohort: CohortId, reason: String) -> Step {
        let death = Box::new(Death::of(dead, self.job.cycle.attempts));
        let event = HistoryEvent::Redriven { cohort, reason, death };
        let entry = HistoryEntry { at: self.context.now, event };
        self.job.history_pinned.push(self.job.history_next);
        self.job.redrives = self.job.redrives.saturating_add(1);
        self.job.cycle = Cycle::default();
        self.job.cohort = Some(cohort);
        if let Some(claim) = &mut self.job.key {
            // It owns its key again; who had it in between is not forgotten.
            claim.previous = claim.previous.or(claim.taken_by.take());
        }
        let lane = match dead.class {
            FailureClass::Crashed => Lane::Suspect,
            FailureClass::Permanent
            | FailureClass::Transient
            | FailureClass::Throttled
            | FailureClass::Ambiguous => Lane::Retry,
        };
        self.job.state = self.ready(lane_for(&self.job, self.context.policy, lane));
        self.step(vec![Flow::Redriven], Some(entry))
    }
}

/// What a step from `before` to `after` means for the cohort that is owed the outcome, if one is.
pub(crate) fn owed(before: &Job, after: &Job) -> Option<(CohortId, MemberOutcome)> {
    let cohort = before.cohort?;
    let outcome = match after.state {
        State::Done(Done { duplicate_of: Some(_), .. }) => MemberOutcome::Suppressed,
        State::Done(_) => MemberOutcome::Completed,
        State::Dead(_) => MemberOutcome::DiedAgain,
        State::Cancelled(_) => MemberOutcome::Cancelled,
        State::Ready(_) | State::Delayed(_) | State::Leased(_) | State::Blocked(_) => return None,
    };
    Some((cohort, outcome))
}
