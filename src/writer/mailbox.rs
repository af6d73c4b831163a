//! The bounded way to the writer. A full mailbox blocks its senders, never the writer.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::clock::Signal;
use crate::error::StorageError;
use crate::writer::command::Command;

/// Commands that may wait at most.
const COMMANDS_MAX: usize = 8_192;
/// Payload bytes that may wait at most; a larger single command gets in when the mailbox is empty.
const BYTES_MAX: usize = 64 * 1024 * 1024;

pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    space: Condvar,
    /// Raised when there is something to take.
    pub(crate) arrived: Arc<Signal>,
}

struct Inner {
    commands: Vec<Command>,
    bytes: usize,
    closed: Option<StorageError>,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self {
            inner: Mutex::new(Inner { commands: Vec::new(), bytes: 0, closed: None }),
            space: Condvar::new(),
            arrived: Signal::new(),
        }
    }

    /// Hands `command` to the writer, waiting for space.
    pub(crate) fn send(&self, command: Command) -> Result<(), StorageError> {
        let bytes = command.payload_bytes();
        let mut inner = self.inner.lock();
        loop {
            if let Some(cause) = &inner.closed {
                return Err(cause.clone());
            }
            let full = inner.commands.len() >= COMMANDS_MAX || inner.bytes + bytes > BYTES_MAX;
            if !full || inner.commands.is_empty() {
                break;
            }
            self.space.wait(&mut inner);
        }
        let first = inner.commands.is_empty();
        inner.commands.push(command);
        inner.bytes += bytes;
        drop(inner);
        if first {
            self.arrived.raise();
        }
        Ok(())
    }

    /// Everything that has arrived.
    pub(crate) fn take(&self) -> Vec<Command> {
        let mut inner = self.inner.lock();
        inner.bytes = 0;
        let commands = std::mem::take(&mut inner.commands);
        drop(inner);
        self.space.notify_all();
        commands
    }

    /// Why the mailbox is closed. Waits until it is: a command that the writer dropped because it
    /// failed reaches its caller before the writer has told why.
    pub(crate) fn cause(&self) -> StorageError {
        let mut inner = self.inner.lock();
        loop {
            if let Some(cause) = &inner.closed {
                return cause.clone();
            }
            self.space.wait(&mut inner);
        }
    }

    /// From now on every sender gets `cause`; returns what had arrived. The first cause stays.
    pub(crate) fn close(&self, cause: StorageError) -> Vec<Command> {
        self.inner.lock().closed.get_or_insert(cause);
        self.take()
    }
}
