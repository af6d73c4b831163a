//! The arrows of outcomes that nobody knows (P8): how a delivery becomes one, and what a reconciler
//! makes of it.

use crate::domain::counter::Flow;
use crate::domain::failure::{Failure, FailureClass};
use crate::domain::history::{DeliveryEnd, Finding, HistoryEntry};
use crate::domain::job::{DeathReason, Delayed, Lane, Lease, Ready, State};
use crate::domain::policy::OnUnknown;
use crate::domain::transition::{Next, Step};
use crate::domain::unknown::{UnknownOutcome, lane_for};

impl Next<'_> {
    /// The present delivery may have had its effect. Of several, the first one is kept.
    pub(super) fn note_unknown(&mut self, failure: &Failure) {
        let (delivery, now) = (self.job.deliveries, self.context.now);
        self.job.unknown.get_or_insert_with(|| UnknownOutcome::new(failure, delivery, now));
    }

    /// Reported as unknown: its reconciler is asked at once, unless the failure says to wait. Whether
    /// there may be another attempt matters only once it is known that this one had no effect.
    pub(super) fn in_doubt(mut self, failure: &Failure, entry: HistoryEntry) -> Step {
        let lane = Lane::Reconcile;
        self.job.state = match failure.retry_after_ms() {
            Some(wait) if wait > 0 => {
                State::Delayed(Delayed { lane, due: self.context.now.plus_ms(wait) })
            }
            Some(_) | None => self.ready(lane),
        };
        self.step(vec![Flow::RetriedAmbiguous], Some(entry))
    }

    /// It is to be cancelled, and may have happened. Where the policy allows no repetition before somebody
    /// knows, nobody forgets it either: it goes to the quarantine, with its evidence.
    pub(super) fn cancelled_in_doubt(
        mut self,
        lease: &Lease,
        failure: &Failure,
        flows: Vec<Flow>,
        entry: HistoryEntry,
    ) -> Step {
        self.note_unknown(failure);
        if self.context.policy.on_unknown == OnUnknown::Retry {
            return self.cancelled(flows, Some(entry));
        }
        let mut step = self.die(lease, failure, DeathReason::UnknownRefused, entry);
        step.flows.extend(flows);
        step
    }

    /// The outcome is unknown, and the wait was the lease itself: it goes back at once.
    pub(super) fn expire(mut self, lease: &Lease, deadline_exceeded: bool) -> Step {
        let entry = self.ended(lease, DeliveryEnd::LeaseExpired { deadline_exceeded });
        let code = if deadline_exceeded { "deadline_exceeded" } else { "lease_expired" };
        let failure = Failure::ambiguous(code).message("the lease ended before the handler did");
        if lease.from.lane.is_reconcile() {
            return self.still_unknown(lease, &failure, vec![Flow::LeaseExpired], entry);
        }
        if lease.cancel_requested {
            return self.cancelled_in_doubt(lease, &failure, vec![Flow::LeaseExpired], entry);
        }
        let spent = self.charge(FailureClass::Ambiguous);
        self.note_unknown(&failure);
        let reason = match self.context.policy.on_unknown {
            OnUnknown::Quarantine => Some(DeathReason::UnknownRefused),
            OnUnknown::Retry => self.budget_spent(FailureClass::Ambiguous, spent),
            OnUnknown::Reconcile => None,
        };
        if let Some(reason) = reason {
            let mut step = self.die(lease, &failure, reason, entry);
            step.flows.push(Flow::LeaseExpired);
            return step;
        }
        self.job.state = self.ready(lane_for(&self.job, self.context.policy, Lane::Retry));
        self.step(vec![Flow::LeaseExpired], Some(entry))
    }

    /// In flight when the process died: a suspect, not a culprit (P12). The first crash costs
    /// nothing but the suspicion; one that comes while it ran as the only suspect is charged.
    ///
    /// A reconciler is asked before a suspect is convicted; only if the process died while that was
    /// asked, the budget of crashes decides at once.
    pub(super) fn crash(mut self, lease: &Lease) -> Step {
        let entry = self.ended(lease, DeliveryEnd::Crashed);
        let failure = Failure::new(FailureClass::Crashed, "crashed")
            .message("the process died while it held the lease");
        if lease.cancel_requested {
            return match lease.from.lane.is_reconcile() {
                true => self.cancelled(vec![Flow::Crashed], Some(entry)),
                false => self.cancelled_in_doubt(lease, &failure, vec![Flow::Crashed], entry),
            };
        }
        self.note_unknown(&failure);
        self.job.cycle.crashed = self.job.cycle.crashed.saturating_add(1);
        if lease.from.lane == Lane::Suspect {
            self.job.cycle.attempts = self.job.cycle.attempts.saturating_add(1);
        }
        self.note_failure();
        let spent = self.budget_spent(FailureClass::Crashed, self.job.cycle.crashed);
        let reason = match self.context.policy.on_unknown {
            OnUnknown::Quarantine => Some(DeathReason::UnknownRefused),
            OnUnknown::Reconcile if !lease.from.lane.is_reconcile() => None,
            OnUnknown::Reconcile | OnUnknown::Retry => spent,
        };
        if let Some(reason) = reason {
            let mut step = self.die(lease, &failure, reason, entry);
            step.flows.push(Flow::Crashed);
            return step;
        }
        self.job.state = State::Ready(Ready {
            lane: lane_for(&self.job, self.context.policy, Lane::Suspect),
            seq: lease.from.seq,
            since: self.context.now,
        });
        self.step(vec![Flow::Crashed], Some(entry))
    }

    /// The delivery that was in doubt had no effect: the next one is an ordinary one, if the budgets,
    /// which were charged when the doubt arose, allow it. A suspect stays a suspect.
    pub(super) fn did_not_happen(mut self, lease: &Lease) -> Step {
        let entry = self.ended(lease, reconciled(Finding::DidNotHappen, None));
        let flow = Flow::ReconciledNot;
        let unknown = self.job.unknown.take();
        self.job.cycle.reconciles = 0;
        if lease.cancel_requested {
            return self.cancelled(vec![flow], Some(entry));
        }
        let class = unknown.as_ref().map_or(FailureClass::Ambiguous, |unknown| unknown.class);
        let spent = match class {
            FailureClass::Crashed => self.job.cycle.crashed,
            FailureClass::Permanent
            | FailureClass::Transient
            | FailureClass::Throttled
            | FailureClass::Ambiguous => self.job.cycle.ambiguous,
        };
        if let Some(reason) = self.budget_spent(class, spent) {
            let code = unknown.map_or_else(String::new, |unknown| unknown.code);
            let failure = Failure::new(class, code)
                .message("it did not happen, and there may be no further attempt");
            let mut step = self.die(lease, &failure, reason, entry);
            step.flows.push(flow);
            return step;
        }
        self.job.state = self.ready(lease.from.lane.resolved());
        self.step(vec![flow], Some(entry))
    }

    /// A reconciliation ended without an answer: once more, on a schedule and within a budget of its
    /// own. No attempt is charged: nothing was attempted.
    pub(super) fn still_unknown(
        mut self,
        lease: &Lease,
        failure: &Failure,
        mut flows: Vec<Flow>,
        entry: HistoryEntry,
    ) -> Step {
        flows.push(Flow::ReconciledUnknown);
        if lease.cancel_requested {
            return self.cancelled(flows, Some(entry));
        }
        self.note_unknown(failure);
        let asked = self.job.cycle.reconciles.saturating_add(1);
        self.job.cycle.reconciles = asked;
        let policy = self.context.policy;
        if asked >= policy.reconciles_max {
            let mut last = Failure::ambiguous("reconcile_budget")
                .message(format!("still unknown after {asked} reconciliations"));
            if let Some(reference) = self.job.unknown.as_ref().and_then(|u| u.provider_ref.clone())
            {
                last = last.provider_ref(reference);
            }
            let mut step = self.die(lease, &last, DeathReason::ReconcileBudget, entry);
            step.flows.append(&mut flows);
            return step;
        }
        let planned = policy.reconcile_schedule.delay_ms(asked, self.context.seed);
        let wait = planned.max(failure.retry_after_ms().unwrap_or(0));
        let due = self.context.now.plus_ms(wait);
        self.job.state = State::Delayed(Delayed { lane: lease.from.lane, due });
        self.step(flows, Some(entry))
    }
}

/// What the history says of a reconciliation.
pub(super) fn reconciled(finding: Finding, failure: Option<&Failure>) -> DeliveryEnd {
    DeliveryEnd::Reconciled {
        finding,
        code: failure.map_or_else(String::new, |failure| failure.code().to_owned()),
        message: failure.map_or_else(String::new, |failure| failure.text().to_owned()),
    }
}
