//! Pauses and holds of the reference model, and the steps that set and lift them.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::failure::{Failure, FailureClass};
use crate::domain::pause::{Hold, Paused, Scope};
use crate::handle::pause::Pause;
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, text};
use crate::testing::life::{Ending, Trouble};
use crate::testing::model::{ClassKey, Model, time};
use crate::testing::op::{KINDS, Pausing, QUEUES};

/// No failure holds longer.
const HOUR_MS: u64 = 3_600_000;

/// What kind of stop it is, and the numbers it is listed by.
type Listed = (u8, usize, Option<usize>);

/// What is paused or held.
#[derive(Clone, Debug, Default)]
pub(super) struct Stops {
    pauses: BTreeMap<Pausing, Note>,
    holds: BTreeMap<Pausing, (u64, Note)>,
}

#[derive(Clone, Debug)]
struct Note {
    reason: String,
    by: String,
    since: u64,
}

impl Model {
    /// Whether nothing of the class may be claimed.
    pub(super) fn stopped(&self, (queue, kind): ClassKey) -> bool {
        [None, Some(kind)].into_iter().any(|kind| {
            let at = Pausing { redrive: false, queue, kind };
            self.stops.pauses.contains_key(&at) || self.stops.holds.contains_key(&at)
        })
    }

    /// Whether nothing dead of the class may be sent back.
    pub(super) fn redrive_stopped(&self, (queue, kind): ClassKey) -> bool {
        self.stops.pauses.keys().any(|at| {
            at.redrive && at.kind.is_none_or(|paused| paused == kind && at.queue == queue)
        })
    }

    pub(super) fn end_holds(&mut self) {
        let now = self.now;
        let before = self.stops.holds.len();
        self.stops.holds.retain(|_, (until, _)| *until > now);
        self.wrote |= self.stops.holds.len() < before;
    }

    /// In the order of `Redrive::pauses`: work, redrive, holds; by number, a queue before its kinds.
    pub(super) fn pauses(&self) -> Vec<Paused> {
        let mut told: Vec<(Listed, Paused)> = Vec::new();
        for (&at, note) in &self.stops.pauses {
            told.push((self.place(u8::from(at.redrive), at), note.told(at, None)));
        }
        for (&at, (until, note)) in &self.stops.holds {
            told.push((self.place(2, at), note.told(at, Some(*until))));
        }
        told.sort_by_key(|&(place, _)| place);
        told.into_iter().map(|(_, paused)| paused).collect()
    }

    /// Where the store has it: by the numbers of queues and kinds.
    fn place(&self, what: u8, at: Pausing) -> Listed {
        let number = |kind| self.kinds.iter().position(|&met| met == kind);
        let queue = if at.redrive && at.kind.is_none() { 0 } else { at.queue };
        (what, queue, at.kind.and_then(number))
    }

    fn meet(&mut self, kind: Option<usize>) {
        if let Some(kind) = kind
            && !self.kinds.contains(&kind)
        {
            self.kinds.push(kind);
        }
    }
}

impl Note {
    fn told(&self, at: Pausing, until: Option<u64>) -> Paused {
        let mut paused = Paused::new(
            at.scope(),
            crate::domain::pause::Stop {
                reason: self.reason.clone(),
                by: self.by.clone(),
                since: time(self.since),
                until: None,
            },
        );
        paused.until = until.map(time);
        paused
    }
}

impl Pausing {
    fn scope(self) -> Scope {
        let queue = QUEUES.get(self.queue).copied().unwrap_or_default();
        let kind = self.kind.and_then(|kind| KINDS.get(kind).copied());
        match (self.redrive, kind) {
            (false, None) => Scope::queue(queue),
            (false, Some(kind)) => Scope::class(queue, kind),
            (true, None) => Scope::redrive(),
            (true, Some(kind)) => Scope::redrive_class(queue, kind),
        }
    }

    /// There is one redrive, whatever the queue.
    const fn known(self) -> Self {
        if self.redrive && self.kind.is_none() { Self { queue: 0, ..self } } else { self }
    }
}

impl Harness {
    pub(super) fn pause(&mut self, at: Pausing) -> Verdict {
        let (at, reason, by) = (at.known(), format!("step {}", self.ops), "op".to_owned());
        let pause = Pause::new(reason.clone()).by(by.clone());
        let replaced = self.jobs.pause(at.scope(), pause).map_err(text)?;
        let expected = self.model.round(|model| {
            model.meet(at.kind);
            model.wrote = true;
            let note = Note { reason, by, since: model.now };
            model.stops.pauses.insert(at, note).map(|earlier| earlier.told(at, None))
        });
        self.acked();
        same("the pause that was replaced", &replaced, &expected)
    }

    pub(super) fn resume(&mut self, at: Pausing) -> Verdict {
        let at = at.known();
        let lifted = self.jobs.resume(at.scope()).map_err(text)?;
        let expected = self.model.round(|model| {
            let pause = model.stops.pauses.remove(&at).map(|note| note.told(at, None));
            let hold = if at.redrive { None } else { model.stops.holds.remove(&at) };
            let hold = hold.map(|(until, note)| note.told(at, Some(until)));
            let lifted: Vec<Paused> = pause.into_iter().chain(hold).collect();
            model.wrote |= !lifted.is_empty();
            lifted
        });
        self.acked();
        same("what was lifted", &lifted, &expected)
    }

    pub(super) fn throttle(&mut self, lease: usize, ms: u64, queue: bool) -> Verdict {
        let Some(lease) = self.take(lease) else {
            return Ok(());
        };
        let (id, delivery) = (lease.id(), lease.delivery());
        let hold = if queue { Hold::Queue } else { Hold::Class };
        let wait = Duration::from_millis(ms);
        let failure = Failure::throttled("429").message("slower").retry_after(wait).hold(hold);
        let answer = lease.fail(failure);
        let class = self.model.class_of(id);
        self.settled(id, delivery, answer, |model| {
            let trouble = Trouble {
                class: FailureClass::Throttled,
                code: "429".to_owned(),
                message: "slower".to_owned(),
                provider_ref: None,
            };
            let state = model.settle(id, &Ending::Failed(trouble, Some(ms.min(86_400_000))));
            let (now, until) = (model.now, model.now + ms.min(HOUR_MS));
            if let Some((of, kind)) = class {
                let at = Pausing { redrive: false, queue: of, kind: (!queue).then_some(kind) };
                let earlier = model.stops.holds.get(&at);
                if earlier.is_none_or(|&(end, _)| end < until) {
                    let since = earlier.map_or(now, |(_, note)| note.since);
                    let note =
                        Note { reason: "429: slower".to_owned(), by: format!("job {id}"), since };
                    model.stops.holds.insert(at, (until, note));
                }
            }
            state
        })
    }
}
