//! The whole State x Event table as a text file that a reviewer reads, and the laws that every step
//! keeps.

mod doubt;

use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::domain::arrival::{Arrival, Start};
use crate::domain::event::Claimant;
use crate::domain::history::Death;
use crate::domain::id::{Class, CohortId, Instance, JobId, KindId, PolicyId, QueueId};
use crate::domain::job::{Blocked, Cancelled};
use crate::domain::key::{KeyClaim, Misplaced, RequestHash, holds_key};
use crate::domain::order::{OnDead, OrderKey};
use crate::domain::schedule::Schedule;
use crate::domain::transition::key::Replacement;
use crate::domain::unknown::UnknownOutcome;

const NOW: Timestamp = Timestamp::from_millis(1_000_000);
const SEQ: u64 = 500;

fn policy() -> JobPolicy {
    let second = std::time::Duration::from_secs(1);
    JobPolicy::new()
        .schedule(Schedule::exponential(second, second * 60).jitter_percent(0))
        .reconcile_schedule(Schedule::exponential(second * 5, second * 60).jitter_percent(0))
}

fn context(policy: &JobPolicy) -> Context<'_> {
    Context { policy, now: NOW, seed: 7, seq: SEQ, queue: "charges", kind: "charge" }
}

fn job(state: State) -> Job {
    Job {
        id: JobId::new(9),
        class: Class { queue: QueueId::new(0), kind: KindId::new(0) },
        policy: PolicyId::new(0),
        priority: 100,
        key: Some(KeyClaim::new("charge:O-194".into(), RequestHash([7; 16]))),
        payload: Payload::Inline(Blob(b"{}".to_vec())),
        enqueued_at: Timestamp::from_millis(900_000),
        deliveries: 3,
        redrives: 0,
        first_failed_at: None,
        unknown: None,
        cycle: Cycle::default(),
        history_next: 2,
        history_pinned: Vec::new(),
        cohort: None,
        amended: false,
        steps: 0,
        imported: None,
        state,
        order: Some(OrderKey { key: "document 7".into(), on_dead: OnDead::Skip }),
        post: None,
    }
}

fn arrival(start: Start) -> Arrival {
    Arrival {
        id: JobId::new(SEQ),
        class: Class { queue: QueueId::new(0), kind: KindId::new(0) },
        policy: PolicyId::new(0),
        priority: 100,
        key: None,
        payload: Payload::Inline(Blob(Vec::new())),
        start,
        order: None,
        post: None,
    }
}

fn ready(lane: Lane) -> Ready {
    Ready { lane, seq: 9, since: Timestamp::from_millis(900_000) }
}

fn lease(lane: Lane) -> Lease {
    Lease {
        instance: Instance::new(4),
        worker: "w".into(),
        version: "1.0".into(),
        claimed_at: Timestamp::from_millis(990_000),
        deadline: Timestamp::from_millis(1_020_000),
        cancel_requested: false,
        from: ready(lane),
    }
}

fn leased(lane: Lane, change: impl FnOnce(&mut Job)) -> Job {
    let mut leased = job(State::Leased(lease(lane)));
    change(&mut leased);
    leased
}

fn tombstone() -> Tombstone {
    Tombstone { key_until: NOW.plus_ms(10), row_until: NOW.plus_ms(10) }
}

fn dead() -> Dead {
    Dead {
        reason: DeathReason::Permanent,
        class: FailureClass::Permanent,
        code: "E".into(),
        message: String::new(),
        provider_ref: None,
        worker: "w".into(),
        version: String::new(),
        died_at: NOW,
        cause: 1,
        seq: 400,
    }
}

fn crashed() -> Job {
    let class = FailureClass::Crashed;
    let mut job = job(State::Dead(Dead { class, reason: DeathReason::ClassBudget, ..dead() }));
    job.redrives = 1;
    job.history_pinned = vec![1];
    job.cycle = Cycle { attempts: 2, crashed: 3, ..Cycle::default() };
    job
}

/// Every state, and every situation within a state in which some event ends differently.
fn situations() -> Vec<(&'static str, Job, JobPolicy)> {
    let quarantine = policy().on_unknown(OnUnknown::Quarantine);
    let done = Done {
        at: NOW,
        claimed_at: NOW,
        worker: "w".into(),
        result: None,
        tombstone: tombstone(),
        duplicate_of: None,
    };
    let due = Timestamp::from_millis(999_000);
    vec![
        ("ready", job(State::Ready(ready(Lane::Fresh))), policy()),
        ("ready, suspect", job(State::Ready(ready(Lane::Suspect))), policy()),
        (
            "ready, never claimed",
            Job { deliveries: 0, ..job(State::Ready(ready(Lane::Fresh))) },
            policy(),
        ),
        ("delayed", job(State::Delayed(Delayed { lane: Lane::Fresh, due })), policy()),
        ("delayed, retry", job(State::Delayed(Delayed { lane: Lane::Retry, due })), policy()),
        ("leased", leased(Lane::Fresh, |_| {}), policy()),
        (
            "leased, each class one short of its budget",
            leased(Lane::Retry, |job| {
                job.cycle = Cycle {
                    attempts: 5,
                    transient: 5,
                    throttled: 5,
                    ambiguous: 5,
                    crashed: 2,
                    snoozes: 10_000,
                    releases: 10_000,
                    reconciles: 0,
                };
            }),
            policy(),
        ),
        (
            "leased, total one short of its budget",
            leased(Lane::Retry, |job| job.cycle.attempts = 11),
            policy(),
        ),
        ("leased, suspect", leased(Lane::Suspect, |job| job.cycle.crashed = 1), policy()),
        ("leased, unknown outcomes forbidden", leased(Lane::Fresh, |_| {}), quarantine),
        (
            "leased, cancel requested",
            leased(Lane::Fresh, |job| {
                if let State::Leased(lease) = &mut job.state {
                    lease.cancel_requested = true;
                }
            }),
            policy(),
        ),
        ("blocked", job(State::Blocked(Blocked { lane: Lane::Fresh, due: None })), policy()),
        (
            "blocked, not to run before a time to come",
            job(State::Blocked(Blocked { lane: Lane::Retry, due: Some(NOW.plus_ms(7_000)) })),
            policy(),
        ),
        ("dead", job(State::Dead(dead())), policy()),
        ("dead of crashes, redriven once", crashed(), policy()),
        ("done", job(State::Done(done)), policy()),
        (
            "cancelled",
            job(State::Cancelled(Cancelled { at: NOW, tombstone: tombstone() })),
            policy(),
        ),
    ]
}

fn replacement(start: Start) -> Event {
    let payload = Payload::Inline(Blob(b"[]".to_vec()));
    Event::Replace(Replacement { payload, hash: RequestHash([9; 16]), priority: 200, start })
}

fn events() -> Vec<(&'static str, Event)> {
    let token = Token { job: JobId::new(9), delivery: 3 };
    let old = Token { job: JobId::new(9), delivery: 2 };
    let fail = |failure: Failure| Event::Fail { token, failure };
    let minute = std::time::Duration::from_secs(60);
    let claimant =
        Claimant { instance: Instance::new(5), worker: "w".into(), version: String::new() };
    vec![
        ("claim", Event::Claim(claimant)),
        ("due", Event::Due),
        ("its turn", Event::Unblock),
        ("complete", Event::Complete { token, result: None }),
        ("complete with an old token", Event::Complete { token: old, result: None }),
        ("fail permanent", fail(Failure::permanent("E"))),
        ("fail transient", fail(Failure::transient("E"))),
        ("fail throttled", fail(Failure::throttled("E").retry_after(minute))),
        ("fail ambiguous", fail(Failure::ambiguous("E"))),
        ("it did not happen", Event::DidNotHappen { token }),
        ("snooze", Event::Snooze { token, until: NOW.plus_ms(5_000) }),
        ("snooze to the past", Event::Snooze { token, until: NOW }),
        ("release", Event::Release { token, work: Work::Unstarted }),
        ("release while running", Event::Release { token, work: Work::Started }),
        ("lease ends", Event::Expire { token, deadline_exceeded: false }),
        ("deadline passes", Event::Expire { token, deadline_exceeded: true }),
        ("process dies", Event::Crash),
        ("cancel", Event::Cancel),
        (
            "amend",
            Event::Amend {
                payload: Payload::Inline(Blob(b"[]".to_vec())),
                hash: RequestHash([8; 16]),
                note: "field 7 added".into(),
            },
        ),
        ("replaced", replacement(Start::Now)),
        ("replaced by a later start", replacement(Start::AfterMs(5_000))),
        ("another did the same", Event::Misplaced(Misplaced::Duplicate { of: JobId::new(10) })),
        ("another has its key", Event::Misplaced(Misplaced::Taken { by: JobId::new(10) })),
        ("redrive", Event::Redrive { cohort: CohortId::new(450), reason: "fixed".into() }),
        ("payload is damaged", Event::Spoil { why: "checksum".into() }),
    ]
}

fn describe(outcome: &Result<Step, Refused>) -> String {
    let step = match outcome {
        Ok(step) => step,
        Err(Refused::Stale { .. }) => return "refused: stale lease".into(),
        Err(Refused::Ended { .. }) => return "refused: ended".into(),
        Err(Refused::Unfit { .. }) => return "does not apply".into(),
    };
    let mut text = match &step.job.state {
        State::Ready(ready) => {
            let place = if ready.seq == SEQ { "end of the line" } else { "old place" };
            format!("ready {}, {place}", ready.lane.name())
        }
        State::Delayed(delayed) => {
            format!("delayed {} for {} ms", delayed.lane.name(), delayed.due.ms_since(NOW))
        }
        State::Leased(lease) if lease.cancel_requested => "leased, cancel requested".into(),
        State::Leased(_) => "leased".into(),
        State::Dead(dead) => format!("dead of {} ({:?}, {})", dead.class, dead.reason, dead.code),
        State::Done(_) => "done".into(),
        State::Cancelled(_) => "cancelled".into(),
        State::Blocked(_) => "blocked".into(),
    };
    let _ = write!(text, "; attempts {}", step.job.cycle.attempts);
    if step.job.cycle.reconciles > 0 {
        let _ = write!(text, "; reconciles {}", step.job.cycle.reconciles);
    }
    if step.job.unknown.is_some() {
        text.push_str("; unknown outcome");
    }
    let counted: Vec<_> = step.flows.iter().map(|flow| flow.name()).collect();
    if !counted.is_empty() {
        let _ = write!(text, "; counts {}", counted.join(", "));
    }
    if step.job.amended {
        text.push_str("; amended");
    }
    if step.job.redrives > 0 {
        let _ = write!(text, "; redrives {}", step.job.redrives);
    }
    if step.history.is_some() {
        text.push_str("; noted");
    }
    text
}

/// The table, as checked in. `REDRIVE_BLESS=1 cargo test transitions` writes it anew.
#[test]
fn transitions_are_as_reviewed() {
    let mut table = String::from(
        "Every state (with the situations in which an event ends differently) and every event.\n\
         Written by a test of src/domain/transition.rs; `REDRIVE_BLESS=1 cargo test transitions`.\n",
    );
    let _ = write!(table, "\nnew\n");
    for (name, start) in [
        ("enqueue", Start::Now),
        ("enqueue with a delay", Start::AfterMs(5_000)),
        ("enqueue for an instant past", Start::At(Timestamp::from_millis(1))),
        ("enqueue for the last instant", Start::AfterMs(u64::MAX)),
    ] {
        let step = arrival(start).enqueue(NOW);
        let _ = writeln!(table, "    {name:<26} -> {}", describe(&Ok(step)));
    }
    for (situation, job, policy) in situations().into_iter().chain(doubt::situations()) {
        let _ = write!(table, "\n{situation}\n");
        for (name, event) in events() {
            let outcome = step(&job, event, &context(&policy));
            let _ = writeln!(table, "    {name:<26} -> {}", describe(&outcome));
        }
        let discarded = if discard(&job).is_ok() { "gone; counts discarded" } else { "refused" };
        let _ = writeln!(table, "    {:<26} -> {discarded}", "discard");
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/transitions.txt");
    if std::env::var_os("REDRIVE_BLESS").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let reviewed = std::fs::read_to_string(path).unwrap_or_default();
    assert_eq!(table, reviewed, "the table changed: look at it, then bless it");
}

fn any_failure() -> impl Strategy<Value = Failure> {
    let wait = prop::option::of(any::<u64>());
    (0..4usize, wait).prop_map(|(class, wait)| {
        let failure = Failure::new(FailureClass::ALL[class], "E");
        match wait {
            Some(ms) => failure.retry_after(std::time::Duration::from_millis(ms)),
            None => failure,
        }
    })
}

#[derive(Clone, Debug)]
enum Move {
    Settle(u8, Failure),
    Other(u8),
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        (0..7u8, any_failure()).prop_map(|(how, failure)| Move::Settle(how, failure)),
        (0..4u8).prop_map(Move::Other),
    ]
}

proptest! {
    /// P10, O-14: whatever happened before, a redrive gives a fresh budget and takes nothing away.
    #[test]
    fn p10_a_redrive_resets_the_budget_and_nothing_else(
        deliveries: u32, redrives in 0..100u32, cycle: [u32; 8], next in 0..1_000u32, unknown: bool,
        asks: bool,
    ) {
        let [attempts, transient, throttled, ambiguous, crashed, snoozes, releases, reconciles] = cycle;
        let mut before = job(State::Dead(dead()));
        before.cycle =
            Cycle { attempts, transient, throttled, ambiguous, crashed, snoozes, releases, reconciles };
        (before.deliveries, before.redrives) = (deliveries, redrives);
        before.unknown =
            unknown.then(|| UnknownOutcome::new(&Failure::ambiguous("timeout"), 2, NOW));
        let policy = if asks { policy().on_unknown(OnUnknown::Reconcile) } else { policy() };
        (before.history_next, before.first_failed_at) = (next, Some(NOW));
        let cohort = CohortId::new(450);
        let event = Event::Redrive { cohort, reason: "fixed".into() };
        let step = step(&before, event, &context(&policy)).unwrap();
        let mut expected = before.clone();
        expected.redrives += 1;
        expected.cycle = Cycle::default();
        expected.cohort = Some(cohort);
        expected.history_next += 1;
        expected.history_pinned.push(next);
        // P8: what nobody could find out is asked anew before it is repeated.
        let lane = if asks && unknown { Lane::Reconcile } else { Lane::Retry };
        expected.state = State::Ready(Ready { lane, seq: SEQ, since: NOW });
        prop_assert_eq!(step.job, expected);
        let entry = step.history.unwrap();
        let HistoryEvent::Redriven { death, .. } = entry.event else { panic!("{entry:?}") };
        prop_assert_eq!(*death, Death::of(&dead(), attempts));
        prop_assert!(holds_key(&before, &policy, NOW));
    }

    /// P3, P4, P5: whatever happens in whatever order, the delivery number only goes up, an ended
    /// job stays ended, and the number of starts is bounded by the budgets.
    #[test]
    fn a_life_ends_once_and_within_its_budget(
        moves in prop::collection::vec(any_move(), 1..200),
        asks in any::<bool>(),
    ) {
        let mut policy = JobPolicy::new().max_deliveries(4).snoozes_max(3).releases_max(3);
        if asks {
            policy = policy.on_unknown(OnUnknown::Reconcile).reconciles_max(3);
        }
        let mut job = job(State::Ready(ready(Lane::Fresh)));
        job.deliveries = 0;
        let mut ended = None;
        for one in moves {
            let token = Token { job: job.id, delivery: job.deliveries };
            let event = match one {
                Move::Settle(0, _) => Event::Complete { token, result: None },
                Move::Settle(1, _) => Event::Snooze { token, until: NOW.plus_ms(1) },
                Move::Settle(2, _) => Event::Release { token, work: Work::Started },
                Move::Settle(3, _) => Event::Expire { token, deadline_exceeded: false },
                Move::Settle(4, _) => Event::DidNotHappen { token },
                Move::Settle(_, failure) => Event::Fail { token, failure },
                Move::Other(0) => Event::Due,
                Move::Other(1) => Event::Crash,
                Move::Other(2) => Event::Cancel,
                Move::Other(_) => Event::Claim(Claimant {
                    instance: Instance::new(1),
                    worker: String::new(),
                    version: String::new(),
                }),
            };
            let Ok(step) = step(&job, event, &context(&policy)) else { continue };
            prop_assert!(ended.is_none(), "an ended job changed");
            prop_assert!(step.job.deliveries >= job.deliveries);
            prop_assert_eq!(step.job.history_next - job.history_next, u32::from(step.history.is_some()));
            if let State::Delayed(delayed) = &step.job.state {
                prop_assert!(delayed.due > NOW);
            }
            let in_doubt = job.unknown.is_some();
            job = step.job;
            // P8: where the policy says to ask, no handler gets a job whose outcome is in doubt.
            if asks && in_doubt && let State::Leased(lease) = &job.state {
                prop_assert!(lease.from.lane.is_reconcile());
            }
            if job.state.tombstone().is_some() || matches!(job.state, State::Dead(_)) {
                ended = Some(job.state.name());
            }
        }
        // Each charged end may be preceded by the crashes that its class allows, uncharged.
        let policy_bound = policy.max_deliveries * policy.crashed_max + policy.crashed_max;
        let starts = policy_bound + policy.snoozes_max + policy.releases_max + 2;
        // Between two of those, an outcome is asked for as often as its own budget allows.
        let asked = if asks { starts * (policy.reconciles_max + policy.crashed_max) } else { 0 };
        prop_assert!(job.deliveries <= starts + asked);
    }
}
