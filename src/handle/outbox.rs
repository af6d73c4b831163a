//! Destinations: their settings, and how much is still to be sent.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::counter::{Counters, Flow, Gauge};
use crate::domain::id::{JobId, QueueId};
use crate::domain::job::Lane;
use crate::domain::order::OnDead;
use crate::domain::outbox::{MessageOrder, destination_of, queue_of};
use crate::domain::policy::JobPolicy;
use crate::domain::retention::DeadRetention;
use crate::domain::time::Timestamp;
use crate::error::{QueueError, StorageError};
use crate::handle::check_destination;
use crate::handle::redrive::Redrive;
use crate::store::rows::Rows;
use crate::store::{counter, names, outbox};
use crate::writer::command::{Command, QueueSettings};

/// A destination's settings, stored in the file. What is not set stays as it was.
///
/// Defaults: all messages of the destination in the order of their sequence; a dead message is skipped;
/// 24 deliveries each for transient and throttled failures, 6 for ambiguous ones, 3 for crashes, 48 in
/// all; waits from 1 s, doubling, up to 15 minutes: a receiver that is away for a few hours costs no
/// message.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use redrive::{DestinationPolicy, JobPolicy, MessageOrder, OnDead};
///
/// let policy = DestinationPolicy::new()
///     .order(MessageOrder::Key)
///     .on_dead(OnDead::Halt)
///     .messages(JobPolicy::new().max_deliveries(5));
/// jobs.set_destination("email", policy)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct DestinationPolicy {
    order: Option<MessageOrder>,
    on_dead: Option<OnDead>,
    messages: Option<JobPolicy>,
    retention: Option<DeadRetention>,
}

impl DestinationPolicy {
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// In which order messages are sent. Stored with each message that is emitted from now on.
    #[must_use]
    pub fn order(mut self, order: MessageOrder) -> Self {
        self.order = Some(order);
        self
    }

    /// What a message that dies means for those behind it. Stored with each message that is emitted
    /// from now on.
    #[must_use]
    pub fn on_dead(mut self, rule: OnDead) -> Self {
        self.on_dead = Some(rule);
        self
    }

    /// Failures, budgets, waits and leases of messages that are emitted from now on: they are jobs.
    #[must_use]
    pub fn messages(mut self, policy: JobPolicy) -> Self {
        self.messages = Some(policy);
        self
    }

    /// How much of its quarantine is kept.
    #[must_use]
    pub fn dead(mut self, retention: DeadRetention) -> Self {
        self.retention = Some(retention);
        self
    }
}

/// How things stand with one destination, as of the last commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OutboxStats {
    /// Still to be sent: ready, delayed, blocked and leased.
    pub unsent: u64,
    /// Of those, the ones that wait for an earlier message.
    pub blocked: u64,
    /// Of those, the ones that wait for a time, mostly for another attempt.
    pub delayed: u64,
    /// Of those, the ones that a sink has in hand.
    pub leased: u64,
    /// In quarantine: not sent, and not counted as unsent.
    pub dead: u64,
    /// Sent, ever.
    pub sent: u64,
    /// Cancelled, discarded or evicted, ever.
    pub given_up: u64,
    /// The sequence that the next message gets; one less is how many were ever emitted.
    pub next_sequence: u64,
    /// The unsent message with the lowest sequence.
    pub oldest: Option<OldestUnsent>,
}

/// The message of a destination that waits for longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct OldestUnsent {
    /// The message.
    pub job: JobId,
    /// Its sequence.
    pub sequence: u64,
    /// When it was emitted.
    pub emitted_at: Timestamp,
    /// For how long it has waited by now, in milliseconds.
    pub age_ms: u64,
}

impl OutboxStats {
    /// The age of the oldest unsent message in milliseconds; 0 when all are sent.
    #[must_use]
    pub fn oldest_unsent_age_ms(&self) -> u64 {
        self.oldest.map_or(0, |oldest| oldest.age_ms)
    }

    fn add(&mut self, counters: &Counters) {
        self.blocked += counters.gauge(Gauge::Blocked);
        self.delayed += counters.sum(Lane::ALL.map(Gauge::delayed));
        self.leased += counters.sum(Lane::ALL.map(Gauge::leased));
        self.unsent = self.unsent
            + counters.sum(Lane::ALL.map(Gauge::ready))
            + counters.sum(Lane::ALL.map(Gauge::delayed))
            + counters.sum(Lane::ALL.map(Gauge::leased))
            + counters.gauge(Gauge::Blocked);
        self.dead += counters.gauge(Gauge::Dead);
        self.sent += counters.flows.get(Flow::Completed);
        let left = [Flow::Cancelled, Flow::Discarded, Flow::Evicted];
        self.given_up += left.map(|flow| counters.flows.get(flow)).into_iter().sum::<u64>();
    }
}

/// Every destination there is. The cost depends on their number, not on that of their messages.
pub(crate) fn read(
    rows: &impl Rows,
    now: Timestamp,
) -> Result<BTreeMap<String, OutboxStats>, StorageError> {
    let mut destinations: BTreeMap<QueueId, (String, OutboxStats)> = BTreeMap::new();
    for (place, queue) in names::queues(rows)?.into_iter().enumerate() {
        let (Some(destination), Ok(number)) = (destination_of(&queue.name), u32::try_from(place))
        else {
            continue;
        };
        let id = QueueId::new(number);
        let oldest = outbox::oldest(rows, id)?.map(|unsent| OldestUnsent {
            job: unsent.job,
            sequence: unsent.sequence,
            emitted_at: unsent.emitted_at,
            age_ms: now.ms_since(unsent.emitted_at),
        });
        let next_sequence = queue.next_message;
        let stats = OutboxStats { next_sequence, oldest, ..OutboxStats::default() };
        destinations.insert(id, (destination.to_owned(), stats));
    }
    if destinations.is_empty() {
        return Ok(BTreeMap::new());
    }
    for (class, counters) in counter::all(rows)? {
        if let Some((_, stats)) = destinations.get_mut(&class.queue) {
            stats.add(&counters);
        }
    }
    Ok(destinations.into_values().collect())
}

impl Redrive {
    /// Changes a destination's settings; one that does not exist yet comes into being.
    ///
    /// # Errors
    ///
    /// [`QueueError`]: a bad name, too many queues or policies, or the store's own trouble.
    pub fn set_destination(
        &self,
        destination: &str,
        policy: DestinationPolicy,
    ) -> Result<(), QueueError> {
        check_destination(destination).map_err(|why| QueueError::BadName { why })?;
        let settings = QueueSettings {
            name: queue_of(destination),
            policy: policy.messages,
            retry_share_percent: None,
            on_dead: policy.on_dead,
            message_order: policy.order,
            retention: policy.retention,
        };
        self.ask(|reply| Command::SetQueue { settings, reply })?
    }

    /// How much is still to be sent, by destination, whether there is a sink for it or not. Read from
    /// kept counters and one row per destination.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the counters cannot be read.
    pub fn outbox(&self) -> Result<BTreeMap<String, OutboxStats>, StorageError> {
        self.store().read(|rows| read(rows, self.now(rows)?))
    }
}
