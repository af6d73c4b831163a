//! The jobs and messages that the steps enqueue.

use std::time::{Duration, UNIX_EPOCH};

use crate::domain::key::OnDuplicate;
use crate::handle::new_job::NewJob;
use crate::testing::decode::Bytes;
use crate::testing::harness::EPOCH_MS;
use crate::testing::op::{Item, KEYS, MESSAGE, OUTBOX, QUEUES, When};
use crate::testing::rules::RULES;

impl Item {
    pub(super) fn new_job(&self) -> NewJob {
        let queue = QUEUES.get(self.queue).copied().unwrap_or_default();
        let job = match self.queue {
            OUTBOX => NewJob::message(queue.to_owned()),
            _ => NewJob::new(queue, self.kind_name()),
        };
        // A message has no such choice.
        let job = if self.queue == OUTBOX { job } else { job.on_duplicate(self.on_duplicate) };
        let mut job = job.bytes(self.payload()).priority(self.priority);
        if let Some((name, value)) = self.header() {
            job = job.header(name, value);
        }
        if let Some(key) = self.key() {
            job = job.key(key);
        }
        if let Some(order) = self.order_key() {
            job = job.order_key(order);
        }
        if self.bad {
            job = job.key("");
        }
        job = match self.when {
            When::Now => job,
            When::After(ms) => job.delay(Duration::from_millis(ms)),
            When::At(ms) => job.run_at(UNIX_EPOCH + Duration::from_millis(EPOCH_MS + ms)),
        };
        if let Some(rules) = self.rules.and_then(|rules| RULES.get(rules % RULES.len())) {
            job = job.policy(rules.policy());
        }
        job
    }
}

impl Bytes<'_> {
    /// The destination is rarer, so that enough goes on in the queues.
    pub(super) fn queue(&mut self) -> usize {
        self.below(5) / 2
    }

    pub(super) fn item(&mut self) -> Item {
        const DAYS_8_MS: u64 = 691_200_000;
        let queue = self.queue();
        // The third kind is rare.
        let kind = self.below(7) / 3;
        Item {
            queue,
            kind: if queue == OUTBOX { MESSAGE } else { kind },
            key: self.sometimes(2, |bytes| bytes.byte() % KEYS),
            on_duplicate: match self.byte() % 8 {
                _ if queue == OUTBOX => OnDuplicate::Return,
                0..=3 => OnDuplicate::Return,
                4 | 5 => OnDuplicate::Replace,
                _ => OnDuplicate::AfterDead,
            },
            payload: self.byte() % 8,
            priority: match self.byte() % 4 {
                0 => 0,
                1 => 255,
                _ => 100,
            },
            when: match self.byte() % 8 {
                0..=4 => When::Now,
                5 | 6 => When::After(self.ms()),
                _ => When::At(self.ms() % DAYS_8_MS),
            },
            // Those under which outcomes are reconciled are the last two, and common.
            rules: self.sometimes(2, |bytes| match bytes.byte() {
                byte if byte >= 128 => 6 + usize::from(byte % 2),
                byte => usize::from(byte),
            }),
            order: self.sometimes(3, |bytes| bytes.byte() % 2),
            bad: self.below(24) == 23,
        }
    }
}
