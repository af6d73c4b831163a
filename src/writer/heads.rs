//! The heads of the lanes that one claim may take from, read ahead a little.

use std::collections::VecDeque;

use crate::domain::counter::Gauge;
use crate::domain::id::{Class, JobId};
use crate::domain::job::Lane;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;
use crate::writer::claim::Stand;

/// Most rows read ahead from one lane.
const READ_AHEAD: usize = 64;

/// The first job of one lane of one class.
pub(super) struct Head {
    pub(super) class: Class,
    pub(super) lane: Lane,
    pub(super) row: Vec<u8>,
    pub(super) id: JobId,
}

impl Head {
    pub(super) fn stand(&self) -> Stand<'_> {
        let counted = (self.class, Gauge::ready(self.lane));
        Stand { table: TableId::Ready, row: &self.row, id: self.id, counted }
    }
}

/// A head, or the key of a `ready` row that is damaged and why. The job such a row stood for is found
/// by `verify`.
pub(super) type Taken = Result<Head, (Vec<u8>, StorageError)>;

/// Where a head stands, in the order in which claims go: highest priority, then longest in line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    inverted_priority: u8,
    seq: u64,
    line: usize,
}

pub(super) struct Heads {
    lines: Vec<Line>,
    read_ahead: usize,
}

/// One lane of one class.
struct Line {
    class: Class,
    lane: Lane,
    ahead: VecDeque<(Vec<u8>, Vec<u8>)>,
    /// Where to read on; `None` when there is no more.
    from: Option<Vec<u8>>,
}

impl Heads {
    pub(super) fn new(lanes: impl IntoIterator<Item = (Class, Lane)>, jobs_max: usize) -> Self {
        let line = |(class, lane): (Class, Lane)| {
            let from = Some(key::ready_lane(class, lane.number()));
            Line { class, lane, ahead: VecDeque::new(), from }
        };
        let lines = lanes.into_iter().map(line).collect();
        Self { lines, read_ahead: jobs_max.min(READ_AHEAD) }
    }

    /// The best head of `lane` over all classes.
    pub(super) fn peek(
        &mut self,
        batch: &Batch<'_, '_>,
        lane: Lane,
    ) -> Result<Option<Place>, StorageError> {
        let mut best: Option<Place> = None;
        for (number, line) in self.lines.iter_mut().enumerate() {
            if line.lane != lane || !line.fill(batch, self.read_ahead)? {
                continue;
            }
            if let Some((row, _)) = line.ahead.front() {
                let (priority, seq) = key::read_ready_order(row)?;
                let place = Place { inverted_priority: u8::MAX - priority, seq, line: number };
                best = Some(best.map_or(place, |best| best.min(place)));
            }
        }
        Ok(best)
    }

    /// Takes the head at `place`.
    pub(super) fn take(&mut self, place: Place) -> Option<Taken> {
        let line = self.lines.get_mut(place.line)?;
        let (row, value) = line.ahead.pop_front()?;
        let decoded = record::decode::<(JobId, Timestamp)>(&value);
        Some(match decoded {
            Ok((id, _since)) => Ok(Head { class: line.class, lane: line.lane, row, id }),
            Err(damage) => Err((row, damage.into())),
        })
    }
}

impl Line {
    /// Reads on if nothing is left; returns whether there is a head.
    fn fill(&mut self, batch: &Batch<'_, '_>, count: usize) -> Result<bool, StorageError> {
        if self.ahead.is_empty()
            && let Some(from) = self.from.take()
        {
            let prefix = key::ready_lane(self.class, self.lane.number());
            let rows =
                batch.rows.range(TableId::Ready, &from, &key::after_prefix(&prefix), count)?;
            if let Some((last, _)) = rows.last()
                && rows.len() == count
            {
                let mut next = last.clone();
                next.push(0);
                self.from = Some(next);
            }
            self.ahead = rows.into();
        }
        Ok(!self.ahead.is_empty())
    }
}
