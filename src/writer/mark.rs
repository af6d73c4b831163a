//! Committing a step of a job that goes on.

use crate::domain::counter::Flow;
use crate::domain::limits::STEPS_MAX;
use crate::domain::mark::{Marker, Unmarked, mark};
use crate::error::{SettleError, StorageError};
use crate::store::{alone, job as job_store, mark as mark_store};
use crate::writer::batch::Batch;
use crate::writer::command::{Mark, Marking};

impl Batch<'_, '_> {
    /// Commits the effects of a step together with its marker, under the lease's fence.
    pub(super) fn mark(&mut self, command: Mark) -> Result<(), StorageError> {
        let Mark { marking, reply } = command;
        let class = marking.class;
        let outcome = self.marked(marking)?;
        if matches!(outcome, Err(SettleError::StaleLease { .. })) {
            self.core.books.count(class, Flow::Stale);
        }
        self.answer_with(reply, outcome);
        Ok(())
    }

    fn marked(&mut self, marking: Marking) -> Result<Result<(), SettleError>, StorageError> {
        let Marking { token, class: _, name, output, effects } = marking;
        let stale = |current| Ok(Err(SettleError::StaleLease { presented: token, current }));
        let job = match alone(job_store::read(&*self.rows, token.job))? {
            Ok(Some(job)) => job,
            Ok(None) => return stale(None),
            Err(damage) => return Ok(Err(damage.into())),
        };
        let mut step = match mark(&job, token) {
            Ok(step) => step,
            Err(Unmarked::Stale { current }) => return stale(current),
            Err(Unmarked::Full) => {
                return Ok(Err(SettleError::TooManySteps { steps_max: STEPS_MAX }));
            }
        };
        match alone(mark_store::get(&*self.rows, job.id, &name))? {
            Ok(None) => {}
            Ok(Some(_)) => return Ok(Err(SettleError::StepRepeated { name })),
            Err(damage) => return Ok(Err(damage.into())),
        }
        let planned = match self.plan_effects(&effects)? {
            Ok(planned) => planned,
            Err(refused) => return Ok(Err(refused)),
        };
        let asks = !effects.follow_ups.is_empty();
        self.apply_effects(effects, &planned)?;
        if asks {
            self.keep_asked(&mut step)?;
        }
        let marker = Marker { at: self.time.now, delivery: token.delivery, output };
        mark_store::put(self.rows, job.id, &name, &marker)?;
        self.apply(&job, step)?;
        Ok(Ok(()))
    }
}
