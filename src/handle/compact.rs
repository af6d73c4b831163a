//! Closing with a smaller file.

use serde::Serialize;

use crate::error::{CompactError, StorageError};
use crate::handle::redrive::Redrive;

/// What a compaction did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Compacted {
    /// Length of the file before, in bytes.
    pub bytes_before: u64,
    /// Length of the file now, in bytes.
    pub bytes_after: u64,
}

impl Redrive {
    /// Closes the store for all handles, as [`close`](Self::close) does, and gives space that is not used
    /// back to the file system. A file never shrinks by itself: what finished jobs leave is used again
    /// for new ones, so this is for after a backlog or a quarantine that will not come back. It rewrites up
    /// to the whole file, in transactions of its own: a crash in the middle loses nothing.
    ///
    /// # Errors
    ///
    /// [`CompactError`] says why not: the database belongs to the app, it has a savepoint, or the store's own
    /// trouble, a poisoned store among it. The store is closed then, too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// let done = jobs.close_compacted()?;
    /// println!("{} bytes less", done.bytes_before.saturating_sub(done.bytes_after));
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn close_compacted(self) -> Result<Compacted, CompactError> {
        if self.writer().is_lent_here() {
            return Err(StorageError::nested().into());
        }
        self.writer().close();
        if let Some(cause) = self.poisoned() {
            // The cause is the news; a close that fails as well adds nothing.
            let _ = self.store().close();
            return Err(cause.into());
        }
        let bytes_before = self.store().file_bytes();
        self.store().compact()?;
        Ok(Compacted { bytes_before, bytes_after: self.store().file_bytes() })
    }
}
