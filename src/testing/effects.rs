//! Completions with effects: the call, the model's answer, and the comparison of the user's tables.

use std::collections::BTreeMap;

use crate::domain::id::JobId;
use crate::domain::job::JobState;
use crate::error::{EffectError, EnqueueError, SettleError};
use crate::handle::completion::Completion;
use crate::handle::effect::{EffectTable, Json};
use crate::handle::redrive::Redrive;
use crate::testing::commands::Accepted;
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, text};
use crate::testing::life::Ending;
use crate::testing::model::Model;
use crate::testing::op::{Change, Fault, Item};
use crate::testing::steps::refused;

const TALLY: EffectTable<u64, [u8]> = EffectTable::new("tally");
const NOTES: EffectTable<str, Json<u8>> = EffectTable::new("notes");

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
        let answer = answer(lease.complete_with(completion))?;
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
        match answer {
            Answer::Done | Answer::Stale(_) => Ok(()),
            // Refused, it was given back; as in `drop_lease`.
            _ => self.given_back(id, delivery),
        }
    }
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
        for item in follow_ups {
            self.enqueue(item);
        }
        for change in changes {
            match change.value {
                Some(value) => drop(self.rows.insert((change.notes, change.key), value)),
                None => drop(self.rows.remove(&(change.notes, change.key))),
            }
        }
        match self.complete(id, None) {
            Some(JobState::Done) => Answer::Done,
            _ => Answer::Stale(None),
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
