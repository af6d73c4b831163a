//! Removing dead jobs by the rules that the user set for their queue, oldest first, in bounded slices.

use std::collections::{BTreeSet, HashMap};

use crate::domain::counter::{Flow, Gauge};
use crate::domain::id::{Class, JobId, QueueId};
use crate::domain::job::{Job, State};
use crate::domain::removal::{Removal, RemovalReason};
use crate::domain::retention::{DeadRetention, RetentionBound};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::key;
use crate::store::dead::{DeadRow, Scope, scan};
use crate::store::{alone, removal};
use crate::writer::batch::Batch;
use crate::writer::command::SweepReport;
use crate::writer::registry::Registry;
use crate::writer::sweep::SLICE;

/// What the writer knows of retention.
#[derive(Default)]
pub(super) struct Retention {
    /// Queues to be looked at: something died in them, or their rules changed.
    check: BTreeSet<QueueId>,
    /// When a dead job is next too old.
    next_end: Option<Timestamp>,
    /// The record that evictions of a queue by one bound are noted in, and its minute.
    records: HashMap<(QueueId, RetentionBound), (u64, u64)>,
    /// Dead jobs that cannot be read, and so stay: they take no place from those that can.
    unreadable: HashMap<QueueId, BTreeSet<JobId>>,
}

impl Retention {
    pub(super) fn load(registry: &Registry) -> Self {
        Self { check: registry.retained().collect(), ..Self::default() }
    }

    /// Goes on with the records of an earlier state, which are committed whatever became of that.
    pub(super) fn go_on_from(&mut self, earlier: Self) {
        self.records = earlier.records;
    }

    pub(super) fn has_news(&self) -> bool {
        !self.check.is_empty()
    }

    pub(super) const fn next_end(&self) -> Option<Timestamp> {
        self.next_end
    }

    pub(super) fn look_at(&mut self, queue: QueueId) {
        self.check.insert(queue);
    }

    fn earlier(&mut self, end: Option<Timestamp>) {
        self.next_end = self.next_end.into_iter().chain(end).min();
    }
}

/// More unreadable dead jobs than this are not known by name; then nothing more of the queue goes.
const UNREADABLE_MAX: usize = 1_000;

/// The dead jobs of one class, oldest first.
struct Line {
    class: Class,
    after: Option<Vec<u8>>,
    head: Option<DeadRow>,
}

impl Batch<'_, '_> {
    /// The retention of a queue, if it has any.
    pub(super) fn retention(&self, queue: QueueId) -> Option<DeadRetention> {
        let queue = self.core.registry.queue(queue).ok()?;
        Some(queue.0.retention).filter(|retention| retention.is_set())
    }

    /// How many dead jobs a queue has, and how many bytes of payloads they have.
    pub(super) fn buried(&self, queue: QueueId) -> (u64, u64) {
        let classes = self.core.registry.classes(queue);
        let gauge = |class, gauge| self.core.books.gauge(class, gauge);
        classes.fold((0, 0), |(jobs, bytes), class| {
            (jobs + gauge(class, Gauge::Dead), bytes + gauge(class, Gauge::DeadBytes))
        })
    }

    /// A job died: its queue may have too many now.
    pub(super) fn note_death(&mut self, job: &Job) {
        if let State::Dead(dead) = &job.state
            && let Some(retention) = self.retention(job.class.queue)
        {
            self.core.retention.look_at(job.class.queue);
            self.core.retention.earlier(retention.ends(dead.died_at));
        }
    }

    /// One bounded pass. Returns whether there may be more to do at once.
    pub(super) fn evict(&mut self, report: &mut SweepReport) -> Result<bool, StorageError> {
        let now = self.time.now;
        if self.core.retention.next_end.is_some_and(|end| end <= now) {
            // Whose turn it is cannot be told from the time alone.
            self.core.retention.next_end = None;
            let retained = self.core.registry.retained();
            self.core.retention.check.extend(retained);
        }
        let mut budget = SLICE;
        while let Some(queue) = self.core.retention.check.pop_first() {
            if let Some(retention) = self.retention(queue) {
                let before = budget;
                let done = self.evict_from(queue, retention, &mut budget)?;
                report.evicted += u64::try_from(before - budget).unwrap_or(u64::MAX);
                if !done {
                    self.core.retention.check.insert(queue);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Evicts from one queue. Returns whether all was done that there is to do.
    fn evict_from(
        &mut self,
        queue: QueueId,
        retention: DeadRetention,
        budget: &mut usize,
    ) -> Result<bool, StorageError> {
        let classes: Vec<Class> = self.core.registry.classes(queue).collect();
        let mut lines = Vec::with_capacity(classes.len());
        for class in classes {
            if self.core.books.gauge(class, Gauge::Dead) > 0 {
                let mut line = Line { class, after: None, head: None };
                self.next_dead(&mut line)?;
                lines.push(line);
            }
        }
        loop {
            let oldest = lines.iter_mut().filter(|line| line.head.is_some());
            let at = |line: &Line| line.head.as_ref().map(|row| (row.died_at, row.id));
            let Some(line) = oldest.min_by_key(|line| at(line)) else {
                return Ok(true);
            };
            let Some(row) = line.head.take() else { return Ok(true) };
            let unreadable = self.core.retention.unreadable.get(&queue);
            if unreadable.is_some_and(|known| known.contains(&row.id)) {
                line.after = Some(key::dead(row.class, row.died_at, row.id));
                self.next_dead(line)?;
                continue;
            }
            let passed = unreadable.map_or(0, BTreeSet::len);
            let (jobs, bytes) = self.buried(queue);
            let jobs = jobs.saturating_sub(u64::try_from(passed).unwrap_or(u64::MAX));
            let Some(bound) = retention.evicts(jobs, bytes, row.died_at, self.time.now) else {
                self.core.retention.earlier(retention.ends(row.died_at));
                return Ok(true);
            };
            if *budget == 0 {
                return Ok(false);
            }
            if self.evict_one(queue, &row, bound)? {
                *budget -= 1;
            } else if passed < UNREADABLE_MAX {
                self.core.retention.unreadable.entry(queue).or_default().insert(row.id);
            } else {
                return Ok(true);
            }
            line.after = Some(key::dead(row.class, row.died_at, row.id));
            self.next_dead(line)?;
        }
    }

    fn next_dead(&self, line: &mut Line) -> Result<(), StorageError> {
        let scope = Scope::Rows(key::dead_class(line.class));
        line.head = scan(&*self.rows, &scope, line.after.as_deref(), 1)?.found.pop();
        Ok(())
    }

    /// Removes one dead job and notes it: one record for each queue, bound and minute. False when it cannot
    /// be read: then it stays, and stands in nobody's way.
    fn evict_one(
        &mut self,
        queue: QueueId,
        row: &DeadRow,
        bound: RetentionBound,
    ) -> Result<bool, StorageError> {
        let minute = self.time.now.minute();
        let known = self.core.retention.records.get(&(queue, bound)).copied();
        let number = match known {
            Some((number, of)) if of == minute => number,
            _ => self.core.meta.next,
        };
        let earlier = alone(removal::read(&*self.rows, number))?.ok().flatten();
        let name = self.core.registry.queue(queue)?.0.name.clone();
        let why = RemovalReason::Evicted { queue: name, bound };
        let mut record = earlier.unwrap_or_else(|| Removal::new(why, self.time.now));
        let removed = self.remove_dead(row, &mut record, Flow::Evicted)?;
        if removed {
            removal::put(self.rows, number, &record)?;
            self.core.meta.next = self.core.meta.next.max(number.saturating_add(1));
            self.core.retention.records.insert((queue, bound), (number, minute));
        }
        Ok(removed)
    }
}
