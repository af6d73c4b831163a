//! What the abort rules look at: kept counters, and the heads of the lines.

use crate::domain::abort::{Abort, Weather};
use crate::domain::cohort::Cohort;
use crate::domain::counter::{Flow, Gauge};
use crate::domain::failure::FailureClass;
use crate::domain::id::{Class, JobId};
use crate::domain::job::Lane;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;

impl Batch<'_, '_> {
    pub(super) fn weather(&self, cohort: &Cohort) -> Result<Weather, StorageError> {
        let mut weather = Weather::default();
        if !cohort.is_live() || cohort.plan.aborts.look_every_ms().is_none() {
            return Ok(weather);
        }
        let registry = &self.core.registry;
        let classes: Vec<Class> = match cohort.plan.filter.queue_name() {
            Some(name) => {
                registry.queue_id(name).into_iter().flat_map(|q| registry.classes(q)).collect()
            }
            None => self.core.books.classes().collect(),
        };
        let flow =
            |flow| -> u64 { classes.iter().map(|&class| self.core.books.flow(class, flow)).sum() };
        let died: u64 = FailureClass::ALL.iter().map(|&class| flow(Flow::died(class))).sum();
        weather.died = died.saturating_sub(cohort.counts.died_again);
        weather.throttled = flow(Flow::RetriedThrottled) + flow(Flow::DiedThrottled);
        if cohort.plan.aborts.iter().any(|rule| matches!(rule, Abort::ReadyAge { .. })) {
            // What is paused or held back waits for a reason of its own.
            for &class in classes.iter().filter(|&&class| !self.core.pauses.stop(class)) {
                for lane in Lane::ALL {
                    weather.ready_ms = weather.ready_ms.max(self.ready_ms(class, lane)?);
                }
            }
        }
        Ok(weather)
    }

    /// How long the head of the line has waited, over all priorities of a lane.
    fn ready_ms(&self, class: Class, lane: Lane) -> Result<u64, StorageError> {
        let mut oldest_ms = 0;
        if self.core.books.gauge(class, Gauge::ready(lane)) == 0 {
            return Ok(oldest_ms);
        }
        let lane = key::ready_lane(class, lane.number());
        let end = key::after_prefix(&lane);
        let mut from = lane.clone();
        while let Some((name, value)) = self.rows.first(TableId::Ready, &from, &end)? {
            // A damaged row is the trouble of whoever claims it.
            if let Ok((_, since)) = record::decode::<(JobId, Timestamp)>(&value) {
                let since = since.max(self.core.opened_at);
                oldest_ms = oldest_ms.max(self.time.now.ms_since(since));
            }
            // On to the next priority.
            from = key::after_prefix(name.get(..=lane.len()).unwrap_or(&name));
        }
        Ok(oldest_ms)
    }
}
