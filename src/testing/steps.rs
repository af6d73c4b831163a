//! The steps: the same call to the store and to the model, and both answers compared.

use std::time::Duration;

use crate::domain::failure::{Failure, FailureClass};
use crate::domain::id::JobId;
use crate::domain::job::JobState;
use crate::domain::order::OnDead;
use crate::domain::time::whole_ms;
use crate::error::{CancelError, SettleError};
use crate::handle::claim::ClaimRequest;
use crate::handle::lease::Lease;
use crate::handle::new_job::NewJob;
use crate::handle::queue::QueuePolicy;
use crate::testing::commands::{Accepted, accepted};
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, VERSION, text};
use crate::testing::life::{Ending, Trouble};
use crate::testing::model::Model;
use crate::testing::op::{Item, KINDS, OUTBOX, Op, QUEUES, Retained};
use crate::testing::outbox::DESTINATION;
use crate::testing::rules::RULES;
use crate::writer::command::{BatchRule, Cancelled};

impl Harness {
    pub(super) fn step(&mut self, op: &Op) -> Verdict {
        match op {
            Op::Enqueue(item) => self.enqueue(std::slice::from_ref(item), BatchRule::PerItem),
            Op::EnqueueMany { items, all_or_nothing } => {
                let rule =
                    if *all_or_nothing { BatchRule::AllOrNothing } else { BatchRule::PerItem };
                self.enqueue(items, rule)
            }
            Op::Claim { queue, kinds, reconciles, jobs, followers } => {
                self.claim(*queue, (*kinds, *reconciles), *jobs, *followers)
            }
            Op::Reconcile { lease, answer } => self.reconcile(*lease, *answer),
            Op::Heartbeat { lease } => self.heartbeat(*lease),
            Op::Complete { lease, result } => self.complete(*lease, *result),
            Op::CompleteWith { lease, changes, follow_ups, fault } => {
                self.complete_with(*lease, changes, follow_ups, *fault)
            }
            Op::Step { lease, name, changes, follow_ups } => {
                self.step_once(*lease, *name, changes, follow_ups)
            }
            Op::Transact { lease, items, changes, gives_up } => {
                self.transact(*lease, items, changes, *gives_up)
            }
            Op::Fail { lease, class, retry_after_ms, text } => {
                self.fail(*lease, *class, *retry_after_ms, *text)
            }
            Op::Snooze { lease, ms } => self.snooze(*lease, *ms),
            Op::Release { lease } => self.end(*lease, |_| Ending::Released, Lease::release),
            Op::Drop { lease } => self.drop_lease(*lease),
            Op::Twice { lease, again } => self.twice(*lease, *again),
            Op::Churn { queue, times } => self.churn(*queue, *times),
            Op::Cancel { job } => self.cancel(*job),
            Op::Discard { job } => self.discard(*job),
            Op::Amend { job, payload } => self.amend(*job, *payload),
            Op::SetQueue { queue: OUTBOX, rules, halt, retention, order, .. } => {
                self.set_destination(*rules, *halt, *retention, *order)
            }
            Op::SetQueue { queue, rules, retry_share_percent, halt, retention, .. } => {
                self.set_queue(*queue, *rules, *retry_share_percent, *halt, *retention)
            }
            Op::Export { job } => self.export(*job),
            Op::Import { export } => self.import(*export),
            Op::Pause { scope } => self.pause(*scope),
            Op::Resume { scope } => self.resume(*scope),
            Op::Throttle { lease, ms, queue } => self.throttle(*lease, *ms, *queue),
            Op::Advance { ms } => {
                self.clock.advance(Duration::from_millis(*ms));
                self.time_moved()
            }
            Op::JumpForward { ms } => {
                self.clock.jump_wall(Duration::from_millis(*ms));
                self.time_moved()
            }
            Op::JumpBack { ms } => {
                self.clock.jump_wall_back(Duration::from_millis(*ms));
                self.time_moved()
            }
            Op::Sweep => self.time_moved(),
            Op::Redrive(brakes) => self.redrive(brakes),
            Op::Cohort { cohort, order } => self.order_cohort(*cohort, *order),
            Op::Reopen => self.reopen(),
            Op::Kill => self.kill(),
        }
    }

    fn enqueue(&mut self, items: &[Item], rule: BatchRule) -> Verdict {
        let good: Vec<Item> = items.iter().filter(|item| !item.bad).cloned().collect();
        let bad = items.len() - good.len();
        let first_bad = items.iter().position(|item| item.bad);
        let jobs: Vec<NewJob> = items.iter().map(Item::new_job).collect();
        let answered = self.jobs.enqueue_many(jobs, rule).map_err(text)?;
        let answered: Result<Vec<Accepted>, String> = answered.into_iter().map(accepted).collect();
        let answered = answered?;
        self.model.refused += u64::try_from(bad).unwrap_or(0);
        let expected = match first_bad {
            Some(first) if rule == BatchRule::AllOrNothing => {
                let told = |item: &Item| match item.bad {
                    true => Accepted::BadKey,
                    false => Accepted::Withheld(first),
                };
                items.iter().map(told).collect()
            }
            _ if good.is_empty() => vec![Accepted::BadKey; bad],
            _ => {
                let accepted = self.model.round(|model| match rule {
                    BatchRule::AllOrNothing => model.enqueue_all(&good),
                    BatchRule::PerItem => good.iter().map(|item| model.enqueue(item)).collect(),
                });
                let mut accepted = accepted.into_iter();
                let told = |item: &Item| {
                    let next = if item.bad { None } else { accepted.next() };
                    next.unwrap_or(Accepted::BadKey)
                };
                items.iter().map(told).collect()
            }
        };
        self.acked();
        same("what was accepted", &answered, &expected)
    }

    /// `kinds` are those that can be handled and those that can be reconciled.
    fn claim(&mut self, queue: usize, kinds: (u8, u8), jobs: usize, followers: bool) -> Verdict {
        let set = |bits: u8| (0..KINDS.len()).filter(move |kind| bits >> kind & 1 == 1);
        let reconciles: Vec<usize> = set(kinds.1).collect();
        let kinds: Vec<usize> = set(kinds.0).collect();
        let worker = format!("w{}", self.ops);
        let name = QUEUES.get(queue).copied().unwrap_or_default();
        let request = match queue {
            OUTBOX => ClaimRequest::of_destination(DESTINATION),
            _ => ClaimRequest::new(name),
        };
        let mut request = request.up_to(jobs);
        if !kinds.is_empty() {
            request = request.kinds(kinds.iter().filter_map(|&kind| KINDS.get(kind).copied()));
        }
        if followers {
            request = request.with_followers();
        }
        let named = reconciles.iter().filter_map(|&kind| KINDS.get(kind).copied());
        let request = request.reconciles(named).worker(worker.clone()).version(VERSION);
        let claimed = self.jobs.claim(request).map_err(text)?;
        let expected = self
            .model
            .round(|model| model.claim(queue, (&kinds, &reconciles), jobs, followers, &worker));
        self.acked();
        let ids: Vec<JobId> = claimed.iter().map(Lease::id).collect();
        same("the jobs claimed", &ids, &expected)?;
        for lease in claimed {
            self.granted(&lease)?;
            self.held.push(lease);
        }
        Ok(())
    }

    /// What a lease says of its job.
    fn granted(&self, lease: &Lease) -> Verdict {
        let job = self.model.jobs.get(&lease.id());
        let job = job.ok_or("a lease of no job")?;
        let lane = job.hold().map(|hold| hold.from.lane);
        same("delivery", &lease.delivery(), &job.deliveries)?;
        same("attempt", &lease.attempt(), &(job.attempts + 1))?;
        same("lane", &Some(lease.lane()), &lane)?;
        same("unknown", &lease.unknown(), &job.unknown.as_ref())?;
        same("reconciles", &lease.reconciles(), &job.reconciles)?;
        same("payload", &lease.payload(), &job.payload.as_slice())?;
        same("key", &lease.key(), &job.key.as_deref())?;
        let length = Duration::from_millis(job.rules.lease_ms);
        same("length", &lease.length(), &length)
    }

    fn heartbeat(&mut self, lease: usize) -> Verdict {
        let Some(place) = place_in(&self.held, lease) else {
            return Ok(());
        };
        let Some(lease) = self.held.get(place) else {
            return Ok(());
        };
        let beat = match lease.heartbeat() {
            Ok(beat) => Some((whole_ms(beat.left), beat.cancel_requested, beat.deadline_passed)),
            Err(SettleError::StaleLease { .. }) => None,
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.heartbeat(lease.id(), lease.delivery());
        same("the heartbeat", &beat, &expected)
    }

    pub(super) fn complete(&mut self, lease: usize, result: Option<u8>) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let result = result.map(|byte| vec![byte; usize::from(byte)]);
        let answer = match result.clone() {
            Some(result) => lease.complete_with(result),
            None => lease.complete(),
        };
        self.settled(id, delivery, answer.map(|()| JobState::Done), |model| {
            model.complete(id, result)
        })
    }

    fn fail(
        &mut self,
        lease: usize,
        class: FailureClass,
        retry_after_ms: Option<u64>,
        text: u8,
    ) -> Verdict {
        let code = format!("E{}", text % 3);
        let message = if text.is_multiple_of(2) { "" } else { "row refused" };
        let reference = text.is_multiple_of(4).then(|| format!("ref-{text}"));
        let mut failure = Failure::new(class, code.clone()).message(message);
        if let Some(reference) = &reference {
            failure = failure.provider_ref(reference.clone());
        }
        if let Some(ms) = retry_after_ms {
            failure = failure.retry_after(Duration::from_millis(ms));
        }
        let trouble = Trouble { class, code, message: message.to_owned(), provider_ref: reference };
        // A day at most.
        let ending = Ending::Failed(trouble, retry_after_ms.map(|ms| ms.min(86_400_000)));
        self.end(lease, |_| ending, |lease| lease.fail(failure))
    }

    fn snooze(&mut self, lease: usize, ms: u64) -> Verdict {
        let ending = |now| Ending::Snoozed { until: now + ms };
        self.end(lease, ending, |lease| lease.snooze(Duration::from_millis(ms)))
    }

    /// Ends a lease in anything but success.
    pub(super) fn end(
        &mut self,
        lease: usize,
        ending: impl FnOnce(u64) -> Ending,
        call: impl FnOnce(Lease) -> Result<JobState, SettleError>,
    ) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let answer = call(lease);
        self.settled(id, delivery, answer, |model| model.settle(id, &ending(model.now)))
    }

    /// Compares the answer of a settling call with the model, which may find the token stale.
    pub(super) fn settled(
        &mut self,
        id: JobId,
        delivery: u32,
        answer: Result<JobState, SettleError>,
        settle: impl FnOnce(&mut Model) -> Option<JobState>,
    ) -> Verdict {
        let answer = match answer {
            Ok(state) => Ok(state),
            Err(SettleError::StaleLease { current, .. }) => {
                Err(current.map(|token| token.delivery))
            }
            Err(error) => return Err(text(error)),
        };
        let class = self.model.class_of(id);
        let expected = self.model.round(|model| {
            if model.current(id, delivery) {
                settle(model).ok_or(None)
            } else {
                if let Some(class) = class {
                    model.stale(class);
                }
                Err(model.lease_of(id))
            }
        });
        self.acked();
        same("the answer to the settling call", &answer, &expected)
    }

    fn drop_lease(&mut self, lease: usize) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        drop(lease);
        self.given_back(id, delivery)
    }

    /// A lease was let go of. The release is in the mailbox by now, before the sweep that comes next.
    pub(super) fn given_back(&mut self, id: JobId, delivery: u32) -> Verdict {
        self.jobs.sweep().map_err(text)?;
        let class = self.model.class_of(id);
        self.model.round(|model| {
            if model.current(id, delivery) {
                model.release(id);
            } else if let Some(class) = class {
                model.stale(class);
            }
        });
        self.acked();
        Ok(())
    }

    fn twice(&mut self, lease: usize, again: u8) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let copy = lease.twin();
        self.held.push(lease);
        let place = self.held.len() - 1;
        self.complete(place, None)?;
        self.held.push(copy);
        self.quiet()?;
        match again % 3 {
            0 => self.complete(place, Some(again)),
            1 => self.fail(place, FailureClass::Transient, None, again),
            _ => self.end(place, |_| Ending::Released, Lease::release),
        }
    }

    fn churn(&mut self, queue: usize, times: u8) -> Verdict {
        for _ in 0..times {
            let held = self.held.len();
            self.claim(queue, (0, times & 1), 1, false)?;
            if self.held.len() == held {
                break;
            }
            self.end(held, |_| Ending::Released, Lease::release)?;
            self.quiet()?;
        }
        Ok(())
    }

    fn cancel(&mut self, job: usize) -> Verdict {
        let id = self.some_job(job);
        let answer = match self.jobs.cancel(id) {
            Ok(Cancelled::Now) => Ok(true),
            Ok(Cancelled::Requested) => Ok(false),
            Err(CancelError::NotFound { .. }) => Err(None),
            Err(CancelError::WrongState { state, .. }) => Err(Some(state)),
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.round(|model| model.cancel(id));
        self.acked();
        same("the answer to cancel", &answer, &expected)
    }

    fn set_queue(
        &mut self,
        queue: usize,
        rules: Option<usize>,
        share: Option<u8>,
        halt: Option<bool>,
        retention: Option<Retained>,
    ) -> Verdict {
        let rules = rules.and_then(|rules| RULES.get(rules % RULES.len()).copied());
        let mut policy = QueuePolicy::new();
        if let Some(rules) = &rules {
            policy = policy.jobs(rules.policy());
        }
        if let Some(percent) = share {
            policy = policy.retry_share(f64::from(percent) / 100.0);
        }
        if let Some(halt) = halt {
            policy = policy.on_dead(if halt { OnDead::Halt } else { OnDead::Skip });
        }
        if let Some(retained) = retention {
            policy = policy.dead(retained.retention());
        }
        let name = QUEUES.get(queue).copied().unwrap_or_default();
        self.jobs.set_queue(name, policy).map_err(text)?;
        self.model.round(|model| model.set_queue(queue, rules, share, halt, retention));
        self.acked();
        Ok(())
    }

    pub(super) fn take(&mut self, lease: usize) -> Option<Lease> {
        let place = place_in(&self.held, lease)?;
        Some(self.held.remove(place))
    }

    /// A job that there is, or one of those that are gone.
    pub(super) fn some_job(&self, choice: usize) -> JobId {
        let known = self.model.jobs.keys().chain(self.model.gone.last());
        let count = known.clone().count().max(1);
        known.copied().nth(choice % count).unwrap_or(JobId::new(999_999))
    }
}

pub(super) fn place_in(held: &[Lease], choice: usize) -> Option<usize> {
    choice.checked_rem(held.len())
}
