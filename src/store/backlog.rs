//! What waits and what lies: how long the oldest ready job has waited, when the delayed ones are due, what
//! has come into the quarantine. Short reads, however much there is.

use crate::domain::filter::DeadFacts;
use crate::domain::id::{Class, JobId};
use crate::domain::job::Lane;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::Rows;
use crate::store::tables::TableId;

/// The ready job of one lane of one class that has waited longest, and since when: the head of the line
/// of each priority is looked at.
pub(crate) fn oldest_ready(
    rows: &impl Rows,
    class: Class,
    lane: Lane,
) -> Result<Option<(Timestamp, JobId)>, StorageError> {
    let prefix = key::ready_lane(class, lane.number());
    let end = key::after_prefix(&prefix);
    let mut from = prefix.clone();
    let mut oldest: Option<(Timestamp, JobId)> = None;
    while let Some((name, value)) = rows.first(TableId::Ready, &from, &end)? {
        // A damaged row is met, and mended, by the claim that comes to it.
        if let Ok((job, since)) = record::decode::<(JobId, Timestamp)>(&value) {
            let found = (since, job);
            oldest = Some(oldest.map_or(found, |oldest| oldest.min(found)));
        }
        let Some(inverted) = name.get(prefix.len()) else { break };
        let Some(next) = inverted.checked_add(1) else { break };
        from.truncate(prefix.len());
        from.push(next);
    }
    Ok(oldest)
}

/// How many delayed jobs are due from `from` to before `to`; counts no further than `count_max`.
pub(crate) fn due(
    rows: &impl Rows,
    from: Timestamp,
    to: Timestamp,
    count_max: usize,
) -> Result<usize, StorageError> {
    let (from, to) = (key::timed(from, JobId::new(0)), key::timed(to, JobId::new(0)));
    rows.count_in(TableId::Delayed, &from, &to, count_max)
}

/// Up to `count_max` jobs of `class` that died from `from` to before `to` and are still dead, oldest
/// first.
pub(crate) fn arrivals(
    rows: &impl Rows,
    class: Class,
    from: Timestamp,
    to: Timestamp,
    count_max: usize,
) -> Result<Vec<(JobId, DeadFacts)>, StorageError> {
    let (from, to) = (key::dead(class, from, JobId::new(0)), key::dead(class, to, JobId::new(0)));
    let mut found = Vec::new();
    for (name, value) in rows.range(TableId::Dead, &from, &to, count_max)? {
        // A damaged row is told by whoever looks at the quarantine.
        if let Ok(facts) = record::decode(&value) {
            found.push((key::read_dead(&name)?.2, facts));
        }
    }
    Ok(found)
}
