//! The end of a thread that runs what others wrote, whichever way it comes.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::error::StorageError;

/// Held by such a thread as long as it runs. Dropped, it takes the thread off the count of those
/// that are active and tells those that wait for it; a thread that a panic ends leaves an error.
pub(crate) struct Ending<'s> {
    pub(crate) active: &'s AtomicU64,
    pub(crate) ended: &'s Signal,
    pub(crate) error: &'s Mutex<Option<StorageError>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let name = std::thread::current().name().unwrap_or("unnamed").to_owned();
            let told = || StorageError::internal(format!("a panic ended the thread {name}"));
            self.error.lock().get_or_insert_with(told);
        }
        self.active.fetch_sub(1, Ordering::AcqRel);
        self.ended.raise();
    }
}
