//! Points in time, as stored: whole milliseconds since the Unix epoch on the store's own timeline.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

/// A point on the store's timeline: milliseconds since the Unix epoch.
///
/// The timeline follows the wall clock but never goes back, not even over a restart; see
/// `docs/time.md` for the rule of each stored time.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last representable instant, some 584 million years from now. It sorts after all others.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `ms` milliseconds after the Unix epoch.
    #[must_use]
    pub const fn from_millis(ms: u64) -> Self {
        Self(ms)
    }

    /// Milliseconds since the Unix epoch.
    #[must_use]
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// The same instant as the standard library has it; `None` where this system cannot say it.
    #[must_use]
    pub fn to_system_time(self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_millis(self.0))
    }

    /// `ms` later, or [`Timestamp::MAX`].
    pub(crate) const fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to `self`; 0 where `earlier` is in fact later.
    pub(crate) const fn ms_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The minute this point lies in, counted from the epoch.
    pub(crate) const fn minute(self) -> u64 {
        self.0 / 60_000
    }
}

impl From<SystemTime> for Timestamp {
    /// Instants before 1970 become 1970; instants past the representable range become the maximum.
    fn from(time: SystemTime) -> Self {
        time.duration_since(UNIX_EPOCH).map_or(Self(0), |since| Self(whole_ms(since)))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// A duration in whole milliseconds, saturating.
pub(crate) fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
