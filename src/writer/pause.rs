//! Pausing, resuming and holding back. What is stopped is also kept in memory, because every claim
//! asks for it; a stopped class costs a claim nothing.

use std::collections::BTreeMap;

use crate::domain::failure::Failure;
use crate::domain::id::{Class, JobId};
use crate::domain::limits::PAUSES_MAX;
use crate::domain::pause::{Scope, Stop, Stopped, hold};
use crate::domain::time::Timestamp;
use crate::error::{PauseError, StorageError};
use crate::store::pause;
use crate::store::rows::{Rows, WriteRows};
use crate::writer::batch::Batch;
use crate::writer::command::Stopping;
use crate::writer::events::EventKind;

/// What is stopped, as the table says.
#[derive(Default)]
pub(super) struct Pauses {
    stops: BTreeMap<Stopped, Stop>,
    /// When the first hold ends.
    next_end: Option<Timestamp>,
}

impl Pauses {
    pub(super) fn load(rows: &impl Rows) -> Result<Self, StorageError> {
        let mut pauses = Self { stops: pause::all(rows)?.into_iter().collect(), next_end: None };
        pauses.changed();
        Ok(pauses)
    }

    /// Whether nothing of `class` may be claimed.
    pub(super) fn stop(&self, class: Class) -> bool {
        !self.stops.is_empty()
            && Stopped::of_work(class).iter().any(|stopped| self.stops.contains_key(stopped))
    }

    /// Whether no dead job of `class` may be sent back.
    pub(super) fn stop_redrive(&self, class: Class) -> bool {
        !self.stops.is_empty()
            && Stopped::of_redrive(class).iter().any(|stopped| self.stops.contains_key(stopped))
    }

    /// When the first hold ends.
    pub(super) const fn next_end(&self) -> Option<Timestamp> {
        self.next_end
    }

    fn put(
        &mut self,
        rows: &mut WriteRows<'_>,
        stopped: Stopped,
        stop: Stop,
    ) -> Result<Option<Stop>, StorageError> {
        pause::put(rows, stopped, &stop)?;
        let earlier = self.stops.insert(stopped, stop);
        self.changed();
        Ok(earlier)
    }

    fn remove(
        &mut self,
        rows: &mut WriteRows<'_>,
        stopped: Stopped,
    ) -> Result<Option<Stop>, StorageError> {
        let stop = self.stops.remove(&stopped);
        if stop.is_some() {
            pause::remove(rows, stopped)?;
            self.changed();
        }
        Ok(stop)
    }

    fn changed(&mut self) {
        self.next_end = self.stops.values().filter_map(|stop| stop.until).min();
    }
}

impl Batch<'_, '_> {
    /// Pauses; returns the pause that this one replaces. Names that are new come into being, so that
    /// a queue can be paused before its first job.
    pub(super) fn pause(
        &mut self,
        stopping: Stopping,
    ) -> Result<Result<Option<Stop>, PauseError>, StorageError> {
        let Stopping { scope, reason, by } = stopping;
        let core = &mut *self.core;
        let (queue, kind) = scope.names();
        let new_queue = queue.is_some_and(|name| core.registry.queue_id(name).is_none());
        let new_kind = kind.is_some_and(|name| core.registry.kind_id(name).is_none());
        if let Err(full) = core.registry.room(usize::from(new_queue), usize::from(new_kind), 0) {
            return Ok(Err(PauseError::TooMany { what: full.what, count_max: full.count_max }));
        }
        let is_new =
            self.stopped(&scope).is_none_or(|at| !self.core.pauses.stops.contains_key(&at));
        let count = self.core.pauses.stops.keys().filter(|stopped| !stopped.is_hold()).count();
        if is_new && count >= PAUSES_MAX {
            return Ok(Err(PauseError::TooMany { what: "pauses", count_max: PAUSES_MAX }));
        }
        if let Some(queue) = queue {
            self.core.registry.intern_queue(self.rows, queue)?;
        }
        if let Some(kind) = kind {
            self.core.registry.intern_kind(self.rows, kind)?;
        }
        let unknown = || StorageError::internal("a scope whose names have no numbers");
        let stopped = self.stopped(&scope).ok_or_else(unknown)?;
        let stop = Stop { reason, by, since: self.time.now, until: None };
        self.tell(|batch| Ok(EventKind::Paused { pause: batch.paused(stopped, &stop)? }));
        self.core.pauses.put(self.rows, stopped, stop).map(Ok)
    }

    /// Lifts the pause and the hold of `scope`; returns what there was. The claims that wait are
    /// served in this same commit.
    pub(super) fn resume(&mut self, scope: &Scope) -> Result<Vec<Stop>, StorageError> {
        let Some(stopped) = self.stopped(scope) else { return Ok(Vec::new()) };
        let mut lifted = Vec::new();
        for stopped in [Some(stopped), stopped.held()].into_iter().flatten() {
            let stop = self.core.pauses.remove(self.rows, stopped)?;
            if let Some(stop) = &stop {
                self.tell(|batch| Ok(EventKind::Resumed { lifted: batch.paused(stopped, stop)? }));
            }
            lifted.extend(stop);
        }
        self.core.cohorts.look_again();
        Ok(lifted)
    }

    /// Holds back what a failure asks to hold back. A hold that ends later stays.
    pub(super) fn hold_for(
        &mut self,
        class: Class,
        job: JobId,
        failure: &Failure,
    ) -> Result<(), StorageError> {
        let by = format!("job {job}");
        let Some((stopped, stop)) = hold(class, failure, by, self.time.now) else {
            return Ok(());
        };
        let earlier = self.core.pauses.stops.get(&stopped);
        if earlier.is_none_or(|earlier| earlier.until < stop.until) {
            let since = earlier.map_or(stop.since, |earlier| earlier.since);
            let stop = Stop { since, ..stop };
            self.tell(|batch| Ok(EventKind::Held { hold: batch.paused(stopped, &stop)? }));
            self.core.pauses.put(self.rows, stopped, stop)?;
        }
        Ok(())
    }

    /// Ends the holds whose time is over.
    pub(super) fn end_holds(&mut self) -> Result<(), StorageError> {
        let now = self.time.now;
        if self.core.pauses.next_end.is_none_or(|end| end > now) {
            return Ok(());
        }
        let stops = &self.core.pauses.stops;
        let over = |stop: &Stop| stop.until.is_some_and(|until| until <= now);
        let ended: Vec<Stopped> =
            stops.iter().filter(|(_, stop)| over(stop)).map(|(&stopped, _)| stopped).collect();
        for stopped in ended {
            pause::remove(self.rows, stopped)?;
            if let Some(stop) = self.core.pauses.stops.remove(&stopped) {
                self.tell(|batch| Ok(EventKind::Resumed { lifted: batch.paused(stopped, &stop)? }));
            }
        }
        self.core.pauses.changed();
        Ok(())
    }

    /// The scope by numbers; `None` when it names something that this file has never heard of.
    fn stopped(&self, scope: &Scope) -> Option<Stopped> {
        let registry = &self.core.registry;
        let class = |queue: &str, kind: &str| {
            Some(Class { queue: registry.queue_id(queue)?, kind: registry.kind_id(kind)? })
        };
        match scope {
            Scope::Queue { queue } => registry.queue_id(queue).map(Stopped::Queue),
            Scope::Class { queue, kind } => class(queue, kind).map(Stopped::Class),
            Scope::Redrive => Some(Stopped::Redrive),
            Scope::RedriveClass { queue, kind } => class(queue, kind).map(Stopped::RedriveClass),
        }
    }
}
