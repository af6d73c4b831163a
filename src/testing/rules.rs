//! The policies of the model test, in the model's own words.

use std::time::Duration;

use crate::domain::failure::FailureClass;
use crate::domain::policy::{DeadKey, JobPolicy, OnUnknown};
use crate::domain::schedule::Schedule;

const DAY_MS: u64 = 86_400_000;

/// What the model knows of a policy. Waits have no jitter, so that the model can foresee them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) total: u32,
    pub(super) transient: u32,
    pub(super) throttled: u32,
    pub(super) ambiguous: u32,
    pub(super) crashed: u32,
    pub(super) snoozes: u32,
    pub(super) releases: u32,
    pub(super) redrives: u32,
    /// The last one repeats.
    pub(super) waits_ms: [u64; 3],
    /// Say it to the crate as a doubling schedule instead of a list; the waits are the same.
    pub(super) doubling: bool,
    pub(super) lease_ms: u64,
    pub(super) deadline_ms: Option<u64>,
    pub(super) on_unknown: OnUnknown,
    /// How often a reconciler may fail to find out, and how long it is left alone each time.
    pub(super) reconciles: u32,
    pub(super) reconcile_wait_ms: u64,
    pub(super) key_done_ms: u64,
    pub(super) key_cancelled_ms: u64,
    pub(super) dead_keeps_key: bool,
    pub(super) keep_finished_ms: u64,
}

pub(super) const PLAIN: Rules = Rules {
    total: 4,
    transient: 3,
    throttled: 3,
    ambiguous: 2,
    crashed: 2,
    snoozes: 3,
    releases: 50,
    redrives: 2,
    waits_ms: [1_000, 2_000, 4_000],
    doubling: true,
    lease_ms: 30_000,
    deadline_ms: None,
    on_unknown: OnUnknown::Retry,
    reconciles: 2,
    reconcile_wait_ms: 500,
    key_done_ms: 60_000,
    key_cancelled_ms: 60_000,
    dead_keeps_key: true,
    keep_finished_ms: 0,
};

/// The policies in play: every field has at least two values among them.
pub(super) const RULES: [Rules; 8] = [
    PLAIN,
    Rules {
        total: 2,
        transient: 2,
        throttled: 1,
        ambiguous: 2,
        crashed: 1,
        snoozes: 1,
        releases: 2,
        redrives: 1,
        waits_ms: [0, 5, 5],
        doubling: false,
        lease_ms: 100,
        deadline_ms: Some(250),
        on_unknown: OnUnknown::Quarantine,
        key_done_ms: 0,
        key_cancelled_ms: 0,
        dead_keeps_key: false,
        ..PLAIN
    },
    Rules {
        total: 3,
        ambiguous: 3,
        crashed: 3,
        lease_ms: 1_000,
        key_done_ms: 1_000,
        keep_finished_ms: 5_000,
        ..PLAIN
    },
    Rules {
        crashed: 3,
        releases: 1_000,
        snoozes: 1_000,
        lease_ms: 7 * DAY_MS,
        key_done_ms: 7 * DAY_MS,
        key_cancelled_ms: 1,
        keep_finished_ms: 10 * DAY_MS,
        ..PLAIN
    },
    Rules {
        total: 3,
        ambiguous: 3,
        crashed: 2,
        waits_ms: [10, 7, 600_000],
        doubling: false,
        lease_ms: 1_000,
        deadline_ms: Some(500),
        dead_keeps_key: false,
        ..PLAIN
    },
    Rules {
        total: 10,
        transient: 8,
        throttled: 8,
        ambiguous: 8,
        crashed: 4,
        waits_ms: [50, 100, 200],
        lease_ms: 10,
        redrives: 4,
        ..PLAIN
    },
    Rules {
        total: 6,
        ambiguous: 2,
        crashed: 3,
        on_unknown: OnUnknown::Reconcile,
        lease_ms: 1_000,
        deadline_ms: Some(2_000),
        key_done_ms: 1_000,
        keep_finished_ms: 5_000,
        ..PLAIN
    },
    Rules {
        total: 2,
        transient: 2,
        throttled: 2,
        ambiguous: 2,
        on_unknown: OnUnknown::Reconcile,
        reconciles: 1,
        reconcile_wait_ms: 5,
        releases: 3,
        dead_keeps_key: false,
        ..PLAIN
    },
];

impl Rules {
    pub(super) fn budget(&self, class: FailureClass) -> u32 {
        match class {
            FailureClass::Permanent => 1,
            FailureClass::Transient => self.transient,
            FailureClass::Throttled => self.throttled,
            FailureClass::Ambiguous => self.ambiguous,
            FailureClass::Crashed => self.crashed,
        }
    }

    pub(super) fn wait_ms(&self, failures: u32) -> u64 {
        let [first, second, last] = self.waits_ms;
        let wait = match failures {
            0 | 1 => first,
            2 => second,
            _ => last,
        };
        wait.max(1)
    }

    pub(super) fn policy(&self) -> JobPolicy {
        let [first, _, last] = self.waits_ms;
        let schedule = if self.doubling {
            Schedule::exponential(Duration::from_millis(first), Duration::from_millis(last))
        } else {
            Schedule::list(self.waits_ms.map(Duration::from_millis))
        };
        let mut policy = JobPolicy::new();
        for class in FailureClass::ALL {
            policy = policy.budget(class, self.budget(class));
        }
        policy = policy
            .max_deliveries(self.total)
            .schedule(schedule.jitter_percent(0))
            .lease(Duration::from_millis(self.lease_ms))
            .snoozes_max(self.snoozes)
            .releases_max(self.releases)
            .redrives_max(self.redrives)
            .keep_key_after_done(Duration::from_millis(self.key_done_ms))
            .keep_key_after_cancel(Duration::from_millis(self.key_cancelled_ms))
            .keep_finished(Duration::from_millis(self.keep_finished_ms));
        if let Some(deadline_ms) = self.deadline_ms {
            policy = policy.deadline(Duration::from_millis(deadline_ms));
        }
        let again = Schedule::list([Duration::from_millis(self.reconcile_wait_ms)]);
        policy = policy
            .on_unknown(self.on_unknown)
            .reconciles_max(self.reconciles)
            .reconcile_schedule(again.jitter_percent(0));
        if !self.dead_keeps_key {
            policy = policy.dead_key(DeadKey::Release);
        }
        policy
    }
}
