//! Which writers have lent their state to this thread: what would wait for one of them would wait for
//! itself.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::writer::command::Command;

thread_local! {
    static LENT: RefCell<Vec<Lent>> = const { RefCell::new(Vec::new()) };
}

struct Lent {
    writer: u64,
    /// Said on this thread meanwhile: for the writer, once it has its state back.
    told: Vec<Command>,
}

/// Says, for as long as it lives, that this thread has the state of a writer.
pub(super) struct Here(u64);

impl Here {
    /// `None` on a thread that has ended but for the destructors of its thread-local values.
    pub(super) fn new(writer: u64) -> Option<Self> {
        let lent = Lent { writer, told: Vec::new() };
        LENT.try_with(|all| all.borrow_mut().push(lent)).ok()?;
        Some(Self(writer))
    }

    /// No longer; returns what was told meanwhile.
    pub(super) fn over(self) -> Vec<Command> {
        self.remove()
    }

    fn remove(&self) -> Vec<Command> {
        let removed = LENT.try_with(|all| {
            let mut all = all.borrow_mut();
            let place = all.iter().position(|lent| lent.writer == self.0);
            place.map(|place| all.swap_remove(place).told)
        });
        removed.ok().flatten().unwrap_or_default()
    }
}

impl Drop for Here {
    fn drop(&mut self) {
        drop(self.remove());
    }
}

/// Whether this thread has the state of `writer`.
pub(super) fn is_here(writer: u64) -> bool {
    // A thread that ends has nothing lent to it.
    LENT.try_with(|all| all.borrow().iter().any(|lent| lent.writer == writer)).unwrap_or(false)
}

/// Keeps `command` for `writer` if this thread has its state; gives it back otherwise.
pub(super) fn keep(writer: u64, command: Command) -> Option<Command> {
    let mut command = Some(command);
    let _ = LENT.try_with(|all| {
        if let Some(lent) = all.borrow_mut().iter_mut().find(|lent| lent.writer == writer) {
            lent.told.extend(command.take());
        }
    });
    command
}

/// A number for a writer that no other of this process has.
pub(super) fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
