//! The commands that run now, so that they can be ended from outside: at their deadline, when their
//! lease is gone, or when they are given back.

use std::collections::HashMap;
use std::process::Child;

use parking_lot::Mutex;
use redrive::Token;

use crate::process::{Force, Watch};

/// Why a command was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It ran longer than it may.
    Timeout,
    /// Its lease is over: nothing it does counts.
    LeaseLost,
    /// Its job is to be given back.
    GivenBack,
}

/// The commands that run. A command is in here from its start until it is reaped, so the process
/// that a signal is sent to under the lock is the right one.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<Running>);

#[derive(Debug, Default)]
struct Running {
    by_delivery: HashMap<Token, Entry>,
    /// Set once all are to be ended; what starts later is ended too.
    ending: Option<Force>,
}

#[derive(Debug)]
struct Entry {
    watch: Watch,
    deadline_ms: Option<u64>,
    ended: Option<Ended>,
    /// The last signal, so that each is sent once.
    sent: Option<Force>,
}

impl Children {
    pub(crate) fn add(&self, delivery: Token, child: &Child, deadline_ms: Option<u64>) -> Watch {
        let watch = Watch::new(child);
        let mut running = self.0.lock();
        let mut entry = Entry { watch: watch.clone(), deadline_ms, ended: None, sent: None };
        if let Some(force) = running.ending {
            entry.end(Ended::GivenBack, force);
        }
        running.by_delivery.insert(delivery, entry);
        watch
    }

    /// The command has ended and is about to be reaped. Says whether it was ended from outside.
    pub(crate) fn remove(&self, delivery: Token) -> Option<Ended> {
        self.0.lock().by_delivery.remove(&delivery)?.ended
    }

    /// The next deadline.
    pub(crate) fn next_deadline_ms(&self) -> Option<u64> {
        let running = self.0.lock();
        running.by_delivery.values().filter_map(Entry::due_ms).min()
    }

    /// Ends what has run too long.
    pub(crate) fn enforce(&self, now_ms: u64) {
        for one in self.0.lock().by_delivery.values_mut() {
            if one.due_ms().is_some_and(|due_ms| due_ms <= now_ms) {
                one.end(Ended::Timeout, Force::Kill);
            }
        }
    }

    /// Ends what runs for a lease that is over.
    pub(crate) fn lease_lost(&self, delivery: Token) {
        if let Some(one) = self.0.lock().by_delivery.get_mut(&delivery) {
            one.end(Ended::LeaseLost, Force::Kill);
        }
    }

    /// Ends all, and whatever is started later.
    pub(crate) fn end_all(&self, force: Force) {
        let mut running = self.0.lock();
        running.ending = Some(force);
        for one in running.by_delivery.values_mut() {
            one.end(Ended::GivenBack, force);
        }
    }
}

impl Entry {
    fn due_ms(&self) -> Option<u64> {
        self.deadline_ms.filter(|_| self.ended.is_none())
    }

    fn end(&mut self, why: Ended, force: Force) {
        self.ended.get_or_insert(why);
        if self.sent != Some(force) {
            self.sent = Some(force);
            self.watch.end(force);
        }
    }
}
