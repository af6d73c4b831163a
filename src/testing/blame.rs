//! What an ending costs a job of the reference model, and whether it is one too many.

use crate::domain::failure::FailureClass;
use crate::domain::job::{DeathReason, Lane};
use crate::domain::policy::OnUnknown;
use crate::domain::unknown::UnknownOutcome;
use crate::testing::life::{Ending, Hold, Life, Trouble};

impl Life {
    /// Charges the job for the ending; returns the trouble, if it is one, and whether it is fatal.
    pub(super) fn blame(
        &mut self,
        hold: &Hold,
        ending: &Ending,
    ) -> (Option<Trouble>, Option<DeathReason>) {
        let rules = self.rules;
        match ending {
            Ending::Snoozed { .. } => {
                self.snoozes += 1;
                let fatal = self.snoozes > rules.snoozes;
                let trouble = Trouble::new(FailureClass::Transient, "snooze_budget", "");
                (fatal.then_some(trouble), Some(DeathReason::SnoozeBudget))
            }
            Ending::Released => {
                self.releases += 1;
                let fatal = self.releases > rules.releases;
                let trouble = Trouble::new(FailureClass::Transient, "release_budget", "");
                (fatal.then_some(trouble), Some(DeathReason::ReleaseBudget))
            }
            Ending::DidNotHappen => (None, None),
            Ending::Failed(trouble, _) => {
                let fatal = self.charge(trouble.class);
                (Some(trouble.clone()), fatal)
            }
            Ending::Expired { .. } => {
                let fatal = self.charge(FailureClass::Ambiguous);
                (self.doubtful(hold, ending), fatal)
            }
            Ending::Crashed => {
                self.crashes += 1;
                // Only the one that ran alone is charged an attempt (P12).
                self.attempts += u32::from(hold.from.lane == Lane::Suspect);
                let fatal = match rules.on_unknown {
                    OnUnknown::Quarantine => Some(DeathReason::UnknownRefused),
                    OnUnknown::Retry => self.over_budget(self.crashes, rules.crashed),
                    // First it is asked whether it happened.
                    OnUnknown::Reconcile => None,
                };
                (self.doubtful(hold, ending), fatal)
            }
        }
    }

    /// What is unknown after a delivery that ended so, if anything is.
    pub(super) fn doubtful(&self, hold: &Hold, ending: &Ending) -> Option<Trouble> {
        match ending {
            _ if hold.reconciles() => None,
            Ending::Failed(trouble, _) => {
                Some(trouble.clone()).filter(|what| what.class == FailureClass::Ambiguous)
            }
            Ending::Expired { deadline } => {
                let code = if *deadline { "deadline_exceeded" } else { "lease_expired" };
                let text = "the lease ended before the handler did";
                Some(Trouble::new(FailureClass::Ambiguous, code, text))
            }
            Ending::Crashed => {
                let text = "the process died while it held the lease";
                Some(Trouble::new(FailureClass::Crashed, "crashed", text))
            }
            Ending::Snoozed { .. } | Ending::Released | Ending::DidNotHappen => None,
        }
    }

    fn charge(&mut self, class: FailureClass) -> Option<DeathReason> {
        self.attempts += 1;
        self.crashes = 0;
        let spent = match class {
            FailureClass::Permanent | FailureClass::Crashed => {
                return Some(DeathReason::Permanent);
            }
            FailureClass::Transient => &mut self.transient,
            FailureClass::Throttled => &mut self.throttled,
            FailureClass::Ambiguous => &mut self.ambiguous,
        };
        *spent += 1;
        let spent = *spent;
        match self.rules.on_unknown {
            OnUnknown::Quarantine if class == FailureClass::Ambiguous => {
                return Some(DeathReason::UnknownRefused);
            }
            OnUnknown::Reconcile if class == FailureClass::Ambiguous => return None,
            OnUnknown::Retry | OnUnknown::Quarantine | OnUnknown::Reconcile => {}
        }
        self.over_budget(spent, self.rules.budget(class))
    }

    /// The same for an ending of a reconciliation, which charges no attempt. `doubt` is what it was
    /// about.
    pub(super) fn blame_reconciler(
        &mut self,
        doubt: Option<&UnknownOutcome>,
        hold: &Hold,
        ending: &Ending,
    ) -> (Option<Trouble>, Option<DeathReason>) {
        match ending {
            Ending::Failed(..) | Ending::Expired { .. } => {
                self.reconciles += 1;
                let text = format!("still unknown after {} reconciliations", self.reconciles);
                let mut trouble = Trouble::new(FailureClass::Ambiguous, "reconcile_budget", &text);
                trouble.provider_ref = doubt.and_then(|doubt| doubt.provider_ref.clone());
                let fatal = self.reconciles >= self.rules.reconciles;
                (Some(trouble), fatal.then_some(DeathReason::ReconcileBudget))
            }
            Ending::DidNotHappen => {
                let Some(doubt) = doubt else { return (None, None) };
                let crashed = doubt.class == FailureClass::Crashed;
                let spent = if crashed { self.crashes } else { self.ambiguous };
                let fatal = self.over_budget(spent, self.rules.budget(doubt.class));
                let text = "it did not happen, and there may be no further attempt";
                let trouble = Trouble::new(doubt.class, &doubt.code, text);
                (fatal.map(|_| trouble), fatal)
            }
            Ending::Crashed => {
                self.crashes += 1;
                let text = "the process died while it held the lease";
                let trouble = Trouble::new(FailureClass::Crashed, "crashed", text);
                (Some(trouble), self.over_budget(self.crashes, self.rules.crashed))
            }
            Ending::Snoozed { .. } | Ending::Released => self.blame(hold, ending),
        }
    }

    fn over_budget(&self, spent: u32, budget: u32) -> Option<DeathReason> {
        if spent >= budget {
            return Some(DeathReason::ClassBudget);
        }
        (self.attempts >= self.rules.total).then_some(DeathReason::TotalBudget)
    }
}
