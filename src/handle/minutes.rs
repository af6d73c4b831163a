//! Figures per minute.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::domain::counter::{Counters, Flow, Gauge};
use crate::domain::id::{Class, KindId, QueueId};
use crate::domain::job::Lane;
use crate::domain::time::Timestamp;
use crate::domain::window::Window;
use crate::error::StorageError;
use crate::handle::redrive::Redrive;
use crate::store::{counter, names};

/// A minute in which something happened to jobs of one kind in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Minute {
    /// Its start.
    pub at: Timestamp,
    /// What happened in it, by the names of [`Counts::flows`](crate::Counts::flows); what did not happen
    /// is left out.
    pub flows: BTreeMap<&'static str, u64>,
    /// Jobs that were ready at its end.
    pub ready: u64,
    /// Jobs that were delayed at its end.
    pub delayed: u64,
    /// Jobs that were leased at its end.
    pub leased: u64,
    /// Jobs that were dead at its end.
    pub dead: u64,
}

impl Redrive {
    /// The minutes of `window` in which something happened to jobs of `kind` in `queue`, oldest first;
    /// of those that are kept (7 days, see [`Options::keep_windows`](crate::Options::keep_windows)), the
    /// present one included. Empty for names that are not known. Costs a row per minute told.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the figures cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use std::time::Duration;
    /// use redrive::{NewJob, Window};
    ///
    /// jobs.enqueue(NewJob::new("mail", "welcome"))?;
    /// for minute in jobs.minutes("mail", "welcome", Window::last(Duration::from_secs(3_600)))? {
    ///     println!("{} {:?}", minute.at, minute.flows.get("completed"));
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn minutes(
        &self,
        queue: &str,
        kind: &str,
        window: Window,
    ) -> Result<Vec<Minute>, StorageError> {
        self.store().read(|rows| {
            let queue = names::queues(rows)?.iter().position(|known| known.name == queue);
            let kind = names::kinds(rows)?.iter().position(|known| known == kind);
            let number = |place: Option<usize>| place.and_then(|place| u32::try_from(place).ok());
            let (Some(queue), Some(kind)) = (number(queue), number(kind)) else {
                return Ok(Vec::new());
            };
            let class = Class { queue: QueueId::new(queue), kind: KindId::new(kind) };
            let Some(counters) = counter::read(rows, class)? else { return Ok(Vec::new()) };
            let now = self.now(rows)?.minute();
            let kept = if counters.kept_from > 0 { counters.kept_from + 1 } else { 0 };
            let oldest = now.saturating_sub(self.window_minutes()).max(kept);
            let (from, to) = window.minutes(now, oldest);
            let from = from.unwrap_or(oldest);
            let mut before = counter::at_end_of(rows, class, from.saturating_sub(1), &counters)?;
            let mut minutes = Vec::new();
            let present = (from..=to).contains(&counters.minute).then(|| counters.clone());
            for after in counter::windows(rows, class, from, to)?.into_iter().chain(present) {
                minutes.push(Minute::between(&before, &after));
                before = after;
            }
            Ok(minutes)
        })
    }
}

impl Minute {
    fn between(before: &Counters, after: &Counters) -> Self {
        let flows = after.flows.since(&before.flows);
        let counted = Flow::ALL.iter().map(|&flow| (flow.name(), flows.get(flow)));
        let lanes = Lane::ALL;
        Self {
            at: Timestamp::from_millis(after.minute.saturating_mul(60_000)),
            flows: counted.filter(|&(_, count)| count > 0).collect(),
            ready: after.sum(lanes.map(Gauge::ready)),
            delayed: after.sum(lanes.map(Gauge::delayed)),
            leased: after.sum(lanes.map(Gauge::leased)),
            dead: after.gauge(Gauge::Dead),
        }
    }
}
