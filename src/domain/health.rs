//! Whether a store is well: named measures, each with two limits.

use std::fmt;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Level {
    /// Below both limits.
    #[default]
    Ok,
    /// Somebody should look at it by day.
    Warning,
    /// Somebody should look at it now.
    Critical,
}

impl Level {
    /// The level's name as used in JSON and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// From which value on a measure is a warning, and from which it is critical.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Limit {
    /// At this value or above.
    pub warning: u64,
    /// At this value or above.
    pub critical: u64,
}

impl Limit {
    /// Two limits; [`u64::MAX`] is never reached.
    #[must_use]
    pub const fn new(warning: u64, critical: u64) -> Self {
        Self { warning, critical }
    }

    /// Neither.
    #[must_use]
    pub const fn never() -> Self {
        Self::new(u64::MAX, u64::MAX)
    }

    /// What `measured` is. No limit is reached by 0.
    #[must_use]
    pub const fn level(self, measured: u64) -> Level {
        if measured == 0 || measured == u64::MAX {
            Level::Ok
        } else if measured >= self.critical {
            Level::Critical
        } else if measured >= self.warning {
            Level::Warning
        } else {
            Level::Ok
        }
    }
}

/// The limits of [`Redrive::health_with`](crate::Redrive::health_with). `docs/operations.md` gives the
/// reasons for the defaults.
///
/// ```
/// use redrive::{HealthLimits, Limit};
///
/// let mut limits = HealthLimits::default();
/// limits.oldest_ready_ms = Limit::new(10_000, 60_000);
/// limits.file_bytes = Limit::never();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HealthLimits {
    /// Share of retries in the worker time of a queue over the last 5 minutes, in per cent, while fresh
    /// work of the queue has waited for longer than [`fresh_wait_ms`](Self::fresh_wait_ms).
    pub retry_share_percent: Limit,
    /// How long fresh work may wait before it counts as waiting, in milliseconds.
    pub fresh_wait_ms: u64,
    /// Age of the oldest ready job that is neither paused nor held, in milliseconds.
    pub oldest_ready_ms: Limit,
    /// Age of the oldest job that is ready for a reconciler, in milliseconds.
    pub unreconciled_ms: Limit,
    /// Age of the oldest unsent message of each destination that is neither paused nor held, in
    /// milliseconds.
    pub oldest_unsent_ms: Limit,
    /// Jobs that died in the last hour, less those that left the quarantine.
    pub quarantine_growth: Limit,
    /// Leases that expired in the last hour.
    pub lease_expiries: Limit,
    /// Deliveries that were in flight when a process died, in the last hour.
    pub crashes: Limit,
    /// Age of the oldest pause, in milliseconds.
    pub oldest_pause_ms: Limit,
    /// Size of the file in bytes.
    pub file_bytes: Limit,
    /// The longest write or transaction of the app's since the opening, in milliseconds.
    pub longest_write_ms: Limit,
    /// Damaged rows that were set aside.
    pub set_aside: Limit,
}

impl Default for HealthLimits {
    fn default() -> Self {
        const MINUTE_MS: u64 = 60_000;
        const DAY_MS: u64 = 24 * 60 * MINUTE_MS;
        const GIB: u64 = 1024 * 1024 * 1024;
        Self {
            retry_share_percent: Limit::new(25, 40),
            fresh_wait_ms: 5_000,
            oldest_ready_ms: Limit::new(5 * MINUTE_MS, 60 * MINUTE_MS),
            unreconciled_ms: Limit::new(MINUTE_MS, 60 * MINUTE_MS),
            oldest_unsent_ms: Limit::new(15 * MINUTE_MS, 4 * 60 * MINUTE_MS),
            quarantine_growth: Limit::new(10, 100),
            lease_expiries: Limit::new(1, 20),
            crashes: Limit::new(1, 10),
            oldest_pause_ms: Limit::new(DAY_MS, u64::MAX),
            file_bytes: Limit::new(2 * GIB, 16 * GIB),
            longest_write_ms: Limit::new(1_000, 10_000),
            set_aside: Limit::new(1, u64::MAX),
        }
    }
}

/// One measure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Check {
    /// Its name, which does not change.
    pub name: &'static str,
    /// What it comes to.
    pub level: Level,
    /// The worst value there is.
    pub measured: u64,
    /// What it is counted in.
    pub unit: &'static str,
    /// The limits it was held against.
    pub limit: Limit,
    /// The queue, kind or job that it was found at, if it is one.
    pub subject: Option<String>,
    /// What to do next, where something is wrong.
    pub advice: &'static str,
}

/// All measures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Health {
    /// The worst of them.
    pub level: Level,
    /// Every measure, those that are well included.
    pub checks: Vec<Check>,
}

impl Health {
    pub(crate) fn check(
        &mut self,
        name: &'static str,
        unit: &'static str,
        (measured, subject): (u64, Option<String>),
        limit: Limit,
        advice: &'static str,
    ) {
        let level = limit.level(measured);
        self.level = self.level.max(level);
        self.checks.push(Check { name, level, measured, unit, limit, subject, advice });
    }

    /// The measures that are not well, the worst first.
    #[must_use]
    pub fn findings(&self) -> Vec<&Check> {
        let mut found: Vec<&Check> =
            self.checks.iter().filter(|check| check.level > Level::Ok).collect();
        found.sort_by_key(|check| std::cmp::Reverse(check.level));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_reached_at_its_value_and_never_by_nothing() {
        let limit = Limit::new(10, 20);
        let levels = [0, 9, 10, 19, 20, 21].map(|measured| limit.level(measured));
        let expected = [
            Level::Ok,
            Level::Ok,
            Level::Warning,
            Level::Warning,
            Level::Critical,
            Level::Critical,
        ];
        assert_eq!(levels, expected);
        assert_eq!(Limit::new(0, 0).level(0), Level::Ok);
        assert_eq!(Limit::never().level(u64::MAX), Level::Ok);
        // What is worse than either limit is told as such, in whichever order they were given.
        assert_eq!(Limit::new(20, 10).level(10), Level::Critical);
    }
}
