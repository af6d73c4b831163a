//! Ending a job because somebody asked for it.

use super::{Next, Step};
use crate::domain::counter::Flow;
use crate::domain::history::{HistoryEntry, HistoryEvent};
use crate::domain::job::{Cancelled, Lease, Payload, State};

impl Next<'_> {
    pub(super) fn request_cancel(mut self, lease: &Lease) -> Step {
        if lease.cancel_requested {
            return self.step(vec![], None);
        }
        self.job.state = State::Leased(Lease { cancel_requested: true, ..lease.clone() });
        let entry = HistoryEntry { at: self.context.now, event: HistoryEvent::CancelRequested };
        self.step(vec![Flow::CancelRequested], Some(entry))
    }

    pub(super) fn cancelled(mut self, mut flows: Vec<Flow>, entry: Option<HistoryEntry>) -> Step {
        flows.push(Flow::Cancelled);
        self.job.payload = Payload::Dropped;
        self.job.state = State::Cancelled(Cancelled {
            at: self.context.now,
            tombstone: self.tombstone(self.context.policy.key_cancelled_ms),
        });
        self.step(flows, entry)
    }
}
