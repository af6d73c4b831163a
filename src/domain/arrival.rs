//! The first transition of every job: from nothing to ready or delayed.

use crate::domain::counter::Flow;
use crate::domain::history::{Death, HistoryEntry, HistoryEvent};
use crate::domain::id::{Class, JobId, PolicyId};
use crate::domain::job::{Cycle, Dead, Delayed, Job, Lane, Payload, Ready, State};
use crate::domain::key::KeyClaim;
use crate::domain::order::OrderKey;
use crate::domain::outbox::Post;
use crate::domain::time::Timestamp;
use crate::domain::transition::Step;
use crate::domain::unknown::UnknownOutcome;

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
    pub(crate) post: Option<Post>,
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
            imported: None,
            state,
            order: self.order,
            post: self.post,
        };
        Step { job, flows: vec![Flow::Enqueued], history: None }
    }
}

/// A dead job that comes out of an export.
#[derive(Clone, Debug)]
pub(crate) struct Return {
    pub(crate) id: JobId,
    /// Its id in the export.
    pub(crate) from: JobId,
    pub(crate) class: Class,
    pub(crate) policy: PolicyId,
    pub(crate) priority: u8,
    pub(crate) key: Option<KeyClaim>,
    pub(crate) payload: Payload,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) deliveries: u32,
    pub(crate) redrives: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
    pub(crate) unknown: Option<UnknownOutcome>,
    pub(crate) amended: bool,
    pub(crate) death: Death,
    /// How many entries of history come with it.
    pub(crate) history: u32,
    pub(crate) pinned: Vec<u32>,
    pub(crate) marker: [u8; 16],
    pub(crate) post: Option<Post>,
    /// How many markers of steps come with it.
    pub(crate) steps: u32,
}

/// Dead again, with the evidence it had; `seq` is the store's next number.
pub(crate) fn returned(from: Return, now: Timestamp, seq: u64) -> Step {
    let Death { at, reason, class, code, message, provider_ref, worker, version, cause, attempts } =
        from.death;
    let state = State::Dead(Dead {
        reason,
        class,
        code,
        message,
        provider_ref,
        worker,
        version,
        died_at: at,
        cause,
        seq,
    });
    let job = Job {
        id: from.id,
        class: from.class,
        policy: from.policy,
        priority: from.priority,
        key: from.key,
        payload: from.payload,
        enqueued_at: from.enqueued_at,
        deliveries: from.deliveries,
        redrives: from.redrives,
        first_failed_at: from.first_failed_at,
        unknown: from.unknown,
        cycle: Cycle { attempts, ..Cycle::default() },
        history_next: from.history.saturating_add(1),
        history_pinned: from.pinned,
        cohort: None,
        amended: from.amended,
        steps: from.steps,
        imported: Some(from.marker),
        state,
        order: None,
        post: from.post,
    };
    let event = HistoryEvent::Imported { from: from.from };
    let history = Some(HistoryEntry { at: now, event });
    Step { job, flows: vec![Flow::Imported], history }
}
