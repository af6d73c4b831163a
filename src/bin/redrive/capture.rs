//! What a command prints: the whole for passing on, its beginning or end for keeping. Memory is
//! bounded; a long output goes to a temporary file.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, Write};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tempfile::SpooledTempFile;

/// Outputs up to this long stay in memory.
const SPOOL_BYTES: usize = 256 * 1024;

/// Collects an output from a thread of its own.
pub(crate) struct Capture {
    shared: Arc<Mutex<Option<Captured>>>,
    ended: Receiver<()>,
}

/// An output.
pub(crate) struct Captured {
    spool: SpooledTempFile,
    /// Why the spool is not whole, if it is not.
    spool_error: Option<io::Error>,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    pub(crate) bytes: u64,
    keep_bytes: usize,
}

impl Capture {
    /// Reads `output` to its end, keeping the first and the last `keep_bytes`.
    pub(crate) fn start(output: impl Read + Send + 'static, keep_bytes: usize) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Some(Captured {
            spool: SpooledTempFile::new(SPOOL_BYTES),
            spool_error: None,
            head: Vec::new(),
            tail: VecDeque::new(),
            bytes: 0,
            keep_bytes,
        })));
        let (end, ended) = channel();
        let to = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("redrive-output".into());
        thread.spawn(move || read(output, &to, &end))?;
        Ok(Self { shared, ended })
    }

    /// The output, when it has ended; or what there is of it after `patience`.
    pub(crate) fn finish(self, patience: Duration) -> Option<Captured> {
        match self.ended.recv_timeout(patience) {
            Ok(()) | Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                self.shared.lock().take()
            }
        }
    }
}

/// Until the output ends, or nobody wants it any more.
fn read(mut output: impl Read, to: &Mutex<Option<Captured>>, end: &Sender<()>) {
    let mut chunk = vec![0; 16 * 1024];
    loop {
        let bytes = match output.read(&mut chunk) {
            Ok(0) => break,
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        match to.lock().as_mut() {
            Some(captured) => captured.add(chunk.get(..bytes).unwrap_or_default()),
            None => return,
        }
    }
    // Nobody may be waiting any more.
    let _ = end.send(());
}

impl Captured {
    fn add(&mut self, chunk: &[u8]) {
        self.bytes += u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        if self.spool_error.is_none() {
            self.spool_error = self.spool.write_all(chunk).err();
        }
        let room = self.keep_bytes - self.head.len();
        self.head.extend(chunk.iter().take(room));
        self.tail.extend(chunk);
        let over = self.tail.len().saturating_sub(self.keep_bytes);
        self.tail.drain(..over);
    }

    /// The first `keep_bytes`.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The last `keep_bytes`.
    pub(crate) fn tail(&mut self) -> &[u8] {
        self.tail.make_contiguous()
    }

    /// Copies all of it to `out`.
    pub(crate) fn pass_on(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        self.spool.rewind()?;
        io::copy(&mut self.spool, out)?;
        out.flush()
    }

    /// Why it could not be kept whole, if it could not.
    pub(crate) const fn spool_error(&self) -> Option<&io::Error> {
        self.spool_error.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_and_both_ends_are_kept() {
        let text: Vec<u8> = (0..SPOOL_BYTES * 2).map(|n| n.to_le_bytes()[0]).collect();
        let capture = Capture::start(io::Cursor::new(text.clone()), 1_000).unwrap();
        let mut captured = capture.finish(Duration::from_secs(60)).unwrap();
        assert_eq!(captured.head(), &text[..1_000]);
        assert_eq!(captured.tail(), &text[text.len() - 1_000..]);
        let mut whole = Vec::new();
        captured.pass_on(&mut whole).unwrap();
        assert_eq!(whole, text);
        assert_eq!(captured.bytes, text.len() as u64);
    }
}
