//! The counters of every class in memory; written with the commit that changed them, one row per
//! class and commit (P11).

use std::collections::{BTreeSet, HashMap};

use crate::domain::counter::{Counters, Flow, Flows, Gauge};
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::store::alone;
use crate::store::counter;
use crate::store::rows::{Rows, WriteRows};

#[derive(Default)]
pub(super) struct Books {
    classes: HashMap<Class, Counters>,
    /// The windows of the minute being filled.
    minute: u64,
    windows: HashMap<Class, Flows>,
    dirty: BTreeSet<Class>,
    /// Classes whose window of this minute was looked up: after an opening, the file may hold flows
    /// of the same minute.
    looked_up: BTreeSet<Class>,
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

    /// Counts a flow in the minute opened last.
    pub(super) fn count(&mut self, class: Class, flow: Flow) {
        self.classes.entry(class).or_default().flows.add(flow, 1);
        self.windows.entry(class).or_default().add(flow, 1);
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

    /// Opens the window of `minute`. Must come before anything is counted in it. Returns whether
    /// the minute is a new one.
    pub(super) fn open_minute(&mut self, minute: u64) -> bool {
        let new = minute != self.minute;
        if new {
            self.minute = minute;
            self.windows.clear();
            self.looked_up.clear();
        }
        new
    }

    pub(super) fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Writes what changed since the last flush.
    pub(super) fn flush(&mut self, rows: &mut WriteRows<'_>) -> Result<(), StorageError> {
        for class in std::mem::take(&mut self.dirty) {
            if let Some(counters) = self.classes.get(&class) {
                counter::put(rows, class, counters)?;
            }
            let Some(flows) = self.windows.get_mut(&class) else {
                continue;
            };
            // A damaged window is begun anew: it says less than it could, and harms nobody.
            if self.looked_up.insert(class)
                && let Some(earlier) =
                    alone(counter::window(rows, self.minute, class))?.ok().flatten()
            {
                flows.add_all(&earlier);
            }
            counter::put_window(rows, self.minute, class, flows)?;
        }
        Ok(())
    }
}
