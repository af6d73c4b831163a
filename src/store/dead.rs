//! The `dead` table: the quarantine, by queue, kind and time of death.

use crate::domain::id::{JobId, QueueId};
use crate::error::StorageError;
use crate::format::key;
use crate::store::rows::Rows;
use crate::store::tables::TableId;

/// Up to `count_max` dead jobs after the row `after`, of one queue or of all, with their rows' keys.
pub(crate) fn page(
    rows: &impl Rows,
    queue: Option<QueueId>,
    after: Option<&[u8]>,
    count_max: usize,
) -> Result<Vec<(Vec<u8>, JobId)>, StorageError> {
    let prefix = queue.map(key::dead_queue).unwrap_or_default();
    let from = match after {
        // The smallest key after it.
        Some(after) => [after, &[0]].concat(),
        None => prefix.clone(),
    };
    let to = key::after_prefix(&prefix);
    rows.range(TableId::Dead, &from, &to, count_max)?
        .into_iter()
        .map(|(row, _)| {
            let id = key::read_dead(&row)?;
            Ok((row, id))
        })
        .collect()
}
