//! Every arrow of the state machine: one pure, total function of (job, event, policy, now, seed).
//!
//! The full State x Event table is in `tests/golden/transitions.txt`, written by a test of this
//! file. Time, sequence numbers and the jitter seed are inputs, so that the same commands on the
//! same store give the same store.

mod start;

use crate::domain::blob::Blob;
use crate::domain::cause::fingerprint;
use crate::domain::counter::Flow;
use crate::domain::event::{Event, Work};
use crate::domain::failure::{Failure, FailureClass};
use crate::domain::history::{DeliveryEnd, Finding, HistoryEntry, HistoryEvent};
use crate::domain::id::Token;
use crate::domain::job::{
    Cycle, Dead, DeathReason, Delayed, Done, Job, JobState, Lane, Lease, Payload, Ready, State,
    Tombstone,
};
use crate::domain::policy::{JobPolicy, OnUnknown};
use crate::domain::time::Timestamp;
use crate::domain::transition::unknown::reconciled;
use crate::domain::unknown::lane_for;

mod cancel;
mod redrive;

pub(crate) use redrive::owed;

/// What a step needs to know beside the job and the event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context<'a> {
    pub(crate) policy: &'a JobPolicy,
    pub(crate) now: Timestamp,
    /// Chooses the jitter.
    pub(crate) seed: u64,
    /// The place at the end of the line, for a job that becomes ready.
    pub(crate) seq: u64,
    pub(crate) queue: &'a str,
    pub(crate) kind: &'a str,
}

/// What a step decided: written down as it is, by code that decides nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// The job afterwards.
    pub(crate) job: Job,
    /// What to count.
    pub(crate) flows: Vec<Flow>,
    /// What to note in its history.
    pub(crate) history: Option<HistoryEntry>,
}

/// An event that does not fit the state: nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The token is not that of the current lease.
    Stale { current: Option<Token>, state: JobState },
    /// The job has ended.
    Ended { state: JobState },
    /// The job is not in the state the event is for; only internal callers can see this.
    Unfit { state: JobState },
}

impl Refused {
    /// The state the job is in.
    pub(crate) const fn state(self) -> JobState {
        match self {
            Self::Stale { state, .. } | Self::Ended { state } | Self::Unfit { state } => state,
        }
    }
}

/// Whether the job may be removed for good, evidence and all: only a dead one, and only when asked.
pub(crate) fn discard(job: &Job) -> Result<(), Refused> {
    let State::Dead(_) = &job.state else {
        return Err(Refused::Unfit { state: job.state.name() });
    };
    Ok(())
}

/// Applies `event` to `job`.
pub(crate) fn step(job: &Job, event: Event, context: &Context<'_>) -> Result<Step, Refused> {
    let next = Next { job: job.clone(), context };
    match event {
        Event::Claim(claimant) => next.claim(claimant),
        Event::Due => next.due(),
        Event::Unblock => next.unblock(),
        Event::Complete { token, result } => {
            let lease = fenced(job, token)?;
            Ok(next.complete(lease, result))
        }
        Event::Fail { token, failure } => {
            let lease = fenced(job, token)?;
            Ok(next.fail(lease, &failure))
        }
        Event::DidNotHappen { token } => {
            let lease = fenced(job, token)?;
            if lease.from.lane.is_reconcile() { Ok(next.did_not_happen(lease)) } else { unfit(job) }
        }
        Event::Snooze { token, until } => {
            let lease = fenced(job, token)?;
            Ok(next.snooze(lease, until))
        }
        Event::Release { token, work } => {
            let lease = fenced(job, token)?;
            Ok(next.release(lease, work))
        }
        Event::Expire { token, deadline_exceeded } => {
            let lease = fenced(job, token)?;
            Ok(next.expire(lease, deadline_exceeded))
        }
        Event::Crash => {
            let State::Leased(lease) = &job.state else {
                return unfit(job);
            };
            Ok(next.crash(lease))
        }
        Event::Amend { payload, hash, note } => {
            let State::Dead(_) = &job.state else { return unfit(job) };
            Ok(next.amend(payload, hash, note))
        }
        Event::Replace(new) => next.replace(new),
        Event::Misplaced(why) => next.misplaced(why),
        Event::Redrive { cohort, reason } => {
            let State::Dead(dead) = &job.state else { return unfit(job) };
            Ok(next.redrive(dead, cohort, reason))
        }
        Event::Spoil { why } => {
            let (State::Ready(_) | State::Blocked(_)) = &job.state else { return unfit(job) };
            Ok(next.spoil(&why))
        }
        Event::Cancel => match &job.state {
            State::Ready(_) | State::Delayed(_) | State::Blocked(_) => {
                Ok(next.cancelled(vec![], None))
            }
            State::Leased(lease) => Ok(next.request_cancel(lease)),
            State::Dead(_) | State::Done(_) | State::Cancelled(_) => {
                Err(Refused::Ended { state: job.state.name() })
            }
        },
    }
}

/// Whether the job may be forgotten: it has finished and nothing needs its row any longer.
pub(crate) fn forgettable(job: &Job, now: Timestamp) -> bool {
    job.state.tombstone().is_some_and(|tombstone| tombstone.row_until <= now)
}

fn unfit(job: &Job) -> Result<Step, Refused> {
    Err(Refused::Unfit { state: job.state.name() })
}

/// The lease that `token` fences, or the refusal (P5).
fn fenced(job: &Job, token: Token) -> Result<&Lease, Refused> {
    let stale = Refused::Stale { current: job.token(), state: job.state.name() };
    if job.token() == Some(token) { job.lease().ok_or(stale) } else { Err(stale) }
}

/// The job on its way to the next state.
struct Next<'a> {
    job: Job,
    context: &'a Context<'a>,
}

impl Next<'_> {
    /// Also after a cancel request: the work has happened, and the history holds both facts. From a
    /// reconciler it says that an earlier delivery had its effect: nothing is unknown any longer.
    fn complete(mut self, lease: &Lease, result: Option<Blob>) -> Step {
        let (mut flows, mut entry) = (vec![Flow::Completed], None);
        if lease.from.lane.is_reconcile() {
            self.job.unknown = None;
            flows.push(Flow::ReconciledHappened);
            entry = Some(self.ended(lease, reconciled(Finding::Happened, None)));
        }
        self.job.payload = Payload::Dropped;
        self.job.state = State::Done(Done {
            at: self.context.now,
            claimed_at: lease.claimed_at,
            worker: lease.worker.clone(),
            result,
            duplicate_of: None,
            tombstone: self.tombstone(self.context.policy.key_done_ms),
        });
        self.step(flows, entry)
    }

    fn fail(mut self, lease: &Lease, failure: &Failure) -> Step {
        if lease.from.lane.is_reconcile() {
            let end = reconciled(Finding::StillUnknown, Some(failure));
            let entry = self.ended(lease, end);
            return self.still_unknown(lease, failure, vec![], entry);
        }
        let end = DeliveryEnd::Failed {
            class: failure.class(),
            code: failure.code().to_owned(),
            message: failure.text().to_owned(),
            provider_ref: failure.reference().map(str::to_owned),
        };
        let entry = self.ended(lease, end);
        if lease.cancel_requested {
            return match failure.class() {
                FailureClass::Ambiguous | FailureClass::Crashed => {
                    self.cancelled_in_doubt(lease, failure, vec![], entry)
                }
                FailureClass::Permanent | FailureClass::Transient | FailureClass::Throttled => {
                    self.cancelled(vec![], Some(entry))
                }
            };
        }
        let spent = self.charge(failure.class());
        let policy = self.context.policy;
        let retried = match failure.class() {
            FailureClass::Permanent => {
                return self.die(lease, failure, DeathReason::Permanent, entry);
            }
            FailureClass::Transient => Flow::RetriedTransient,
            FailureClass::Throttled => Flow::RetriedThrottled,
            FailureClass::Ambiguous | FailureClass::Crashed => {
                self.note_unknown(failure);
                match policy.on_unknown {
                    OnUnknown::Quarantine => {
                        return self.die(lease, failure, DeathReason::UnknownRefused, entry);
                    }
                    OnUnknown::Reconcile => return self.in_doubt(failure, entry),
                    OnUnknown::Retry => Flow::RetriedAmbiguous,
                }
            }
        };
        if let Some(reason) = self.budget_spent(failure.class(), spent) {
            return self.die(lease, failure, reason, entry);
        }
        let planned = policy.schedule.delay_ms(spent, self.context.seed);
        let due = self.context.now.plus_ms(planned.max(failure.retry_after_ms().unwrap_or(0)));
        self.job.state = State::Delayed(Delayed { lane: Lane::Retry, due });
        self.step(vec![retried], Some(entry))
    }

    fn snooze(mut self, lease: &Lease, until: Timestamp) -> Step {
        let entry = self.ended(lease, DeliveryEnd::Snoozed { until });
        if lease.cancel_requested {
            return self.cancelled(vec![Flow::Snoozed], Some(entry));
        }
        self.job.cycle.snoozes = self.job.cycle.snoozes.saturating_add(1);
        if self.job.cycle.snoozes > self.context.policy.snoozes_max {
            let failure = Failure::transient("snooze_budget");
            return self.die(lease, &failure, DeathReason::SnoozeBudget, entry);
        }
        self.job.state = if until <= self.context.now {
            self.ready(lease.from.lane)
        } else {
            State::Delayed(Delayed { lane: lease.from.lane, due: until })
        };
        self.step(vec![Flow::Snoozed], Some(entry))
    }

    /// Uncharged even when it had been started: it is not the job's fault that it was stopped. But what
    /// was started may have happened.
    fn release(mut self, lease: &Lease, work: Work) -> Step {
        let entry = self.ended(lease, DeliveryEnd::Released);
        // A reconciler only asks: stopping it makes nothing unknown that was known.
        let may_have_happened = work == Work::Started && !lease.from.lane.is_reconcile();
        let stopped = Failure::ambiguous("stopped").message("given back while it ran");
        if lease.cancel_requested {
            return match may_have_happened {
                true => self.cancelled_in_doubt(lease, &stopped, vec![Flow::Released], entry),
                false => self.cancelled(vec![Flow::Released], Some(entry)),
            };
        }
        self.job.cycle.releases = self.job.cycle.releases.saturating_add(1);
        if self.job.cycle.releases > self.context.policy.releases_max {
            let failure = Failure::transient("release_budget");
            return self.die(lease, &failure, DeathReason::ReleaseBudget, entry);
        }
        if may_have_happened {
            self.note_unknown(&stopped);
            if self.context.policy.on_unknown == OnUnknown::Quarantine {
                return self.die(lease, &stopped, DeathReason::UnknownRefused, entry);
            }
        }
        let lane = lane_for(&self.job, self.context.policy, lease.from.lane);
        self.job.state = State::Ready(Ready { lane, ..lease.from });
        self.step(vec![Flow::Released], Some(entry))
    }

    /// Nobody can run it: it goes where somebody will look at it.
    fn spoil(mut self, why: &str) -> Step {
        let failure = Failure::permanent("damaged").message(why);
        self.job.state = self.dead("", "", &failure, DeathReason::Damaged);
        self.step(vec![Flow::DiedPermanent], None)
    }

    fn die(
        mut self,
        lease: &Lease,
        failure: &Failure,
        reason: DeathReason,
        entry: HistoryEntry,
    ) -> Step {
        self.note_failure();
        self.job.state = self.dead(&lease.worker, &lease.version, failure, reason);
        self.step(vec![Flow::died(failure.class())], Some(entry))
    }

    fn dead(&self, worker: &str, version: &str, failure: &Failure, reason: DeathReason) -> State {
        let Context { now, seq, queue, kind, .. } = *self.context;
        let class = failure.class();
        State::Dead(Dead {
            reason,
            class,
            code: failure.code().to_owned(),
            message: failure.text().to_owned(),
            provider_ref: failure.reference().map(str::to_owned),
            worker: worker.to_owned(),
            version: version.to_owned(),
            died_at: now,
            cause: fingerprint(queue, kind, class, failure.code(), failure.text()),
            seq,
        })
    }

    /// Charges one delivery to `class`; returns how many the class has had in this cycle. An end
    /// of its own also clears a suspect: the process has survived it.
    fn charge(&mut self, class: FailureClass) -> u32 {
        self.note_failure();
        let cycle: &mut Cycle = &mut self.job.cycle;
        cycle.attempts = cycle.attempts.saturating_add(1);
        cycle.crashed = 0;
        let count = match class {
            FailureClass::Permanent => return 1,
            FailureClass::Transient => &mut cycle.transient,
            FailureClass::Throttled => &mut cycle.throttled,
            FailureClass::Ambiguous => &mut cycle.ambiguous,
            FailureClass::Crashed => &mut cycle.crashed,
        };
        *count = count.saturating_add(1);
        *count
    }

    fn note_failure(&mut self) {
        self.job.first_failed_at.get_or_insert(self.context.now);
    }

    fn budget_spent(&self, class: FailureClass, spent: u32) -> Option<DeathReason> {
        let policy = self.context.policy;
        if spent >= policy.class_max(class) {
            Some(DeathReason::ClassBudget)
        } else if self.job.cycle.attempts >= policy.max_deliveries {
            Some(DeathReason::TotalBudget)
        } else {
            None
        }
    }

    fn ended(&self, lease: &Lease, end: DeliveryEnd) -> HistoryEntry {
        let event = HistoryEvent::DeliveryEnded {
            delivery: self.job.deliveries,
            claimed_at: lease.claimed_at,
            worker: lease.worker.clone(),
            end,
        };
        HistoryEntry { at: self.context.now, event }
    }

    fn ready(&self, lane: Lane) -> State {
        State::Ready(Ready { lane, seq: self.context.seq, since: self.context.now })
    }

    fn tombstone(&self, key_ms: u64) -> Tombstone {
        let now = self.context.now;
        let key_ms = if self.job.key.is_some() { key_ms } else { 0 };
        let key_until = now.plus_ms(key_ms);
        let row_until = key_until.max(now.plus_ms(self.context.policy.keep_finished_ms));
        Tombstone { key_until, row_until }
    }

    fn step(mut self, flows: Vec<Flow>, history: Option<HistoryEntry>) -> Step {
        if history.is_some() {
            self.job.history_next = self.job.history_next.saturating_add(1);
        }
        match self.job.state {
            // Whoever is owed the outcome is told by the writer, from the job before.
            State::Dead(_) | State::Done(_) | State::Cancelled(_) => self.job.cohort = None,
            State::Ready(_) | State::Delayed(_) | State::Leased(_) | State::Blocked(_) => {}
        }
        Step { job: self.job, flows, history }
    }
}

pub(crate) mod key;
mod unknown;

#[cfg(test)]
mod tests;
