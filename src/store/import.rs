//! The `imports` table: what an exported job is known by -> the job that was made of it, for as long as
//! that has a row. So an import may be repeated.

use crate::domain::id::JobId;
use crate::error::StorageError;
use crate::format::record;
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

pub(crate) fn read(rows: &impl Rows, marker: [u8; 16]) -> Result<Option<JobId>, StorageError> {
    rows.get(TableId::Imports, &marker)
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    marker: [u8; 16],
    job: Option<JobId>,
) -> Result<(), StorageError> {
    let value = job.map(|job| record::encode(&job)).transpose()?;
    rows.write(TableId::Imports, &marker, value.as_deref())
}
