//! The `pauses` table: what is paused or held, by whom and why.

use crate::domain::id::Class;
use crate::domain::pause::{Stop, Stopped};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// Every pause and hold. The key alone says what is stopped: a pause whose value is damaged goes on
/// stopping, a hold whose end cannot be read has ended.
pub(crate) fn all(rows: &impl Rows) -> Result<Vec<(Stopped, Stop)>, StorageError> {
    let found = rows.range(TableId::Pauses, &[], &[u8::MAX; 16], usize::MAX)?;
    let one = |(name, value): &(Vec<u8>, Vec<u8>)| {
        let stopped = key::read_pause(name)?;
        Ok((stopped, record::decode(value).unwrap_or_else(|_| damaged(stopped))))
    };
    found.iter().map(one).collect()
}

fn damaged(stopped: Stopped) -> Stop {
    Stop {
        reason: "the row that said why is damaged".to_owned(),
        by: String::new(),
        since: Timestamp::default(),
        until: stopped.is_hold().then(Timestamp::default),
    }
}

/// What stops the redrive of `class`, if anything does.
pub(crate) fn of_redrive(
    rows: &impl Rows,
    class: Class,
) -> Result<Option<(Stopped, Stop)>, StorageError> {
    for stopped in Stopped::of_redrive(class) {
        let found = rows.with(TableId::Pauses, &key::pause(stopped), |value| {
            Ok(record::decode(value).unwrap_or_else(|_| damaged(stopped)))
        })?;
        if let Some(stop) = found {
            return Ok(Some((stopped, stop)));
        }
    }
    Ok(None)
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    stopped: Stopped,
    stop: &Stop,
) -> Result<(), StorageError> {
    rows.write(TableId::Pauses, &key::pause(stopped), Some(&record::encode(stop)?))
}

pub(crate) fn remove(rows: &mut WriteRows<'_>, stopped: Stopped) -> Result<(), StorageError> {
    rows.write(TableId::Pauses, &key::pause(stopped), None)
}
