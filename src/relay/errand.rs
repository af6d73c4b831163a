//! One batch on its way through a sink: split where it is refused, never past a failure in its order.

use std::any::Any;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::domain::failure::{Failure, FailureClass};
use crate::relay::outgoing::Outgoing;
use crate::relay::sink::Sink;
use crate::worker::slot::panic_text;

/// What became of one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Sent,
    Failed(Failure),
    /// Not offered to the sink: it goes back uncharged.
    Unattempted,
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    pub(crate) splits: u64,
    pub(crate) panics: u64,
}

/// What a sink answered.
enum Answer {
    Each(Vec<Result<(), Failure>>),
    /// Nothing of it can be told apart, and all of it may be offered again.
    Whole(Failure),
}

/// Messages by their place in the batch, and what became of each.
pub(crate) type Fates = Vec<(usize, Fate)>;

/// Offers `batch` to `sink`, at most `call_max` messages at a time. `may_go` is asked before each
/// message is offered, with its place. `settle` is told what became of the messages of each call
/// as soon as it returns, so that what was delivered is not delivered again because of what comes
/// later; at last, in one call, of those that were not offered.
pub(crate) fn run(
    sink: &dyn Sink,
    call_max: usize,
    batch: &[Outgoing],
    may_go: &dyn Fn(usize) -> bool,
    settle: &mut dyn FnMut(Fates),
) -> Counted {
    let mut unattempted: BTreeSet<usize> = (0..batch.len()).collect();
    let mut counted = Counted::default();
    // Ordering keys behind which nothing goes any more.
    let mut stopped: HashSet<&str> = HashSet::new();
    let places: Vec<usize> = (0..batch.len()).collect();
    let mut groups: VecDeque<Vec<usize>> =
        places.chunks(call_max.max(1)).map(<[usize]>::to_vec).collect();
    while let Some(group) = groups.pop_front() {
        let mut offered = Vec::with_capacity(group.len());
        let mut messages = Vec::with_capacity(group.len());
        for place in group {
            let Some(message) = batch.get(place) else { continue };
            if message.line().is_some_and(|line| stopped.contains(line)) {
                continue;
            }
            if may_go(place) {
                offered.push(place);
                messages.push(message.clone());
            } else {
                stopped.extend(message.line());
            }
        }
        match (ask(sink, &messages, &mut counted), offered.as_slice()) {
            (_, []) => {}
            (Answer::Whole(failure), &[only]) => {
                stopped.extend(batch.get(only).and_then(Outgoing::line));
                unattempted.remove(&only);
                settle(vec![(only, Fate::Failed(failure))]);
            }
            (Answer::Whole(_), several) => {
                counted.splits += 1;
                let (left, right) = several.split_at(several.len().div_ceil(2));
                groups.push_front(right.to_vec());
                groups.push_front(left.to_vec());
            }
            (Answer::Each(results), several) => {
                let mut fates = Fates::with_capacity(several.len());
                for (&place, result) in several.iter().zip(results) {
                    unattempted.remove(&place);
                    fates.push((
                        place,
                        match result {
                            Ok(()) => Fate::Sent,
                            Err(failure) => {
                                stopped.extend(batch.get(place).and_then(Outgoing::line));
                                Fate::Failed(failure)
                            }
                        },
                    ));
                }
                settle(fates);
            }
        }
    }
    settle(unattempted.into_iter().map(|place| (place, Fate::Unattempted)).collect());
    counted
}

fn ask(sink: &dyn Sink, messages: &[Outgoing], counted: &mut Counted) -> Answer {
    if messages.is_empty() {
        return Answer::Each(Vec::new());
    }
    let answered = catch_unwind(AssertUnwindSafe(|| sink.deliver(messages)));
    let mut results = match answered {
        Ok(results) => results,
        Err(panic) => {
            counted.panics += 1;
            return senseless(messages, "panicked", panic_text(&*panic));
        }
    };
    if results.len() == messages.len() {
        return Answer::Each(results);
    }
    let wrong = format!("{} results for {} messages", results.len(), messages.len());
    match (results.pop(), results.is_empty()) {
        // Some of it may have been taken, and none of it is to be repeated before its turn.
        (Some(Err(failure)), true) if failure.class() == FailureClass::Ambiguous => {
            Answer::Each(vec![Err(failure); messages.len()])
        }
        (Some(Err(failure)), true) => Answer::Whole(failure),
        _ => senseless(messages, "wrong_result_count", wrong),
    }
}

/// No answer, or none that says what was taken. That is known to be harmless only where the
/// messages may be sent again.
fn senseless(messages: &[Outgoing], code: &str, text: String) -> Answer {
    if messages.iter().all(Outgoing::may_be_repeated) {
        return Answer::Whole(Failure::transient(code).message(text));
    }
    Answer::Each(vec![Err(Failure::ambiguous(code).message(text)); messages.len()])
}

pub(crate) fn panicked(panic: &(dyn Any + Send)) -> Failure {
    Failure::transient("panicked").message(panic_text(panic))
}
