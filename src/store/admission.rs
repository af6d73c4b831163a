//! Looking before writing: a backend that holds every write back until the file has been admitted.
//!
//! Opening a database writes to it (a recovery flag, a repair). A file that turns out to be
//! foreign, newer or damaged must be left as it was, so until [`Admission::admit`] the writes stay
//! in memory.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;
use redb::{BackendError, StorageBackend};

/// The backend handed to redb.
#[derive(Debug)]
pub(crate) struct AdmissionBackend(Arc<Gate>);

/// Lets the held writes through, once the file is known to be ours.
#[derive(Debug)]
pub(crate) struct Admission(Arc<Gate>);

#[derive(Debug)]
struct Gate {
    file: Box<dyn StorageBackend>,
    held: RwLock<Held>,
}

#[derive(Debug)]
enum Held {
    /// What redb has done so far, in order.
    Back(Vec<Change>),
    /// Nothing any more.
    Through,
}

/// One change that is held back. Syncs are kept in their places: a repair relies on what it has synced
/// before it goes on.
#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    SetLen(u64),
    Sync,
}

impl AdmissionBackend {
    pub(crate) fn new(file: Box<dyn StorageBackend>) -> (Self, Admission) {
        let gate = Arc::new(Gate { file, held: RwLock::new(Held::Back(Vec::new())) });
        (Self(Arc::clone(&gate)), Admission(gate))
    }

    fn file(&self) -> &dyn StorageBackend {
        &*self.0.file
    }

    /// Holds `change` back; returns whether it did.
    fn hold(&self, change: impl FnOnce() -> Change) -> bool {
        if matches!(*self.0.held.read(), Held::Through) {
            return false;
        }
        match &mut *self.0.held.write() {
            Held::Back(changes) => {
                changes.push(change());
                true
            }
            Held::Through => false,
        }
    }
}

impl Admission {
    /// The file is ours: what was held back is written now, in its order, and nothing is held back
    /// any more.
    ///
    /// # Errors
    ///
    /// The first that the file gives. It is then as after a crash in the middle, and whatever redb
    /// writes after that goes on being held back, so that it stays so.
    pub(crate) fn admit(self) -> io::Result<()> {
        let Gate { file, held } = &*self.0;
        let mut held = held.write();
        if let Held::Back(changes) = &mut *held {
            for change in std::mem::take(changes) {
                match change {
                    Change::Write(offset, data) => file.write(offset, &data)?,
                    Change::SetLen(len) => file.set_len(len)?,
                    Change::Sync => file.sync_data()?,
                }
            }
        }
        *held = Held::Through;
        Ok(())
    }
}

impl StorageBackend for AdmissionBackend {
    fn len(&self) -> io::Result<u64> {
        let held_len = match &*self.0.held.read() {
            Held::Back(changes) => changes.iter().rev().find_map(|change| match change {
                Change::SetLen(len) => Some(*len),
                Change::Write(..) | Change::Sync => None,
            }),
            Held::Through => None,
        };
        held_len.map_or_else(|| self.file().len(), Ok)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let held = self.0.held.read();
        let Held::Back(changes) = &*held else {
            return self.file().read(offset, out);
        };
        // Past the file's real end there can only be what was written since.
        let available = self.file().len()?.saturating_sub(offset);
        let available = usize::try_from(available).unwrap_or(usize::MAX).min(out.len());
        out.fill(0);
        if let Some(part) = out.get_mut(..available) {
            self.file().read(offset, part)?;
        }
        for change in changes {
            if let Change::Write(start, data) = change {
                overlay(offset, out, *start, data);
            }
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if self.hold(|| Change::SetLen(len)) { Ok(()) } else { self.file().set_len(len) }
    }

    fn sync_data(&self) -> io::Result<()> {
        if self.hold(|| Change::Sync) { Ok(()) } else { self.file().sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let held = self.hold(|| Change::Write(offset, data.to_vec()));
        if held { Ok(()) } else { self.file().write(offset, data) }
    }

    fn close(&self) -> io::Result<()> {
        self.file().close()
    }

    fn try_lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file().try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file().try_lock_shared_range(start, end)
    }

    fn lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        self.file().lock_range(start, end)
    }

    fn lock_shared_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        self.file().lock_shared_range(start, end)
    }

    fn unlock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        self.file().unlock_range(start, end)
    }

    fn query_lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file().query_lock_range(start, end)
    }
}

/// Copies the part of `data` (at `start`) that falls into `out` (at `offset`).
fn overlay(offset: u64, out: &mut [u8], start: u64, data: &[u8]) {
    let (into, from) = if start >= offset { (start - offset, 0) } else { (0, offset - start) };
    let (Ok(into), Ok(from)) = (usize::try_from(into), usize::try_from(from)) else {
        return;
    };
    if let (Some(target), Some(source)) = (out.get_mut(into..), data.get(from..)) {
        let count = target.len().min(source.len());
        for (to, &byte) in target.iter_mut().zip(source.iter().take(count)) {
            *to = byte;
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// Bytes, and what was done to them.
    #[derive(Clone, Debug, Default)]
    struct Recorded(Arc<Mutex<(Vec<u8>, Vec<String>)>>);

    impl StorageBackend for Recorded {
        fn len(&self) -> io::Result<u64> {
            Ok(self.0.lock().0.len() as u64)
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
            let offset = usize::try_from(offset).unwrap();
            out.copy_from_slice(&self.0.lock().0[offset..offset + out.len()]);
            Ok(())
        }
        fn set_len(&self, len: u64) -> io::Result<()> {
            let mut inner = self.0.lock();
            inner.0.resize(usize::try_from(len).unwrap(), 0);
            inner.1.push(format!("set_len {len}"));
            Ok(())
        }
        fn sync_data(&self) -> io::Result<()> {
            self.0.lock().1.push("sync".into());
            Ok(())
        }
        fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let mut inner = self.0.lock();
            let start = usize::try_from(offset).unwrap();
            inner.0[start..start + data.len()].copy_from_slice(data);
            inner.1.push(format!("write {offset}"));
            Ok(())
        }
    }

    /// Nothing reaches the file before admission; then everything does, in order, syncs included (a
    /// repair that has synced its pages before its header must have done so on the disk, too).
    #[test]
    fn what_is_held_back_is_done_in_order_once_admitted() {
        let file = Recorded::default();
        file.0.lock().0 = b"original".to_vec();
        let (backend, admission) = AdmissionBackend::new(Box::new(file.clone()));
        let read = |offset, len| {
            let mut out = vec![0xaa; len];
            StorageBackend::read(&backend, offset, &mut out).unwrap();
            out
        };
        backend.set_len(12).unwrap();
        backend.write(6, b"XYZ").unwrap();
        backend.sync_data().unwrap();
        backend.write(0, b"O").unwrap();
        backend.sync_data().unwrap();
        assert_eq!(read(0, 12), b"OriginXYZ\0\0\0");
        assert_eq!(read(7, 3), b"YZ\0");
        let (bytes, done) = file.0.lock().clone();
        assert_eq!((bytes.as_slice(), done.len()), (b"original".as_slice(), 0));

        admission.admit().unwrap();
        assert_eq!(read(0, 12), b"OriginXYZ\0\0\0");
        assert_eq!(file.0.lock().1, ["set_len 12", "write 6", "sync", "write 0", "sync"]);
    }
}
