//! Arrows of jobs that meet others under their key (P7).

use super::{Next, Refused, Step, unfit};
use crate::domain::arrival::Start;
use crate::domain::counter::Flow;
use crate::domain::failure::Failure;
use crate::domain::history::{HistoryEntry, HistoryEvent};
use crate::domain::job::{Blocked, DeathReason, Delayed, Done, Lane, Payload, State};
use crate::domain::key::{Meeting, Misplaced, RequestHash};

/// What takes the place of a request that was never claimed.
#[derive(Clone, Debug)]
pub(crate) struct Replacement {
    pub(crate) payload: Payload,
    pub(crate) hash: RequestHash,
    pub(crate) priority: u8,
    pub(crate) start: Start,
}

impl Next<'_> {
    /// The latest request stands for all. One that is ready and stays so keeps its place in line.
    pub(super) fn replace(mut self, new: Replacement) -> Result<Step, Refused> {
        let now = self.context.now;
        let due = Some(new.start.from(now)).filter(|&due| due > now);
        let lane = Lane::Fresh;
        self.job.state = match (&self.job.state, due) {
            _ if self.job.deliveries > 0 => return unfit(&self.job),
            (State::Ready(ready), None) => State::Ready(*ready),
            (State::Delayed(_), None) => self.ready(lane),
            (State::Ready(_) | State::Delayed(_), Some(due)) => {
                State::Delayed(Delayed { lane, due })
            }
            (State::Blocked(_), due) => State::Blocked(Blocked { lane, due }),
            (
                State::Leased(_) | State::Dead(_) | State::Done(_) | State::Cancelled(_),
                None | Some(_),
            ) => return unfit(&self.job),
        };
        self.job.payload = new.payload;
        self.job.priority = new.priority;
        if let Some(claim) = &mut self.job.key {
            claim.hash = new.hash;
            claim.asked.note(Meeting::Replace, now);
        }
        let entry = HistoryEntry { at: now, event: HistoryEvent::Replaced };
        Ok(self.step(vec![Flow::Replaced], Some(entry)))
    }

    /// Its turn has come, and another has its key: it is not run.
    pub(super) fn misplaced(mut self, why: Misplaced) -> Result<Step, Refused> {
        let now = self.context.now;
        let (State::Ready(_) | State::Blocked(_)) = self.job.state else {
            return unfit(&self.job);
        };
        match why {
            Misplaced::Duplicate { of } => {
                self.job.payload = Payload::Dropped;
                self.job.state = State::Done(Done {
                    at: now,
                    claimed_at: now,
                    worker: String::new(),
                    result: None,
                    // The other one has the key.
                    tombstone: self.tombstone(0),
                    duplicate_of: Some(of),
                });
                Ok(self.step(vec![Flow::Duplicate, Flow::DoneAsDuplicate], None))
            }
            Misplaced::Taken { by } => {
                if let Some(claim) = &mut self.job.key {
                    claim.taken_by = Some(by);
                }
                let message = format!("its key belongs to job {by} by now");
                let failure = Failure::permanent("key_taken").message(message);
                self.job.state = self.dead("", "", &failure, DeathReason::KeyTaken);
                Ok(self.step(vec![Flow::DiedPermanent], None))
            }
        }
    }
}
