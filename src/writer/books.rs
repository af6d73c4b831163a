//! The counters of every class in memory; written with the commit that changed them, one row per
//! class and commit (P11).

use std::collections::{BTreeSet, HashMap};

use crate::domain::counter::{Counters, Flow, Gauge, Window};
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::store::counter;
use crate::store::rows::{Rows, WriteRows};

#[derive(Default)]
pub(super) struct Books {
    classes: HashMap<Class, Counters>,
    /// The minute in which is counted.
    minute: u64,
    dirty: BTreeSet<Class>,
    /// Minutes that are over and not written yet.
    finished: Vec<(Class, Window)>,
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
        let counters = self.classes.entry(class).or_default();
        if let Some(window) = counters.count(self.minute, flow) {
            self.finished.push((class, window));
        }
        self.dirty.insert(class);
    }

    pub(super) fn shift(&mut self, class: Class, from: Option<Gauge>, to: Option<Gauge>) {
        if from == to {
            return;
        }
        let counters = self.classes.entry(class).or_default();
        if let Some(from) = from {
            counters.leave(from);
        }
        if let Some(to) = to {
            counters.enter(to);
        }
        self.dirty.insert(class);
    }

    /// What is counted from here on is counted in `minute`. Returns whether it is a new one.
    pub(super) fn open_minute(&mut self, minute: u64) -> bool {
        std::mem::replace(&mut self.minute, minute) != minute
    }

    /// Drops up to `count_max` windows of minutes before `oldest`; returns whether there may be more.
    pub(super) fn prune(
        &mut self,
        rows: &mut WriteRows<'_>,
        oldest: u64,
        count_max: usize,
    ) -> Result<bool, StorageError> {
        let pruned = counter::prune_windows(rows, oldest, count_max)?;
        for (class, flows) in &pruned {
            self.classes.entry(*class).or_default().pruned.add_all(flows);
            self.dirty.insert(*class);
        }
        Ok(pruned.len() == count_max)
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes what changed since the last flush.
    pub(super) fn flush(&mut self, rows: &mut WriteRows<'_>) -> Result<(), StorageError> {
        for (class, window) in std::mem::take(&mut self.finished) {
            counter::put_window(rows, window.minute, class, &window.flows)?;
        }
        for class in std::mem::take(&mut self.dirty) {
            if let Some(counters) = self.classes.get(&class) {
                counter::put(rows, class, counters)?;
            }
        }
        Ok(())
    }
}
