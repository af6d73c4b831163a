//! Where time comes from, and the only place that waits for it.
//!
//! The store reads two clocks: the wall clock, which says what day it is and may jump, and a
//! monotonic one, which only goes forward. Every timed wait goes through [`Clock::wait`], so a test
//! that sets a [`ManualClock`] drives leases, delays and heartbeats without sleeping.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::domain::time::Timestamp;

/// A source of time. Implementations must be cheap: the store asks several times per commit.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The wall clock. May jump in both directions.
    fn wall(&self) -> Timestamp;

    /// Milliseconds on a clock that never goes back. The origin does not matter.
    fn monotonic_ms(&self) -> u64;

    /// Blocks until `signal` is raised, or until the monotonic clock reaches `until_ms`. A raised
    /// signal is lowered again before this returns. `None` waits for the signal alone.
    fn wait(&self, signal: &Arc<Signal>, until_ms: Option<u64>);
}

/// Something a thread can wait for together with a deadline.
#[derive(Debug, Default)]
pub struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// A lowered signal.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Wakes the thread that waits, or the next one that would.
    pub fn raise(&self) {
        let mut raised = self.raised.lock();
        if !*raised {
            *raised = true;
            self.changed.notify_all();
        }
    }
}

/// The clocks of the operating system.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock whose monotonic reading starts at 0 now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is where time enters")]
    fn wall(&self) -> Timestamp {
        SystemTime::now().into()
    }

    fn monotonic_ms(&self) -> u64 {
        crate::domain::time::whole_ms(self.origin.elapsed())
    }

    fn wait(&self, signal: &Arc<Signal>, until_ms: Option<u64>) {
        let mut raised = signal.raised.lock();
        while !*raised {
            let Some(until_ms) = until_ms else {
                signal.changed.wait(&mut raised);
                continue;
            };
            let left_ms = until_ms.saturating_sub(self.monotonic_ms());
            if left_ms == 0 {
                return;
            }
            signal.changed.wait_for(&mut raised, Duration::from_millis(left_ms));
        }
        *raised = false;
    }
}

/// A clock that stands still until it is told to move; its wall and monotonic readings can be moved
/// apart. Feature `test-util`.
///
/// ```
/// use std::time::Duration;
/// use redrive::{Clock, ManualClock};
///
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(60));           // both readings
/// clock.jump_wall_back(Duration::from_secs(3_600)); // the wall clock alone
/// assert_eq!(clock.monotonic_ms(), 60_000);
/// ```
#[cfg(feature = "test-util")]
#[derive(Debug)]
pub struct ManualClock {
    readings: Mutex<Readings>,
    waiting: Mutex<Vec<std::sync::Weak<Signal>>>,
}

#[cfg(feature = "test-util")]
#[derive(Debug)]
struct Readings {
    wall_ms: u64,
    monotonic_ms: u64,
}

#[cfg(feature = "test-util")]
impl ManualClock {
    /// A clock that reads 2026-01-01 00:00:00 UTC and monotonic 0.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            readings: Mutex::new(Readings { wall_ms: 1_767_225_600_000, monotonic_ms: 0 }),
            waiting: Mutex::default(),
        })
    }

    /// Moves both readings forward and wakes whoever waited for that.
    pub fn advance(&self, by: Duration) {
        let by = crate::domain::time::whole_ms(by);
        self.change(|readings| {
            readings.wall_ms = readings.wall_ms.saturating_add(by);
            readings.monotonic_ms = readings.monotonic_ms.saturating_add(by);
        });
    }

    /// Moves the wall clock alone forward, as a suspended machine or a corrected clock does.
    pub fn jump_wall(&self, by: Duration) {
        let by = crate::domain::time::whole_ms(by);
        self.change(|readings| readings.wall_ms = readings.wall_ms.saturating_add(by));
    }

    /// Moves the wall clock alone back.
    pub fn jump_wall_back(&self, by: Duration) {
        let by = crate::domain::time::whole_ms(by);
        self.change(|readings| readings.wall_ms = readings.wall_ms.saturating_sub(by));
    }

    fn change(&self, change: impl FnOnce(&mut Readings)) {
        change(&mut self.readings.lock());
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for signal in waiting.iter().filter_map(std::sync::Weak::upgrade) {
            // Taking the lock makes sure the waiter is either before its look at the clock or
            // inside the wait.
            drop(signal.raised.lock());
            signal.changed.notify_all();
        }
    }
}

#[cfg(feature = "test-util")]
impl Clock for ManualClock {
    fn wall(&self) -> Timestamp {
        Timestamp::from_millis(self.readings.lock().wall_ms)
    }

    fn monotonic_ms(&self) -> u64 {
        self.readings.lock().monotonic_ms
    }

    fn wait(&self, signal: &Arc<Signal>, until_ms: Option<u64>) {
        let mut raised = signal.raised.lock();
        while !*raised {
            // Registered before the look at the clock: a change after it finds the waiter here.
            self.waiting.lock().push(Arc::downgrade(signal));
            if until_ms.is_some_and(|until_ms| self.monotonic_ms() >= until_ms) {
                return;
            }
            signal.changed.wait(&mut raised);
        }
        *raised = false;
    }
}
