//! What the writer knows between commits. Everything here can be read back from the file, but for
//! lease ends (see `leases`) and the callers that wait.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::domain::counter::Gauge;
use crate::domain::id::Token;
use crate::domain::job::Lane;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::key;
use crate::store::meta::{self, Meta};
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::{counter, tombstone};
use crate::writer::books::Books;
use crate::writer::cohort::Cohorts;
use crate::writer::command::Claim;
use crate::writer::events::{Board, EventKind};
use crate::writer::leases::Leases;
use crate::writer::pause::Pauses;
use crate::writer::registry::Registry;
use crate::writer::retention::Retention;
use crate::writer::seen::Seen;

/// Where suspects in flight are counted: with a handler, or with a reconciler.
pub(super) const SUSPECTS_IN_FLIGHT: [Gauge; 2] =
    [Gauge::leased(Lane::Suspect), Gauge::leased(Lane::SuspectReconcile)];

pub(super) struct Core {
    pub(super) meta: Meta,
    pub(super) registry: Registry,
    pub(super) books: Books,
    pub(super) pauses: Pauses,
    pub(super) leases: Arc<Leases>,
    /// Leases granted in the batch that is being made.
    pub(super) granted: Vec<Token>,
    /// Suspects in flight in the whole store: 0 or 1.
    pub(super) suspects: u64,
    /// Claims that found nothing, in the order in which they came.
    pub(super) waiting: VecDeque<Claim>,
    /// No delayed job is due before this.
    pub(super) next_due: Option<Timestamp>,
    /// No finished job may be forgotten before this.
    pub(super) next_tombstone: Option<Timestamp>,
    /// When this process took the file over: nothing has waited for it for longer.
    pub(super) opened_at: Timestamp,
    pub(super) cohorts: Cohorts,
    pub(super) retention: Retention,
    /// For how many minutes windows are kept.
    pub(super) window_minutes: u64,
    pub(super) board: Arc<Board>,
    /// To be told when the batch that is being made is committed.
    pub(super) told: Vec<EventKind>,
    pub(super) seen: Seen,
}

impl Core {
    pub(super) fn load(rows: &impl Rows, window_minutes: u64) -> Result<Self, StorageError> {
        let missing = || StorageError::corrupt("the store's state row is missing");
        let meta = meta::read(rows)?.ok_or_else(missing)?;
        let books = Books::load(rows)?;
        let registry =
            Registry::load(rows, counter::all(rows)?.into_iter().map(|(class, _)| class))?;
        let held = |class| SUSPECTS_IN_FLIGHT.iter().map(move |&gauge| (class, gauge));
        let held = books.classes().flat_map(held);
        let suspects = held.map(|(class, gauge)| books.gauge(class, gauge)).sum();
        let retention = Retention::load(&registry);
        Ok(Self {
            meta,
            registry,
            books,
            pauses: Pauses::load(rows)?,
            leases: Arc::default(),
            granted: Vec::new(),
            suspects,
            waiting: VecDeque::new(),
            next_due: first_due(rows)?,
            next_tombstone: tombstone::next(rows)?,
            opened_at: Timestamp::default(),
            cohorts: Cohorts::load(rows)?,
            retention,
            window_minutes,
            board: Arc::default(),
            told: Vec::new(),
            seen: Seen::default(),
        })
    }
}

impl Core {
    /// Stands in for the state while that is lent: knows nothing, and is asked for nothing but whom to tell.
    pub(super) fn stand_in(&self) -> Self {
        Self {
            meta: Meta::fresh(),
            registry: Registry::default(),
            books: Books::default(),
            pauses: Pauses::default(),
            leases: Arc::clone(&self.leases),
            granted: Vec::new(),
            suspects: 0,
            waiting: VecDeque::new(),
            next_due: None,
            next_tombstone: None,
            opened_at: self.opened_at,
            cohorts: Cohorts::default(),
            retention: Retention::default(),
            window_minutes: self.window_minutes,
            board: Arc::clone(&self.board),
            told: Vec::new(),
            seen: Seen::default(),
        }
    }

    /// Takes over what the file says, and forgets what was decided beyond that. What is not in the file
    /// has no part in what was decided: leases, who waits, who has claimed, who is told.
    pub(super) fn reload(&mut self, from_file: Self) {
        let before = std::mem::replace(self, from_file);
        let Self { leases, waiting, opened_at, board, seen, retention, .. } = before;
        (self.leases, self.waiting, self.opened_at) = (leases, waiting, opened_at);
        (self.board, self.seen) = (board, seen);
        self.retention.go_on_from(retention);
    }
}

/// The due time of the earliest delayed job.
pub(super) fn first_due(rows: &impl Rows) -> Result<Option<Timestamp>, StorageError> {
    let first = rows.first(TableId::Delayed, &[], &[u8::MAX; 17])?;
    first.map(|(name, _)| Ok(key::read_timed(&name)?.0)).transpose()
}
