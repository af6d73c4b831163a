//! The rule of ordering keys in the reference model.

use crate::domain::id::JobId;
use crate::domain::job::Lane;
use crate::domain::policy::OnUnknown;
use crate::testing::life::{Life, Place, Spot};
use crate::testing::model::Model;

/// Queue and ordering key.
pub(super) type Line = (usize, String);

impl Life {
    pub(super) fn line(&self) -> Option<Line> {
        self.order.clone().map(|order| (self.queue, order))
    }

    /// Others leased in the same claim would be convicted of what becomes of it, or it of theirs.
    pub(super) fn runs_by_itself(&self) -> bool {
        self.rules.deadline_ms.is_some() || self.rules.on_unknown != OnUnknown::Retry
    }

    /// Nobody behind it under its ordering key starts.
    fn holds(&self) -> bool {
        match self.place {
            Place::Ready(_) | Place::Delayed { .. } | Place::Leased(_) => true,
            Place::Dead(_) => self.halts,
            Place::Done { .. } | Place::Cancelled { .. } | Place::Blocked { .. } => false,
        }
    }
}

impl Model {
    /// After a change of a job, which `held` its ordering key before: whether it has to wait, and
    /// whose turn it is.
    pub(super) fn arrange(&mut self, id: JobId, held: bool) {
        let Some(line) = self.jobs.get(&id).and_then(Life::line) else { return };
        let waits = self.holders(&line).any(|other| other < id || (other != id && !held));
        if let Some(job) = self.jobs.get_mut(&id)
            && waits
        {
            match job.place {
                Place::Ready(spot) => job.place = Place::Blocked { lane: spot.lane, due: None },
                Place::Delayed { lane, due } => {
                    job.place = Place::Blocked { lane, due: Some(due) };
                }
                Place::Leased(_)
                | Place::Done { .. }
                | Place::Cancelled { .. }
                | Place::Dead(_)
                | Place::Blocked { .. } => {}
            }
        }
        self.promote(&line);
    }

    fn holders<'m>(&'m self, line: &'m Line) -> impl Iterator<Item = JobId> + 'm {
        let jobs = self.jobs.values();
        jobs.filter(|job| job.holds() && job.line().as_ref() == Some(line)).map(|job| job.id)
    }

    /// If nobody holds the key, the first one that waits does from now on.
    pub(super) fn promote(&mut self, line: &Line) {
        if self.holders(line).next().is_some() {
            return;
        }
        if let Some(id) = self.waiting(line)
            && let Some(job) = self.jobs.get_mut(&id)
            && let Place::Blocked { lane, due } = job.place
        {
            job.place = match due {
                Some(due) if due > self.now => Place::Delayed { lane, due },
                _ => Place::Ready(Spot { lane, seq: id.get() }),
            };
        }
    }

    fn waiting(&self, line: &Line) -> Option<JobId> {
        let waits = |job: &&Life| {
            matches!(job.place, Place::Blocked { .. }) && job.line().as_ref() == Some(line)
        };
        self.jobs.values().find(waits).map(|job| job.id)
    }

    /// Whether others may be leased along with a job that is about to be.
    pub(super) fn may_lead(&self, id: JobId, spot: Spot) -> bool {
        let Some(line) = self.jobs.get(&id).and_then(Life::line) else { return false };
        let alone = self.holders(&line).all(|holder| holder == id);
        alone && spot.lane == Lane::Fresh
    }

    /// Who goes along with the leased job `id` next.
    pub(super) fn follower(&self, id: JobId) -> Option<(JobId, Spot)> {
        let head = self.jobs.get(&id)?;
        let next = self.jobs.get(&self.waiting(&head.line()?)?)?;
        let Place::Blocked { lane, due } = next.place else { return None };
        let goes = next.kind == head.kind
            && lane == Lane::Fresh
            && due.is_none_or(|due| due <= self.now)
            && !next.runs_by_itself();
        goes.then_some((next.id, Spot { lane, seq: next.id.get() }))
    }
}
