//! What is decided in advance about a job's failures. Stored with the job when it is enqueued, so
//! that a sweep never needs the code that would run it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::failure::FailureClass;
use crate::domain::limits::{LEASE_MS_MAX, LEASE_MS_MIN, REDRIVES_MAX};
use crate::domain::schedule::Schedule;
use crate::domain::time::whole_ms;

/// What to do after a delivery whose outcome is unknown (P8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OnUnknown {
    /// Deliver again, under the same key. Right where the effect is idempotent under that key.
    #[default]
    Retry,
    /// Dead at once, with the evidence, for somebody to look at.
    Quarantine,
    /// Ask a reconciler of the job's kind first
    /// ([`Workers::reconcile`](crate::Workers::reconcile), or
    /// [`ClaimRequest::reconciles`](crate::ClaimRequest::reconciles)): it happened, it did not, or that
    /// is still unknown. Until one has said that it did not happen, no handler gets the job; where
    /// there is no reconciler, the job waits.
    Reconcile,
}

/// What becomes of a job's key when the job dies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum DeadKey {
    /// The dead job goes on owning it: a new enqueue with the key is a duplicate of the dead job.
    #[default]
    Keep,
    /// The key is free at once for a new job.
    Release,
}

const DAY_MS: u64 = 24 * 3_600_000;

/// How a job is retried, leased, remembered. Stored with the job at enqueue; later changes to a
/// queue's policy do not reach jobs that are already in it.
///
/// Defaults: 6 deliveries each for transient, throttled and ambiguous failures, 3 for crashes, 12
/// in all; 2 redrives; the default [`Schedule`]; a lease of 30 s; no hard deadline; unknown outcomes
/// retried under the same key; 10 reconciliations that leave an outcome unknown, 5 s to 15 min apart;
/// keys kept 7 days after done or cancelled and for as long as the job lies dead; finished jobs without a
/// key not kept.
///
/// ```
/// use std::time::Duration;
/// use redrive::{JobPolicy, Schedule};
///
/// let policy = JobPolicy::new()
///     .max_deliveries(4)
///     .schedule(Schedule::list([0, 30, 120, 600].map(Duration::from_secs)))
///     .lease(Duration::from_secs(90));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobPolicy {
    pub(crate) max_deliveries: u32,
    pub(crate) transient_max: u32,
    pub(crate) throttled_max: u32,
    pub(crate) ambiguous_max: u32,
    pub(crate) crashed_max: u32,
    pub(crate) redrives_max: u32,
    pub(crate) snoozes_max: u32,
    pub(crate) releases_max: u32,
    pub(crate) schedule: Schedule,
    pub(crate) lease_ms: u64,
    pub(crate) deadline_ms: Option<u64>,
    pub(crate) on_unknown: OnUnknown,
    pub(crate) key_done_ms: u64,
    pub(crate) key_cancelled_ms: u64,
    pub(crate) dead_key: DeadKey,
    pub(crate) keep_finished_ms: u64,
    pub(crate) reconciles_max: u32,
    pub(crate) reconcile_schedule: Schedule,
}

impl Default for JobPolicy {
    fn default() -> Self {
        Self {
            max_deliveries: 12,
            transient_max: 6,
            throttled_max: 6,
            ambiguous_max: 6,
            crashed_max: 3,
            redrives_max: 2,
            snoozes_max: 10_000,
            releases_max: 10_000,
            schedule: Schedule::default(),
            lease_ms: 30_000,
            deadline_ms: None,
            on_unknown: OnUnknown::Retry,
            key_done_ms: 7 * DAY_MS,
            key_cancelled_ms: 7 * DAY_MS,
            dead_key: DeadKey::Keep,
            keep_finished_ms: 0,
            reconciles_max: 10,
            reconcile_schedule: Schedule::exponential(
                Duration::from_secs(5),
                Duration::from_secs(900),
            ),
        }
    }
}

impl JobPolicy {
    /// The default policy.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The total of charged deliveries in one cycle, whatever the mix of classes. Also lowers every
    /// class budget that was above it, that of crashes too: a total of 1 means at most one start. At least 1.
    #[must_use]
    pub fn max_deliveries(mut self, deliveries: u32) -> Self {
        let deliveries = deliveries.max(1);
        self.max_deliveries = deliveries;
        for budget in [
            &mut self.transient_max,
            &mut self.throttled_max,
            &mut self.ambiguous_max,
            &mut self.crashed_max,
        ] {
            *budget = (*budget).min(deliveries);
        }
        self
    }

    /// The budget of one class: how many deliveries may end that way in one cycle before the job is
    /// dead. At least 1; `Permanent` is always 1 and is not changed. Raises the total if needed.
    #[must_use]
    pub fn budget(mut self, class: FailureClass, deliveries: u32) -> Self {
        let deliveries = deliveries.max(1);
        match class {
            FailureClass::Permanent => return self,
            FailureClass::Transient => self.transient_max = deliveries,
            FailureClass::Throttled => self.throttled_max = deliveries,
            FailureClass::Ambiguous => self.ambiguous_max = deliveries,
            FailureClass::Crashed => self.crashed_max = deliveries,
        }
        self.max_deliveries = self.max_deliveries.max(deliveries);
        self
    }

    /// When retries happen.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// How long a lease lasts without a heartbeat: 10 ms to 7 days, other values are taken as the
    /// nearer bound.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.lease_ms = whole_ms(lease).clamp(LEASE_MS_MIN, LEASE_MS_MAX);
        self
    }

    /// The hard limit of one delivery: after it, heartbeats no longer extend the lease, and the
    /// outcome is unknown (class `Ambiguous`, code `deadline_exceeded`). At least 1 ms.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline_ms = Some(whole_ms(deadline).max(1));
        self
    }

    /// What to do after a delivery whose outcome is unknown.
    #[must_use]
    pub fn on_unknown(mut self, choice: OnUnknown) -> Self {
        self.on_unknown = choice;
        self
    }

    /// How many reconciliations may leave one outcome unknown (default 10, at least 1): after that many
    /// the job is dead with class `Ambiguous`. They charge no attempt. Only for
    /// [`OnUnknown::Reconcile`].
    #[must_use]
    pub fn reconciles_max(mut self, reconciles: u32) -> Self {
        self.reconciles_max = reconciles.max(1);
        self
    }

    /// When a reconciler that could not tell is asked again (default 5 s, doubling up to 15 minutes,
    /// with 25% jitter). The first time it is asked at once.
    #[must_use]
    pub fn reconcile_schedule(mut self, schedule: Schedule) -> Self {
        self.reconcile_schedule = schedule;
        self
    }

    /// How many times a job may be snoozed in one cycle (default 10,000). One more is dead.
    #[must_use]
    pub fn snoozes_max(mut self, snoozes: u32) -> Self {
        self.snoozes_max = snoozes;
        self
    }

    /// How many times a job may be given back unstarted in one cycle (default 10,000). One more is
    /// dead.
    #[must_use]
    pub fn releases_max(mut self, releases: u32) -> Self {
        self.releases_max = releases;
        self
    }

    /// How often a job may be redriven in its life (default 2): a cohort skips it from then on. At most
    /// 100.
    #[must_use]
    pub fn redrives_max(mut self, redrives: u32) -> Self {
        self.redrives_max = redrives.min(REDRIVES_MAX);
        self
    }

    /// How long a key is remembered after its job is done (default 7 days). Zero frees it at once.
    #[must_use]
    pub fn keep_key_after_done(mut self, life: Duration) -> Self {
        self.key_done_ms = whole_ms(life);
        self
    }

    /// How long a key is remembered after its job was cancelled (default 7 days). Zero frees it at
    /// once.
    #[must_use]
    pub fn keep_key_after_cancel(mut self, life: Duration) -> Self {
        self.key_cancelled_ms = whole_ms(life);
        self
    }

    /// What becomes of the key when the job dies.
    #[must_use]
    pub fn dead_key(mut self, choice: DeadKey) -> Self {
        self.dead_key = choice;
        self
    }

    /// How long the row of a finished job is kept to be looked at (default: not at all, unless its
    /// key needs it).
    #[must_use]
    pub fn keep_finished(mut self, life: Duration) -> Self {
        self.keep_finished_ms = whole_ms(life);
        self
    }

    /// With every number within what the builder allows, for one that was read from elsewhere.
    pub(crate) fn checked(mut self) -> Self {
        for budget in [
            &mut self.max_deliveries,
            &mut self.transient_max,
            &mut self.throttled_max,
            &mut self.ambiguous_max,
            &mut self.crashed_max,
            &mut self.reconciles_max,
        ] {
            *budget = (*budget).max(1);
        }
        self.redrives_max = self.redrives_max.min(REDRIVES_MAX);
        self.lease_ms = self.lease_ms.clamp(LEASE_MS_MIN, LEASE_MS_MAX);
        self.deadline_ms = self.deadline_ms.map(|ms| ms.max(1));
        self.schedule = self.schedule.checked();
        self.reconcile_schedule = self.reconcile_schedule.checked();
        self
    }

    /// How many deliveries of one cycle may end in `class`.
    pub(crate) const fn class_max(&self, class: FailureClass) -> u32 {
        match class {
            FailureClass::Permanent => 1,
            FailureClass::Transient => self.transient_max,
            FailureClass::Throttled => self.throttled_max,
            FailureClass::Ambiguous => self.ambiguous_max,
            FailureClass::Crashed => self.crashed_max,
        }
    }
}
