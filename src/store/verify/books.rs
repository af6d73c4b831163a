//! Counters and windows: the gauges are those of the rows, every row balances by itself, and whatever is
//! counted is only counted up.

use std::collections::BTreeMap;

use crate::domain::counter::{Counters, Flow, Gauge};
use crate::domain::id::Class;
use crate::error::StorageError;
use crate::format::{hex, key, record};
use crate::store::counter;
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::store::verify::Check;

impl<R: Rows> Check<'_, R> {
    pub(super) fn counters(&mut self) -> Result<(), StorageError> {
        let stored = counter::all(self.rows)?;
        let mut windows: BTreeMap<Class, (u64, Counters)> = BTreeMap::new();
        self.each(TableId::Windows, |check, (name, value)| {
            let Ok((class, minute)) = key::read_window(name) else {
                check.problem(TableId::Windows, hex(name), "cannot be read");
                return Ok(());
            };
            let seen = windows.entry(class).or_default();
            seen.0 += 1;
            let Ok(window) = record::decode::<Counters>(value) else {
                check.problem(TableId::Windows, hex(name), "cannot be read");
                return Ok(());
            };
            if window.minute != minute {
                check.problem(TableId::Windows, hex(name), "holds another minute");
            }
            check.balance(TableId::Windows, &hex(name), &window);
            let earlier = std::mem::replace(&mut seen.1, window.clone());
            check.follows(&hex(name), &earlier, &window);
            Ok(())
        })?;
        let mut recomputed = std::mem::take(&mut self.counters);
        for (class, counters) in stored {
            self.report.rows += 1;
            let label = format!("queue {} kind {}", class.queue, class.kind);
            let expected = recomputed.remove(&class).unwrap_or_default();
            for &gauge in Gauge::ALL {
                let (found, expected) = (counters.gauge(gauge), expected.gauge(gauge));
                if found != expected {
                    let what = format!("{} is {found}, the rows say {expected}", gauge.name());
                    self.problem(TableId::Counters, &label, what);
                }
            }
            self.balance(TableId::Counters, &label, &counters);
            let (count, latest) = windows.remove(&class).unwrap_or_default();
            self.follows(&label, &latest, &counters);
            if count != counters.windows {
                let what = format!("there are {count}, not {}", counters.windows);
                self.problem(TableId::Windows, &label, what);
            }
        }
        for class in windows.keys() {
            self.problem(TableId::Windows, format!("{class:?}"), "no counters for it");
        }
        for class in recomputed.keys() {
            let label = format!("queue {} kind {}", class.queue, class.kind);
            self.problem(TableId::Counters, label, "missing");
        }
        Ok(())
    }

    fn balance(&mut self, table: TableId, row: &str, counters: &Counters) {
        for (what, residual) in
            [("flows", counters.residual()), ("deaths", counters.dead_residual())]
        {
            if residual != 0 {
                self.problem(table, row, format!("the {what} leave a residual of {residual}"));
            }
        }
    }

    /// Whatever happens is counted up: no flow of a later moment is below that of an earlier one.
    fn follows(&mut self, row: &str, earlier: &Counters, later: &Counters) {
        for &flow in Flow::ALL {
            let (before, after) = (earlier.flows.get(flow), later.flows.get(flow));
            if before > after {
                let what = format!("{} was {before} and is {after}", flow.name());
                self.problem(TableId::Windows, row, what);
            }
        }
    }
}
