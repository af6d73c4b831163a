//! Heartbeats for all running deliveries of a set of workers, from one thread.
//!
//! A beat comes every quarter of the lease, so that two in a row may fail and the third still comes
//! in time (O-04). A beat that fails is counted and tried again; only a stale lease ends the beating.
//! After the delivery's hard deadline the store no longer extends the lease, and beating stops.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::domain::id::{Class, Token};
use crate::domain::time::whole_ms;
use crate::error::SettleError;
use crate::handle::lease::{Heartbeat, Lease};
use crate::handle::redrive::Redrive;
use crate::worker::delivery::Pulse;

/// Says for the n-th beat whether it may get through; for tests of missed beats.
pub(crate) type BeatFilter = Arc<dyn Fn(u64) -> bool + Send + Sync>;

pub(crate) struct Heart {
    jobs: Redrive,
    filter: Option<BeatFilter>,
    running: Mutex<Deliveries>,
    changed: Arc<Signal>,
    stopped: AtomicBool,
    beats: AtomicU64,
    errors: AtomicU64,
}

#[derive(Default)]
struct Deliveries {
    by_token: HashMap<Token, Running>,
    /// Everything was given back: nothing may start any more.
    closed: bool,
}

struct Running {
    class: Class,
    pulse: Arc<Pulse>,
    interval_ms: u64,
    /// When the next beat is due; `None` when beating has stopped.
    next_ms: Option<u64>,
}

impl Heart {
    pub(crate) fn new(jobs: Redrive, filter: Option<BeatFilter>) -> Self {
        Self {
            jobs,
            filter,
            running: Mutex::default(),
            changed: Signal::new(),
            stopped: AtomicBool::new(false),
            beats: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    /// Starts beating for a delivery; `None` when it is too late to start anything.
    pub(crate) fn add(&self, lease: &Lease) -> Option<Arc<Pulse>> {
        let pulse = Arc::new(Pulse::default());
        let interval_ms = (whole_ms(lease.length()) / 4).max(1);
        let next_ms = Some(self.jobs.clock().monotonic_ms().saturating_add(interval_ms));
        let running =
            Running { class: lease.class(), pulse: Arc::clone(&pulse), interval_ms, next_ms };
        let mut deliveries = self.running.lock();
        if deliveries.closed {
            return None;
        }
        deliveries.by_token.insert(lease.token(), running);
        drop(deliveries);
        self.changed.raise();
        Some(pulse)
    }

    /// The delivery has ended.
    pub(crate) fn remove(&self, token: Token) {
        self.running.lock().by_token.remove(&token);
    }

    /// Beats until stopped.
    pub(crate) fn run(&self) {
        while !self.stopped.load(Ordering::Acquire) {
            let next_ms = self.beat();
            self.jobs.clock().wait(&self.changed, next_ms);
        }
    }

    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        self.changed.raise();
    }

    /// Deliveries still running, as tokens to give back. They are told, and none starts from here on.
    pub(crate) fn give_back(&self) -> Vec<(Token, Class)> {
        let mut running = self.running.lock();
        running.closed = true;
        running
            .by_token
            .iter_mut()
            .filter(|(_, delivery)| !delivery.pulse.lost.load(Ordering::Acquire))
            .map(|(&token, delivery)| {
                delivery.pulse.given_back.store(true, Ordering::Release);
                delivery.next_ms = None;
                (token, delivery.class)
            })
            .collect()
    }

    pub(crate) fn errors(&self) -> u64 {
        self.errors.load(Ordering::Relaxed)
    }

    /// Handlers that run on although their lease is lost or their deadline has passed.
    pub(crate) fn stuck(&self) -> Vec<Token> {
        let running = self.running.lock();
        let stuck = |pulse: &Pulse| {
            pulse.lost.load(Ordering::Acquire) || pulse.deadline_passed.load(Ordering::Acquire)
        };
        running
            .by_token
            .iter()
            .filter(|(_, one)| stuck(&one.pulse))
            .map(|(&token, _)| token)
            .collect()
    }

    /// Beats for everything that is due; returns when the next one is.
    fn beat(&self) -> Option<u64> {
        let now_ms = self.jobs.clock().monotonic_ms();
        let mut running = self.running.lock();
        for (&token, delivery) in &mut running.by_token {
            if delivery.next_ms.is_none_or(|next_ms| next_ms > now_ms) {
                continue;
            }
            delivery.next_ms = Some(now_ms.saturating_add(delivery.interval_ms));
            let pulse = &delivery.pulse;
            match self.send(token) {
                None => drop(self.errors.fetch_add(1, Ordering::Relaxed)),
                Some(Ok(beat)) => {
                    pulse.cancel_requested.store(beat.cancel_requested, Ordering::Release);
                    if beat.deadline_passed {
                        pulse.deadline_passed.store(true, Ordering::Release);
                        delivery.next_ms = None;
                    }
                }
                Some(Err(SettleError::StaleLease { .. })) => {
                    pulse.lost.store(true, Ordering::Release);
                    delivery.next_ms = None;
                }
                Some(Err(_)) => drop(self.errors.fetch_add(1, Ordering::Relaxed)),
            }
        }
        running.by_token.values().filter_map(|delivery| delivery.next_ms).min()
    }

    fn send(&self, token: Token) -> Option<Result<Heartbeat, SettleError>> {
        let number = self.beats.fetch_add(1, Ordering::Relaxed);
        let passes = self.filter.as_ref().is_none_or(|filter| filter(number));
        passes.then(|| self.jobs.heartbeat(token))
    }
}
