//! Completions with effects, and steps: the call, the model's answer, and the comparison of the user's tables.

use std::collections::BTreeMap;

use crate::domain::failure::FailureClass;
use crate::domain::id::JobId;
use crate::domain::job::JobState;
use crate::error::{EffectError, EnqueueError, SettleError};
use crate::handle::completion::{Completion, refusal};
use crate::handle::effect::{EffectTable, Json};
use crate::handle::effects::Effects;
use crate::handle::redrive::Redrive;
use crate::handle::step::StepInfo;
use crate::testing::commands::{Accepted, refused};
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, text};
use crate::testing::life::{Ending, Life, Trouble};
use crate::testing::model::{Model, time};
use crate::testing::op::{Change, Fault, Item};
use crate::testing::steps::place_in;

pub(super) const TALLY: EffectTable<u64, [u8]> = EffectTable::new("tally");
pub(super) const NOTES: EffectTable<str, Json<u8>> = EffectTable::new("notes");

/// The user's tables: (table, key) -> value.
pub(super) type EffectRows = BTreeMap<(bool, u8), u8>;

/// What a completion with effects is answered.
#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Done,
    Stale(Option<u32>),
    OtherTypes,
    Reserved,
    FollowUp(usize, Accepted),
}

impl Harness {
    pub(super) fn complete_with(
        &mut self,
        lease: usize,
        changes: &[Change],
        follow_ups: &[Item],
        fault: Fault,
    ) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let completion = completion(changes, follow_ups, fault);
        let told = lease.complete_with(completion);
        let failure = told.as_ref().err().and_then(refusal);
        let answer = answer(told)?;
        let bad = follow_ups.iter().position(|item| item.bad);
        let expected = match (fault, bad) {
            // Told before the store is asked.
            (Fault::Reserved, _) => Answer::Reserved,
            (_, Some(place)) => Answer::FollowUp(place, Accepted::BadKey),
            (fault, None) => self
                .model
                .round(|model| model.complete_with(id, delivery, changes, follow_ups, fault)),
        };
        self.acked();
        same("the answer to the completion", &answer, &expected)?;
        let Some(failure) = failure else { return Ok(()) };
        // Refused, it has failed.
        let trouble = Trouble::new(FailureClass::Permanent, failure.code(), failure.text());
        let class = self.model.class_of(id);
        self.model.round(|model| {
            if model.current(id, delivery) {
                model.settle(id, &Ending::Failed(trouble, None));
            } else if let Some(class) = class {
                model.stale(class);
            }
        });
        self.acked();
        Ok(())
    }
}

impl Harness {
    pub(super) fn step_once(
        &mut self,
        lease: usize,
        name: u8,
        changes: &[Change],
        follow_ups: &[Item],
    ) -> Verdict {
        let Some(lease) = place_in(&self.held, lease).and_then(|place| self.held.get(place)) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let output = u8::try_from(self.ops % 256).unwrap_or(0);
        let mut ran = false;
        let answer = lease.step(&step_name(name), |fx| {
            ran = true;
            collect(fx, changes, follow_ups);
            Ok(output)
        });
        // A step that a cut has failed says so as a failure of the job: nothing was acknowledged.
        if let Some(error) = self.jobs.poisoned() {
            return Err(text(error));
        }
        let answer = answer.map_err(|failure| failure.code().to_owned());
        let saved = self.model.jobs.get(&id).and_then(|job| job.steps.get(&name)).copied();
        let bad = follow_ups.iter().any(|item| item.bad);
        let expected = match saved {
            Some((_, by, _)) if by == delivery => Err("step_repeated"),
            Some((_, _, output)) => Ok(output),
            None if bad => Err("follow_up_refused"),
            None => {
                let marked = self
                    .model
                    .round(|model| model.mark(id, delivery, name, output, changes, follow_ups));
                self.acked();
                marked.map(|()| output)
            }
        };
        same("whether the body ran", &ran, &saved.is_none())?;
        same("the answer to the step", &answer, &expected.map_err(str::to_owned))
    }
}

fn step_name(name: u8) -> String {
    format!("step {name}")
}

fn collect(fx: &mut Effects, changes: &[Change], follow_ups: &[Item]) {
    for change in changes {
        let key = change.key;
        let name = format!("note {key}");
        match (change.notes, change.value) {
            (false, Some(value)) => fx.put(TALLY, &u64::from(key), &[value, value]),
            (false, None) => fx.delete(TALLY, &u64::from(key)),
            (true, Some(value)) => fx.put(NOTES, &name, &value),
            (true, None) => fx.delete(NOTES, &name),
        }
    }
    for item in follow_ups {
        fx.enqueue(item.new_job());
    }
}

/// What the store must tell of the steps of `life`.
pub(super) fn step_infos(life: &Life) -> Vec<StepInfo> {
    let mut steps: Vec<StepInfo> = life
        .steps
        .iter()
        .map(|(&name, &(at, delivery, output))| {
            let (at, output) = (time(at), output.to_string());
            let output_bytes = output.len();
            StepInfo { name: step_name(name), at, delivery, output, output_bytes }
        })
        .collect();
    steps.sort_by_key(|step| step.at);
    steps
}

fn completion(changes: &[Change], follow_ups: &[Item], fault: Fault) -> Completion {
    let mut completion = Completion::new();
    for change in changes {
        let key = change.key;
        let name = format!("note {key}");
        completion = match (change.notes, change.value) {
            (false, Some(value)) => completion.put(TALLY, &u64::from(key), &[value, value]),
            (false, None) => completion.delete(TALLY, &u64::from(key)),
            (true, Some(value)) => completion.put(NOTES, &name, &value),
            (true, None) => completion.delete(NOTES, &name),
        };
    }
    for item in follow_ups {
        completion = completion.enqueue(item.new_job());
    }
    match fault {
        Fault::None => completion,
        Fault::OtherTypes => completion
            .delete(TALLY, &0)
            .delete(EffectTable::<str, str>::new(TALLY.name()), "other types in one completion"),
        Fault::Reserved => completion.delete(EffectTable::<str, str>::new("redrive/jobs"), "1"),
    }
}

fn answer(answer: Result<(), SettleError>) -> Result<Answer, String> {
    Ok(match answer {
        Ok(()) => Answer::Done,
        Err(SettleError::StaleLease { current, .. }) => {
            Answer::Stale(current.map(|token| token.delivery))
        }
        Err(SettleError::Effect { why: EffectError::OtherTypes { .. } }) => Answer::OtherTypes,
        Err(SettleError::Effect { why: EffectError::ReservedTable { .. } }) => Answer::Reserved,
        Err(SettleError::FollowUp { place, why }) => {
            let why: EnqueueError = *why;
            Answer::FollowUp(place, refused(why)?)
        }
        Err(error) => return Err(text(error)),
    })
}

impl Model {
    /// All of it, or, when anything is refused, nothing.
    fn complete_with(
        &mut self,
        id: JobId,
        delivery: u32,
        changes: &[Change],
        follow_ups: &[Item],
        fault: Fault,
    ) -> Answer {
        if !self.current(id, delivery) {
            if let Some(class) = self.class_of(id) {
                self.stale(class);
            }
            return Answer::Stale(self.lease_of(id));
        }
        if fault == Fault::OtherTypes {
            return Answer::OtherTypes;
        }
        if let Some((place, why)) = self.first_refusal(follow_ups) {
            return Answer::FollowUp(place, why);
        }
        self.write_set(changes, follow_ups);
        match self.complete(id, None) {
            Some(JobState::Done) => Answer::Done,
            _ => Answer::Stale(None),
        }
    }

    /// All of a step, or nothing.
    fn mark(
        &mut self,
        id: JobId,
        delivery: u32,
        name: u8,
        output: u8,
        changes: &[Change],
        follow_ups: &[Item],
    ) -> Result<(), &'static str> {
        if !self.current(id, delivery) {
            if let Some(class) = self.class_of(id) {
                self.stale(class);
            }
            return Err("stale_lease");
        }
        if self.first_refusal(follow_ups).is_some() {
            return Err("follow_up_refused");
        }
        self.write_set(changes, follow_ups);
        let now = self.now;
        if let Some(job) = self.jobs.get_mut(&id) {
            job.steps.insert(name, (now, delivery, output));
            let class = (job.queue, job.kind);
            self.count(class, vec!["steps_committed"]);
        }
        Ok(())
    }

    pub(super) fn write_set(&mut self, changes: &[Change], follow_ups: &[Item]) {
        self.wrote |= !changes.is_empty();
        for item in follow_ups {
            self.enqueue(item);
        }
        for change in changes {
            match change.value {
                Some(value) => drop(self.rows.insert((change.notes, change.key), value)),
                None => drop(self.rows.remove(&(change.notes, change.key))),
            }
        }
    }

    /// Compares all rows of the user's tables.
    pub(super) fn compare_effects(&self, jobs: &Redrive) -> Verdict {
        let found = jobs.read(|r| {
            let tally = r.range(TALLY, .., usize::MAX)?.into_iter();
            let tally = tally.map(|(key, value)| (key.to_string(), value));
            let notes = r.range(NOTES, .., usize::MAX)?.into_iter();
            Ok(tally.chain(notes.map(|(key, value)| (key, vec![value]))).collect::<Vec<_>>())
        });
        let mut expected: Vec<(String, Vec<u8>)> = Vec::new();
        let (notes, tally): (Vec<_>, Vec<_>) = self.rows.iter().partition(|((notes, _), _)| *notes);
        expected.extend(tally.iter().map(|((_, key), value)| (key.to_string(), vec![**value; 2])));
        let mut notes: Vec<_> =
            notes.iter().map(|((_, key), value)| (format!("note {key}"), vec![**value])).collect();
        notes.sort();
        expected.extend(notes);
        same("the rows of the user's tables", &found.map_err(text)?, &expected)
    }

    pub(super) fn release(&mut self, id: JobId) {
        self.settle(id, &Ending::Released);
    }
}
