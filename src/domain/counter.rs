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
        }
    }

    pub(crate) const fn ready(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::ReadyFresh,
            Lane::Retry => Self::ReadyRetry,
            Lane::Suspect => Self::ReadySuspect,
        }
    }

    pub(crate) const fn delayed(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::DelayedFresh,
            Lane::Retry => Self::DelayedRetry,
            Lane::Suspect => Self::DelayedSuspect,
        }
    }

    pub(crate) const fn leased(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::LeasedFresh,
            Lane::Retry => Self::LeasedRetry,
            Lane::Suspect => Self::LeasedSuspect,
        }
    }
}

/// Flows of one class: over its life, or within one minute.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flows(Vec<u64>);

/// The counters row of one class. Kept twice over: the flows of its whole life are also the sum of
/// the pruned, the finished and the present minutes, which `verify` checks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counters {
    /// Over the whole life.
    pub(crate) flows: Flows,
    gauges: Vec<u64>,
    /// The minute that `present` is of.
    minute: u64,
    /// What has happened in that minute; it becomes a row of its own when a later one begins.
    pub(crate) present: Flows,
    /// What was in windows that are not kept any longer.
    pub(crate) pruned: Flows,
}

/// The flows of one finished minute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) minute: u64,
    pub(crate) flows: Flows,
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
}

impl Counters {
    /// Counts one flow in `minute`; returns the window that is finished thereby, if one is.
    pub(crate) fn count(&mut self, minute: u64, flow: Flow) -> Option<Window> {
        let earlier = (minute != self.minute).then(|| Window {
            minute: std::mem::replace(&mut self.minute, minute),
            flows: std::mem::take(&mut self.present),
        });
        self.flows.add(flow, 1);
        self.present.add(flow, 1);
        earlier.filter(|window| window.flows != Flows::default())
    }

    pub(crate) fn gauge(&self, gauge: Gauge) -> u64 {
        self.gauges.get(gauge.place()).copied().unwrap_or(0)
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

    /// What is missing or too much in the life of this class (P11): accepted jobs less all the
    /// places they can be in and all the ways they can have ended. 0 when the books balance.
    pub(crate) fn residual(&self) -> i64 {
        let ended = [Flow::Completed, Flow::Cancelled, Flow::Discarded, Flow::Damaged];
        let ended: u64 = ended.iter().map(|&flow| self.flows.get(flow)).sum();
        let lanes = Lane::ALL;
        let alive = self.sum(lanes.map(Gauge::ready))
            + self.sum(lanes.map(Gauge::delayed))
            + self.sum(lanes.map(Gauge::leased))
            + self.gauge(Gauge::Dead);
        self.flows.get(Flow::Enqueued).wrapping_sub(ended).wrapping_sub(alive).cast_signed()
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
