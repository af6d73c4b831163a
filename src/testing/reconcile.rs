//! Reconciliations: the same call to the store and to the model.

use crate::domain::failure::FailureClass;
use crate::handle::lease::Lease;
use crate::handle::reconcile::Reconciled;
use crate::testing::expect::Verdict;
use crate::testing::harness::Harness;
use crate::testing::life::{Ending, Trouble};

impl Harness {
    pub(super) fn reconcile(&mut self, lease: usize, answer: u8) -> Verdict {
        let asked = self.held.iter().filter(|held| held.is_reconciliation()).count();
        let asked = lease.checked_rem(asked);
        let held = self.held.iter().enumerate().filter(|(_, held)| held.is_reconciliation());
        let Some(place) = asked.and_then(|asked| held.map(|(place, _)| place).nth(asked)) else {
            return Ok(());
        };
        match answer % 4 {
            0 => self.complete(place, Some(answer)),
            1 => {
                let trouble = Trouble {
                    class: FailureClass::Ambiguous,
                    code: "still_unknown".into(),
                    message: String::new(),
                    provider_ref: None,
                };
                let ending = Ending::Failed(trouble, None);
                self.end(place, |_| ending, |lease| lease.reconcile(Reconciled::StillUnknown))
            }
            _ => {
                let answer = |lease: Lease| lease.reconcile(Reconciled::DidNotHappen);
                self.end(place, |_| Ending::DidNotHappen, answer)
            }
        }
    }
}
