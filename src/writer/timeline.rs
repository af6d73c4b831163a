//! The store's own time: follows the wall clock, never goes back, never stands still (P13).

use crate::clock::Clock;
use crate::domain::time::Timestamp;

/// A wall clock that ran ahead of the monotonic one by more than this was moved, or the machine
/// slept.
const JUMP_MS: u64 = 1_000;

pub(super) struct Timeline {
    now: Timestamp,
    wall: Timestamp,
    monotonic_ms: u64,
}

/// One look at the clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    /// The store's time.
    pub(super) now: Timestamp,
    pub(super) monotonic_ms: u64,
    /// How far the wall clock has run ahead of the monotonic one since the last look; 0 when it
    /// has not jumped forward.
    pub(super) jump_ms: u64,
}

impl Timeline {
    /// Goes on from the latest committed time, or from the wall clock if that is later.
    pub(super) fn new(clock: &dyn Clock, latest: Timestamp) -> Self {
        let wall = clock.wall();
        Self { now: wall.max(latest), wall, monotonic_ms: clock.monotonic_ms() }
    }

    /// The store's time at the last look.
    pub(super) const fn now(&self) -> Timestamp {
        self.now
    }

    pub(super) fn read(&mut self, clock: &dyn Clock) -> Reading {
        let (wall, monotonic_ms) = (clock.wall(), clock.monotonic_ms());
        let elapsed_ms = monotonic_ms.saturating_sub(self.monotonic_ms);
        let ahead_ms = wall.ms_since(self.wall).saturating_sub(elapsed_ms);
        self.now = wall.max(self.now.plus_ms(elapsed_ms));
        self.wall = wall;
        self.monotonic_ms = monotonic_ms;
        let jump_ms = if ahead_ms > JUMP_MS { ahead_ms } else { 0 };
        Reading { now: self.now, monotonic_ms, jump_ms }
    }
}
