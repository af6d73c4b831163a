//! What happened, told to whoever subscribed. After the commit, in bounded queues: a subscriber that
//! does not keep up misses events, is told how many, and holds up nobody.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use crate::clock::{Clock, Signal};
use crate::domain::abort::AbortReason;
use crate::domain::cohort::CohortState;
use crate::domain::failure::FailureClass;
use crate::domain::id::{CohortId, JobId};
use crate::domain::job::DeathReason;
use crate::domain::pause::Paused;
use crate::domain::time::{Timestamp, whole_ms};
use crate::error::StorageError;
use crate::writer::command::SweepReport;

/// Events that wait for one subscriber at most.
const QUEUE_MAX: usize = 1_024;

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Event {
    /// When, on the store's timeline.
    pub at: Timestamp,
    /// What.
    #[serde(flatten)]
    pub what: EventKind,
}

/// What happened. It is on the disk when it is told, as far as that can be said of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// A job died.
    JobDied {
        /// The job.
        job: JobId,
        /// Its queue.
        queue: String,
        /// Its kind.
        kind: String,
        /// Why it is dead.
        reason: DeathReason,
        /// The class of its last failure.
        class: FailureClass,
        /// The code of its last failure.
        code: String,
    },
    /// A lease ended without a word from its holder.
    LeaseExpired {
        /// The job.
        job: JobId,
        /// Its queue.
        queue: String,
        /// Its kind.
        kind: String,
        /// Who had it.
        worker: String,
    },
    /// A cohort has begun, was paused or resumed, was aborted, or has finished.
    Cohort {
        /// The cohort.
        cohort: CohortId,
        /// The state it is in now.
        state: CohortState,
        /// Why it was aborted, if it was.
        aborted: Option<AbortReason>,
    },
    /// Something was paused.
    Paused {
        /// The pause.
        pause: Paused,
    },
    /// A throttled failure holds back its class or its queue.
    Held {
        /// The hold.
        hold: Paused,
    },
    /// A pause or a hold was lifted, or a hold has ended.
    Resumed {
        /// What it was.
        lifted: Paused,
    },
    /// The opening found leases of a process that had died. Told to each subscriber first.
    Recovered {
        /// How many leases.
        leases: u64,
        /// How many of the jobs are dead of it.
        died: u64,
    },
    /// The store has stopped writing. The last event of a subscription.
    Poisoned {
        /// Why.
        why: String,
    },
    /// Events that this subscriber did not take in time, and that were dropped here.
    Missed {
        /// How many.
        count: u64,
    },
}

/// A subscription: [`Redrive::events`](crate::Redrive::events).
pub struct Events {
    queue: Arc<Queue>,
    board: Arc<Board>,
    clock: Arc<dyn Clock>,
}

/// Where the writer tells what happened.
#[derive(Default)]
pub(crate) struct Board {
    queues: Mutex<Vec<Weak<Queue>>>,
    /// How many subscribers there are: nothing is put together for nobody.
    subscribers: AtomicUsize,
    /// What every subscriber is told first.
    recovered: Mutex<Option<Event>>,
}

#[derive(Default)]
struct Queue {
    inner: Mutex<Waiting>,
    changed: Arc<Signal>,
}

#[derive(Default)]
struct Waiting {
    events: VecDeque<Event>,
    /// Dropped since the last one that was kept.
    missed: u64,
    /// When the latest of those happened.
    missed_at: Timestamp,
    dropped: u64,
    closed: bool,
}

impl Waiting {
    fn push(&mut self, event: Event) {
        if self.closed {
            return;
        }
        if self.events.len() >= QUEUE_MAX {
            self.missed += 1;
            self.missed_at = event.at;
            self.dropped += 1;
            return;
        }
        let missed = self.take_missed();
        self.events.extend(missed);
        self.events.push_back(event);
    }

    fn pop(&mut self) -> Option<Event> {
        self.events.pop_front().or_else(|| self.take_missed())
    }

    /// Stands in the place of those that were dropped.
    fn take_missed(&mut self) -> Option<Event> {
        let count = std::mem::take(&mut self.missed);
        let at = self.missed_at;
        (count > 0).then_some(Event { at, what: EventKind::Missed { count } })
    }
}

impl Board {
    pub(crate) fn subscribe(self: &Arc<Self>, clock: Arc<dyn Clock>) -> Events {
        let queue = Arc::new(Queue::default());
        if let Some(recovered) = self.recovered.lock().clone() {
            queue.inner.lock().push(recovered);
        }
        self.queues.lock().push(Arc::downgrade(&queue));
        self.subscribers.fetch_add(1, Ordering::SeqCst);
        Events { queue, board: Arc::clone(self), clock }
    }

    /// Whether anybody wants to know.
    pub(super) fn is_watched(&self) -> bool {
        self.subscribers.load(Ordering::SeqCst) > 0
    }

    pub(super) fn recovered(&self, at: Timestamp, report: SweepReport) {
        if report.expired > 0 {
            let what = EventKind::Recovered { leases: report.expired, died: report.died };
            *self.recovered.lock() = Some(Event { at, what });
        }
    }

    pub(super) fn tell(&self, at: Timestamp, told: Vec<EventKind>) {
        if told.is_empty() {
            return;
        }
        self.each(|queue| {
            for what in &told {
                queue.push(Event { at, what: what.clone() });
            }
        });
    }

    /// Nothing more will happen; `poison` says why, if something went wrong.
    pub(super) fn close(&self, at: Timestamp, poison: Option<&StorageError>) {
        self.each(|queue| {
            if let Some(why) = poison {
                // The last word gets in however many wait.
                let missed = queue.take_missed();
                queue.events.extend(missed);
                let what = EventKind::Poisoned { why: why.to_string() };
                queue.events.push_back(Event { at, what });
            }
            queue.closed = true;
        });
    }

    fn each(&self, tell: impl Fn(&mut Waiting)) {
        self.queues.lock().retain(|queue| {
            let Some(queue) = queue.upgrade() else { return false };
            tell(&mut queue.inner.lock());
            queue.changed.raise();
            true
        });
    }
}

impl Events {
    /// The next event, waiting for it up to `wait`. `None` when there was none, or when the store was
    /// closed and everything has been told ([`is_closed`](Self::is_closed)).
    pub fn recv(&mut self, wait: Duration) -> Option<Event> {
        let until_ms = self.clock.monotonic_ms().saturating_add(whole_ms(wait));
        loop {
            let (event, closed) = {
                let mut waiting = self.queue.inner.lock();
                (waiting.pop(), waiting.closed)
            };
            if event.is_some() || closed || self.clock.monotonic_ms() >= until_ms {
                return event;
            }
            self.clock.wait(&self.queue.changed, Some(until_ms));
        }
    }

    /// The next event, if there is one already.
    pub fn try_recv(&mut self) -> Option<Event> {
        self.queue.inner.lock().pop()
    }

    /// How many events this subscriber has missed.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.queue.inner.lock().dropped
    }

    /// Whether the store was closed and nothing is left to be told.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let waiting = self.queue.inner.lock();
        waiting.closed && waiting.events.is_empty() && waiting.missed == 0
    }
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.queue.inner.lock().events.len();
        f.debug_struct("Events").field("waiting", &waiting).finish_non_exhaustive()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.board.subscribers.fetch_sub(1, Ordering::SeqCst);
    }
}
