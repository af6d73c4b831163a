//! Which dead jobs are meant: criteria that must all hold, judged from what the quarantine's index
//! says of a job, without its row.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::domain::failure::FailureClass;
use crate::domain::id::{JobId, PolicyId};
use crate::domain::job::{DeathReason, Job, State};
use crate::domain::limits::FILTER_IDS_MAX;
use crate::domain::outbox::queue_of;
use crate::domain::time::{Timestamp, whole_ms};

/// Chooses dead jobs. Every criterion that is set must hold; a new filter holds for all of them.
///
/// Where a filter decides what is changed (a redrive, a discard), one without criteria is refused
/// unless [`everything`](Self::everything) says that it is meant.
///
/// ```
/// use redrive::{FailureClass, Filter};
///
/// let filter = Filter::new().queue("charges").class(FailureClass::Permanent).code("E_SCHEMA");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Filter {
    queue: Option<String>,
    kind: Option<String>,
    class: Option<FailureClass>,
    code: Option<String>,
    cause: Option<u64>,
    /// Not before.
    died_from: Option<Timestamp>,
    /// Before.
    died_until: Option<Timestamp>,
    version: Option<String>,
    key_prefix: Option<String>,
    age_ms_min: Option<u64>,
    age_ms_max: Option<u64>,
    redrives_min: Option<u32>,
    redrives_max: Option<u32>,
    /// In ascending order, each once.
    ids: Option<Vec<JobId>>,
    everything: bool,
}

/// What the quarantine's index says of a dead job: all that filters and skips are decided from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeadFacts {
    pub(crate) class: FailureClass,
    pub(crate) reason: DeathReason,
    pub(crate) code: String,
    pub(crate) cause: u64,
    /// Of the handler that had it last.
    pub(crate) version: String,
    pub(crate) redrives: u32,
    pub(crate) policy: PolicyId,
    pub(crate) enqueued_at: Timestamp,
    /// The next number of the store when it died: what died after a cohort began lies after its number.
    pub(crate) seq: u64,
    pub(crate) key: Option<String>,
    /// Whether the key is still its own.
    pub(crate) holds_key: bool,
}

/// Where a dead job lies: what the key of its index row says, with names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeadPlace<'a> {
    pub(crate) id: JobId,
    pub(crate) queue: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) died_at: Timestamp,
}

impl DeadFacts {
    /// `None` for a job that is not dead.
    pub(crate) fn of(job: &Job, holds_key: bool) -> Option<Self> {
        let State::Dead(dead) = &job.state else {
            return None;
        };
        Some(Self {
            class: dead.class,
            reason: dead.reason,
            code: dead.code.clone(),
            cause: dead.cause,
            version: dead.version.clone(),
            redrives: job.redrives,
            policy: job.policy,
            enqueued_at: job.enqueued_at,
            seq: dead.seq,
            key: job.key.as_ref().map(|claim| claim.key.clone()),
            holds_key,
        })
    }
}

impl Filter {
    /// No criteria: every dead job.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Says that all dead jobs are meant, where a filter without criteria would be refused.
    #[must_use]
    pub fn everything(mut self) -> Self {
        self.everything = true;
        self
    }

    /// Of this queue.
    #[must_use]
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Messages of this destination.
    #[must_use]
    pub fn destination(self, destination: impl AsRef<str>) -> Self {
        self.queue(queue_of(destination.as_ref()))
    }

    /// Of this kind.
    #[must_use]
    pub fn kind(mut self, kind: impl Into<String>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Whose last failure was of this class.
    #[must_use]
    pub fn class(mut self, class: FailureClass) -> Self {
        self.class = Some(class);
        self
    }

    /// Whose last failure had exactly this code.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// With this cause fingerprint ([`DeadInfo::cause`](crate::DeadInfo::cause)).
    #[must_use]
    pub fn cause(mut self, cause: u64) -> Self {
        self.cause = Some(cause);
        self
    }

    /// That died at this time or later.
    #[must_use]
    pub fn since(mut self, at: impl Into<Timestamp>) -> Self {
        self.died_from = Some(at.into());
        self
    }

    /// That died before this time.
    #[must_use]
    pub fn before(mut self, at: impl Into<Timestamp>) -> Self {
        self.died_until = Some(at.into());
        self
    }

    /// Whose last handler had exactly this version.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into());
        self
    }

    /// Whose key begins with this.
    #[must_use]
    pub fn key_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.key_prefix = Some(prefix.into());
        self
    }

    /// That have been dead for this long or longer.
    #[must_use]
    pub fn dead_for(mut self, age: std::time::Duration) -> Self {
        self.age_ms_min = Some(whole_ms(age));
        self
    }

    /// That have been dead for this long or less.
    #[must_use]
    pub fn dead_within(mut self, age: std::time::Duration) -> Self {
        self.age_ms_max = Some(whole_ms(age));
        self
    }

    /// That have been redriven at least this often.
    #[must_use]
    pub fn redriven_at_least(mut self, times: u32) -> Self {
        self.redrives_min = Some(times);
        self
    }

    /// That have been redriven at most this often.
    #[must_use]
    pub fn redriven_at_most(mut self, times: u32) -> Self {
        self.redrives_max = Some(times);
        self
    }

    /// Only these jobs; up to 10,000.
    #[must_use]
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        // One more than allowed is enough to know.
        let mut ids: Vec<JobId> = ids.into_iter().take(FILTER_IDS_MAX + 1).collect();
        ids.sort_unstable();
        ids.dedup();
        self.ids = Some(ids);
        self
    }

    /// Whether it could hold for any job.
    pub(crate) fn check(&self) -> Result<(), BadFilter> {
        if let Some(ids) = &self.ids {
            if ids.is_empty() {
                return Err(BadFilter::NoIds);
            }
            if ids.len() > FILTER_IDS_MAX {
                return Err(BadFilter::TooManyIds { ids_max: FILTER_IDS_MAX });
            }
        }
        let never = |what| Err(BadFilter::Contradiction { what });
        if let (Some(from), Some(until)) = (self.died_from, self.died_until)
            && from >= until
        {
            return never("it must have died since a time that is not before the end");
        }
        if let (Some(least), Some(most)) = (self.age_ms_min, self.age_ms_max)
            && least > most
        {
            return never("it must have been dead for longer than it may");
        }
        if let (Some(least), Some(most)) = (self.redrives_min, self.redrives_max)
            && least > most
        {
            return never("it must have been redriven more often than it may");
        }
        Ok(())
    }

    /// As [`Self::check`], for what changes the jobs it holds for.
    pub(crate) fn check_to_change(&self) -> Result<(), BadFilter> {
        self.check()?;
        if !self.everything && *self == Self::default() {
            return Err(BadFilter::Empty);
        }
        Ok(())
    }

    /// Whether it holds for a dead job at `now`.
    pub(crate) fn matches(&self, place: DeadPlace<'_>, facts: &DeadFacts, now: Timestamp) -> bool {
        let age_ms = now.ms_since(place.died_at);
        let is = |wanted: &Option<String>, found: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == found)
        };
        is(&self.queue, place.queue)
            && is(&self.kind, place.kind)
            && is(&self.code, &facts.code)
            && is(&self.version, &facts.version)
            && self.class.is_none_or(|class| class == facts.class)
            && self.cause.is_none_or(|cause| cause == facts.cause)
            && self.died_from.is_none_or(|from| from <= place.died_at)
            && self.died_until.is_none_or(|until| place.died_at < until)
            && self.age_ms_min.is_none_or(|least| least <= age_ms)
            && self.age_ms_max.is_none_or(|most| age_ms <= most)
            && self.redrives_min.is_none_or(|least| least <= facts.redrives)
            && self.redrives_max.is_none_or(|most| facts.redrives <= most)
            && self.key_prefix.as_ref().is_none_or(|prefix| {
                facts.key.as_ref().is_some_and(|key| key.starts_with(prefix.as_str()))
            })
            && self.ids.as_ref().is_none_or(|ids| ids.binary_search(&place.id).is_ok())
    }

    pub(crate) fn queue_name(&self) -> Option<&str> {
        self.queue.as_deref()
    }

    pub(crate) fn kind_name(&self) -> Option<&str> {
        self.kind.as_deref()
    }

    /// The jobs it names, if it names any.
    pub(crate) fn named(&self) -> Option<&[JobId]> {
        self.ids.as_deref()
    }
}

/// Why a filter was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadFilter {
    /// It has no criteria, and nothing says that everything is meant.
    Empty,
    /// Two criteria exclude each other.
    Contradiction {
        /// What they ask for.
        what: &'static str,
    },
    /// It asks for jobs out of an empty list.
    NoIds,
    /// It names more jobs than allowed.
    TooManyIds {
        /// The limit.
        ids_max: usize,
    },
}

impl fmt::Display for BadFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str(
                "the filter has no criteria: give one, or say that everything is meant \
                     (`Filter::everything`, `--all`)",
            ),
            Self::Contradiction { what } => write!(f, "the filter holds for no job: {what}"),
            Self::NoIds => f.write_str("the filter names no job: give at least one id"),
            Self::TooManyIds { ids_max } => {
                write!(f, "the filter names more than {ids_max} jobs: use other criteria")
            }
        }
    }
}

impl std::error::Error for BadFilter {}
