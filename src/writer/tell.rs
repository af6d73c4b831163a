//! Noting in a batch what is to be told once it is committed.

use crate::domain::counter::Flow;
use crate::domain::job::{Job, State};
use crate::domain::pause::{Paused, Stop, Stopped};
use crate::error::StorageError;
use crate::writer::batch::Batch;
use crate::writer::events::EventKind;

impl Batch<'_, '_> {
    /// Notes an event, if anybody wants to know.
    pub(super) fn tell(&mut self, what: impl FnOnce(&Self) -> Result<EventKind, StorageError>) {
        if self.core.board.is_watched()
            && let Ok(what) = what(self)
        {
            self.core.told.push(what);
        }
    }

    /// What the step from `before` to `after` is worth telling.
    pub(super) fn tell_of_job(&mut self, before: &Job, after: &Job, flows: &[Flow]) {
        let class = before.class;
        if let Some(lease) = before.lease()
            && flows.contains(&Flow::LeaseExpired)
        {
            self.tell(|batch| {
                Ok(EventKind::LeaseExpired {
                    job: before.id,
                    queue: batch.core.registry.queue(class.queue)?.1.to_string(),
                    kind: batch.core.registry.kind(class.kind)?.to_string(),
                    worker: lease.worker.clone(),
                })
            });
        }
        if let State::Dead(dead) = &after.state
            && !matches!(before.state, State::Dead(_))
        {
            self.tell(|batch| {
                Ok(EventKind::JobDied {
                    job: before.id,
                    queue: batch.core.registry.queue(class.queue)?.1.to_string(),
                    kind: batch.core.registry.kind(class.kind)?.to_string(),
                    reason: dead.reason,
                    class: dead.class,
                    code: dead.code.clone(),
                })
            });
        }
    }

    /// A pause or a hold, by its names.
    pub(super) fn paused(&self, stopped: Stopped, stop: &Stop) -> Result<Paused, StorageError> {
        let registry = &self.core.registry;
        let queue = |id| Ok::<_, StorageError>(registry.queue(id)?.1.to_string());
        let kind = |id| Ok::<_, StorageError>(registry.kind(id)?.to_string());
        let scope = stopped.scope(queue, kind)?;
        Ok(Paused::new(scope, stop.clone()))
    }
}
