//! When a cohort stops by itself. Each rule looks at a window of its own; what a rule has seen is part
//! of the cohort, so it goes on over a restart.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::limits::{ABORT_COUNT_MAX, ABORT_MS_MAX, RESULTS_MAX};
use crate::domain::plan::PlanError;
use crate::domain::time::{Timestamp, whole_ms};

const MINUTE_MS: u64 = 60_000;

/// A rule that stops a cohort: what was not released then stays dead, untouched.
///
/// A *result* is a released job that has ended: done, dead again, or cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Abort {
    /// Too large a share of the jobs died again.
    DeadShare {
        /// In per cent of the latest results, 1 to 100; at or above it the cohort stops.
        percent: u32,
        /// Not before there are this many results.
        results_min: u32,
        /// How many of the latest results are looked at, up to 100.
        results_last: u32,
    },
    /// Jobs die of the very cause again that they lay dead of.
    SameCause {
        /// So many of them.
        times: u32,
        /// Among this many of the latest results, up to 100.
        results_last: u32,
    },
    /// Other jobs of the plan's queue (of all queues, if it names none) die.
    Growth {
        /// More than so many.
        jobs: u64,
        /// Within this time.
        window_ms: u64,
    },
    /// The oldest ready job of the plan's queue (of all queues, if it names none) has waited too long.
    /// Time in which the store was closed does not count.
    ReadyAge {
        /// For longer than this.
        age_ms: u64,
        /// All through this time.
        window_ms: u64,
    },
    /// Deliveries in the plan's queue (in all queues, if it names none) are throttled.
    Throttling {
        /// More than so many.
        deliveries: u64,
        /// Within this time.
        window_ms: u64,
    },
}

impl Abort {
    /// At or above this share of deaths among the latest 100 results, once there are 10. The default
    /// rule has 0.2.
    #[must_use]
    pub fn dead_share(share: f64) -> Self {
        // NaN compares with nothing and becomes 0, which is refused; so is what is above 1.
        let percent = (0..=101).rev().find(|&whole| f64::from(whole) <= share * 100.0 + 1e-9);
        Self::DeadShare { percent: percent.unwrap_or(0), results_min: 10, results_last: 100 }
    }

    /// When this many jobs of the latest 100 results died of the cause that they lay dead of. The
    /// default rule has 3.
    #[must_use]
    pub const fn same_cause(times: u32) -> Self {
        Self::SameCause { times, results_last: RESULTS_MAX }
    }

    /// When more than this many other jobs die within `window`. The default rule has 100 in 5 minutes.
    #[must_use]
    pub fn growth(jobs: u64, window: Duration) -> Self {
        Self::Growth { jobs, window_ms: whole_ms(window) }
    }

    /// When some job has been ready for longer than `age`, for half a minute on end. The default rule
    /// has 5 minutes.
    #[must_use]
    pub fn ready_age(age: Duration) -> Self {
        Self::ReadyAge { age_ms: whole_ms(age), window_ms: MINUTE_MS / 2 }
    }

    /// When more than this many deliveries are throttled within `window`. The default rule has 20 in
    /// one minute.
    #[must_use]
    pub fn throttling(deliveries: u64, window: Duration) -> Self {
        Self::Throttling { deliveries, window_ms: whole_ms(window) }
    }
}

/// At most one rule of each sort.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Aborts(Vec<Abort>);

impl Aborts {
    /// What a plan has unless it says otherwise.
    pub(crate) fn safe() -> Self {
        Self(vec![
            Abort::DeadShare { percent: 20, results_min: 10, results_last: RESULTS_MAX },
            Abort::same_cause(3),
            Abort::Growth { jobs: 100, window_ms: 5 * MINUTE_MS },
            Abort::ReadyAge { age_ms: 5 * MINUTE_MS, window_ms: MINUTE_MS / 2 },
            Abort::Throttling { deliveries: 20, window_ms: MINUTE_MS },
        ])
    }

    pub(crate) fn set(&mut self, rule: Abort) {
        self.0.retain(|other| std::mem::discriminant(other) != std::mem::discriminant(&rule));
        self.0.push(rule);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Abort> + '_ {
        self.0.iter().copied()
    }

    /// Whether each rule could stop a cohort of up to `jobs_max` jobs.
    pub(crate) fn check(&self, jobs_max: u64) -> Result<(), PlanError> {
        for rule in self.iter() {
            rule.check(jobs_max)
                .map_err(|why| PlanError::NeverAborts { rule: rule.name(), why })?;
        }
        Ok(())
    }

    /// How often somebody must look, if anything depends on time.
    pub(crate) fn look_every_ms(&self) -> Option<u64> {
        self.iter().filter_map(|rule| rule.window_ms().map(|ms| (ms / MARKS).max(1))).min()
    }
}

impl Abort {
    const fn name(self) -> &'static str {
        match self {
            Self::DeadShare { .. } => "dead share",
            Self::SameCause { .. } => "same cause",
            Self::Growth { .. } => "growth",
            Self::ReadyAge { .. } => "ready age",
            Self::Throttling { .. } => "throttling",
        }
    }

    const fn window_ms(self) -> Option<u64> {
        match self {
            Self::DeadShare { .. } | Self::SameCause { .. } => None,
            Self::Growth { window_ms, .. }
            | Self::ReadyAge { window_ms, .. }
            | Self::Throttling { window_ms, .. } => Some(window_ms),
        }
    }

    fn check(self, jobs_max: u64) -> Result<(), String> {
        let within = |what: &str, value: u64, max: u64| {
            if value == 0 || value > max {
                return Err(format!("its {what} is {value}; give 1 to {max}"));
            }
            Ok(())
        };
        let results = u64::from(RESULTS_MAX);
        let enough = |needed: u32| {
            if u64::from(needed) > jobs_max {
                return Err(format!("it needs {needed} results, the plan has {jobs_max} jobs"));
            }
            Ok(())
        };
        match self {
            Self::DeadShare { percent, results_min, results_last } => {
                if !(1..=100).contains(&percent) {
                    return Err("its share is not within 0.01 to 1".to_owned());
                }
                within("number of latest results", u64::from(results_last), results)?;
                within("least number of results", u64::from(results_min), u64::from(results_last))?;
                enough(results_min)
            }
            Self::SameCause { times, results_last } => {
                within("number of latest results", u64::from(results_last), results)?;
                within("number of deaths", u64::from(times), u64::from(results_last))?;
                enough(times)
            }
            Self::Growth { jobs: count, window_ms }
            | Self::Throttling { deliveries: count, window_ms } => {
                within("count", count, ABORT_COUNT_MAX)?;
                within("window in ms", window_ms, ABORT_MS_MAX)
            }
            Self::ReadyAge { age_ms, window_ms } => {
                within("age in ms", age_ms, ABORT_MS_MAX)?;
                within("window in ms", window_ms, ABORT_MS_MAX)
            }
        }
    }
}

/// Why a cohort was aborted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum AbortReason {
    /// Somebody asked for it.
    Operator {
        /// The reason given.
        reason: String,
    },
    /// A job of the canary died again.
    CanaryDied,
    /// [`Abort::DeadShare`].
    DeadShare {
        /// How many died again.
        died: u32,
        /// Of how many results.
        results: u32,
    },
    /// [`Abort::SameCause`].
    SameCause {
        /// How many died of the cause that they lay dead of.
        times: u32,
    },
    /// [`Abort::Growth`].
    Growth {
        /// How many other jobs died within the window.
        jobs: u64,
    },
    /// [`Abort::ReadyAge`].
    ReadyAge {
        /// How long the oldest ready job had waited.
        age_ms: u64,
    },
    /// [`Abort::Throttling`].
    Throttling {
        /// How many deliveries were throttled within the window.
        deliveries: u64,
    },
}

impl fmt::Display for AbortReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Operator { reason } => write!(f, "an operator stopped it: {reason}"),
            Self::CanaryDied => f.write_str("a job of the canary died again"),
            Self::DeadShare { died, results } => {
                write!(f, "{died} of the latest {results} results died again")
            }
            Self::SameCause { times } => {
                write!(f, "{times} jobs died again of the cause they lay dead of")
            }
            Self::Growth { jobs } => write!(f, "{jobs} other jobs died within the window"),
            Self::ReadyAge { age_ms } => write!(f, "a job has been ready for {age_ms} ms"),
            Self::Throttling { deliveries } => {
                write!(f, "{deliveries} deliveries were throttled within the window")
            }
        }
    }
}

/// The state of the store that rules look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weather {
    /// Deaths in the plan's queue, ever, without the cohort's own.
    pub(crate) died: u64,
    /// Throttled deliveries in the plan's queue, ever.
    pub(crate) throttled: u64,
    /// How long the oldest ready job has waited.
    pub(crate) ready_ms: u64,
}

/// What a cohort's rules have seen so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Watch {
    /// How many results there are, up to `RESULTS_MAX`.
    results: u32,
    /// One bit per result, the latest lowest: it died again.
    died: u128,
    /// One bit per result: it died of the cause it lay dead of.
    same: u128,
    growth: Trend,
    throttling: Trend,
    /// Since when the oldest ready job has been too old.
    aged_since: Option<Timestamp>,
}

/// A count that only goes up, marked at most four times in a window, oldest first. Looked at as often, it
/// tells what has come in no more than a window and no less than half of one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Trend {
    marks: Vec<(Timestamp, u64)>,
}

/// Marks in a window.
const MARKS: u64 = 4;

impl Trend {
    fn look(&mut self, now: Timestamp, count: u64, window_ms: u64) -> u64 {
        self.marks.retain(|(at, _)| now.ms_since(*at) <= window_ms);
        let far = |(at, _): &(Timestamp, u64)| now.ms_since(*at) >= window_ms.div_ceil(MARKS);
        if self.marks.last().is_none_or(far) {
            self.marks.push((now, count));
        }
        count.saturating_sub(self.marks.first().map_or(count, |(_, then)| *then))
    }
}

impl Watch {
    pub(crate) fn result(&mut self, died: bool, same_cause: bool) {
        self.results = self.results.saturating_add(1).min(RESULTS_MAX);
        self.died = self.died << 1 | u128::from(died);
        self.same = self.same << 1 | u128::from(same_cause);
    }

    /// Looks at everything once; returns why to stop, if there is a reason.
    pub(crate) fn look(
        &mut self,
        rules: &Aborts,
        weather: Weather,
        now: Timestamp,
    ) -> Option<AbortReason> {
        let mut found = None;
        for rule in rules.iter() {
            // All rules look, so that none misses a mark.
            let stop = self.one(rule, weather, now);
            found = found.or(stop);
        }
        found
    }

    fn one(&mut self, rule: Abort, weather: Weather, now: Timestamp) -> Option<AbortReason> {
        match rule {
            Abort::DeadShare { percent, results_min, results_last } => {
                let results = self.results.min(results_last);
                let died = latest(self.died, results);
                let stops = results >= results_min
                    && u64::from(died) * 100 >= u64::from(percent) * u64::from(results);
                stops.then_some(AbortReason::DeadShare { died, results })
            }
            Abort::SameCause { times: most, results_last } => {
                let times = latest(self.same, self.results.min(results_last));
                (times >= most).then_some(AbortReason::SameCause { times })
            }
            Abort::Growth { jobs: most, window_ms } => {
                let jobs = self.growth.look(now, weather.died, window_ms);
                (jobs > most).then_some(AbortReason::Growth { jobs })
            }
            Abort::Throttling { deliveries: most, window_ms } => {
                let deliveries = self.throttling.look(now, weather.throttled, window_ms);
                (deliveries > most).then_some(AbortReason::Throttling { deliveries })
            }
            Abort::ReadyAge { age_ms, window_ms } => {
                if weather.ready_ms <= age_ms {
                    self.aged_since = None;
                    return None;
                }
                let since = *self.aged_since.get_or_insert(now);
                let stops = now.ms_since(since) >= window_ms;
                stops.then_some(AbortReason::ReadyAge { age_ms: weather.ready_ms })
            }
        }
    }
}

/// How many of the latest `count` bits are set.
const fn latest(bits: u128, count: u32) -> u32 {
    match 1u128.checked_shl(count) {
        Some(above) => (bits & (above - 1)).count_ones(),
        None => bits.count_ones(),
    }
}

#[cfg(test)]
mod tests;
