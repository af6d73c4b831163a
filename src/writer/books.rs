//! The counters of every class in memory; written with the commit that changed them, one row per
//! class and commit (P11).

use std::collections::{BTreeSet, HashMap};

use crate::domain::counter::{Counters, Flow, Gauge};
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::store::counter;
use crate::store::rows::{Rows, WriteRows};

/// Classes whose old windows are looked for in one commit.
const PRUNE_CLASSES: usize = 32;

#[derive(Default)]
pub(super) struct Books {
    classes: HashMap<Class, Counters>,
    /// The minute in which is counted.
    minute: u64,
    dirty: BTreeSet<Class>,
    /// Counters at the end of minutes that are over, not written yet.
    finished: Vec<(Class, Counters)>,
    /// Classes whose old windows have not been looked for in this minute.
    to_prune: Vec<Class>,
}

impl Books {
    pub(super) fn load(rows: &impl Rows) -> Result<Self, StorageError> {
        let classes = counter::all(rows)?.into_iter().collect();
        Ok(Self { classes, ..Self::default() })
    }

    pub(super) fn classes(&self) -> impl Iterator<Item = Class> + '_ {
        self.classes.keys().copied()
    }

    pub(super) fn gauge(&self, class: Class, gauge: Gauge) -> u64 {
        self.classes.get(&class).map_or(0, |counters| counters.gauge(gauge))
    }

    /// How often something happened to jobs of a class, ever.
    pub(super) fn flow(&self, class: Class, flow: Flow) -> u64 {
        self.classes.get(&class).map_or(0, |counters| counters.flows.get(flow))
    }

    /// Counts a flow in the minute opened last.
    pub(super) fn count(&mut self, class: Class, flow: Flow) {
        self.add(class, flow, 1);
    }

    /// Counts a flow several times.
    pub(super) fn add(&mut self, class: Class, flow: Flow, count: u64) {
        self.change(class).flows.add(flow, count);
    }

    pub(super) fn shift(&mut self, class: Class, from: Option<Gauge>, to: Option<Gauge>) {
        if from == to {
            return;
        }
        let counters = self.change(class);
        if let Some(from) = from {
            counters.leave(from);
        }
        if let Some(to) = to {
            counters.enter(to);
        }
    }

    /// Changes how many bytes dead jobs have.
    pub(super) fn weigh(&mut self, class: Class, less: u64, more: u64) {
        if less != more {
            self.change(class).weigh(Gauge::DeadBytes, less, more);
        }
    }

    fn change(&mut self, class: Class) -> &mut Counters {
        let counters = self.classes.entry(class).or_default();
        if let Some(finished) = counters.roll(self.minute) {
            self.finished.push((class, finished));
        }
        self.dirty.insert(class);
        counters
    }

    /// What is counted from here on is counted in `minute`.
    pub(super) fn open_minute(&mut self, minute: u64) {
        if std::mem::replace(&mut self.minute, minute) != minute && self.to_prune.is_empty() {
            self.to_prune = self.classes.keys().copied().collect();
            self.to_prune.sort_unstable();
        }
    }

    /// Drops up to `count_max` windows of minutes before `oldest`, of a few classes. The latest one of each
    /// stays: what happened from `oldest` on is counted from it. What is left over goes in a later
    /// minute.
    pub(super) fn prune(
        &mut self,
        rows: &mut WriteRows<'_>,
        oldest: u64,
        count_max: usize,
    ) -> Result<(), StorageError> {
        let mut left = count_max;
        for _ in 0..PRUNE_CLASSES {
            let Some(class) = self.to_prune.pop_if(|_| left > 0) else { break };
            let pruned = counter::prune_windows(rows, class, oldest, left)?;
            let Some((dropped, kept_from)) = pruned else { continue };
            left = left.saturating_sub(usize::try_from(dropped).unwrap_or(usize::MAX));
            // Not a change of what is counted: the minute of the counters stays.
            let counters = self.classes.entry(class).or_default();
            counters.windows = counters.windows.saturating_sub(dropped);
            counters.kept_from = kept_from;
            self.dirty.insert(class);
        }
        Ok(())
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes what changed since the last flush.
    pub(super) fn flush(&mut self, rows: &mut WriteRows<'_>) -> Result<(), StorageError> {
        for (class, counters) in std::mem::take(&mut self.finished) {
            counter::put_window(rows, class, &counters)?;
        }
        for class in std::mem::take(&mut self.dirty) {
            if let Some(counters) = self.classes.get(&class) {
                counter::put(rows, class, counters)?;
            }
        }
        Ok(())
    }
}
