//! A span of time that a report looks back over, in whole minutes.

use std::time::Duration;

use crate::domain::time::{Timestamp, whole_ms};

/// What a report is of.
///
/// ```
/// use std::time::Duration;
/// use redrive::Window;
///
/// let window = Window::last(Duration::from_secs(3_600));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(Span);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Span {
    LastMinutes(u64),
    Between(Timestamp, Timestamp),
    Ever,
}

impl Window {
    /// From so long ago until now. Counted in minutes: those that have ended in that time, the one it
    /// begins in, and the present one.
    #[must_use]
    pub fn last(time: Duration) -> Self {
        Self(Span::LastMinutes(whole_ms(time).div_ceil(60_000)))
    }

    /// From the minute of one moment to the minute of another, both included.
    #[must_use]
    pub const fn between(from: Timestamp, to: Timestamp) -> Self {
        Self(Span::Between(from, to))
    }

    /// The whole life of the file.
    #[must_use]
    pub const fn ever() -> Self {
        Self(Span::Ever)
    }

    /// The first and the last minute, seen from minute `now`, where minutes before `kept` are not known
    /// apart. The first one may come after the last: then there is nothing to tell. `None` begins before
    /// everything.
    pub(crate) fn minutes(self, now: u64, kept: u64) -> (Option<u64>, u64) {
        match self.0 {
            Span::Ever => (None, now),
            Span::LastMinutes(minutes) => (Some(now.saturating_sub(minutes).max(kept)), now),
            Span::Between(from, to) => (Some(from.minute().max(kept)), to.minute().min(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_whole_minutes_and_no_more_than_is_kept() {
        let last = |secs| Window::last(Duration::from_secs(secs));
        assert_eq!(last(0).minutes(100, 0), (Some(100), 100));
        assert_eq!(last(1).minutes(100, 0), (Some(99), 100));
        assert_eq!(last(3_600).minutes(100, 0), (Some(40), 100));
        assert_eq!(last(3_600).minutes(100, 70), (Some(70), 100));
        let at = |minute: u64| Timestamp::from_millis(minute * 60_000 + 59_999);
        assert_eq!(Window::between(at(20), at(30)).minutes(100, 0), (Some(20), 30));
        assert_eq!(Window::between(at(20), at(300)).minutes(100, 25), (Some(25), 100));
        assert_eq!(Window::ever().minutes(100, 70), (None, 100));
    }
}
