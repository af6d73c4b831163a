//! What an operator asks of a redrive: which jobs, why, how fast, and when to stop.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::domain::abort::{Abort, Aborts};
use crate::domain::filter::{BadFilter, Filter};
use crate::domain::limits::{
    COHORT_BATCH_MAX, COHORT_INTERVAL_MS_MAX, REASON_BYTES_MAX, RESULTS_MAX, cut,
};
use crate::domain::time::whole_ms;

/// How a cohort of dead jobs is sent back. See `docs/quarantine.md` for what each brake does.
///
/// Defaults: a canary of 1 that must succeed before the rest; then batches of 10, one every 10 s, each
/// one only after all jobs of the one before it have ended; no limit; every [`Abort`] rule with its
/// own default. Jobs that were redriven as often as their policy allows (twice by default) and jobs
/// whose outcome is unknown are skipped.
///
/// ```
/// use std::time::Duration;
/// use redrive::{Abort, FailureClass, Filter, RedrivePlan};
///
/// let plan = RedrivePlan::new(Filter::new().class(FailureClass::Permanent).code("E_SCHEMA"))
///     .reason("parser fixed in 2.4.1")
///     .canary(5)
///     .batch(50)
///     .every(Duration::from_secs(10))
///     .abort_if(Abort::dead_share(0.2))
///     .abort_if(Abort::ready_age(Duration::from_secs(60)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RedrivePlan {
    pub(crate) filter: Filter,
    pub(crate) reason: String,
    /// So many must succeed before the rest; 0 is none.
    pub(crate) canary: u32,
    pub(crate) batch: u32,
    /// Batches double up to this size; 0 leaves them as they are.
    pub(crate) ramp_to: u32,
    pub(crate) every_ms: u64,
    /// The most jobs released without an outcome; 0 means that a batch waits for the one before it.
    pub(crate) in_flight_max: u32,
    pub(crate) limit: Option<u64>,
    pub(crate) age_ms_max: Option<u64>,
    /// What is known about unknown outcomes, by which they may be repeated.
    pub(crate) reconciled: Option<String>,
    pub(crate) aborts: Aborts,
    /// Rules that the plan names, as against defaults: checked, and not kept.
    #[serde(skip)]
    pub(crate) named: Aborts,
}

impl RedrivePlan {
    /// The jobs that `filter` holds for at the start, oldest first.
    #[must_use]
    pub fn new(filter: Filter) -> Self {
        Self {
            filter,
            reason: String::new(),
            canary: 1,
            batch: 10,
            ramp_to: 0,
            every_ms: 10_000,
            in_flight_max: 0,
            limit: None,
            age_ms_max: None,
            reconciled: None,
            aborts: Aborts::safe(),
            named: Aborts::default(),
        }
    }

    /// Why; required. Kept with the cohort and in the history of every job it releases. Cut to 256
    /// bytes.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = cut(reason.into(), REASON_BYTES_MAX);
        self
    }

    /// So many jobs are released first, and all of them must succeed before any other is released;
    /// one that dies again aborts the cohort. 0 to 1,000; 0 is no canary.
    #[must_use]
    pub fn canary(mut self, jobs: u32) -> Self {
        self.canary = jobs;
        self
    }

    /// How many jobs are released at a time, 1 to 1,000.
    #[must_use]
    pub fn batch(mut self, jobs: u32) -> Self {
        self.batch = jobs;
        self
    }

    /// The time from one batch to the next: 1 ms to 7 days.
    #[must_use]
    pub fn every(mut self, interval: Duration) -> Self {
        self.every_ms = whole_ms(interval);
        self
    }

    /// Each batch is twice as large as the one before, up to this size (at most 1,000).
    #[must_use]
    pub fn ramp_to(mut self, jobs: u32) -> Self {
        self.ramp_to = jobs;
        self
    }

    /// Lets batches overlap: the next one is released although jobs of earlier ones have not ended,
    /// as long as no more than this many are out. Without this, a batch waits for the one before it.
    #[must_use]
    pub fn in_flight_max(mut self, jobs: u32) -> Self {
        self.in_flight_max = jobs;
        self
    }

    /// At most this many jobs: the oldest ones of those that may be redriven.
    #[must_use]
    pub fn limit(mut self, jobs: u64) -> Self {
        self.limit = Some(jobs);
        self
    }

    /// Skips jobs that were accepted longer ago than this.
    #[must_use]
    pub fn age_max(mut self, age: Duration) -> Self {
        self.age_ms_max = Some(whole_ms(age));
        self
    }

    /// Says that the unknown outcomes among these jobs have been looked into, and how: jobs that died of
    /// an unknown outcome are then not skipped. Kept with the cohort. Cut to 256 bytes.
    #[must_use]
    pub fn reconciled(mut self, evidence: impl Into<String>) -> Self {
        self.reconciled = Some(cut(evidence.into(), REASON_BYTES_MAX));
        self
    }

    /// Adds a rule that stops the cohort, in place of the default one of its sort.
    #[must_use]
    pub fn abort_if(mut self, rule: Abort) -> Self {
        self.aborts.set(rule);
        self.named.set(rule);
        self
    }

    /// Drops the default rules, and those added so far. A canary that dies still aborts.
    #[must_use]
    pub fn without_abort_rules(mut self) -> Self {
        (self.aborts, self.named) = (Aborts::default(), Aborts::default());
        self
    }

    /// The plan as it can be carried out, or what is wrong with it.
    pub(crate) fn check(self) -> Result<Self, PlanError> {
        if self.reason.trim().is_empty() {
            return Err(PlanError::NoReason);
        }
        if self.reconciled.as_ref().is_some_and(|evidence| evidence.trim().is_empty()) {
            return Err(PlanError::NoEvidence);
        }
        self.filter.check_to_change().map_err(PlanError::Filter)?;
        let ramp = if self.ramp_to == 0 { self.batch } else { self.ramp_to };
        let limit = self.limit.unwrap_or(u64::MAX);
        let out = if self.in_flight_max == 0 { self.batch } else { self.in_flight_max };
        for (what, value, min, max) in [
            ("canary", u64::from(self.canary), 0, u64::from(COHORT_BATCH_MAX)),
            ("batch", u64::from(self.batch), 1, u64::from(COHORT_BATCH_MAX)),
            ("ramp_to", u64::from(ramp), u64::from(self.batch), u64::from(COHORT_BATCH_MAX)),
            ("interval in ms", self.every_ms, 1, COHORT_INTERVAL_MS_MAX),
            ("in_flight_max", u64::from(out), u64::from(self.batch), u64::from(u32::MAX)),
            ("limit", limit, u64::from(self.canary).max(1), u64::MAX),
        ] {
            if !(min..=max).contains(&value) {
                return Err(PlanError::OutOfRange { what, value, min, max });
            }
        }
        self.named.check(self.jobs_max())?;
        Ok(self)
    }

    /// The most jobs it can release, as far as the plan alone tells.
    fn jobs_max(&self) -> u64 {
        let named = self
            .filter
            .named()
            .map_or(u64::MAX, |ids| u64::try_from(ids.len()).unwrap_or(u64::MAX));
        named.min(self.limit.unwrap_or(u64::MAX))
    }

    /// The size of batch number `done`, counted from 0.
    pub(crate) fn batch_size(&self, done: u32) -> u32 {
        if self.ramp_to <= self.batch {
            return self.batch;
        }
        // Ten doublings of 1 are above any batch.
        (self.batch << done.min(10)).min(self.ramp_to)
    }
}

/// Why a plan was refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PlanError {
    /// It gives no reason.
    NoReason,
    /// It claims that unknown outcomes were reconciled, and does not say how.
    NoEvidence,
    /// Its filter cannot be used.
    Filter(BadFilter),
    /// A number is outside of what it may be.
    OutOfRange {
        /// Which one.
        what: &'static str,
        /// What it is.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// A rule that could never stop the cohort.
    NeverAborts {
        /// The rule.
        rule: &'static str,
        /// Why not.
        why: String,
    },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReason => f.write_str("the plan has no reason: say why these jobs go back"),
            Self::NoEvidence => f.write_str(
                "the plan says that unknown outcomes were reconciled, but not how: give the evidence",
            ),
            Self::Filter(bad) => bad.fmt(f),
            Self::OutOfRange { what, value, min, max } => {
                write!(f, "{what} is {value}: give {min} to {max}")
            }
            Self::NeverAborts { rule, why } => {
                write!(f, "the rule {rule} could never stop the cohort: {why}")
            }
        }
    }
}

impl std::error::Error for PlanError {}

// One bit per result is kept.
const _: () = assert!(RESULTS_MAX <= u128::BITS);

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> RedrivePlan {
        RedrivePlan::new(Filter::new().queue("q")).reason("fixed")
    }

    #[test]
    fn batches_double_up_to_their_bound() {
        let sizes =
            |plan: &RedrivePlan| -> Vec<u32> { (0..12).map(|n| plan.batch_size(n)).collect() };
        assert_eq!(sizes(&plan().batch(3)), vec![3; 12]);
        let ramp = sizes(&plan().batch(1).ramp_to(100));
        assert_eq!(ramp, [1, 2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100]);
        assert_eq!(plan().batch(1_000).ramp_to(1_000).batch_size(u32::MAX), 1_000);
    }

    #[test]
    fn bad_plans_are_refused_by_what_is_wrong_with_them() {
        let wrong = |plan: RedrivePlan| plan.check().unwrap_err();
        assert!(plan().check().is_ok());
        assert_eq!(wrong(plan().reason(" ")), PlanError::NoReason);
        assert_eq!(wrong(plan().reconciled("")), PlanError::NoEvidence);
        let all = RedrivePlan::new(Filter::new()).reason("fixed");
        assert_eq!(wrong(all), PlanError::Filter(BadFilter::Empty));
        assert!(RedrivePlan::new(Filter::new().everything()).reason("fixed").check().is_ok());
        for plan in [
            plan().canary(1_001),
            plan().batch(0),
            plan().batch(1_001),
            plan().batch(20).ramp_to(10),
            plan().every(Duration::ZERO),
            plan().every(Duration::MAX),
            plan().batch(20).in_flight_max(10),
            plan().canary(5).limit(4),
            plan().limit(0),
        ] {
            assert!(matches!(plan.clone().check(), Err(PlanError::OutOfRange { .. })), "{plan:?}");
        }
        let seconds = Duration::from_secs;
        for plan in [
            plan().abort_if(Abort::dead_share(f64::NAN)),
            plan().abort_if(Abort::dead_share(1.01)),
            plan().limit(9).canary(1).abort_if(Abort::dead_share(0.5)),
            plan().abort_if(Abort::same_cause(101)),
            plan().abort_if(Abort::growth(5, Duration::ZERO)),
            plan().abort_if(Abort::ready_age(Duration::MAX)),
            plan().abort_if(Abort::throttling(u64::MAX, seconds(60))),
        ] {
            assert!(matches!(plan.clone().check(), Err(PlanError::NeverAborts { .. })), "{plan:?}");
        }
    }
}
