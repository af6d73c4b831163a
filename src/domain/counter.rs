//! What is counted: flows (how often something happened) and gauges (how many jobs are where).

use serde::{Deserialize, Serialize};

use crate::domain::failure::FailureClass;
use crate::domain::job::{Job, Lane, State};

macro_rules! numbered {
    ($(#[$meta:meta])* $name:ident { $($variant:ident => $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub(crate) enum $name { $($variant,)+ }

        impl $name {
            /// In the order of their stored places. New ones go to the end.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)+];

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The place in the stored row.
            pub(crate) const fn place(self) -> usize {
                self as usize
            }
        }
    };
}

numbered! {
    /// Something that happens to jobs of a class. The stored row is a list in this order.
    Flow {
        Enqueued => "enqueued",
        Duplicate => "duplicates_suppressed",
        Conflict => "key_conflicts",
        Claimed => "claimed",
        Completed => "completed",
        RetriedTransient => "retried_transient",
        RetriedThrottled => "retried_throttled",
        RetriedAmbiguous => "retried_ambiguous",
        LeaseExpired => "lease_expired",
        Crashed => "crashed",
        Snoozed => "snoozed",
        Released => "released",
        DiedPermanent => "died_permanent",
        DiedTransient => "died_transient",
        DiedThrottled => "died_throttled",
        DiedAmbiguous => "died_ambiguous",
        DiedCrashed => "died_crashed",
        CancelRequested => "cancel_requested",
        Cancelled => "cancelled",
        Discarded => "discarded",
        Stale => "stale_calls_refused",
        Damaged => "damaged_rows_set_aside",
        Redriven => "redriven",
        WorkedFresh => "worked_ms_fresh",
        WorkedRetry => "worked_ms_retry",
        WorkedSuspect => "worked_ms_suspect",
        CompletedAfter1 => "completed_after_1",
        CompletedAfter2 => "completed_after_2",
        CompletedAfter3 => "completed_after_3",
        CompletedAfter6 => "completed_after_4_to_6",
        CompletedAfter12 => "completed_after_7_to_12",
        CompletedAfterMore => "completed_after_more",
        DiedAfter1 => "died_after_1",
        DiedAfter2 => "died_after_2",
        DiedAfter3 => "died_after_3",
        DiedAfter6 => "died_after_4_to_6",
        DiedAfter12 => "died_after_7_to_12",
        DiedAfterMore => "died_after_more",
        Amended => "amended",
        Stepped => "steps_committed",
        ReconciledHappened => "reconciled_happened",
        ReconciledNot => "reconciled_did_not_happen",
        ReconciledUnknown => "reconciled_still_unknown",
        WorkedReconcile => "worked_ms_reconcile",
        Evicted => "evicted",
        Imported => "imported",
        Replaced => "replaced",
        DoneAsDuplicate => "done_as_duplicate",
    }
}

numbered! {
    /// Where the jobs of a class are now.
    Gauge {
        ReadyFresh => "ready_fresh",
        ReadyRetry => "ready_retry",
        ReadySuspect => "ready_suspect",
        DelayedFresh => "delayed_fresh",
        DelayedRetry => "delayed_retry",
        DelayedSuspect => "delayed_suspect",
        LeasedFresh => "leased_fresh",
        LeasedRetry => "leased_retry",
        LeasedSuspect => "leased_suspect",
        Dead => "dead",
        DoneKept => "done_kept",
        CancelledKept => "cancelled_kept",
        Blocked => "blocked",
        ReadyReconcile => "ready_reconcile",
        ReadySuspectReconcile => "ready_suspect_reconcile",
        DelayedReconcile => "delayed_reconcile",
        DelayedSuspectReconcile => "delayed_suspect_reconcile",
        LeasedReconcile => "leased_reconcile",
        LeasedSuspectReconcile => "leased_suspect_reconcile",
        DeadBytes => "dead_bytes",
    }
}

impl Flow {
    /// The flow that counts deaths of `class`.
    pub(crate) const fn died(class: FailureClass) -> Self {
        match class {
            FailureClass::Permanent => Self::DiedPermanent,
            FailureClass::Transient => Self::DiedTransient,
            FailureClass::Throttled => Self::DiedThrottled,
            FailureClass::Ambiguous => Self::DiedAmbiguous,
            FailureClass::Crashed => Self::DiedCrashed,
        }
    }
}

impl Gauge {
    /// Where `job` is counted.
    pub(crate) const fn of(job: &Job) -> Self {
        match &job.state {
            State::Ready(ready) => Self::ready(ready.lane),
            State::Delayed(delayed) => Self::delayed(delayed.lane),
            State::Leased(lease) => Self::leased(lease.from.lane),
            State::Dead(_) => Self::Dead,
            State::Done(_) => Self::DoneKept,
            State::Cancelled(_) => Self::CancelledKept,
            State::Blocked(_) => Self::Blocked,
        }
    }

    pub(crate) const fn ready(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::ReadyFresh,
            Lane::Retry => Self::ReadyRetry,
            Lane::Suspect => Self::ReadySuspect,
            Lane::Reconcile => Self::ReadyReconcile,
            Lane::SuspectReconcile => Self::ReadySuspectReconcile,
        }
    }

    pub(crate) const fn delayed(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::DelayedFresh,
            Lane::Retry => Self::DelayedRetry,
            Lane::Suspect => Self::DelayedSuspect,
            Lane::Reconcile => Self::DelayedReconcile,
            Lane::SuspectReconcile => Self::DelayedSuspectReconcile,
        }
    }

    pub(crate) const fn leased(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::LeasedFresh,
            Lane::Retry => Self::LeasedRetry,
            Lane::Suspect => Self::LeasedSuspect,
            Lane::Reconcile => Self::LeasedReconcile,
            Lane::SuspectReconcile => Self::LeasedSuspectReconcile,
        }
    }
}

/// Flows of one class: over its life, or within one minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flows(Vec<u64>);

/// The counters of one class: its row, and in `windows` what the row said at the end of a minute. What
/// happened between two of them is their difference, so any span of time costs two reads per class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Over the whole life.
    pub(crate) flows: Flows,
    gauges: Vec<u64>,
    /// The minute of the latest change.
    pub(crate) minute: u64,
    /// How many windows there are of the class.
    pub(crate) windows: u64,
    /// The windows of minutes before this one were dropped.
    pub(crate) kept_from: u64,
}

impl Flows {
    pub(crate) fn get(&self, flow: Flow) -> u64 {
        self.0.get(flow.place()).copied().unwrap_or(0)
    }

    pub(crate) fn add(&mut self, flow: Flow, count: u64) {
        let slot = slot(&mut self.0, flow.place());
        *slot = slot.saturating_add(count);
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        for &flow in Flow::ALL {
            let count = other.get(flow);
            if count > 0 {
                self.add(flow, count);
            }
        }
    }

    /// What has happened since `before`.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let mut since = Self::default();
        for &flow in Flow::ALL {
            let count = self.get(flow).saturating_sub(before.get(flow));
            if count > 0 {
                since.add(flow, count);
            }
        }
        since
    }

    pub(crate) fn sum(&self, flows: impl IntoIterator<Item = Flow>) -> u64 {
        flows.into_iter().map(|flow| self.get(flow)).sum()
    }
}

impl Counters {
    /// Something is about to change in `minute`; returns the counters as they were at the end of an
    /// earlier minute, if this is the first change since.
    pub(crate) fn roll(&mut self, minute: u64) -> Option<Self> {
        if minute == self.minute {
            return None;
        }
        let earlier = (self.minute != 0).then(|| self.clone());
        self.minute = minute;
        self.windows += u64::from(earlier.is_some());
        earlier
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges.get(gauge.place()).copied().unwrap_or(0)
    }

    /// A gauge that does not count jobs but what they have.
    pub(crate) fn weigh(&mut self, gauge: Gauge, less: u64, more: u64) {
        let slot = slot(&mut self.gauges, gauge.place());
        *slot = slot.saturating_add(more).saturating_sub(less);
    }

    pub(crate) fn enter(&mut self, gauge: Gauge) {
        let slot = slot(&mut self.gauges, gauge.place());
        *slot = slot.saturating_add(1);
    }

    pub(crate) fn leave(&mut self, gauge: Gauge) {
        let slot = slot(&mut self.gauges, gauge.place());
        *slot = slot.saturating_sub(1);
    }

    pub(crate) fn add_all(&mut self, other: &Self) {
        self.flows.add_all(&other.flows);
        for &gauge in Gauge::ALL {
            let count = other.gauge(gauge);
            if count > 0 {
                let slot = slot(&mut self.gauges, gauge.place());
                *slot = slot.saturating_add(count);
            }
        }
    }

    pub(crate) fn sum(&self, gauges: impl IntoIterator<Item = Gauge>) -> u64 {
        gauges.into_iter().map(|gauge| self.gauge(gauge)).sum()
    }

    /// Accepted jobs that have not ended, wherever they are; dead ones can come back.
    pub(crate) fn alive(&self) -> u64 {
        let lanes = Lane::ALL;
        self.sum(lanes.map(Gauge::ready))
            + self.sum(lanes.map(Gauge::delayed))
            + self.sum(lanes.map(Gauge::leased))
            + self.gauge(Gauge::Dead)
            + self.gauge(Gauge::Blocked)
    }

    /// What is missing or too much in the life of this class (P11): accepted jobs less all the
    /// places they can be in and all the ways they can have ended. 0 when the books balance.
    pub(crate) fn residual(&self) -> i64 {
        let ended = [
            Flow::Completed,
            Flow::DoneAsDuplicate,
            Flow::Cancelled,
            Flow::Discarded,
            Flow::Evicted,
            Flow::Damaged,
        ];
        let ended = self.flows.sum(ended);
        let came = self.flows.sum([Flow::Enqueued, Flow::Imported]);
        came.wrapping_sub(ended).wrapping_sub(self.alive()).cast_signed()
    }

    /// The same for the quarantine: deaths and imports less the ways out of it and those in it.
    pub(crate) fn dead_residual(&self) -> i64 {
        let died = self.flows.sum(FailureClass::ALL.map(Flow::died));
        let came = died + self.flows.get(Flow::Imported);
        let left = self.flows.sum([Flow::Discarded, Flow::Evicted, Flow::Redriven]);
        came.wrapping_sub(left).wrapping_sub(self.gauge(Gauge::Dead)).cast_signed()
    }
}

fn slot(list: &mut Vec<u64>, place: usize) -> &mut u64 {
    if list.len() <= place {
        list.resize(place + 1, 0);
    }
    #[expect(clippy::indexing_slicing, reason = "resized just above")]
    &mut list[place]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_the_declared_order() {
        for (place, flow) in Flow::ALL.iter().enumerate() {
            assert_eq!(flow.place(), place);
        }
        for (place, gauge) in Gauge::ALL.iter().enumerate() {
            assert_eq!(gauge.place(), place);
        }
    }
}
