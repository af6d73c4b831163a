//! One answer for one caller.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

/// The caller's end: waits for the answer.
pub(crate) struct Pending<T>(Arc<Slot<T>>);

/// The writer's end: gives the answer. Dropped without one, it tells the caller so.
pub(crate) struct Reply<T>(Arc<Slot<T>>);

struct Slot<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

enum State<T> {
    Waiting,
    Answered(T),
    Abandoned,
}

pub(crate) fn reply<T>() -> (Reply<T>, Pending<T>) {
    let slot = Arc::new(Slot { state: Mutex::new(State::Waiting), changed: Condvar::new() });
    (Reply(Arc::clone(&slot)), Pending(slot))
}

impl<T> Reply<T> {
    pub(crate) fn send(self, answer: T) {
        *self.0.state.lock() = State::Answered(answer);
        self.0.changed.notify_one();
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        if matches!(*state, State::Waiting) {
            *state = State::Abandoned;
            self.0.changed.notify_one();
        }
    }
}

impl<T> Pending<T> {
    /// Blocks until there is an answer; `None` when there will never be one.
    pub(crate) fn wait(self) -> Option<T> {
        let mut state = self.0.state.lock();
        loop {
            match std::mem::replace(&mut *state, State::Waiting) {
                State::Answered(answer) => return Some(answer),
                State::Abandoned => return None,
                State::Waiting => self.0.changed.wait(&mut state),
            }
        }
    }
}
