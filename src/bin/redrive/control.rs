//! What the threads of `redrive work` tell each other.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use redrive::{Clock, Signal, SystemClock};

use crate::children::Children;
use crate::exit::Trouble;

/// Shared by the thread that watches, those that run commands, and the one that hears signals.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) clock: SystemClock,
    pub(crate) children: Children,
    /// Something changed: the watching thread should look.
    pub(crate) changed: Arc<Signal>,
    /// Signals that came.
    pub(crate) signals: AtomicU32,
    /// Nobody reads standard output any more.
    pub(crate) output_gone: AtomicBool,
    /// Why no command can be run at all.
    pub(crate) cannot_run: OnceLock<Trouble>,
    /// Threads that hold a job which is to be given back.
    pub(crate) holding: AtomicU64,
    given_back: (AtomicBool, Arc<Signal>),
}

impl Control {
    pub(crate) fn new() -> Self {
        Self {
            clock: SystemClock::new(),
            children: Children::default(),
            changed: Signal::new(),
            signals: AtomicU32::new(0),
            output_gone: AtomicBool::new(false),
            cannot_run: OnceLock::new(),
            holding: AtomicU64::new(0),
            given_back: (AtomicBool::new(false), Signal::new()),
        }
    }

    /// Running jobs are to be given back.
    pub(crate) fn is_giving_back(&self) -> bool {
        self.signals.load(Ordering::Acquire) >= 2
    }

    /// No command is to be started any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_giving_back() || self.cannot_run.get().is_some()
    }

    /// No job is to be claimed any more.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_over()
            || self.signals.load(Ordering::Acquire) > 0
            || self.output_gone.load(Ordering::Acquire)
    }

    /// Waits a moment for other commands to end; returns whether none is to be started any more.
    pub(crate) fn wait_for_room(&self) -> bool {
        const MOMENT_MS: u64 = 100;
        let until_ms = self.clock.monotonic_ms().saturating_add(MOMENT_MS);
        self.clock.wait(&Signal::new(), Some(until_ms));
        self.is_draining()
    }

    /// Holds the calling thread, and its job with it, until nothing is claimed any more: given back
    /// before that, the job would be claimed again at once.
    pub(crate) fn hold(&self) {
        let (done, signal) = &self.given_back;
        self.holding.fetch_add(1, Ordering::AcqRel);
        self.changed.raise();
        while !done.load(Ordering::Acquire) {
            self.clock.wait(signal, None);
        }
        // A signal wakes one thread; each passes it on.
        signal.raise();
    }

    /// Nothing is claimed any more: the jobs that were held may be given back.
    pub(crate) fn release_held(&self) {
        let (done, signal) = &self.given_back;
        done.store(true, Ordering::Release);
        signal.raise();
    }
}
