//! Opens a file made from fuzz input. Shared by the fuzz target and the replay of its corpus.
//!
//! The first byte says what the file is:
//!
//! | byte | the rest |
//! |---|---|
//! | 0, 1 | the file itself |
//! | 2, 3 | the file after redb's first bytes |
//! | other | changes to a sound store: 4 bytes each, place (24 bits) and what to flip there; an odd byte at the end cuts the file at so many 256ths |
//!
//! An odd first byte asks for the full integrity check.

use std::io;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use redb::StorageBackend;
use redrive::{BatchRule, ClaimRequest, Failure, ManualClock, NewJob, OpenError, Options, Redrive};

const REDB_MAGIC: &[u8] = b"redb\x1a\x0a\xa9\x0d\x0a";
/// A damaged header may ask for any length; a disk would be full.
const LEN_MAX: u64 = 16 * 1024 * 1024;

/// A file in memory that outlives its store.
#[derive(Clone, Debug, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().clone()
    }
}

impl StorageBackend for Memory {
    fn len(&self) -> io::Result<u64> {
        Ok(u64::try_from(self.0.lock().unwrap().len()).unwrap())
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.0.lock().unwrap();
        let from = usize::try_from(offset).ok();
        let to = from.and_then(|from| from.checked_add(out.len()));
        let range = from.zip(to).and_then(|(from, to)| bytes.get(from..to));
        out.copy_from_slice(range.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > LEN_MAX {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let len = usize::try_from(len).unwrap();
        self.0.lock().unwrap().resize(len, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.0.lock().unwrap();
        let from = usize::try_from(offset).ok();
        let to = from.and_then(|from| from.checked_add(data.len()));
        let range = from.zip(to).and_then(|(from, to)| bytes.get_mut(from..to));
        range.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(data);
        Ok(())
    }
}

fn open(file: Memory, check_integrity: bool) -> Result<Redrive, OpenError> {
    let options = Options::new().clock(ManualClock::new()).cache_bytes(1024 * 1024);
    let options = if check_integrity { options.check_integrity() } else { options };
    options.open_backend(file)
}

/// A store with a job in every state, closed in good order: the same bytes every time.
pub(crate) fn sound() -> &'static [u8] {
    static SOUND: OnceLock<Vec<u8>> = OnceLock::new();
    SOUND.get_or_init(|| {
        let file = Memory::default();
        let jobs = open(file.clone(), false).unwrap();
        let new = |key: usize| {
            let payload = vec![b'p'; if key.is_multiple_of(7) { 2_000 } else { 20 }];
            let kind = ["a", "b"][key % 2];
            let job = NewJob::new("queue", kind).bytes(payload);
            job.key(format!("key-{key}"))
        };
        jobs.enqueue_many((0..40).map(new), BatchRule::PerItem).unwrap();
        let later = NewJob::new("queue", "a").delay(Duration::from_secs(60));
        jobs.enqueue(later).unwrap();
        let leases = jobs.claim(ClaimRequest::new("queue").up_to(12)).unwrap();
        // Still held when the store closes, as by a process that dies.
        let mut held = Vec::new();
        for (place, lease) in leases.into_iter().enumerate() {
            match place % 4 {
                0 => lease.complete().unwrap(),
                1 => drop(lease.fail(Failure::permanent("E1").message("no")).unwrap()),
                2 => drop(lease.fail(Failure::transient("E2")).unwrap()),
                _ => held.push(lease),
            }
        }
        jobs.close().unwrap();
        file.bytes()
    })
}

fn file(kind: u8, rest: &[u8]) -> Vec<u8> {
    match kind {
        0 | 1 => rest.to_vec(),
        2 | 3 => [REDB_MAGIC, rest].concat(),
        _ => {
            let mut file = sound().to_vec();
            let (changes, cut) = rest.as_chunks::<4>();
            for &[high, middle, low, flip] in changes {
                let place = u32::from_be_bytes([0, high, middle, low]);
                let place = usize::try_from(place).unwrap() % file.len();
                file[place] ^= flip;
            }
            if let &[cut] = cut {
                file.truncate(file.len() / 256 * usize::from(cut));
            }
            file
        }
    }
}

/// A damaged page that nobody looks at before the first commit can make redb 4.6 panic while it cleans
/// up after a panic, which ends the process. Nothing but the full check prevents that, so a fuzzer
/// would find nothing else; single inputs without the check are replayed by the tests.
fn always_checked(kind: u8) -> bool {
    cfg!(fuzzing) && kind > 3
}

/// Panics when a file is changed though it is refused, or when it is read as less than it is.
pub(crate) fn check(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else {
        return;
    };
    let before = file(kind, rest);
    if before.is_empty() {
        return;
    }
    let memory = Memory(Arc::new(Mutex::new(before.clone())));
    match open(memory.clone(), kind % 2 == 1 || always_checked(kind)) {
        Err(error) => {
            // It can also be that the file was let in and its disk was full then.
            let refused = !matches!(error, OpenError::Storage(_));
            assert!(!refused || memory.bytes() == before, "changed though refused: {error}");
        }
        Ok(jobs) => use_it(jobs),
    }
}

/// Whatever a damaged store answers, it answers; and it never says that there was nothing.
fn use_it(jobs: Redrive) {
    let report = jobs.verify();
    let enqueued = jobs.stats().map(|stats| stats.total.flows["enqueued"]);
    if let (Ok(report), Ok(enqueued)) = (&report, &enqueued) {
        assert!(*enqueued > 0 || !report.is_clean(), "read as empty");
    }
    if let Ok(leases) = jobs.claim(ClaimRequest::new("queue").up_to(100)) {
        for (place, lease) in leases.into_iter().enumerate() {
            if place % 2 == 0 {
                let _ = lease.complete();
            }
        }
    }
    let _ = jobs.enqueue(NewJob::new("queue", "a").key("key-1"));
    let _ = jobs.sweep();
    let _ = jobs.close();
}
