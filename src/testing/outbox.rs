//! The destination of the reference model: dense sequences, and what is still to be sent.

use std::collections::BTreeMap;

use crate::domain::job::JobState;
use crate::domain::order::OnDead;
use crate::domain::outbox::MessageOrder;
use crate::handle::job::MessageInfo;
use crate::handle::outbox::{DestinationPolicy, OldestUnsent, OutboxStats};
use crate::handle::redrive::Redrive;
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, text};
use crate::testing::life::Life;
use crate::testing::model::{Model, state, time};
use crate::testing::op::{Item, OUTBOX, Retained};
use crate::testing::rules::RULES;

/// Its name.
pub(super) const DESTINATION: &str = "gamma";

/// What the model knows of the destination.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    /// 0: all in one order; 1: those of one ordering key; 2: none.
    pub(super) order: u8,
    next: u64,
}

impl Outbox {
    pub(super) const fn new() -> Self {
        Self { order: 0, next: 1 }
    }

    pub(super) fn take(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }
}

impl Item {
    /// Depends on the payload alone: another payload is another message anyway.
    pub(super) fn header(&self) -> Option<(String, String)> {
        (self.queue == OUTBOX && self.payload().len() == 3).then(|| ("X-A".into(), "b c".into()))
    }
}

impl Model {
    /// What is a message of a new job, if it is one.
    pub(super) fn posted(&mut self, life: &mut Life, item: &Item) {
        if item.queue != OUTBOX {
            return;
        }
        life.sequence = Some(self.outbox.take());
        life.headers = item.header().into_iter().collect();
        life.order = match self.outbox.order {
            0 => Some(String::new()),
            1 => life.order.clone(),
            _ => None,
        };
    }

    pub(super) fn compare_outbox(&self, jobs: &Redrive) -> Verdict {
        let found = jobs.outbox().map_err(|error| format!("the outbox: {error}"))?;
        let class = |name| {
            let flows = self.flows.iter().filter(|((queue, _), _)| *queue == OUTBOX);
            flows.filter_map(|(_, flows)| flows.get(name)).sum::<u64>()
        };
        let mut stats = OutboxStats {
            sent: class("completed"),
            given_up: class("cancelled") + class("discarded") + class("evicted"),
            next_sequence: self.outbox.next,
            ..OutboxStats::default()
        };
        for life in self.jobs.values().filter(|life| life.queue == OUTBOX) {
            match state(life) {
                JobState::Dead => stats.dead += 1,
                JobState::Done | JobState::Cancelled => {}
                waits => {
                    stats.unsent += 1;
                    stats.blocked += u64::from(waits == JobState::Blocked);
                    stats.delayed += u64::from(waits == JobState::Delayed);
                    stats.leased += u64::from(waits == JobState::Leased);
                    stats.oldest.get_or_insert(OldestUnsent {
                        job: life.id,
                        sequence: life.sequence.unwrap_or_default(),
                        emitted_at: time(life.enqueued_at),
                        age_ms: self.wall.max(self.latest()) - life.enqueued_at,
                    });
                }
            }
        }
        let expected = BTreeMap::from([(DESTINATION.to_owned(), stats)]);
        same("the outbox", &found, &expected)
    }
}

/// What the store must tell of a message.
pub(super) fn message(life: &Life) -> Option<MessageInfo> {
    let (destination, headers) = (DESTINATION.to_owned(), life.headers.clone());
    life.sequence.map(|sequence| MessageInfo { destination, sequence, headers })
}

impl Harness {
    pub(super) fn set_destination(
        &mut self,
        rules: Option<usize>,
        halt: Option<bool>,
        retention: Option<Retained>,
        order: Option<u8>,
    ) -> Verdict {
        let rules = rules.and_then(|rules| RULES.get(rules % RULES.len()).copied());
        let mut policy = DestinationPolicy::new();
        if let Some(rules) = &rules {
            policy = policy.messages(rules.policy());
        }
        if let Some(halt) = halt {
            policy = policy.on_dead(if halt { OnDead::Halt } else { OnDead::Skip });
        }
        if let Some(order) = order {
            policy = policy.order(match order {
                0 => MessageOrder::Destination,
                1 => MessageOrder::Key,
                _ => MessageOrder::None,
            });
        }
        if let Some(retained) = retention {
            policy = policy.dead(retained.retention());
        }
        self.jobs.set_destination(DESTINATION, policy).map_err(text)?;
        self.model.round(|model| {
            model.outbox.order = order.unwrap_or(model.outbox.order);
            model.set_queue(OUTBOX, rules, None, halt, retention);
        });
        self.acked();
        Ok(())
    }
}
