//! The `cohorts` table (two rows per cohort: the plan, which does not change, and where it stands) and
//! the `cohort_members` table.

use crate::domain::cohort::{Cohort, Member, MemberOutcome};
use crate::domain::id::{CohortId, JobId};
use crate::domain::plan::RedrivePlan;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

const PLAN: u8 = 0;
const STATE: u8 = 1;

/// One cohort.
pub(crate) fn read(rows: &impl Rows, id: CohortId) -> Result<Option<Cohort>, StorageError> {
    let Some(plan) = rows.get::<RedrivePlan>(TableId::Cohorts, &key::cohort(id, PLAN))? else {
        return Ok(None);
    };
    let state: Option<Cohort> = rows.get(TableId::Cohorts, &key::cohort(id, STATE))?;
    let missing = || StorageError::corrupt(format!("cohort {id} has a plan and no state"));
    state.map(|state| Some(Cohort { plan, ..state })).ok_or_else(missing)
}

/// The ids of up to `count_max` cohorts after `after`, oldest first.
pub(crate) fn ids(
    rows: &impl Rows,
    after: Option<CohortId>,
    count_max: usize,
) -> Result<Vec<CohortId>, StorageError> {
    let from = after.map(|id| key::cohort(id, u8::MAX)).unwrap_or_default();
    let found = rows.range(TableId::Cohorts, &from, &[u8::MAX; 10], count_max.saturating_mul(2))?;
    let mut ids = Vec::new();
    for (name, _) in found {
        let (id, part) = key::read_cohort(&name)?;
        if part == PLAN {
            ids.push(id);
        }
    }
    ids.truncate(count_max);
    Ok(ids)
}

/// Writes a new cohort.
pub(crate) fn insert(rows: &mut WriteRows<'_>, cohort: &Cohort) -> Result<(), StorageError> {
    let plan = record::encode(&cohort.plan)?;
    rows.write(TableId::Cohorts, &key::cohort(cohort.id, PLAN), Some(&plan))?;
    put(rows, cohort)
}

/// Writes where a cohort stands.
pub(crate) fn put(rows: &mut WriteRows<'_>, cohort: &Cohort) -> Result<(), StorageError> {
    let state = record::encode(cohort)?;
    rows.write(TableId::Cohorts, &key::cohort(cohort.id, STATE), Some(&state))
}

/// Removes a cohort whose members are gone already.
pub(crate) fn remove(rows: &mut WriteRows<'_>, id: CohortId) -> Result<(), StorageError> {
    rows.write(TableId::Cohorts, &key::cohort(id, PLAN), None)?;
    rows.write(TableId::Cohorts, &key::cohort(id, STATE), None)
}

pub(crate) fn member(
    rows: &impl Rows,
    cohort: CohortId,
    job: JobId,
) -> Result<Option<Member>, StorageError> {
    rows.get(TableId::CohortMembers, &key::member(cohort, job))
}

/// The cohort that is going to release `job`, if one is.
pub(crate) fn holding(rows: &impl Rows, job: JobId) -> Result<Option<CohortId>, StorageError> {
    for id in ids(rows, None, usize::MAX)? {
        let held =
            member(rows, id, job)?.is_some_and(|member| member.outcome == MemberOutcome::Held);
        if held && read(rows, id)?.is_some_and(|cohort| cohort.is_live()) {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

pub(crate) fn put_member(
    rows: &mut WriteRows<'_>,
    cohort: CohortId,
    job: JobId,
    member: Option<&Member>,
) -> Result<(), StorageError> {
    let value = member.map(record::encode).transpose()?;
    rows.write(TableId::CohortMembers, &key::member(cohort, job), value.as_deref())
}

/// Up to `count_max` members after `after`, in the order in which they were accepted; a row that
/// cannot be read in place of its content.
#[expect(clippy::type_complexity, reason = "a row, and perhaps its content")]
pub(crate) fn members(
    rows: &impl Rows,
    cohort: CohortId,
    after: Option<JobId>,
    count_max: usize,
) -> Result<Vec<(JobId, Result<Member, StorageError>)>, StorageError> {
    let prefix = key::members(cohort);
    let from = match after {
        Some(job) => [key::member(cohort, job).as_slice(), &[0]].concat(),
        None => prefix.clone(),
    };
    let found =
        rows.range(TableId::CohortMembers, &from, &key::after_prefix(&prefix), count_max)?;
    found
        .into_iter()
        .map(|(name, value)| {
            let (_, job) = key::read_member(&name)?;
            Ok((job, record::decode(&value).map_err(StorageError::from)))
        })
        .collect()
}
