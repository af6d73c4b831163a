//! One job of the reference model and what happens to it: written from the promises, not from the
//! crate's own transitions.

use std::collections::BTreeMap;

use crate::domain::failure::FailureClass;
use crate::domain::history::{DeliveryEnd, Finding, HistoryEntry, HistoryEvent};
use crate::domain::id::JobId;
use crate::domain::job::{DeathReason, Lane};
use crate::domain::key::Asked;
use crate::domain::policy::OnUnknown;
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;
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
    pub(super) unknown: Option<UnknownOutcome>,
    pub(super) reconciles: u32,
    pub(super) asked: Asked,
    pub(super) previous: Option<JobId>,
    pub(super) taken_by: Option<JobId>,
    pub(super) first_failed_at: Option<u64>,
    /// All of it; the store keeps the first 4 and the latest 28.
    pub(super) history: Vec<HistoryEntry>,
    /// By name: when, by which delivery, and what it gave back.
    pub(super) steps: BTreeMap<u8, (u64, u32, u8)>,
    pub(super) place: Place,
    pub(super) order: Option<String>,
    pub(super) sequence: Option<u64>,
    pub(super) headers: Vec<(String, String)>,
    /// Dead, it halts those behind it.
    pub(super) halts: bool,
    /// The export that it came out of.
    pub(super) import: Option<Identity>,
}

/// What an exported job is known by: id, queue, kind, when it was enqueued, key.
pub(super) type Identity = (JobId, usize, usize, u64, Option<String>);

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
    Snoozed {
        until: u64,
    },
    Released,
    Expired {
        deadline: bool,
    },
    Crashed,
    /// A reconciler's finding.
    DidNotHappen,
}

/// Names of flows to count.
pub(super) type Counted = Vec<&'static str>;

impl Hold {
    /// With a reconciler rather than with a handler.
    pub(super) fn reconciles(&self) -> bool {
        matches!(self.from.lane, Lane::Reconcile | Lane::SuspectReconcile)
    }
}

impl Trouble {
    pub(super) fn new(class: FailureClass, code: &str, message: &str) -> Self {
        Self { class, code: code.to_owned(), message: message.to_owned(), provider_ref: None }
    }
}

impl Ending {
    fn told(&self, reconciles: bool) -> DeliveryEnd {
        let reconciled = |finding, code: &str, message: &str| DeliveryEnd::Reconciled {
            finding,
            code: code.to_owned(),
            message: message.to_owned(),
        };
        match self {
            Self::Failed(trouble, _) if reconciles => {
                reconciled(Finding::StillUnknown, &trouble.code, &trouble.message)
            }
            Self::DidNotHappen => reconciled(Finding::DidNotHappen, "", ""),
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
            Self::DidNotHappen => Some("reconciled_did_not_happen"),
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
                Place::Dead(_) => self.rules.dead_keeps_key && self.taken_by.is_none(),
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
        let mut counted = vec!["completed"];
        if let Some(hold) = self.hold().cloned()
            && hold.reconciles()
        {
            self.unknown = None;
            let (finding, nothing) = (Finding::Happened, String::new());
            let (code, message) = (nothing.clone(), nothing);
            self.note(now, &hold, DeliveryEnd::Reconciled { finding, code, message });
            counted.push("reconciled_happened");
        }
        self.place = Place::Done { at: now, result };
        counted
    }

    /// The history entry of a delivery that has ended.
    fn note(&mut self, now: u64, hold: &Hold, end: DeliveryEnd) {
        self.history.push(HistoryEntry {
            at: Timestamp::from_millis(now),
            event: HistoryEvent::DeliveryEnded {
                delivery: self.deliveries,
                claimed_at: Timestamp::from_millis(hold.at),
                worker: hold.worker.clone(),
                end,
            },
        });
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
        self.note(now, hold, ending.told(hold.reconciles()));
        let mut counted: Counted = ending.flow().into_iter().collect();
        if hold.reconciles() && matches!(ending, Ending::Failed(..) | Ending::Expired { .. }) {
            counted.push("reconciled_still_unknown");
        }
        let doubt = self.unknown.clone();
        if matches!(ending, Ending::DidNotHappen) {
            self.unknown = None;
            self.reconciles = 0;
        }
        if hold.cancel {
            let doubt = self.doubtful(hold, ending);
            if let Some(trouble) = &doubt {
                self.note_doubt(now, trouble);
            }
            match doubt.filter(|_| self.rules.on_unknown != OnUnknown::Retry) {
                Some(trouble) => {
                    self.first_failed_at.get_or_insert(now);
                    counted.push(died(trouble.class));
                    let (reason, what) = (DeathReason::UnknownRefused, trouble);
                    let worker = hold.worker.clone();
                    self.place = Place::Dead(Corpse { at: now, reason, what, worker, seq });
                }
                None => {
                    self.place = Place::Cancelled { at: now };
                    counted.push("cancelled");
                }
            }
            return counted;
        }
        let (trouble, fatal) = if hold.reconciles() {
            self.blame_reconciler(doubt.as_ref(), hold, ending)
        } else {
            self.blame(hold, ending)
        };
        if let Some(trouble) = &trouble
            && matches!(trouble.class, FailureClass::Ambiguous | FailureClass::Crashed)
            && !matches!(ending, Ending::DidNotHappen)
        {
            self.note_doubt(now, trouble);
        }
        if let (Some(trouble), Some(reason)) = (&trouble, fatal) {
            self.first_failed_at.get_or_insert(now);
            // A snooze or release that was one too many counts as a death, not as what it was.
            if matches!(ending, Ending::Snoozed { .. } | Ending::Released) {
                counted.clear();
            }
            counted.push(died(trouble.class));
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

    fn note_doubt(&mut self, now: u64, trouble: &Trouble) {
        let delivery = self.deliveries;
        self.unknown.get_or_insert_with(|| UnknownOutcome {
            class: trouble.class,
            code: trouble.code.clone(),
            provider_ref: trouble.provider_ref.clone(),
            delivery,
            since: Timestamp::from_millis(now),
        });
    }

    /// The job lives on: where it stands now.
    fn go_on(&mut self, now: u64, seq: u64, hold: &Hold, ending: &Ending, counted: &mut Counted) {
        let lane = hold.from.lane;
        let asks = self.rules.on_unknown == OnUnknown::Reconcile;
        let suspect = matches!(lane, Lane::Suspect | Lane::SuspectReconcile);
        let retry_after = match ending {
            Ending::Failed(_, retry_after_ms) => retry_after_ms.unwrap_or(0),
            _ => 0,
        };
        if hold.reconciles() && matches!(ending, Ending::Failed(..) | Ending::Expired { .. }) {
            let wait = self.rules.reconcile_wait_ms.max(retry_after);
            self.place = Place::Delayed { lane, due: now + wait };
            return;
        }
        if let Ending::Failed(trouble, _) = ending
            && trouble.class == FailureClass::Ambiguous
            && asks
        {
            counted.push("retried_ambiguous");
            let lane = Lane::Reconcile;
            self.place = match retry_after {
                0 => Place::Ready(Spot { lane, seq }),
                wait => Place::Delayed { lane, due: now + wait },
            };
            return;
        }
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
            Ending::DidNotHappen => {
                let lane = if suspect { Lane::Suspect } else { Lane::Retry };
                Place::Ready(Spot { lane, seq })
            }
            Ending::Expired { .. } => {
                let lane = if asks { Lane::Reconcile } else { Lane::Retry };
                Place::Ready(Spot { lane, seq })
            }
            Ending::Crashed => {
                let lane = if asks { Lane::SuspectReconcile } else { Lane::Suspect };
                Place::Ready(Spot { lane, seq: hold.from.seq })
            }
        };
    }
}

/// The flow of a death.
const fn died(class: FailureClass) -> &'static str {
    match class {
        FailureClass::Permanent => "died_permanent",
        FailureClass::Transient => "died_transient",
        FailureClass::Throttled => "died_throttled",
        FailureClass::Ambiguous => "died_ambiguous",
        FailureClass::Crashed => "died_crashed",
    }
}
