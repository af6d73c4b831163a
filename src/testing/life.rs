//! One job of the reference model and what happens to it: written from the promises, not from the
//! crate's own transitions.

use std::collections::BTreeMap;

use crate::domain::failure::FailureClass;
use crate::domain::history::{DeliveryEnd, HistoryEntry, HistoryEvent};
use crate::domain::id::JobId;
use crate::domain::job::{DeathReason, Lane};
use crate::domain::time::Timestamp;
use crate::testing::rules::Rules;

#[derive(Clone, Debug)]
pub(super) struct Life {
    pub(super) id: JobId,
    pub(super) queue: usize,
    pub(super) kind: usize,
    pub(super) key: Option<String>,
    pub(super) payload: Vec<u8>,
    pub(super) priority: u8,
    pub(super) enqueued_at: u64,
    pub(super) rules: Rules,
    pub(super) deliveries: u32,
    pub(super) attempts: u32,
    pub(super) transient: u32,
    pub(super) throttled: u32,
    pub(super) ambiguous: u32,
    pub(super) crashes: u32,
    pub(super) snoozes: u32,
    pub(super) releases: u32,
    pub(super) redrives: u32,
    /// The cohort that is owed its outcome.
    pub(super) cohort: Option<u64>,
    pub(super) amended: bool,
    pub(super) unknown: bool,
    pub(super) first_failed_at: Option<u64>,
    /// All of it; the store keeps the first 4 and the latest 28.
    pub(super) history: Vec<HistoryEntry>,
    /// By name: when, by which delivery, and what it gave back.
    pub(super) steps: BTreeMap<u8, (u64, u32, u8)>,
    pub(super) place: Place,
    pub(super) order: Option<String>,
    /// Dead, it halts those behind it.
    pub(super) halts: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Place {
    Ready(Spot),
    Delayed { lane: Lane, due: u64 },
    Leased(Hold),
    Done { at: u64, result: Option<Vec<u8>> },
    Cancelled { at: u64 },
    Dead(Corpse),
    Blocked { lane: Lane, due: Option<u64> },
}

/// A place in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spot {
    pub(super) lane: Lane,
    pub(super) seq: u64,
}

#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) from: Spot,
    pub(super) at: u64,
    pub(super) deadline: u64,
    pub(super) worker: String,
    pub(super) cancel: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Corpse {
    pub(super) at: u64,
    pub(super) reason: DeathReason,
    pub(super) what: Trouble,
    pub(super) worker: String,
    /// The model's next number when it died.
    pub(super) seq: u64,
}

/// A failure as reported or concluded.
#[derive(Clone, Debug)]
pub(super) struct Trouble {
    pub(super) class: FailureClass,
    pub(super) code: String,
    pub(super) message: String,
    pub(super) provider_ref: Option<String>,
}

/// How a delivery ended without success.
#[derive(Clone, Debug)]
pub(super) enum Ending {
    Failed(Trouble, Option<u64>),
    Snoozed { until: u64 },
    Released,
    Expired { deadline: bool },
    Crashed,
}

/// Names of flows to count.
pub(super) type Counted = Vec<&'static str>;

impl Trouble {
    fn new(class: FailureClass, code: &str, message: &str) -> Self {
        Self { class, code: code.to_owned(), message: message.to_owned(), provider_ref: None }
    }
}

impl Ending {
    fn told(&self) -> DeliveryEnd {
        match self {
            Self::Failed(trouble, _) => DeliveryEnd::Failed {
                class: trouble.class,
                code: trouble.code.clone(),
                message: trouble.message.clone(),
                provider_ref: trouble.provider_ref.clone(),
            },
            Self::Snoozed { until } => {
                DeliveryEnd::Snoozed { until: Timestamp::from_millis(*until) }
            }
            Self::Released => DeliveryEnd::Released,
            Self::Expired { deadline } => {
                DeliveryEnd::LeaseExpired { deadline_exceeded: *deadline }
            }
            Self::Crashed => DeliveryEnd::Crashed,
        }
    }

    fn flow(&self) -> Option<&'static str> {
        match self {
            Self::Failed(..) => None,
            Self::Snoozed { .. } => Some("snoozed"),
            Self::Released => Some("released"),
            Self::Expired { .. } => Some("lease_expired"),
            Self::Crashed => Some("crashed"),
        }
    }
}

impl Life {
    pub(super) fn hold(&self) -> Option<&Hold> {
        match &self.place {
            Place::Leased(hold) => Some(hold),
            Place::Ready(_)
            | Place::Delayed { .. }
            | Place::Done { .. }
            | Place::Cancelled { .. }
            | Place::Dead(_)
            | Place::Blocked { .. } => None,
        }
    }

    pub(super) fn finished_at(&self) -> Option<u64> {
        match self.place {
            Place::Done { at, .. } | Place::Cancelled { at } => Some(at),
            Place::Ready(_)
            | Place::Delayed { .. }
            | Place::Leased(_)
            | Place::Dead(_)
            | Place::Blocked { .. } => None,
        }
    }

    /// Until when the key of a finished job is held.
    fn key_until(&self) -> Option<u64> {
        let life = match self.place {
            Place::Done { .. } => self.rules.key_done_ms,
            Place::Cancelled { .. }
            | Place::Ready(_)
            | Place::Delayed { .. }
            | Place::Leased(_)
            | Place::Dead(_)
            | Place::Blocked { .. } => self.rules.key_cancelled_ms,
        };
        self.finished_at().map(|at| at + if self.key.is_some() { life } else { 0 })
    }

    pub(super) fn owns_key(&self, now: u64) -> bool {
        self.key.is_some()
            && match &self.place {
                Place::Ready(_)
                | Place::Delayed { .. }
                | Place::Leased(_)
                | Place::Blocked { .. } => true,
                Place::Dead(_) => self.rules.dead_keeps_key,
                Place::Done { .. } | Place::Cancelled { .. } => {
                    self.key_until().is_some_and(|until| now < until)
                }
            }
    }

    /// Whether nothing needs the job's row any longer.
    pub(super) fn forgotten(&self, now: u64) -> bool {
        match (self.key_until(), self.finished_at()) {
            (Some(key), Some(at)) => key.max(at + self.rules.keep_finished_ms) <= now,
            _ => false,
        }
    }

    pub(super) fn complete(&mut self, now: u64, result: Option<Vec<u8>>) -> Counted {
        self.place = Place::Done { at: now, result };
        vec!["completed"]
    }

    pub(super) fn cancel(&mut self, now: u64) -> Counted {
        if let Place::Leased(hold) = &mut self.place {
            if hold.cancel {
                return vec![];
            }
            hold.cancel = true;
            self.history.push(HistoryEntry {
                at: Timestamp::from_millis(now),
                event: HistoryEvent::CancelRequested,
            });
            return vec!["cancel_requested"];
        }
        self.place = Place::Cancelled { at: now };
        vec!["cancelled"]
    }

    /// The present delivery ends in anything but success. `seq` is the place at the end of a line.
    pub(super) fn end(&mut self, now: u64, seq: u64, hold: &Hold, ending: &Ending) -> Counted {
        self.history.push(HistoryEntry {
            at: Timestamp::from_millis(now),
            event: HistoryEvent::DeliveryEnded {
                delivery: self.deliveries,
                claimed_at: Timestamp::from_millis(hold.at),
                worker: hold.worker.clone(),
                end: ending.told(),
            },
        });
        let mut counted: Counted = ending.flow().into_iter().collect();
        if hold.cancel {
            self.place = Place::Cancelled { at: now };
            counted.push("cancelled");
            return counted;
        }
        let (trouble, fatal) = self.blame(hold, ending);
        if let (Some(trouble), Some(reason)) = (&trouble, fatal) {
            self.first_failed_at.get_or_insert(now);
            // A snooze or release that was one too many counts as a death, not as what it was.
            if matches!(ending, Ending::Snoozed { .. } | Ending::Released) {
                counted.clear();
            }
            counted.push(match trouble.class {
                FailureClass::Permanent => "died_permanent",
                FailureClass::Transient => "died_transient",
                FailureClass::Throttled => "died_throttled",
                FailureClass::Ambiguous => "died_ambiguous",
                FailureClass::Crashed => "died_crashed",
            });
            self.place = Place::Dead(Corpse {
                at: now,
                reason,
                what: trouble.clone(),
                worker: hold.worker.clone(),
                seq,
            });
            return counted;
        }
        if trouble.is_some() {
            self.first_failed_at.get_or_insert(now);
        }
        self.go_on(now, seq, hold, ending, &mut counted);
        counted
    }

    /// Charges the job for the ending; returns the trouble, if it is one, and whether it is fatal.
    fn blame(&mut self, hold: &Hold, ending: &Ending) -> (Option<Trouble>, Option<DeathReason>) {
        let rules = self.rules;
        match ending {
            Ending::Snoozed { .. } => {
                self.snoozes += 1;
                let fatal = self.snoozes > rules.snoozes;
                let trouble = Trouble::new(FailureClass::Transient, "snooze_budget", "");
                (fatal.then_some(trouble), Some(DeathReason::SnoozeBudget))
            }
            Ending::Released => {
                self.releases += 1;
                let fatal = self.releases > rules.releases;
                let trouble = Trouble::new(FailureClass::Transient, "release_budget", "");
                (fatal.then_some(trouble), Some(DeathReason::ReleaseBudget))
            }
            Ending::Failed(trouble, _) => {
                let fatal = self.charge(trouble.class);
                (Some(trouble.clone()), fatal)
            }
            Ending::Expired { deadline } => {
                let code = if *deadline { "deadline_exceeded" } else { "lease_expired" };
                let text = "the lease ended before the handler did";
                let fatal = self.charge(FailureClass::Ambiguous);
                (Some(Trouble::new(FailureClass::Ambiguous, code, text)), fatal)
            }
            Ending::Crashed => {
                self.unknown = true;
                self.crashes += 1;
                // Only the one that ran alone is charged an attempt (P12).
                self.attempts += u32::from(hold.from.lane == Lane::Suspect);
                let fatal = if rules.unknown_is_fatal {
                    Some(DeathReason::UnknownRefused)
                } else {
                    self.over_budget(self.crashes, rules.crashed)
                };
                let text = "the process died while it held the lease";
                (Some(Trouble::new(FailureClass::Crashed, "crashed", text)), fatal)
            }
        }
    }

    fn charge(&mut self, class: FailureClass) -> Option<DeathReason> {
        self.attempts += 1;
        self.crashes = 0;
        let spent = match class {
            FailureClass::Permanent | FailureClass::Crashed => {
                return Some(DeathReason::Permanent);
            }
            FailureClass::Transient => &mut self.transient,
            FailureClass::Throttled => &mut self.throttled,
            FailureClass::Ambiguous => {
                self.unknown = true;
                &mut self.ambiguous
            }
        };
        *spent += 1;
        let spent = *spent;
        if class == FailureClass::Ambiguous && self.rules.unknown_is_fatal {
            return Some(DeathReason::UnknownRefused);
        }
        self.over_budget(spent, self.rules.budget(class))
    }

    fn over_budget(&self, spent: u32, budget: u32) -> Option<DeathReason> {
        if spent >= budget {
            return Some(DeathReason::ClassBudget);
        }
        (self.attempts >= self.rules.total).then_some(DeathReason::TotalBudget)
    }

    /// The job lives on: where it stands now.
    fn go_on(&mut self, now: u64, seq: u64, hold: &Hold, ending: &Ending, counted: &mut Counted) {
        let lane = hold.from.lane;
        self.place = match ending {
            Ending::Failed(trouble, retry_after_ms) => {
                let (flow, failures) = match trouble.class {
                    FailureClass::Transient => ("retried_transient", self.transient),
                    FailureClass::Throttled => ("retried_throttled", self.throttled),
                    FailureClass::Ambiguous | FailureClass::Permanent | FailureClass::Crashed => {
                        ("retried_ambiguous", self.ambiguous)
                    }
                };
                counted.push(flow);
                let wait = self.rules.wait_ms(failures);
                Place::Delayed {
                    lane: Lane::Retry,
                    due: now + wait.max(retry_after_ms.unwrap_or(0)),
                }
            }
            Ending::Snoozed { until } if *until > now => Place::Delayed { lane, due: *until },
            Ending::Snoozed { .. } => Place::Ready(Spot { lane, seq }),
            Ending::Released => Place::Ready(hold.from),
            Ending::Expired { .. } => Place::Ready(Spot { lane: Lane::Retry, seq }),
            Ending::Crashed => Place::Ready(Spot { lane: Lane::Suspect, seq: hold.from.seq }),
        };
    }
}
