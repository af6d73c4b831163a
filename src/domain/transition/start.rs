//! Arrows on the way to a worker.

use super::{Next, Refused, Step, unfit};
use crate::domain::counter::Flow;
use crate::domain::event::Claimant;
use crate::domain::job::{Lease, State};
use crate::domain::order::{place, unblocked};

impl Next<'_> {
    /// A blocked job is taken only together with those before it, and not before its time.
    pub(super) fn claim(mut self, claimant: Claimant) -> Result<Step, Refused> {
        let now = self.context.now;
        let from = match self.job.state {
            State::Ready(from) => from,
            State::Blocked(blocked) if blocked.due.is_none_or(|due| due <= now) => {
                place(self.job.id, blocked, now)
            }
            State::Blocked(_)
            | State::Delayed(_)
            | State::Leased(_)
            | State::Dead(_)
            | State::Done(_)
            | State::Cancelled(_) => return unfit(&self.job),
        };
        self.job.deliveries = self.job.deliveries.saturating_add(1);
        self.job.state = State::Leased(Lease {
            instance: claimant.instance,
            worker: claimant.worker,
            version: claimant.version,
            claimed_at: now,
            deadline: now.plus_ms(self.context.policy.lease_ms),
            cancel_requested: false,
            from,
        });
        Ok(self.step(vec![Flow::Claimed], None))
    }

    pub(super) fn due(mut self) -> Result<Step, Refused> {
        let State::Delayed(delayed) = self.job.state else { return unfit(&self.job) };
        self.job.state = self.ready(delayed.lane);
        Ok(self.step(vec![], None))
    }

    pub(super) fn unblock(mut self) -> Result<Step, Refused> {
        let State::Blocked(blocked) = self.job.state else { return unfit(&self.job) };
        self.job.state = unblocked(self.job.id, blocked, self.context.now);
        Ok(self.step(vec![], None))
    }
}
