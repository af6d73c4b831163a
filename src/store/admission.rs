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
pub(crate) struct AdmissionBackend {
    file: Box<dyn StorageBackend>,
    held: Arc<RwLock<Held>>,
}

/// Lets the held writes through, once the file is known to be ours.
#[derive(Debug)]
pub(crate) struct Admission(Arc<RwLock<Held>>);

#[derive(Debug)]
enum Held {
    /// What redb has written so far, in order, and the length it believes the file has.
    Back { writes: Vec<(u64, Vec<u8>)>, len: Option<u64> },
    /// To be written before the next access.
    Release { writes: Vec<(u64, Vec<u8>)>, len: Option<u64> },
    /// Nothing any more.
    Through,
}

impl AdmissionBackend {
    pub(crate) fn new(file: Box<dyn StorageBackend>) -> (Self, Admission) {
        let held = Arc::new(RwLock::new(Held::Back { writes: Vec::new(), len: None }));
        (Self { file, held: Arc::clone(&held) }, Admission(held))
    }

    /// Writes what is to be released.
    fn settle(&self) -> io::Result<()> {
        if !matches!(*self.held.read(), Held::Release { .. }) {
            return Ok(());
        }
        let mut held = self.held.write();
        if let Held::Release { writes, len } = &*held {
            if let Some(len) = len {
                self.file.set_len(*len)?;
            }
            for (offset, data) in writes {
                self.file.write(*offset, data)?;
            }
            *held = Held::Through;
        }
        Ok(())
    }
}

impl Admission {
    /// The file is ours: what was held back is written at the next access, before it.
    pub(crate) fn admit(self) {
        let mut held = self.0.write();
        if let Held::Back { writes, len } = &mut *held {
            *held = Held::Release { writes: std::mem::take(writes), len: *len };
        }
    }
}

impl StorageBackend for AdmissionBackend {
    fn len(&self) -> io::Result<u64> {
        self.settle()?;
        match &*self.held.read() {
            Held::Back { len: Some(len), .. } => Ok(*len),
            Held::Back { .. } | Held::Release { .. } | Held::Through => self.file.len(),
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.settle()?;
        let held = self.held.read();
        let Held::Back { writes, .. } = &*held else {
            return self.file.read(offset, out);
        };
        // Past the file's real end there can only be what was written since.
        let available = self.file.len()?.saturating_sub(offset);
        let available = usize::try_from(available).unwrap_or(usize::MAX).min(out.len());
        out.fill(0);
        if let Some(part) = out.get_mut(..available) {
            self.file.read(offset, part)?;
        }
        for (start, data) in writes {
            overlay(offset, out, *start, data);
        }
        Ok(())
    }

    fn set_len(&self, new_len: u64) -> io::Result<()> {
        self.settle()?;
        if let Held::Back { len, .. } = &mut *self.held.write() {
            *len = Some(new_len);
            return Ok(());
        }
        self.file.set_len(new_len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.settle()?;
        if matches!(*self.held.read(), Held::Back { .. }) {
            return Ok(());
        }
        self.file.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.settle()?;
        if matches!(*self.held.read(), Held::Through) {
            return self.file.write(offset, data);
        }
        if let Held::Back { writes, .. } = &mut *self.held.write() {
            writes.push((offset, data.to_vec()));
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.settle()?;
        self.file.close()
    }

    fn try_lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.try_lock_shared_range(start, end)
    }

    fn lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        self.file.lock_range(start, end)
    }

    fn lock_shared_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        self.file.lock_shared_range(start, end)
    }

    fn unlock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<(), BackendError> {
        self.file.unlock_range(start, end)
    }

    fn query_lock_range(
        &self,
        start: std::ops::Bound<u64>,
        end: std::ops::Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.file.query_lock_range(start, end)
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
    use redb::backends::InMemoryBackend;

    use super::*;

    #[test]
    fn nothing_reaches_the_file_before_admission_and_everything_after() {
        let file = Arc::new(InMemoryBackend::new());
        file.set_len(8).unwrap();
        file.write(0, b"original").unwrap();

        #[derive(Debug)]
        struct Shared(Arc<InMemoryBackend>);
        impl StorageBackend for Shared {
            fn len(&self) -> io::Result<u64> {
                self.0.len()
            }
            fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
                StorageBackend::read(&*self.0, offset, out)
            }
            fn set_len(&self, len: u64) -> io::Result<()> {
                self.0.set_len(len)
            }
            fn sync_data(&self) -> io::Result<()> {
                self.0.sync_data()
            }
            fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
                StorageBackend::write(&*self.0, offset, data)
            }
        }

        let (backend, admission) = AdmissionBackend::new(Box::new(Shared(Arc::clone(&file))));
        let read = |offset, len| {
            let mut out = vec![0xaa; len];
            StorageBackend::read(&backend, offset, &mut out).unwrap();
            out
        };
        backend.set_len(12).unwrap();
        StorageBackend::write(&backend, 6, b"XYZ").unwrap();
        StorageBackend::write(&backend, 0, b"O").unwrap();
        assert_eq!(read(0, 12), b"OriginXYZ\0\0\0");
        assert_eq!(read(7, 3), b"YZ\0");
        let mut untouched = [0; 8];
        StorageBackend::read(&*file, 0, &mut untouched).unwrap();
        assert_eq!((&untouched, file.len().unwrap()), (b"original", 8));

        admission.admit();
        assert_eq!(read(0, 12), b"OriginXYZ\0\0\0");
        assert_eq!(file.len().unwrap(), 12);
    }
}
