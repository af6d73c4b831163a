//! When a retry may happen. Whether it may happen is the policy's business.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::time::whole_ms;

/// The wait before each retry.
///
/// Exponential backoff with a ceiling, as described in
/// <https://en.wikipedia.org/wiki/Exponential_backoff>, or an explicit list. Jitter is added after
/// the ceiling, so that jobs which failed together do not come back together. All arithmetic
/// saturates: the wait is never below 1 ms and never above the ceiling plus the jitter.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Schedule {
    shape: Shape,
    jitter_percent: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Shape {
    Exponential { base_ms: u64, factor_percent: u32, cap_ms: u64 },
    List { delays_ms: Vec<u64> },
}

/// Most entries in a list schedule.
const LIST_MAX: usize = 64;

impl Schedule {
    /// `base`, then twice that, then four times, ... but never more than `cap`; 25% jitter.
    #[must_use]
    pub fn exponential(base: Duration, cap: Duration) -> Self {
        let shape = Shape::Exponential {
            base_ms: whole_ms(base),
            factor_percent: 200,
            cap_ms: whole_ms(cap),
        };
        Self { shape, jitter_percent: 25 }
    }

    /// One wait per retry; the last one repeats. 25% jitter. Only the first 64 entries are kept;
    /// an empty list means 1 ms.
    #[must_use]
    pub fn list(delays: impl IntoIterator<Item = Duration>) -> Self {
        let delays_ms = delays.into_iter().take(LIST_MAX).map(whole_ms).collect();
        Self { shape: Shape::List { delays_ms }, jitter_percent: 25 }
    }

    /// The growth per retry, in percent of the wait before (default 200: doubling). Below 100 is
    /// taken as 100. A list has no growth.
    #[must_use]
    pub fn factor_percent(mut self, percent: u32) -> Self {
        if let Shape::Exponential { factor_percent, .. } = &mut self.shape {
            *factor_percent = percent.max(100);
        }
        self
    }

    /// Up to this much of the wait is added at random (default 25, at most 100).
    #[must_use]
    pub fn jitter_percent(mut self, percent: u32) -> Self {
        self.jitter_percent = percent.min(100);
        self
    }

    /// With every number within what the builder allows.
    pub(crate) fn checked(mut self) -> Self {
        if let Shape::List { delays_ms } = &mut self.shape {
            delays_ms.truncate(LIST_MAX);
        }
        let (factor, jitter) = match self.shape {
            Shape::Exponential { factor_percent, .. } => (factor_percent, self.jitter_percent),
            Shape::List { .. } => (100, self.jitter_percent),
        };
        self.factor_percent(factor).jitter_percent(jitter)
    }

    /// The wait before the retry that follows failure number `failures` (counted from 1).
    /// `seed` chooses the jitter.
    pub(crate) fn delay_ms(&self, failures: u32, seed: u64) -> u64 {
        let step = failures.max(1) - 1;
        let plain = match &self.shape {
            Shape::Exponential { base_ms, factor_percent, cap_ms } => {
                grow(*base_ms, *factor_percent, *cap_ms, step)
            }
            Shape::List { delays_ms } => {
                let index = usize::try_from(step).unwrap_or(usize::MAX);
                delays_ms.get(index).or(delays_ms.last()).copied().unwrap_or(0)
            }
        };
        let spread = percent_of(plain, self.jitter_percent);
        let jitter = if spread == 0 { 0 } else { mix(seed) % spread.saturating_add(1) };
        plain.saturating_add(jitter).max(1)
    }
}

impl Default for Schedule {
    /// 1 s, 2 s, 4 s, ... up to 5 minutes, with 25% jitter.
    fn default() -> Self {
        Self::exponential(Duration::from_secs(1), Duration::from_secs(300))
    }
}

fn grow(base_ms: u64, factor_percent: u32, cap_ms: u64, steps: u32) -> u64 {
    let mut wait = base_ms.min(cap_ms);
    for _ in 0..steps {
        // A wait that no longer grows never will: this ends after a few dozen rounds at most.
        let grown = percent_of(wait, factor_percent).min(cap_ms);
        if grown == wait {
            break;
        }
        wait = grown;
    }
    wait
}

/// `percent` per cent of `value`, rounded down, saturating.
fn percent_of(value: u64, percent: u32) -> u64 {
    let product = u128::from(value) * u128::from(percent) / 100;
    u64::try_from(product).unwrap_or(u64::MAX)
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014), to turn related seeds into unrelated
/// numbers.
pub(crate) const fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// O-12: no attempt number makes the wait negative, zero, or longer than the ceiling + jitter.
    #[test]
    fn o_12_backoff_saturates() {
        let day = Duration::from_secs(86_400);
        for base in [Duration::from_millis(1), day, Duration::MAX] {
            for cap in [Duration::from_secs(60), day * 30, Duration::MAX] {
                let schedule = Schedule::exponential(base, cap);
                for failures in [0, 1, 10, 40, 63, 64, 65, 1_000, u32::MAX] {
                    for seed in 0..50 {
                        let wait = schedule.delay_ms(failures, seed);
                        let ceiling = whole_ms(cap);
                        assert!(wait >= 1);
                        assert!(wait <= ceiling.saturating_add(percent_of(ceiling, 25)));
                    }
                }
            }
        }
    }

    #[test]
    fn waits_double_until_the_cap() {
        let s = Schedule::exponential(Duration::from_secs(1), Duration::from_secs(5));
        let s = s.jitter_percent(0);
        let waits: Vec<u64> = (1..=5).map(|n| s.delay_ms(n, 7)).collect();
        assert_eq!(waits, [1000, 2000, 4000, 5000, 5000]);
    }

    #[test]
    fn a_list_repeats_its_last_wait_and_zero_means_at_once() {
        let s = Schedule::list([0, 30, 120].map(Duration::from_secs)).jitter_percent(0);
        let waits: Vec<u64> = (1..=4).map(|n| s.delay_ms(n, 7)).collect();
        assert_eq!(waits, [1, 30_000, 120_000, 120_000]);
        assert_eq!(Schedule::list([]).delay_ms(3, 0), 1);
    }

    #[test]
    fn jitter_spreads_and_follows_the_seed() {
        let s = Schedule::exponential(Duration::from_secs(100), Duration::from_secs(100));
        let waits: std::collections::BTreeSet<u64> = (0..100).map(|n| s.delay_ms(1, n)).collect();
        assert!(waits.len() > 50, "{} distinct waits of 100", waits.len());
        assert_eq!(s.delay_ms(1, 42), s.delay_ms(1, 42));
    }
}
