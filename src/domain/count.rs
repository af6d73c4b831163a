//! Counting no further than is worth it.

use serde::Serialize;

/// A count that stops at a bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Count {
    /// How many.
    pub count: u64,
    /// There may be more.
    pub at_least: bool,
}

impl Count {
    /// What was found by counting no further than `count_max`.
    pub(crate) fn up_to(found: usize, count_max: usize) -> Self {
        let count = u64::try_from(found).unwrap_or(u64::MAX);
        Self { count, at_least: found >= count_max }
    }
}
