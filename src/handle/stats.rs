//! Counts, from kept counters.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::counter::{Counters, Flow, Gauge};
use crate::domain::job::Lane;
use crate::error::StorageError;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::{counter, names};

/// Counts by state, in total, per queue and per kind, as of the last commit.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Over all queues.
    pub total: Counts,
    /// By queue name.
    pub queues: BTreeMap<String, QueueStats>,
    /// Enqueues refused for their name, key, encoding or size since the store was opened.
    pub refused: u64,
    /// The longest write transaction since the store was opened, in milliseconds, commit included.
    pub longest_write_ms: u64,
    /// The longest transaction on a caller's thread ([`Redrive::transact`](crate::Redrive::transact)) since the
    /// store was opened, in milliseconds, commit included: for so long everybody else's writes had to wait.
    pub longest_transaction_ms: u64,
    /// The longest [`Redrive::read`](crate::Redrive::read) since the store was opened, in milliseconds.
    pub longest_read_ms: u64,
    /// Damaged rows that were set aside over the life of the file.
    pub set_aside: u64,
}

/// Counts of one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct QueueStats {
    /// Over all kinds.
    #[serde(flatten)]
    pub counts: Counts,
    /// By kind.
    pub kinds: BTreeMap<String, Counts>,
}

/// Counts of some jobs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Waiting for a worker.
    pub ready: u64,
    /// Waiting for a time.
    pub delayed: u64,
    /// With a worker.
    pub leased: u64,
    /// Waiting for earlier jobs of their ordering key.
    pub blocked: u64,
    /// Ended well, ever.
    pub done: u64,
    /// In quarantine.
    pub dead: u64,
    /// Bytes of payloads in quarantine.
    pub dead_bytes: u64,
    /// Ended on request, ever.
    pub cancelled: u64,
    /// Of the delayed ones, those that wait for another attempt.
    pub delayed_retry: u64,
    /// Of the ready and leased ones, those that were in flight when the process died.
    pub suspects: u64,
    /// Of the ready ones, those that wait for a reconciler, because the outcome of a delivery is unknown.
    pub ready_reconcile: u64,
    /// Of the delayed ones, those whose reconciler could not tell and will be asked again.
    pub delayed_reconcile: u64,
    /// What has happened, ever, by name: `enqueued`, `duplicates_suppressed`, `key_conflicts`, `claimed`,
    /// `completed`, `retried_transient`, `retried_throttled`, `retried_ambiguous`, `lease_expired`,
    /// `crashed`, `snoozed`, `released`, `died_permanent`, `died_transient`, `died_throttled`,
    /// `died_ambiguous`, `died_crashed`, `cancel_requested`, `cancelled`, `discarded`,
    /// `stale_calls_refused`, `damaged_rows_set_aside`, `redriven`, `amended`, `evicted`, `imported`,
    /// `reconciled_happened`,
    /// `reconciled_did_not_happen`, `reconciled_still_unknown`; the milliseconds of leases,
    /// `worked_ms_fresh`, `worked_ms_retry`, `worked_ms_suspect`, `worked_ms_reconcile`; and the jobs that
    /// ended by the number of attempts they took, `completed_after_1`, `completed_after_2`,
    /// `completed_after_3`, `completed_after_4_to_6`, `completed_after_7_to_12`, `completed_after_more`, and
    /// the same with `died_after`; `steps_committed`; `replaced`; `done_as_duplicate`: of the
    /// duplicates suppressed, those that were jobs in line.
    pub flows: BTreeMap<&'static str, u64>,
    /// Accepted jobs less all that ended and all that are somewhere: 0 when the books balance.
    pub residual: i64,
}

impl Counts {
    fn of(counters: &Counters) -> Self {
        let lanes = Lane::ALL;
        let suspects = lanes.into_iter().filter(|lane| lane.is_suspect());
        let suspects = suspects.flat_map(|lane| [Gauge::ready(lane), Gauge::leased(lane)]);
        let reconcile = || lanes.into_iter().filter(|lane| lane.is_reconcile());
        Self {
            ready: counters.sum(lanes.map(Gauge::ready)),
            delayed: counters.sum(lanes.map(Gauge::delayed)),
            leased: counters.sum(lanes.map(Gauge::leased)),
            blocked: counters.gauge(Gauge::Blocked),
            done: counters.flows.sum([Flow::Completed, Flow::DoneAsDuplicate]),
            dead: counters.gauge(Gauge::Dead),
            dead_bytes: counters.gauge(Gauge::DeadBytes),
            cancelled: counters.flows.get(Flow::Cancelled),
            delayed_retry: counters.gauge(Gauge::delayed(Lane::Retry)),
            suspects: counters.sum(suspects),
            ready_reconcile: counters.sum(reconcile().map(Gauge::ready)),
            delayed_reconcile: counters.sum(reconcile().map(Gauge::delayed)),
            flows: Flow::ALL.iter().map(|&flow| (flow.name(), counters.flows.get(flow))).collect(),
            residual: counters.residual(),
        }
    }

    /// What has happened, ever; 0 for a name that is not counted.
    #[must_use]
    pub fn flow(&self, name: &str) -> u64 {
        self.flows.get(name).copied().unwrap_or(0)
    }

    /// Jobs that wait, now or later, for a reconciler.
    #[must_use]
    pub const fn unreconciled(&self) -> u64 {
        self.ready_reconcile + self.delayed_reconcile
    }
}

impl Stats {
    /// What the file says; the rest is the handle's.
    pub(crate) fn read<R: Rows>(rows: &R) -> Result<Self, StorageError> {
        let queues = names::queues(rows)?;
        let kinds = names::kinds(rows)?;
        let mut total = Counters::default();
        let mut sums: BTreeMap<String, Counters> =
            queues.iter().map(|queue| (queue.name.clone(), Counters::default())).collect();
        let mut by_kind: BTreeMap<String, BTreeMap<String, Counts>> = BTreeMap::new();
        for (class, counters) in counter::all(rows)? {
            let place = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
            let queue = queues.get(place(class.queue.get())).map(|queue| queue.name.clone());
            let queue = queue.unwrap_or_default();
            let kind = kinds.get(place(class.kind.get())).cloned().unwrap_or_default();
            total.add_all(&counters);
            sums.entry(queue.clone()).or_default().add_all(&counters);
            by_kind.entry(queue).or_default().insert(kind, Counts::of(&counters));
        }
        let queues = sums
            .into_iter()
            .map(|(queue, counters)| {
                let kinds = by_kind.remove(&queue).unwrap_or_default();
                (queue, QueueStats { counts: Counts::of(&counters), kinds })
            })
            .collect();
        let set_aside = rows.count(TableId::Damaged)?;
        Ok(Self { total: Counts::of(&total), queues, set_aside, ..Self::default() })
    }
}
