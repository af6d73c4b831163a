//! The `dead` table: the quarantine, by queue, kind and time of death. Its rows say what filters need,
//! so that looking for dead jobs touches no job's row.

use crate::domain::cohort::SkipReason;
use crate::domain::filter::{DeadFacts, Filter};
use crate::domain::id::{Class, JobId};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::names::Names;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::{alone, job as job_store};

/// One row of the quarantine.
#[derive(Clone, Debug)]
pub(crate) struct DeadRow {
    pub(crate) id: JobId,
    pub(crate) class: Class,
    pub(crate) died_at: Timestamp,
    pub(crate) facts: Result<DeadFacts, StorageError>,
}

/// What of the quarantine is looked through.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    /// Rows whose keys begin so.
    Rows(Vec<u8>),
    /// These jobs, as far as they are dead.
    Named(Vec<JobId>),
    /// Nothing: a queue or a kind that does not exist.
    Nothing,
}

impl Scope {
    /// The least that holds all jobs that `filter` can hold for.
    pub(crate) fn of(filter: &Filter, names: &impl Names) -> Self {
        if let Some(ids) = filter.named() {
            return Self::Named(ids.to_vec());
        }
        let queue = match filter.queue_name() {
            Some(name) => match names.find_queue(name) {
                Some(queue) => queue,
                None => return Self::Nothing,
            },
            None => return Self::Rows(Vec::new()),
        };
        match filter.kind_name().map(|kind| names.find_kind(kind)) {
            None => Self::Rows(key::dead_queue(queue)),
            Some(Some(kind)) => Self::Rows(key::dead_class(Class { queue, kind })),
            Some(None) => Self::Nothing,
        }
    }
}

/// Up to `count_max` rows of `scope` after the row `after`. Fewer only where there are no more.
pub(crate) fn scan(
    rows: &impl Rows,
    scope: &Scope,
    after: Option<&[u8]>,
    count_max: usize,
) -> Result<Scan, StorageError> {
    match scope {
        Scope::Nothing => Ok(Scan::default()),
        Scope::Named(ids) => named(rows, ids, after, count_max),
        Scope::Rows(prefix) => {
            let from = match after {
                // The smallest key after it.
                Some(after) => [after, &[0]].concat(),
                None => prefix.clone(),
            };
            let found = rows.range(TableId::Dead, &from, &key::after_prefix(prefix), count_max)?;
            let more = found.len() == count_max;
            let end = found.last().map(|(name, _)| name.clone());
            let mut scan = Scan { end, more, ..Scan::default() };
            for (name, value) in found {
                let (class, died_at, id) = key::read_dead(&name)?;
                let facts = record::decode(&value)
                    .map_err(|damage| damage.in_row(TableId::Dead.name(), &name).into());
                scan.found.push(DeadRow { id, class, died_at, facts });
            }
            Ok(scan)
        }
    }
}

/// Rows that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) found: Vec<DeadRow>,
    /// Named jobs that are not there to be looked at, and why.
    pub(crate) missing: Vec<(JobId, SkipReason)>,
    /// Where to go on.
    pub(crate) end: Option<Vec<u8>>,
    pub(crate) more: bool,
}

fn named(
    rows: &impl Rows,
    ids: &[JobId],
    after: Option<&[u8]>,
    count_max: usize,
) -> Result<Scan, StorageError> {
    let after = after.map(key::read_job).transpose()?;
    let mut left = ids.iter().filter(|&&id| after.is_none_or(|after| id > after));
    let mut scan = Scan::default();
    for &id in left.by_ref().take(count_max) {
        let name = key::job(id);
        match alone(job_store::read(rows, id))? {
            Ok(Some(job)) if job_store::state_table(&job.state) == Some(TableId::Dead) => {
                let row = key::state(&job).unwrap_or_default();
                let (class, died_at, _) = key::read_dead(&row)?;
                let missing = || StorageError::corrupt(format!("dead job {id} is not listed"));
                let facts = alone(rows.get(TableId::Dead, &row))?;
                let facts = facts.and_then(|facts| facts.ok_or_else(missing));
                scan.found.push(DeadRow { id, class, died_at, facts });
            }
            Ok(Some(job)) if job.cohort.is_some() => {
                scan.missing.push((id, SkipReason::InCohort));
            }
            Ok(_) => scan.missing.push((id, SkipReason::Gone)),
            Err(_) => scan.missing.push((id, SkipReason::Damaged)),
        }
        scan.end = Some(name);
    }
    scan.more = left.next().is_some();
    Ok(scan)
}
