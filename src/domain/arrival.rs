//! The first transition of every job: from nothing to ready or delayed.

use crate::domain::counter::Flow;
use crate::domain::id::{Class, JobId, PolicyId};
use crate::domain::job::{Cycle, Delayed, Job, Lane, Payload, Ready, State};
use crate::domain::key::KeyClaim;
use crate::domain::order::OrderKey;
use crate::domain::time::Timestamp;
use crate::domain::transition::Step;

/// When a job may first run, or run again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Now,
    AfterMs(u64),
    At(Timestamp),
}

impl Start {
    /// The instant meant, seen from `now`.
    pub(crate) const fn from(self, now: Timestamp) -> Timestamp {
        match self {
            Self::Now => now,
            Self::AfterMs(ms) => now.plus_ms(ms),
            Self::At(at) => at,
        }
    }
}

/// A job that was accepted.
#[derive(Clone, Debug)]
pub(crate) struct Arrival {
    /// Also its place in line: jobs of one priority go in the order of their ids.
    pub(crate) id: JobId,
    pub(crate) class: Class,
    pub(crate) policy: PolicyId,
    pub(crate) priority: u8,
    pub(crate) key: Option<KeyClaim>,
    pub(crate) payload: Payload,
    pub(crate) start: Start,
    pub(crate) order: Option<OrderKey>,
}

impl Arrival {
    /// Ready, or delayed when it may not run yet. An instant in the past means now.
    pub(crate) fn enqueue(self, now: Timestamp) -> Step {
        let lane = Lane::Fresh;
        let due = self.start.from(now);
        let state = if due > now {
            State::Delayed(Delayed { lane, due })
        } else {
            State::Ready(Ready { lane, seq: self.id.get(), since: now })
        };
        let job = Job {
            id: self.id,
            class: self.class,
            policy: self.policy,
            priority: self.priority,
            key: self.key,
            payload: self.payload,
            enqueued_at: now,
            deliveries: 0,
            redrives: 0,
            first_failed_at: None,
            unknown: None,
            cycle: Cycle::default(),
            history_next: 0,
            history_pinned: Vec::new(),
            cohort: None,
            amended: false,
            steps: 0,
            state,
            order: self.order,
        };
        Step { job, flows: vec![Flow::Enqueued], history: None }
    }
}
