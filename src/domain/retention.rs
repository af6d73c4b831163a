//! How long, and how many, dead jobs of a queue are kept. Nothing is dropped unless the user says so.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::time::{Timestamp, whole_ms};

/// How much of a queue's quarantine is kept. A new one keeps everything.
///
/// ```
/// use std::time::Duration;
/// use redrive::{DeadRetention, Overflow};
///
/// let year = Duration::from_secs(365 * 86_400);
/// let retention = DeadRetention::new().jobs(100_000).age(year);
/// let strict = DeadRetention::new().jobs(1_000).overflow(Overflow::Refuse);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeadRetention {
    jobs_max: Option<u64>,
    bytes_max: Option<u64>,
    age_ms_max: Option<u64>,
    overflow: Overflow,
}

/// What happens when a queue has more dead jobs, or more bytes of them, than are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Overflow {
    /// Those that have been dead for longest are removed. Each is counted (`evicted`), and a record
    /// is kept.
    #[default]
    Evict,
    /// None is removed; the queue accepts no new jobs while it has so many or more.
    Refuse,
}

/// Which bound removed a dead job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RetentionBound {
    /// [`DeadRetention::jobs`].
    Jobs,
    /// [`DeadRetention::bytes`].
    Bytes,
    /// [`DeadRetention::age`].
    Age,
}

impl DeadRetention {
    /// Everything is kept.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most so many dead jobs.
    #[must_use]
    pub const fn jobs(mut self, jobs: u64) -> Self {
        self.jobs_max = Some(jobs);
        self
    }

    /// At most so many bytes of payloads of dead jobs.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes_max = Some(bytes);
        self
    }

    /// No job that has been dead for longer. Such jobs are removed whatever the overflow policy.
    #[must_use]
    pub fn age(mut self, age: Duration) -> Self {
        self.age_ms_max = Some(whole_ms(age));
        self
    }

    /// What happens when there are more dead jobs or bytes than allowed.
    #[must_use]
    pub const fn overflow(mut self, overflow: Overflow) -> Self {
        self.overflow = overflow;
        self
    }

    /// Whether anything is ever dropped or refused.
    pub(crate) fn is_set(self) -> bool {
        self.jobs_max.is_some() || self.bytes_max.is_some() || self.age_ms_max.is_some()
    }

    /// The bound for which the oldest of `jobs` dead jobs with `bytes` in all, dead since `died_at`, has
    /// to go at `now`.
    pub(crate) fn evicts(
        self,
        jobs: u64,
        bytes: u64,
        died_at: Timestamp,
        now: Timestamp,
    ) -> Option<RetentionBound> {
        let old = self.age_ms_max.is_some_and(|most| now.ms_since(died_at) > most);
        let evicts = self.overflow == Overflow::Evict;
        if old {
            Some(RetentionBound::Age)
        } else if evicts && self.jobs_max.is_some_and(|most| jobs > most) {
            Some(RetentionBound::Jobs)
        } else if evicts && self.bytes_max.is_some_and(|most| bytes > most) {
            Some(RetentionBound::Bytes)
        } else {
            None
        }
    }

    /// Whether the queue accepts no new jobs with so many dead ones.
    pub(crate) fn refuses(self, jobs: u64, bytes: u64) -> bool {
        self.overflow == Overflow::Refuse
            && (self.jobs_max.is_some_and(|most| jobs >= most)
                || self.bytes_max.is_some_and(|most| bytes >= most))
    }

    /// When a job that died at `died_at` has been dead for too long.
    pub(crate) fn ends(self, died_at: Timestamp) -> Option<Timestamp> {
        self.age_ms_max.map(|most| died_at.plus_ms(most).plus_ms(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_dropped_or_refused_by_default() {
        let (then, now) = (Timestamp::default(), Timestamp::MAX);
        assert!(!DeadRetention::new().is_set());
        assert_eq!(DeadRetention::new().evicts(u64::MAX, u64::MAX, then, now), None);
        assert!(!DeadRetention::new().overflow(Overflow::Refuse).refuses(u64::MAX, u64::MAX));
    }

    #[test]
    fn bounds_are_kept_to_the_job_the_byte_and_the_millisecond() {
        let at = Timestamp::from_millis;
        let evict = DeadRetention::new().jobs(3).bytes(100).age(Duration::from_millis(50));
        assert_eq!(evict.evicts(3, 100, at(0), at(50)), None);
        assert_eq!(evict.evicts(4, 100, at(0), at(50)), Some(RetentionBound::Jobs));
        assert_eq!(evict.evicts(3, 101, at(0), at(50)), Some(RetentionBound::Bytes));
        assert_eq!(evict.evicts(3, 100, at(0), at(51)), Some(RetentionBound::Age));
        assert_eq!(evict.ends(at(0)), Some(at(51)));
        assert!(!evict.refuses(9, 900));
        let refuse = evict.overflow(Overflow::Refuse);
        assert_eq!(refuse.evicts(9, 900, at(0), at(50)), None);
        assert_eq!(refuse.evicts(0, 0, at(0), at(51)), Some(RetentionBound::Age));
        assert!(!refuse.refuses(2, 99));
        assert!(refuse.refuses(3, 0) && refuse.refuses(0, 100));
    }
}
