//! The `jobs` table and everything that follows from a job's row: which state table names it,
//! whether it holds its key, where its payload is. Indexes are a pure function of the row, used for
//! writing here and for checking in `verify`.

use crate::domain::blob::Blob;
use crate::domain::filter::DeadFacts;
use crate::domain::id::JobId;
use crate::domain::job::{Job, Payload, State};
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;
use crate::store::{amendment, history, import, key as key_store, mark, order, outbox};

/// A job and whether it owns its key, as of one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) job: &'a Job,
    pub(crate) holds_key: bool,
}

pub(crate) fn read(rows: &impl Rows, id: JobId) -> Result<Option<Job>, StorageError> {
    rows.get(TableId::Jobs, &key::job(id))
}

/// The payload's bytes; `None` when it was dropped.
pub(crate) fn payload(rows: &impl Rows, job: &Job) -> Result<Option<Vec<u8>>, StorageError> {
    match &job.payload {
        Payload::Inline(blob) => Ok(Some(blob.0.clone())),
        Payload::Stored { .. } => {
            let blob: Option<Blob> = rows.get(TableId::Payloads, &key::job(job.id))?;
            let missing =
                || StorageError::corrupt(format!("the payload of job {} is missing", job.id));
            blob.map(|blob| Some(blob.0)).ok_or_else(missing)
        }
        Payload::Dropped => Ok(None),
    }
}

pub(crate) fn put_payload(
    rows: &mut WriteRows<'_>,
    id: JobId,
    payload: &Blob,
) -> Result<(), StorageError> {
    rows.write(TableId::Payloads, &key::job(id), Some(&record::encode(payload)?))
}

/// The state table that names a job in this state; finished jobs are named by none.
pub(crate) const fn state_table(state: &State) -> Option<TableId> {
    match state {
        State::Ready(_) => Some(TableId::Ready),
        State::Delayed(_) => Some(TableId::Delayed),
        State::Leased(_) => Some(TableId::Leased),
        State::Dead(_) => Some(TableId::Dead),
        State::Blocked(_) => Some(TableId::Order),
        State::Done(_) | State::Cancelled(_) => None,
    }
}

/// The value of the state table's row: what its readers need without the job's row.
pub(crate) fn state_value(held: Held<'_>) -> Result<Option<Vec<u8>>, StorageError> {
    let job = held.job;
    Ok(match &job.state {
        State::Ready(ready) => Some(record::encode(&(job.id, ready.since))?),
        State::Delayed(delayed) => Some(record::encode(&(job.class, delayed.lane))?),
        State::Leased(lease) => {
            Some(record::encode(&(job.class, lease.from.lane, lease.instance))?)
        }
        State::Dead(_) => match DeadFacts::of(job, held.holds_key) {
            Some(facts) => Some(record::encode(&facts)?),
            None => None,
        },
        State::Blocked(_) => Some(order::value(job)?),
        State::Done(_) | State::Cancelled(_) => None,
    })
}

/// Writes the difference between two moments of one job; `None` is "not there".
pub(crate) fn replace(
    rows: &mut WriteRows<'_>,
    before: Option<Held<'_>>,
    after: Option<Held<'_>>,
) -> Result<(), StorageError> {
    let place = |held: Held<'_>| Some((state_table(&held.job.state)?, key::state(held.job)?));
    let (state_before, state_after) = (before.and_then(place), after.and_then(place));
    let same_place = state_before == state_after;
    if let Some((table, name)) = state_before
        && !same_place
    {
        rows.write(table, &name, None)?;
    }
    if let (Some(held), Some((table, name))) = (after, state_after)
        // A dead job's row says more than its place does.
        && (!same_place || table == TableId::Dead)
    {
        rows.write(table, &name, state_value(held)?.as_deref())?;
    }
    order::replace_holder(rows, before.map(|held| held.job), after.map(|held| held.job))?;
    outbox::replace(rows, before.map(|held| held.job), after.map(|held| held.job))?;
    replace_key(rows, before, after)?;
    let stored = |held: Held<'_>| matches!(held.job.payload, Payload::Stored { .. });
    if let Some(held) = before
        && stored(held)
        && !after.is_some_and(stored)
    {
        rows.write(TableId::Payloads, &key::job(held.job.id), None)?;
    }
    match (before, after) {
        (_, Some(held)) => {
            let value = record::encode(held.job)?;
            rows.write(TableId::Jobs, &key::job(held.job.id), Some(&value))
        }
        (Some(held), None) => {
            if let Some(marker) = held.job.imported {
                import::put(rows, marker, None)?;
            }
            if held.job.amended {
                amendment::put(rows, held.job.id, None)?;
            }
            history::clear(rows, held.job)?;
            if held.job.steps > 0 {
                mark::clear(rows, held.job.id)?;
            }
            rows.write(TableId::Jobs, &key::job(held.job.id), None)
        }
        (None, None) => Ok(()),
    }
}

/// The row of a key names the job that took it last, until that job's row goes; whether that still owns
/// it follows from the job.
fn replace_key(
    rows: &mut WriteRows<'_>,
    before: Option<Held<'_>>,
    after: Option<Held<'_>>,
) -> Result<(), StorageError> {
    let held_before = before.is_some_and(|held| held.holds_key);
    match (before, after) {
        (_, Some(Held { job, holds_key: true })) if !held_before => match &job.key {
            Some(claim) => key_store::put(rows, job.class.queue, &claim.key, job.id),
            None => Ok(()),
        },
        (Some(Held { job, .. }), None) => match &job.key {
            Some(claim) => key_store::release(rows, job.class.queue, &claim.key, job.id),
            None => Ok(()),
        },
        (_, Some(_)) | (None, None) => Ok(()),
    }
}

/// Writes a job of which nothing has changed that stands elsewhere too.
pub(crate) fn rewrite(rows: &mut WriteRows<'_>, job: &Job) -> Result<(), StorageError> {
    rows.write(TableId::Jobs, &key::job(job.id), Some(&record::encode(job)?))
}
