//! Which dead jobs a plan would take: the same for the writer, which writes the list, and for a
//! preview, which only reads.

use crate::domain::cohort::{KeyOwner, MemberOutcome, SkipReason, judge};
use crate::domain::filter::{DeadFacts, DeadPlace};
use crate::domain::id::{Class, CohortId, JobId};
use crate::domain::job::State;
use crate::domain::key::{KeyClaim, holds_key};
use crate::domain::plan::RedrivePlan;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::store::dead::{DeadRow, Scope, scan};
use crate::store::names::Names;
use crate::store::rows::Rows;
use crate::store::{alone, cohort, job as job_store, key as key_store};

/// A plan as it is carried out from one moment on.
pub(crate) struct Selector<'a, N> {
    pub(crate) plan: &'a RedrivePlan,
    pub(crate) names: &'a N,
    /// The cohort: what died after it began has a number above its own. None in a preview.
    pub(crate) cohort: Option<CohortId>,
    pub(crate) started_at: Timestamp,
    /// Other cohorts that may have a job.
    pub(crate) others: &'a [CohortId],
    pub(crate) now: Timestamp,
}

/// A job the plan's filter holds for, and what the plan does with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selected {
    pub(crate) job: JobId,
    pub(crate) outcome: MemberOutcome,
    pub(crate) cause: u64,
}

/// One slice of the quarantine.
#[derive(Debug, Default)]
pub(crate) struct Slice {
    pub(crate) selected: Vec<Selected>,
    /// How many rows were looked at.
    pub(crate) looked: usize,
    /// Where to go on, if there is more.
    pub(crate) next: Option<Vec<u8>>,
}

impl<N: Names> Selector<'_, N> {
    /// Judges up to `count_max` rows after `after`.
    pub(crate) fn slice(
        &self,
        rows: &impl Rows,
        scope: &Scope,
        after: Option<&[u8]>,
        count_max: usize,
    ) -> Result<Slice, StorageError> {
        let scan = scan(rows, scope, after, count_max)?;
        let looked = scan.found.len() + scan.missing.len();
        let mut slice = Slice { looked, ..Slice::default() };
        for (job, reason) in scan.missing {
            let outcome = MemberOutcome::Skipped(reason);
            slice.selected.push(Selected { job, outcome, cause: 0 });
        }
        for row in &scan.found {
            slice.selected.extend(self.one(rows, row)?);
        }
        slice.next = scan.end.filter(|_| scan.more);
        Ok(slice)
    }

    fn one(&self, rows: &impl Rows, row: &DeadRow) -> Result<Option<Selected>, StorageError> {
        let place = DeadPlace {
            id: row.id,
            queue: self.names.queue_name(row.class.queue),
            kind: self.names.kind_name(row.class.kind),
            died_at: row.died_at,
        };
        let selected = |outcome, cause| Ok(Some(Selected { job: row.id, outcome, cause }));
        let Ok(facts) = &row.facts else {
            return selected(MemberOutcome::Skipped(SkipReason::Damaged), 0);
        };
        let later = self.cohort.is_some_and(|cohort| facts.seq > cohort.get());
        if later || !self.plan.filter.matches(place, facts, self.started_at) {
            return Ok(None);
        }
        for &other in self.others {
            if let Ok(Some(member)) = alone(cohort::member(rows, other, row.id))?
                && member.outcome == MemberOutcome::Held
            {
                return selected(MemberOutcome::Skipped(SkipReason::InCohort), facts.cause);
            }
        }
        let redrives_max = self.names.policy(facts.policy).map_or(0, |policy| policy.redrives_max);
        let key = key_owner(rows, self.names, (row.id, row.class), facts, self.now)?;
        selected(judge(self.plan, facts, redrives_max, key, self.started_at), facts.cause)
    }
}

/// To whom the key of a dead job belongs at `now`.
pub(crate) fn key_owner(
    rows: &impl Rows,
    names: &impl Names,
    (id, class): (JobId, Class),
    facts: &DeadFacts,
    now: Timestamp,
) -> Result<KeyOwner, StorageError> {
    let Some(key) = facts.key.as_ref().filter(|_| !facts.holds_key) else {
        return Ok(KeyOwner::Itself);
    };
    let owner = match alone(key_store::owner(rows, class.queue, key))? {
        Ok(Some(owner)) if owner != id => owner,
        Ok(_) => return Ok(KeyOwner::Itself),
        // Nobody can tell whose it is: it is not taken from whoever has it.
        Err(_) => return Ok(KeyOwner::Another),
    };
    let owner = match alone(job_store::read(rows, owner))? {
        Ok(Some(owner)) => owner,
        Ok(None) => return Ok(KeyOwner::Itself),
        Err(_) => return Ok(KeyOwner::Another),
    };
    if !names.policy(owner.policy).is_some_and(|policy| holds_key(&owner, policy, now)) {
        return Ok(KeyOwner::Itself);
    }
    let own = alone(job_store::read(rows, id))?.ok().flatten();
    let same = own.is_some_and(|own| {
        let hash = |key: &Option<KeyClaim>| key.as_ref().map(|claim| claim.hash);
        hash(&own.key) == hash(&owner.key)
    });
    Ok(match owner.state {
        State::Done(_) if same => KeyOwner::DoneTheSame,
        State::Done(_)
        | State::Ready(_)
        | State::Delayed(_)
        | State::Leased(_)
        | State::Dead(_)
        | State::Cancelled(_)
        | State::Blocked(_) => KeyOwner::Another,
    })
}
