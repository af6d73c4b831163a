//! Transactions on the caller's thread: several calls that the model sees all of, or none.

use crate::domain::job::JobState;
use crate::error::{SettleError, TransactError};
use crate::handle::completion::Completion;
use crate::testing::commands::{Accepted, accepted, refused};
use crate::testing::effects::{NOTES, TALLY};
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, text};
use crate::testing::model::Model;
use crate::testing::op::{Change, Item};
use crate::testing::steps::place_in;
use crate::writer::transact::Tx;

/// How a transaction ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Committed,
    GivenUp,
    Stale,
}

impl Harness {
    pub(super) fn transact(
        &mut self,
        lease: Option<usize>,
        items: &[Item],
        changes: &[Change],
        gives_up: bool,
    ) -> Verdict {
        let place = lease.and_then(|lease| place_in(&self.held, lease));
        let lease = place.and_then(|place| self.held.get(place));
        let token = lease.map(|lease| (lease.id(), lease.delivery()));
        let mut answers = Vec::new();
        let done = self.jobs.transact(|tx| {
            for item in items {
                answers.push(answer(tx.enqueue(item.new_job())));
            }
            write(tx, changes)?;
            if let Some(lease) = lease {
                tx.complete(lease, Completion::new())?;
            }
            if gives_up { Err(TransactError::app("given up")) } else { Ok(()) }
        });
        let end = match done {
            Ok(()) => End::Committed,
            Err(TransactError::App { .. }) => End::GivenUp,
            Err(TransactError::Settle { why: SettleError::StaleLease { .. } }) => End::Stale,
            Err(error) => return Err(text(error)),
        };
        let answers: Vec<Accepted> = answers.into_iter().collect::<Result<_, String>>()?;
        // What time has done comes in a commit before.
        self.model.round(|_| ());
        let mut after = self.model.clone();
        let (expected, expected_end) = after.transaction(|model| {
            let told = |model: &mut Model, item: &Item| match item.bad {
                true => Accepted::BadKey,
                false => model.enqueue(item),
            };
            let expected: Vec<Accepted> = items.iter().map(|item| told(model, item)).collect();
            model.write_set(changes, &[]);
            let stale = token.is_some_and(|(id, delivery)| {
                !model.current(id, delivery) || model.complete(id, None) != Some(JobState::Done)
            });
            let end = match (stale, gives_up) {
                (true, _) => End::Stale,
                (false, true) => End::GivenUp,
                (false, false) => End::Committed,
            };
            (expected, end)
        });
        same("what was accepted", &answers, &expected)?;
        same("the end of the transaction", &end, &expected_end)?;
        if end == End::Committed {
            self.model = after;
            if let Some(place) = place {
                drop(self.held.remove(place));
            }
        }
        self.acked();
        Ok(())
    }
}

fn answer(
    answer: Result<crate::writer::command::Enqueued, TransactError>,
) -> Result<Accepted, String> {
    match answer {
        Ok(enqueued) => accepted(Ok(enqueued)),
        Err(TransactError::Enqueue { why }) => refused(why),
        Err(error) => Err(text(error)),
    }
}

fn write(tx: &mut Tx<'_, '_>, changes: &[Change]) -> Result<(), TransactError> {
    for change in changes {
        let (tally, note) = (u64::from(change.key), format!("note {}", change.key));
        match (change.notes, change.value) {
            (false, Some(value)) => tx.put(TALLY, &tally, &[value, value])?,
            (false, None) => tx.delete(TALLY, &tally)?,
            (true, Some(value)) => tx.put(NOTES, &note, &value)?,
            (true, None) => tx.delete(NOTES, &note)?,
        }
        let found = if change.notes {
            tx.get(NOTES, &note)?
        } else {
            tx.get(TALLY, &tally)?.and_then(|value| value.first().copied())
        };
        if found != change.value {
            return Err(TransactError::Table { message: format!("{change:?} reads {found:?}") });
        }
    }
    Ok(())
}
