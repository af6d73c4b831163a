//! A sink that appends to a file.

use std::collections::{HashSet, VecDeque};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::Serialize;

use crate::domain::failure::Failure;
use crate::format::hex;
use crate::relay::outgoing::Outgoing;
use crate::relay::sink::Sink;
use crate::relay::tail;

/// Messages among this many last ones are recognised when they come again.
const REMEMBERED_MAX: usize = 10_000;

/// A sink that appends each message to a file as one line of JSON, and syncs the file once per batch
/// before the messages count as sent.
///
/// A line has the fields `id`, `destination`, `sequence`, `emitted_at` (milliseconds since 1970),
/// `key` and `order_key` (where there is one), `headers` (a list of pairs), and `payload`: a
/// string where the payload is UTF-8, otherwise `payload_hex`. A line that a crash has left
/// unfinished is cut off when the file is opened. A message whose id is among those of the last
/// 10,000 lines, however long they are, is not written again. A crash between the sync and the
/// acknowledgement still repeats lines where 10,000 others are written before a message comes
/// again, or where a batch is larger than that: a reader tells a repetition by its `id`. The file is
/// read from its end back to the 10,000th line when it is opened, in little memory.
///
/// One process at a time writes to the file. Feeding one `FileSink` (in an [`Arc`](std::sync::Arc)) from
/// several destinations is fine.
#[derive(Debug)]
pub struct FileSink {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// The length up to which the file is whole and synced.
    len: u64,
    /// Something may stand behind that.
    dirty: bool,
    recent: Recent,
}

/// The ids of the last lines.
#[derive(Debug, Default)]
struct Recent {
    known: HashSet<String>,
    order: VecDeque<String>,
}

impl Recent {
    fn add(&mut self, id: &str) {
        if !self.known.insert(id.to_owned()) {
            return;
        }
        self.order.push_back(id.to_owned());
        if self.order.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

/// The id comes first: that is where [`tail`] looks for it.
#[derive(Serialize)]
struct Line<'m> {
    id: &'m str,
    destination: &'m str,
    sequence: u64,
    emitted_at: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    order_key: Option<&'m str>,
    headers: &'m [(String, String)],
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_hex: Option<String>,
}

impl FileSink {
    /// Opens the file, or creates it, and cuts off a last line that is not finished.
    ///
    /// # Errors
    ///
    /// The operating system's.
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref().to_owned();
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(&path)?;
        let mut recent = Recent::default();
        let (len, ids) = tail::read(&mut file, REMEMBERED_MAX)?;
        ids.iter().rev().for_each(|id| recent.add(id));
        file.set_len(len)?;
        file.sync_all()?;
        sync_directory(&path)?;
        let inner = Inner { file, len, dirty: false, recent };
        Ok(Self { path, inner: Mutex::new(inner) })
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Sink for FileSink {
    fn deliver(&self, batch: &[Outgoing]) -> Vec<Result<(), Failure>> {
        let mut inner = self.inner.lock();
        let mut lines = Vec::new();
        let mut results = Vec::with_capacity(batch.len());
        let mut ids: Vec<&str> = Vec::new();
        for message in batch {
            let known = inner.recent.known.contains(message.id()) || ids.contains(&message.id());
            let written = if known { Ok(()) } else { append(&mut lines, message) };
            if written.is_ok() && !known {
                ids.push(message.id());
            }
            results.push(written);
        }
        if let Err(error) = inner.write(&lines) {
            // Nothing of it counts; what may stand in the file is cut off before the next attempt.
            let text = format!("{}: {error}", self.path.display());
            let failure = Failure::transient("io").message(text);
            return results.into_iter().map(|result| result.and(Err(failure.clone()))).collect();
        }
        for id in ids {
            inner.recent.add(id);
        }
        results
    }
}

impl Inner {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() && !self.dirty {
            return Ok(());
        }
        if self.dirty {
            self.file.set_len(self.len)?;
        }
        self.dirty = true;
        self.file.seek(SeekFrom::Start(self.len))?;
        self.file.write_all(lines)?;
        self.file.sync_data()?;
        self.len = self.len.saturating_add(u64::try_from(lines.len()).unwrap_or(u64::MAX));
        self.dirty = false;
        Ok(())
    }
}

fn append(lines: &mut Vec<u8>, message: &Outgoing) -> Result<(), Failure> {
    let payload = std::str::from_utf8(message.payload()).ok();
    let line = Line {
        id: message.id(),
        destination: message.destination(),
        sequence: message.sequence(),
        emitted_at: message.emitted_at().as_millis(),
        key: message.key(),
        order_key: message.order_key(),
        headers: message.headers(),
        payload,
        payload_hex: payload.is_none().then(|| hex(message.payload())),
    };
    let encoded = serde_json::to_vec(&line);
    let encoded =
        encoded.map_err(|error| Failure::permanent("unencodable").message(error.to_string()))?;
    lines.extend_from_slice(&encoded);
    lines.push(b'\n');
    Ok(())
}

/// Makes the name itself durable, where a directory can be opened for that.
fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if cfg!(unix) { File::open(parent)?.sync_all() } else { Ok(()) }
}
