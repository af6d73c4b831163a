//! A disk in memory that loses power: it knows which writes were synced, and what could be left of
//! the others.

use std::fmt;
use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use crate::domain::schedule::mix;

/// What a disk writes whole or not at all, in bytes.
const SECTOR: u64 = 512;

/// A disk in memory that can lose power. Clones are the same disk.
///
/// ```
/// use redrive::testing::{CrashDisk, Survival};
/// use redrive::{NewJob, Options};
///
/// let disk = CrashDisk::new();
/// let jobs = Options::new().open_backend(disk.backend())?;
/// let id = jobs.enqueue(NewJob::new("mail", "welcome"))?.job();
/// disk.cut_now();
/// assert!(jobs.enqueue(NewJob::new("mail", "late")).is_err());
///
/// let after = CrashDisk::from_image(disk.image(Survival::Nothing));
/// let jobs = Options::new().open_backend(after.backend())?;
/// assert!(jobs.job(id)?.is_some());
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct CrashDisk(Arc<Mutex<State>>);

/// Which of the writes that were not synced a power cut leaves on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Survival {
    /// None of them.
    Nothing,
    /// Some of them, each whole; the seed chooses.
    Some(u64),
    /// Some 512-byte sectors of some of them; the seed chooses.
    Torn(u64),
    /// All of them: what the death of the process alone leaves.
    Everything,
}

#[derive(Default)]
struct State {
    /// What was on the disk before the first change of the log.
    base: Vec<u8>,
    /// What the process sees.
    live: Vec<u8>,
    log: Vec<Change>,
    /// Synced changes stay in the log.
    recording: bool,
    operations: u64,
    cut_at: Option<u64>,
}

#[derive(Clone)]
enum Change {
    Write { offset: u64, data: Vec<u8> },
    SetLen(u64),
    Sync,
}

impl fmt::Debug for CrashDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("CrashDisk")
            .field("len", &state.live.len())
            .field("operations", &state.operations)
            .finish_non_exhaustive()
    }
}

impl CrashDisk {
    /// An empty disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A disk that holds `image`, all of it synced.
    #[must_use]
    pub fn from_image(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new(State { live: image.clone(), base: image, ..State::default() })))
    }

    /// Keeps every change from now on, so that [`image_at`](Self::image_at) can look back.
    #[must_use]
    pub fn recording(self) -> Self {
        self.0.lock().recording = true;
        self
    }

    /// What to open a store in. May be asked for again after the store was closed.
    #[must_use]
    pub fn backend(&self) -> CrashBackend {
        CrashBackend(self.clone())
    }

    /// Changes so far: writes, changes of the length, syncs.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.0.lock().operations
    }

    /// Cuts the power in the middle of change number `operation` (counted from 0): it and
    /// everything after it fails, and it may be on the disk or not.
    pub fn cut_at(&self, operation: u64) {
        self.0.lock().cut_at = Some(operation);
    }

    /// Cuts the power in the middle of the next change.
    pub fn cut_now(&self) {
        let mut state = self.0.lock();
        state.cut_at = Some(state.operations);
    }

    /// What could be on the disk after a power cut now.
    #[must_use]
    pub fn image(&self, survival: Survival) -> Vec<u8> {
        let state = self.0.lock();
        state.image(state.log.len(), survival)
    }

    /// What could have been on the disk after a power cut in the middle of change number
    /// `operation` since the recording began (counted from 0).
    #[must_use]
    pub fn image_at(&self, operation: usize, survival: Survival) -> Vec<u8> {
        let state = self.0.lock();
        // A write in flight may have reached the disk; a sync in flight has not done its work.
        let in_flight = match state.log.get(operation) {
            Some(Change::Write { .. } | Change::SetLen(_)) => 1,
            Some(Change::Sync) | None => 0,
        };
        state.image(operation.saturating_add(in_flight), survival)
    }

    /// The disk as a process finds it that comes after one that was killed (without a power cut) in the
    /// middle of change number `operation`: everything is there to be read, and what was not synced can
    /// still be lost. Recorded, with the unsynced changes as the first of the recording.
    #[must_use]
    pub fn killed_at(&self, operation: usize) -> Self {
        let state = self.0.lock();
        let changes = operation.saturating_add(1).min(state.log.len());
        let done: Vec<Change> = state.log.iter().take(changes).cloned().collect();
        let synced = done.iter().rposition(|change| matches!(change, Change::Sync));
        let unsynced = synced.map_or(0, |sync| sync + 1);
        let log: Vec<Change> = done.into_iter().skip(unsynced).collect();
        let mut base = state.base.clone();
        for change in state.log.iter().take(unsynced) {
            change.apply(&mut base, |_| true);
        }
        let mut live = base.clone();
        for change in &log {
            change.apply(&mut live, |_| true);
        }
        let operations = u64::try_from(log.len()).unwrap_or(u64::MAX);
        let state = State { base, live, log, recording: true, operations, cut_at: None };
        Self(Arc::new(Mutex::new(state)))
    }

    /// How many of the changes since the recording began, up to number `operation`, were syncs.
    #[must_use]
    pub fn syncs_before(&self, operation: usize) -> usize {
        let state = self.0.lock();
        let is_sync = |change: &&Change| matches!(change, Change::Sync);
        state.log.iter().take(operation).filter(is_sync).count()
    }
}

impl State {
    fn image(&self, changes: usize, survival: Survival) -> Vec<u8> {
        let before: Vec<&Change> = self.log.iter().take(changes).collect();
        let synced = before.iter().rposition(|change| matches!(change, Change::Sync)).unwrap_or(0);
        let mut image = self.base.clone();
        for (place, change) in before.iter().enumerate() {
            if place < synced {
                change.apply(&mut image, |_| true);
                continue;
            }
            let coin = |seed: u64, salt: usize| {
                let salt = mix(u64::try_from(salt).unwrap_or(u64::MAX));
                mix(mix(seed) ^ salt)
            };
            match survival {
                Survival::Nothing => {}
                Survival::Everything => change.apply(&mut image, |_| true),
                Survival::Some(seed) => {
                    if coin(seed, place).is_multiple_of(2) {
                        change.apply(&mut image, |_| true);
                    }
                }
                Survival::Torn(seed) => {
                    let coin = coin(seed, place);
                    if coin % 4 != 0 {
                        change.apply(&mut image, |sector| {
                            coin % 4 == 1 || mix(coin ^ sector).is_multiple_of(2)
                        });
                    }
                }
            }
        }
        image
    }

    fn change(&mut self, change: Change) -> io::Result<()> {
        let number = self.operations;
        if self.cut_at.is_some_and(|cut| number > cut) {
            return Err(no_power());
        }
        self.operations += 1;
        let cut = self.cut_at == Some(number);
        let sync = matches!(change, Change::Sync);
        if !(cut && sync) {
            change.apply(&mut self.live, |_| true);
            self.log.push(change);
        }
        if cut {
            return Err(no_power());
        }
        if sync && !self.recording {
            for change in self.log.drain(..) {
                change.apply(&mut self.base, |_| true);
            }
        }
        Ok(())
    }

    fn has_power(&self) -> io::Result<()> {
        match self.cut_at {
            Some(cut) if self.operations > cut => Err(no_power()),
            _ => Ok(()),
        }
    }
}

impl Change {
    /// Applies the sectors (numbered on the disk) that `keep` names.
    fn apply(&self, image: &mut Vec<u8>, keep: impl Fn(u64) -> bool) {
        match self {
            Self::Write { offset, data } => {
                let end = place(*offset).saturating_add(data.len());
                if image.len() < end {
                    image.resize(end, 0);
                }
                let mut at = *offset;
                let mut rest = data.as_slice();
                while !rest.is_empty() {
                    let room = place(SECTOR - at % SECTOR).min(rest.len());
                    let (part, after) = rest.split_at(room);
                    let target = image.get_mut(place(at)..place(at).saturating_add(room));
                    if let Some(target) = target
                        && keep(at / SECTOR)
                    {
                        target.copy_from_slice(part);
                    }
                    at = at.saturating_add(SECTOR - at % SECTOR);
                    rest = after;
                }
            }
            Self::SetLen(len) => image.resize(place(*len), 0),
            Self::Sync => {}
        }
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}

fn no_power() -> io::Error {
    io::Error::other("the power was cut")
}

/// The way of a store to its [`CrashDisk`].
#[derive(Debug)]
pub struct CrashBackend(CrashDisk);

impl StorageBackend for CrashBackend {
    fn len(&self) -> io::Result<u64> {
        let state = self.0.0.lock();
        state.has_power()?;
        Ok(u64::try_from(state.live.len()).unwrap_or(u64::MAX))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.0.0.lock();
        state.has_power()?;
        let start = place(offset);
        let found = state.live.get(start..start.saturating_add(out.len()));
        out.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.0.lock().change(Change::SetLen(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.0.lock().change(Change::Sync)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let data = data.to_vec();
        self.0.0.lock().change(Change::Write { offset, data })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(writes: u8) -> CrashDisk {
        let disk = CrashDisk::new();
        let backend = disk.backend();
        backend.set_len(2048).unwrap();
        backend.write(0, &[9; 2048]).unwrap();
        backend.sync_data().unwrap();
        for fill in 0..writes {
            backend.write(0, &[fill; 2048]).unwrap();
        }
        disk
    }

    #[test]
    fn only_synced_writes_are_sure_to_survive() {
        let disk = written(1);
        assert_eq!(disk.image(Survival::Nothing), [9; 2048]);
        assert_eq!(disk.image(Survival::Everything), [0; 2048]);
        disk.backend().sync_data().unwrap();
        assert_eq!(disk.image(Survival::Nothing), [0; 2048]);
    }

    #[test]
    fn torn_writes_are_cut_at_sectors() {
        let disk = written(1);
        let mut mixed = false;
        for seed in 0..50 {
            let image = disk.image(Survival::Torn(seed));
            for sector in image.chunks(512) {
                assert!(sector.iter().all(|&byte| byte == sector[0]));
            }
            mixed |= image.contains(&0) && image.contains(&9);
        }
        assert!(mixed);
    }

    #[test]
    fn the_cut_fails_its_operation_and_all_later_ones() {
        let disk = written(0);
        disk.cut_at(3);
        let backend = disk.backend();
        assert!(backend.write(0, &[7; 4]).is_err());
        assert!(backend.sync_data().is_err() && backend.len().is_err());
        assert_eq!(disk.image(Survival::Nothing), [9; 2048]);
        assert_eq!(disk.image(Survival::Everything)[..5], [7, 7, 7, 7, 9]);
    }

    #[test]
    fn a_recording_looks_back() {
        let disk = CrashDisk::new().recording();
        let backend = disk.backend();
        for fill in 0..3 {
            backend.write(0, &[fill; 4]).unwrap();
            backend.sync_data().unwrap();
        }
        assert_eq!(disk.image_at(3, Survival::Nothing), [0; 4]);
        assert_eq!(disk.image_at(4, Survival::Nothing), [1; 4]);
        assert_eq!(disk.image_at(4, Survival::Everything), [2; 4]);
        assert_eq!(disk.syncs_before(4), 2);
    }
}
