//! A queue's own settings.

use serde::{Deserialize, Serialize};

use crate::domain::id::PolicyId;
use crate::domain::order::OnDead;
use crate::domain::outbox::MessageOrder;
use crate::domain::retention::DeadRetention;

/// What is stored about a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Queue {
    pub(crate) name: String,
    /// The policy of jobs that are enqueued without one; `None` means the crate's default.
    pub(crate) policy: Option<PolicyId>,
    /// The share of this queue's leases that retries may hold while fresh work waits.
    pub(crate) retry_share_percent: u32,
    /// What a dead job means for those behind it under one ordering key.
    pub(crate) on_dead: OnDead,
    /// How much of its quarantine is kept.
    pub(crate) retention: DeadRetention,
    /// Of a destination's messages.
    pub(crate) message_order: MessageOrder,
    /// The sequence of the next message, if this is a destination's queue.
    pub(crate) next_message: u64,
}

impl Queue {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            policy: None,
            retry_share_percent: 50,
            on_dead: OnDead::default(),
            retention: DeadRetention::new(),
            message_order: MessageOrder::default(),
            next_message: 1,
        }
    }

    /// Whether one more retry may be leased, with `retries` of `leases` already held by retries.
    /// The first retry is always allowed, unless the share is 0.
    pub(crate) fn retry_allowed(&self, retries: u64, leases: u64) -> bool {
        let share = u64::from(self.retry_share_percent);
        (retries + 1) * 100 <= share * (leases + 1) || (retries == 0 && share > 0)
    }
}
