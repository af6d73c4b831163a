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
    /// The wall clock.
    pub(super) wall: Timestamp,
    pub(super) monotonic_ms: u64,
    /// How far the wall clock has run ahead of the monotonic one since the last look; 0 when it
    /// has not jumped forward.
    pub(super) jump_ms: u64,
}

impl Timeline {
    /// Goes on from the wall clock, or, where that lies behind, from the latest committed time by as
    /// much as the wall clock has moved on since it was committed (at `wall_then`).
    pub(super) fn new(clock: &dyn Clock, latest: Timestamp, wall_then: Timestamp) -> Self {
        let (wall, monotonic_ms) = together(clock);
        let now = wall.max(latest.plus_ms(wall.ms_since(wall_then)));
        Self { now, wall, monotonic_ms }
    }

    /// When the timeline will be at `at`, unless the wall clock jumps: counted from the last look, so
    /// that the time since then is not waited for twice.
    pub(super) const fn monotonic_ms_of(&self, at: Timestamp) -> u64 {
        self.monotonic_ms.saturating_add(at.ms_since(self.now))
    }

    pub(super) fn read(&mut self, clock: &dyn Clock) -> Reading {
        let (wall, monotonic_ms) = together(clock);
        let elapsed_ms = monotonic_ms.saturating_sub(self.monotonic_ms);
        let ahead_ms = wall.ms_since(self.wall).saturating_sub(elapsed_ms);
        self.now = wall.max(self.now.plus_ms(elapsed_ms));
        self.wall = wall;
        self.monotonic_ms = monotonic_ms;
        let jump_ms = if ahead_ms > JUMP_MS { ahead_ms } else { 0 };
        Reading { now: self.now, wall, monotonic_ms, jump_ms }
    }
}

/// Both clocks at one moment: time that passes between the two readings would look like a jump.
fn together(clock: &dyn Clock) -> (Timestamp, u64) {
    let mut before = clock.monotonic_ms();
    // On a machine too busy for that, the last reading has to do.
    for _ in 0..10 {
        let wall = clock.wall();
        let after = clock.monotonic_ms();
        if before == after {
            return (wall, after);
        }
        before = after;
    }
    (clock.wall(), clock.monotonic_ms())
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::clock::{ManualClock, Signal};

    /// P13, O-20: what is due at a time is waited for until that time, however late after the look the
    /// wait begins.
    #[test]
    fn a_wait_is_counted_from_the_look_that_it_is_based_on() {
        let clock = ManualClock::new();
        let mut timeline = Timeline::new(&*clock, Timestamp::default(), Timestamp::default());
        let due = timeline.read(&*clock).now.plus_ms(1_000);
        clock.advance(Duration::from_millis(900));
        assert_eq!(timeline.monotonic_ms_of(due), 1_000);
    }

    #[test]
    fn the_timeline_never_goes_back_and_never_stands_still() {
        let clock = ManualClock::new();
        let latest = clock.wall().plus_ms(5_000);
        let mut timeline = Timeline::new(&*clock, latest, clock.wall());
        clock.jump_wall_back(Duration::from_secs(3_600));
        clock.advance(Duration::from_millis(10));
        let reading = timeline.read(&*clock);
        assert_eq!((reading.now, reading.jump_ms), (latest.plus_ms(10), 0));
        clock.jump_wall(Duration::from_secs(7_200));
        assert_eq!(timeline.read(&*clock).jump_ms, 7_200_000);
    }

    /// Time passes between the reading of the one clock and that of the other.
    #[derive(Debug)]
    struct Slow {
        clock: Arc<ManualClock>,
        delays: AtomicBool,
    }

    impl Clock for Slow {
        fn wall(&self) -> Timestamp {
            let wall = self.clock.wall();
            if self.delays.swap(false, Ordering::SeqCst) {
                self.clock.advance(Duration::from_secs(60));
            }
            wall
        }

        fn monotonic_ms(&self) -> u64 {
            self.clock.monotonic_ms()
        }

        fn wait(&self, signal: &Arc<Signal>, until_ms: Option<u64>) {
            self.clock.wait(signal, until_ms);
        }
    }

    #[test]
    fn time_that_passes_while_the_clocks_are_read_is_no_jump() {
        let clock = Slow { clock: ManualClock::new(), delays: AtomicBool::new(false) };
        let mut timeline = Timeline::new(&clock, Timestamp::default(), Timestamp::default());
        clock.delays.store(true, Ordering::SeqCst);
        assert_eq!(timeline.read(&clock).jump_ms, 0);
        assert_eq!(timeline.read(&clock).jump_ms, 0);
    }

    /// P13: after a clock that was once a day ahead and was corrected, time goes on over openings that
    /// last a moment each.
    #[test]
    fn the_timeline_goes_on_over_restarts_when_it_is_ahead() {
        let clock = ManualClock::new();
        let mut latest = clock.wall().plus_ms(86_400_000);
        let mut wall_then = latest;
        let start = latest;
        for _ in 0..4 {
            let mut timeline = Timeline::new(&*clock, latest, wall_then);
            let reading = timeline.read(&*clock);
            (latest, wall_then) = (reading.now, reading.wall);
            clock.advance(Duration::from_secs(1));
        }
        assert_eq!(latest, start.plus_ms(3_000));
    }
}
