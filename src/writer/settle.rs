//! Ending leases at the wish of their holders, and ending jobs at the wish of an operator.

use crate::domain::counter::Flow;
use crate::domain::event::Event;
use crate::domain::id::{JobId, Token};
use crate::domain::job::{Job, JobState};
use crate::domain::policy::JobPolicy;
use crate::domain::transition::Refused;
use crate::error::{CancelError, QueueError, SettleError, StorageError};
use crate::store::alone;
use crate::store::job as job_store;
use crate::writer::batch::Batch;
use crate::writer::command::{Cancelled, How, QueueSettings, Settle, WriteSet};

impl Batch<'_, '_> {
    /// Settles the lease, and serves the claim that came with it in the same commit.
    pub(super) fn settle(&mut self, settle: Settle) -> Result<(), StorageError> {
        let Settle { token, class, how, reply, then } = settle;
        let asks_hold = match &how {
            How::Fail(failure) if failure.holds().is_some() => Some(failure.clone()),
            How::Complete { .. }
            | How::Fail(_)
            | How::DidNotHappen
            | How::Snooze(_)
            | How::Release(_) => None,
        };
        let (event, effects) = how.event(token, self.time.now);
        let outcome = self.settled(token, event, effects)?;
        if matches!(outcome, Err(SettleError::StaleLease { .. })) {
            self.core.books.count(class, Flow::Stale);
        }
        if let (Ok(_), Some(failure)) = (&outcome, asks_hold) {
            self.hold_for(class, token.job, &failure)?;
        }
        self.answer_with(reply, outcome);
        then.map_or(Ok(()), |claim| self.claim_in_turn(claim))
    }

    pub(super) fn settled(
        &mut self,
        token: Token,
        event: Event,
        effects: WriteSet,
    ) -> Result<Result<JobState, SettleError>, StorageError> {
        let stale = |current| Ok(Err(SettleError::StaleLease { presented: token, current }));
        let job = match alone(job_store::read(&*self.rows, token.job))? {
            Ok(Some(job)) => job,
            Ok(None) => return stale(None),
            Err(damage) => return Ok(Err(damage.into())),
        };
        match alone(self.plan(&job, event))? {
            Err(damage) => Ok(Err(damage.into())),
            Ok(Ok(mut step)) => {
                let planned = match self.plan_effects(&effects)? {
                    Ok(planned) => planned,
                    Err(refused) => return Ok(Err(refused)),
                };
                // The effects first: for follow-up jobs, this one still owns its key.
                let asks = !effects.follow_ups.is_empty();
                self.apply_effects(effects, &planned)?;
                if asks {
                    self.keep_asked(&mut step)?;
                }
                let state = step.job.state.name();
                self.apply(&job, step)?;
                Ok(Ok(state))
            }
            Ok(Err(Refused::Stale { current, .. })) => stale(current),
            Ok(Err(Refused::Ended { .. } | Refused::Unfit { .. })) => stale(None),
        }
    }

    /// The job an operator named, or why there is none to work on.
    pub(super) fn named(&self, id: JobId) -> Result<Result<Job, CancelError>, StorageError> {
        let read = alone(job_store::read(&*self.rows, id))?;
        Ok(read
            .map_err(CancelError::from)
            .and_then(|job| job.ok_or(CancelError::NotFound { job: id })))
    }

    /// Cancels a job that has not ended, or asks its worker to stop.
    pub(super) fn cancel(
        &mut self,
        id: JobId,
    ) -> Result<Result<Cancelled, CancelError>, StorageError> {
        let job = match self.named(id)? {
            Ok(job) => job,
            Err(error) => return Ok(Err(error)),
        };
        Ok(match alone(self.plan(&job, Event::Cancel))? {
            Err(damage) => Err(damage.into()),
            Ok(Ok(step)) => {
                let requested = step.job.state.name() == JobState::Leased;
                self.apply(&job, step)?;
                if requested {
                    self.core.leases.request_cancel(id);
                }
                Ok(if requested { Cancelled::Requested } else { Cancelled::Now })
            }
            Ok(Err(_)) => Err(CancelError::WrongState { job: id, state: job.state.name() }),
        })
    }

    /// Changes a queue's settings; the queue comes into being if it is new.
    pub(super) fn set_queue(
        &mut self,
        settings: &QueueSettings,
    ) -> Result<Result<(), QueueError>, StorageError> {
        let registry = &mut self.core.registry;
        let new_queue = registry.queue_id(&settings.name).is_none();
        let is_new = |policy: &JobPolicy| registry.policy_id(policy).is_none();
        let new_policy = settings.policy.as_ref().is_some_and(is_new);
        if let Err(full) = registry.room(usize::from(new_queue), 0, usize::from(new_policy)) {
            return Ok(Err(QueueError::TooMany { what: full.what, count_max: full.count_max }));
        }
        let id = registry.intern_queue(self.rows, &settings.name)?;
        let policy = match &settings.policy {
            Some(policy) => Some(registry.intern_policy(self.rows, policy)?),
            None => None,
        };
        registry.set_queue(self.rows, id, |queue| {
            queue.policy = policy.or(queue.policy);
            if let Some(percent) = settings.retry_share_percent {
                queue.retry_share_percent = percent;
            }
            queue.message_order = settings.message_order.unwrap_or(queue.message_order);
            queue.on_dead = settings.on_dead.unwrap_or(queue.on_dead);
            queue.retention = settings.retention.unwrap_or(queue.retention);
        })?;
        if settings.retention.is_some() {
            self.core.retention.look_at(id);
        }
        Ok(Ok(()))
    }
}
