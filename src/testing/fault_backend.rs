//! A backend that answers a chosen call with an I/O error.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

/// How often a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Times {
    /// The one call fails, later ones go through.
    Once,
    /// The call and all later ones fail.
    Forever,
}

/// Wraps a backend; every call passes the switch first.
///
/// ```
/// use std::io::ErrorKind;
/// use redrive::testing::{CrashDisk, FaultBackend, Times};
/// use redrive::{NewJob, Options};
///
/// let (backend, switch) = FaultBackend::new(CrashDisk::new().backend());
/// let jobs = Options::new().open_backend(backend)?;
/// switch.fail(switch.calls(), Times::Once, ErrorKind::StorageFull);
/// assert!(jobs.enqueue(NewJob::new("mail", "welcome")).is_err());
/// assert!(jobs.poisoned().is_some_and(|cause| cause.is_io()));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FaultBackend<B> {
    inner: B,
    switch: FaultSwitch,
}

/// Says which call fails. Clones are the same switch.
#[derive(Clone, Debug, Default)]
pub struct FaultSwitch(Arc<Mutex<Plan>>);

#[derive(Debug, Default)]
struct Plan {
    calls: u64,
    fail: Option<(u64, Times, io::ErrorKind)>,
    struck: u64,
    len_max: Option<u64>,
}

impl FaultSwitch {
    /// Calls so far: reads, writes, syncs, reading and changing the length.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.lock().calls
    }

    /// Call number `call` (counted from 0) fails with `kind`.
    pub fn fail(&self, call: u64, times: Times, kind: io::ErrorKind) {
        self.0.lock().fail = Some((call, times, kind));
    }

    /// The disk has room for `len_max` bytes; growing past that fails with
    /// [`StorageFull`](io::ErrorKind::StorageFull). `None` takes the limit away.
    pub fn limit_len(&self, len_max: Option<u64>) {
        self.0.lock().len_max = len_max;
    }

    /// How many calls have failed for a fault or the limit.
    #[must_use]
    pub fn struck(&self) -> u64 {
        self.0.lock().struck
    }

    fn pass(&self, end: u64) -> io::Result<()> {
        let mut plan = self.0.lock();
        let call = plan.calls;
        plan.calls += 1;
        let kind = match plan.fail {
            Some((at, Times::Once, kind)) if call == at => Some(kind),
            Some((at, Times::Forever, kind)) if call >= at => Some(kind),
            _ if plan.len_max.is_some_and(|len_max| end > len_max) => {
                Some(io::ErrorKind::StorageFull)
            }
            _ => None,
        };
        match kind {
            None => Ok(()),
            Some(kind) => {
                plan.struck += 1;
                Err(io::Error::new(kind, "a fault that was asked for"))
            }
        }
    }
}

impl<B> FaultBackend<B> {
    /// Wraps `inner`; nothing fails until the switch says so.
    pub fn new(inner: B) -> (Self, FaultSwitch) {
        let switch = FaultSwitch::default();
        let wrapped = Self { inner, switch: switch.clone() };
        (wrapped, switch)
    }
}

impl<B: StorageBackend> StorageBackend for FaultBackend<B> {
    fn len(&self) -> io::Result<u64> {
        self.switch.pass(0)?;
        self.inner.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.switch.pass(0)?;
        self.inner.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.switch.pass(len)?;
        self.inner.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.switch.pass(0)?;
        self.inner.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let len = u64::try_from(data.len()).unwrap_or(u64::MAX);
        self.switch.pass(offset.saturating_add(len))?;
        self.inner.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::CrashDisk;

    #[test]
    fn faults_strike_once_or_for_ever() {
        let (backend, switch) = FaultBackend::new(CrashDisk::new().backend());
        switch.fail(1, Times::Once, io::ErrorKind::TimedOut);
        let kinds: Vec<_> = (0..3).map(|_| backend.set_len(8).err().map(|e| e.kind())).collect();
        assert_eq!(kinds, [None, Some(io::ErrorKind::TimedOut), None]);
        switch.fail(4, Times::Forever, io::ErrorKind::Other);
        let failed: Vec<bool> = (0..3).map(|_| backend.len().is_err()).collect();
        assert_eq!(failed, [false, true, true]);
        assert_eq!(switch.struck(), 3);
    }

    #[test]
    fn a_full_disk_takes_what_fits() {
        let (backend, switch) = FaultBackend::new(CrashDisk::new().backend());
        switch.limit_len(Some(16));
        assert!(backend.set_len(16).is_ok() && backend.write(12, b"fits").is_ok());
        let full = backend.write(13, b"does").unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }
}
