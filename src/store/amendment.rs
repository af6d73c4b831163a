//! The `amendments` table: the original payload of a job whose payload was replaced, for as long as the
//! job has a row.

use serde::{Deserialize, Serialize};

use crate::domain::blob::Blob;
use crate::domain::id::JobId;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// A payload as it was enqueued.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Original {
    /// When it was first replaced.
    pub(crate) at: Timestamp,
    /// None where it could not be read any more.
    pub(crate) payload: Option<Blob>,
}

pub(crate) fn read(rows: &impl Rows, job: JobId) -> Result<Option<Original>, StorageError> {
    rows.get(TableId::Amendments, &key::job(job))
}

pub(crate) fn put(
    rows: &mut WriteRows<'_>,
    job: JobId,
    original: Option<&Original>,
) -> Result<(), StorageError> {
    let value = original.map(record::encode).transpose()?;
    rows.write(TableId::Amendments, &key::job(job), value.as_deref())
}
