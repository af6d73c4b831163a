//! The store's own row: what is true of the file as a whole.

use serde::{Deserialize, Serialize};

use crate::domain::id::Instance;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::record;
use crate::store::rows::{Rows, WriteRows};
use crate::store::tables::TableId;

/// The newest format this build writes and the only one it reads.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// `meta` row that says what this file is. Raw bytes, readable by every version there will be:
/// `"redrive\0"`, then the format version as a little-endian u32.
const FORMAT_KEY: &[u8] = b"format";
/// The row that changes with every commit stands with the counters, which do so too: one page less
/// to write.
const STATE_KEY: &[u8] = b"";
const MAGIC: &[u8; 8] = b"redrive\0";

/// The row that changes with every commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// Counts the openings of this file.
    pub(crate) instance: Instance,
    /// The next number for a job id or a place in a line.
    pub(crate) next: u64,
    /// The latest time committed: where the timeline goes on.
    pub(crate) latest: Timestamp,
    /// What the wall clock said then: the timeline goes on by what has passed on it since.
    pub(crate) wall: Timestamp,
    /// Mixed into the jitter, so that two files do not keep step.
    pub(crate) seed: u64,
}

impl Meta {
    /// That of a store which has never been opened.
    pub(crate) fn fresh() -> Self {
        Self {
            instance: Instance::new(0),
            next: 1,
            latest: Timestamp::default(),
            wall: Timestamp::default(),
            seed: 0,
        }
    }
}

/// What the `format` row says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// There is none.
    Missing,
    /// A version; perhaps not ours.
    Version(u32),
    /// The row is there and makes no sense.
    Damaged,
}

pub(crate) fn read_format(rows: &impl Rows) -> Result<Format, StorageError> {
    let found = rows.with(TableId::Meta, FORMAT_KEY, |bytes| {
        let version = bytes.strip_prefix(MAGIC).and_then(|rest| rest.try_into().ok());
        Ok(version.map_or(Format::Damaged, |bytes| Format::Version(u32::from_le_bytes(bytes))))
    })?;
    Ok(found.unwrap_or(Format::Missing))
}

pub(crate) fn write_format(rows: &mut WriteRows<'_>) -> Result<(), StorageError> {
    let mut value = MAGIC.to_vec();
    value.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
    rows.write(TableId::Meta, FORMAT_KEY, Some(&value))
}

pub(crate) fn read(rows: &impl Rows) -> Result<Option<Meta>, StorageError> {
    rows.get(TableId::Counters, STATE_KEY)
}

pub(crate) fn write(rows: &mut WriteRows<'_>, meta: &Meta) -> Result<(), StorageError> {
    rows.write(TableId::Counters, STATE_KEY, Some(&record::encode(meta)?))
}
