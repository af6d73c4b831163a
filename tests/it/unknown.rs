//! P8: unknown is a state. A lost response, a crash or a missed deadline is "may have happened"; where
//! the policy says so, it is found out before anything is repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive::{
    ClaimRequest, Completion, DeathReason, DeliveryEnd, Failure, FailureClass, Finding,
    HistoryEvent, JobId, JobPolicy, JobState, Lane, Lease, NewJob, OnUnknown, Reconciled, Schedule,
    SettleError, Workers,
};

use crate::support::{
    Bench, Random, check, child, child_argument, every_second, number, secs, seed,
};

fn asks() -> JobPolicy {
    every_second()
        .on_unknown(OnUnknown::Reconcile)
        .reconcile_schedule(Schedule::list([secs(5)]).jitter_percent(0))
        .reconciles_max(3)
        .keep_finished(secs(3_600))
}

fn charge(policy: JobPolicy) -> NewJob {
    NewJob::new("q", "charge").bytes("4900").key("charge:O-194").policy(policy)
}

/// Claims one job for its reconciler.
fn ask(bench: &Bench) -> Option<Lease> {
    bench.jobs.claim(ClaimRequest::new("q").reconciles(["charge"])).unwrap().pop()
}

/// A job whose one delivery got no response.
fn in_doubt(bench: &Bench, policy: JobPolicy) -> JobId {
    let id = bench.add_with(charge(policy));
    let lost = Failure::ambiguous("timeout").provider_ref("req-7");
    assert_eq!(bench.claim_one().fail(lost).unwrap(), JobState::Ready);
    id
}

/// P8: a job in doubt goes to its reconciler and to nobody else, with the evidence.
#[test]
fn p_08_a_job_in_doubt_is_never_handed_to_a_handler() {
    let bench = Bench::new();
    let id = in_doubt(&bench, asks());
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.lane, info.attempts, info.outcome_unknown), (Some(Lane::Reconcile), 1, true));
    assert!(bench.claim(10).is_empty());
    let other = ClaimRequest::new("q").kinds(["charge"]).reconciles(["refund"]).up_to(10);
    assert!(bench.jobs.claim(other).unwrap().is_empty());
    let stats = bench.jobs.stats().unwrap();
    let charges = &stats.queues["q"].kinds["charge"];
    assert_eq!((charges.ready, charges.ready_reconcile, charges.unreconciled()), (1, 1, 1));

    let lease = ask(&bench).unwrap();
    assert!(lease.is_reconciliation());
    assert_eq!((lease.lane(), lease.delivery(), lease.attempt()), (Lane::Reconcile, 2, 2));
    let unknown = lease.unknown().unwrap();
    assert_eq!((unknown.class, unknown.code.as_str()), (FailureClass::Ambiguous, "timeout"));
    assert_eq!((unknown.provider_ref.as_deref(), unknown.delivery), (Some("req-7"), 1));
    assert_eq!(lease.reconcile(Reconciled::happened("receipt")).unwrap(), JobState::Done);
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.state, info.outcome_unknown), (JobState::Done, false));
    assert_eq!((info.result.as_deref(), info.deliveries), (Some(b"receipt".as_slice()), 2));
    let last = &info.history.last().unwrap().event;
    let HistoryEvent::DeliveryEnded { delivery: 2, end, .. } = last else { panic!("{last:?}") };
    assert!(matches!(end, DeliveryEnd::Reconciled { finding: Finding::Happened, .. }), "{end:?}");
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.done, total.flow("reconciled_happened")), (1, 1));
    bench.check();
}

/// P8: "it did not happen" is followed by an ordinary delivery, within the budgets that were charged
/// when the doubt arose.
#[test]
fn p_08_what_did_not_happen_is_delivered_normally() {
    let bench = Bench::new();
    let id = in_doubt(&bench, asks().budget(FailureClass::Ambiguous, 2));
    assert_eq!(ask(&bench).unwrap().reconcile(Reconciled::DidNotHappen).unwrap(), JobState::Ready);
    let lease = bench.claim_one();
    assert_eq!((lease.lane(), lease.attempt(), lease.delivery()), (Lane::Retry, 2, 3));
    assert!(!lease.is_reconciliation() && !lease.outcome_unknown());
    lease.fail(Failure::ambiguous("timeout")).unwrap();
    // The budget is spent, but whether it happened is worth knowing.
    assert_eq!(ask(&bench).unwrap().reconcile(Reconciled::DidNotHappen).unwrap(), JobState::Dead);
    let info = bench.jobs.job(id).unwrap().unwrap();
    let dead = info.dead.unwrap();
    assert_eq!((dead.reason, dead.code.as_str()), (DeathReason::ClassBudget, "timeout"));
    assert_eq!((info.attempts, info.outcome_unknown), (2, false));
    assert_eq!(bench.jobs.stats().unwrap().total.flow("reconciled_did_not_happen"), 2);
    bench.check();
}

/// P8: "still unknown" is asked again on its own schedule, within its own budget, charges no attempt,
/// and ends in the quarantine with the evidence. An error is "still unknown" too.
#[test]
fn p_08_still_unknown_has_a_schedule_and_a_budget_of_its_own() {
    let bench = Bench::new();
    let id = in_doubt(&bench, asks().max_deliveries(1));
    let lease = ask(&bench).unwrap();
    assert_eq!(lease.reconcile(Reconciled::StillUnknown).unwrap(), JobState::Delayed);
    bench.advance(4);
    assert!(ask(&bench).is_none());
    assert_eq!(bench.jobs.stats().unwrap().total.delayed_reconcile, 1);
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let lease = ask(&bench).unwrap();
    assert_eq!(lease.reconciles(), 1);
    let busy = Failure::permanent("503").retry_after(secs(60));
    assert_eq!(lease.fail(busy).unwrap(), JobState::Delayed);
    bench.advance(59);
    assert!(ask(&bench).is_none());
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    // The third is the last; here the lease runs out.
    std::mem::forget(ask(&bench).unwrap());
    bench.advance(30);
    bench.jobs.sweep().unwrap();
    let info = bench.jobs.job(id).unwrap().unwrap();
    let dead = info.dead.unwrap();
    assert_eq!((dead.reason, dead.class), (DeathReason::ReconcileBudget, FailureClass::Ambiguous));
    assert_eq!(dead.provider_ref.as_deref(), Some("req-7"));
    assert_eq!((info.attempts, info.deliveries, info.reconciles), (1, 4, 3));
    assert_eq!(info.unknown.unwrap().code, "timeout");
    assert_eq!(bench.jobs.stats().unwrap().total.flow("reconciled_still_unknown"), 3);
    bench.check();
}

/// P8: every way in which an outcome becomes unknown leads to the reconciler.
#[test]
fn p_08_every_unknown_outcome_is_reconciled() {
    let mut bench = Bench::new();
    let code = |bench: &Bench, id| bench.jobs.job(id).unwrap().unwrap().unknown.unwrap().code;
    let id = bench.add_with(charge(asks()));
    std::mem::forget(bench.claim_one());
    bench.advance(30);
    bench.jobs.sweep().unwrap();
    assert!(bench.claim(1).is_empty());
    assert_eq!(code(&bench, id), "lease_expired");
    ask(&bench).unwrap().reconcile(Reconciled::DidNotHappen).unwrap();

    std::mem::forget(bench.claim_one());
    bench.reopen();
    assert!(bench.claim(1).is_empty());
    assert_eq!(code(&bench, id), "crashed");
    let lease = ask(&bench).unwrap();
    assert_eq!(lease.lane(), Lane::SuspectReconcile);
    // It did not happen, but it may still have been this job that killed the process (P12).
    lease.reconcile(Reconciled::DidNotHappen).unwrap();
    let lease = bench.claim_one();
    assert_eq!((lease.lane(), lease.attempt()), (Lane::Suspect, 2));
    lease.complete().unwrap();

    let deadline = charge(asks().deadline(secs(10))).key("other");
    let id = bench.add_with(deadline);
    std::mem::forget(bench.claim_one());
    bench.advance(10);
    bench.jobs.sweep().unwrap();
    assert_eq!(code(&bench, id), "deadline_exceeded");
    bench.check();
}

/// P8, P12: a suspect in the hands of a reconciler is the only suspect in flight, and one that kills
/// the process there too runs out of crashes.
#[test]
fn p_12_a_suspect_is_alone_with_its_reconciler_too() {
    let mut bench = Bench::new();
    for number in 0..3 {
        bench.add_with(NewJob::new("q", "charge").bytes(number.to_string()).policy(asks()));
    }
    bench.add_with(NewJob::new("r", "plain"));
    let claim_all = |bench: &Bench, queue: &str| {
        let request = ClaimRequest::new(queue).reconciles(["charge"]).up_to(10);
        bench.jobs.claim(request).unwrap()
    };
    let leases = [claim_all(&bench, "q"), claim_all(&bench, "r")].concat_forgotten();
    assert_eq!(leases, 4);
    bench.reopen();
    let first = claim_all(&bench, "q");
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].lane(), Lane::SuspectReconcile);
    assert!(claim_all(&bench, "r").is_empty(), "a second suspect in flight");
    let culprit = first[0].id();
    first.into_iter().for_each(std::mem::forget);
    for deaths in 2..=3 {
        bench.reopen();
        let info = bench.jobs.job(culprit).unwrap().unwrap();
        if deaths == 3 {
            assert_eq!((info.state, info.crashes, info.attempts), (JobState::Dead, 3, 0));
            break;
        }
        let again = claim_all(&bench, "q");
        assert_eq!(again[0].id(), culprit);
        again.into_iter().for_each(std::mem::forget);
    }
    for lease in std::iter::from_fn(|| ask(&bench)) {
        lease.reconcile(Reconciled::happened("")).unwrap();
    }
    assert_eq!(bench.jobs.stats().unwrap().total.done, 2);
    bench.check();
}

trait ConcatForgotten {
    fn concat_forgotten(self) -> usize;
}

impl ConcatForgotten for [Vec<Lease>; 2] {
    /// As a process that dies: the leases are never given back.
    fn concat_forgotten(self) -> usize {
        self.into_iter().flatten().map(std::mem::forget).count()
    }
}

/// P4, P5: a reconciliation is a counted delivery and fenced like one.
#[test]
fn p_05_a_reconciliation_is_fenced() {
    let bench = Bench::new();
    let id = in_doubt(&bench, asks());
    let lease = ask(&bench).unwrap();
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().deliveries, 2);
    let late = [lease.twin(), lease.twin(), lease.twin()];
    lease.reconcile(Reconciled::DidNotHappen).unwrap();
    let [first, second, third] = late;
    let answers = [
        first.reconcile(Reconciled::happened("late")),
        second.reconcile(Reconciled::StillUnknown),
        third.fail(Failure::transient("late")),
    ];
    for answer in answers {
        assert!(matches!(answer, Err(SettleError::StaleLease { .. })), "{answer:?}");
    }
    let lease = bench.claim_one();
    let answer = lease.reconcile(Reconciled::DidNotHappen);
    assert!(matches!(answer, Err(SettleError::NotAReconciliation { .. })), "{answer:?}");
    // It was given back, as what was dropped is.
    assert_eq!(bench.claim_one().delivery(), 4);
    bench.check();
}

/// A result over the limit is refused as in a completion, and a reconciliation can be put off.
#[test]
fn a_reconciliation_may_be_put_off_or_given_back() {
    let bench = Bench::new();
    let id = in_doubt(&bench, asks());
    let lease = ask(&bench).unwrap();
    let answer = lease.reconcile(Reconciled::happened(vec![0; 64 * 1024 + 1]));
    assert!(matches!(answer, Err(SettleError::ResultTooLarge { .. })), "{answer:?}");
    // As unknown as before: it is asked again on its schedule.
    bench.advance(5);
    bench.jobs.sweep().unwrap();
    let lease = ask(&bench).unwrap();
    assert_eq!(lease.snooze(secs(1)).unwrap(), JobState::Delayed);
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    assert_eq!(ask(&bench).unwrap().release().unwrap(), JobState::Ready);
    bench.jobs.cancel(id).unwrap();
    assert!(ask(&bench).is_none());
    bench.check();
}

/// P15: what waits for a reconciler costs the claims of handlers nothing.
#[test]
fn p_15_jobs_in_doubt_cost_other_claims_nothing() {
    let touched = |waiting: u64| {
        let bench = Bench::new();
        for number in 0..waiting {
            bench.add_with(NewJob::new("q", "charge").bytes(number.to_string()).policy(asks()));
        }
        for lease in bench.claim(1_000) {
            lease.fail(Failure::ambiguous("timeout")).unwrap();
        }
        bench.add_with(NewJob::new("q", "charge").bytes("fresh"));
        let before = bench.jobs.rows_touched();
        // It is held until then: given back, it would be counted too, or not, as chance has it.
        let held = bench.claim_one();
        let touched = bench.jobs.rows_touched() - before;
        drop(held);
        touched
    };
    assert_eq!(touched(200), touched(1));
}

/// O-15's rule for reconcilers: a kind that has none leaves its jobs waiting, and says so; an error and
/// a panic of a reconciler are "still unknown".
#[test]
fn p_08_workers_without_a_reconciler_leave_the_job_and_say_so() {
    let bench = Bench::new();
    let id = in_doubt(&bench, asks());
    let ran = Arc::new(AtomicU64::new(0));
    let handler = |ran: &Arc<AtomicU64>| {
        let ran = Arc::clone(ran);
        move |_: &redrive::Delivery| {
            ran.fetch_add(1, Ordering::Relaxed);
            Ok(Completion::new())
        }
    };
    let workers = Workers::new(&bench.jobs).queue("q", 2).handle("charge", handler(&ran));
    let workers = workers.start().unwrap();
    bench.add_with(NewJob::new("q", "charge").bytes("another"));
    while bench.jobs.stats().unwrap().total.done < 1 {
        std::thread::yield_now();
    }
    let unreconciled = workers.unreconciled().unwrap();
    assert_eq!(unreconciled.into_iter().collect::<Vec<_>>(), [("charge".to_owned(), 1)]);
    assert!(workers.unknown_kinds().unwrap().is_empty());
    workers.shutdown(secs(60));
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().deliveries, 1);

    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let workers = Workers::new(&bench.jobs)
        .queue("q", 2)
        .handle("charge", handler(&ran))
        .reconcile("charge", move |unknown| {
            assert_eq!(
                (unknown.key(), unknown.provider_ref()),
                (Some("charge:O-194"), Some("req-7"))
            );
            match count.fetch_add(1, Ordering::Relaxed) {
                0 => panic!("a reconciler that panics"),
                1 => Err(std::io::Error::other("no route"))?,
                _ => Ok(Reconciled::Happened(Completion::new().result("found"))),
            }
        })
        .start()
        .unwrap();
    assert!(workers.unreconciled().unwrap().is_empty());
    while workers.report().reconciled < 1 {
        if bench.jobs.stats().unwrap().total.delayed_reconcile > 0 {
            bench.advance(5);
        }
        std::thread::yield_now();
    }
    let report = workers.report();
    workers.shutdown(secs(60));
    assert_eq!((report.reconciled, report.still_unknown, report.panicked), (1, 2, 1));
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!(info.result.as_deref(), Some(b"found".as_slice()));
    bench.check();
}

/// A policy survives the file, as any policy does.
#[test]
fn the_policy_is_stored_with_the_job() {
    let mut bench = Bench::new();
    let id = in_doubt(&bench, asks());
    bench.reopen();
    assert!(bench.claim(10).is_empty());
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().lane, Some(Lane::Reconcile));
    assert!(ask(&bench).is_some());
}

/// The child: a provider (a file with one line per charge) and workers that are killed anywhere.
#[test]
fn p_08_child() {
    let Some(dir) = child_argument() else { return };
    let jobs = redrive::Redrive::open(dir.join("jobs.redb")).unwrap();
    let ledger = dir.join("provider");
    let provider = ledger.clone();
    let mut random = Random(number("REDRIVE_CHILD_SEED", 1));
    let dies_at = random.below(12);
    let steps = Arc::new(AtomicU64::new(0));
    let step = move || {
        if steps.fetch_add(1, Ordering::SeqCst) == dies_at {
            std::process::abort();
        }
    };
    let asking = step.clone();
    let workers = Workers::new(&jobs)
        .queue("q", 2)
        .handle("charge", move |job| {
            step();
            append(&provider, job.key().unwrap());
            step();
            Ok(Completion::new())
        })
        .reconcile("charge", move |unknown| {
            asking();
            let lines = std::fs::read_to_string(&ledger).unwrap_or_default();
            let happened = lines.lines().any(|line| Some(line) == unknown.key());
            Ok(if happened { Reconciled::happened("") } else { Reconciled::DidNotHappen })
        })
        .start()
        .unwrap();
    while jobs.stats().unwrap().total.ready + jobs.stats().unwrap().total.leased > 0 {
        std::thread::yield_now();
    }
    workers.shutdown(secs(1));
}

fn append(path: &std::path::Path, line: &str) {
    use std::io::Write;
    let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

/// P8: a provider that knows no keys and may be asked: killed between any two steps, each charge
/// happens exactly once.
#[test]
fn p_08_killed_anywhere_each_effect_happens_once() {
    let seed = seed("REDRIVE_UNKNOWN_SEED");
    println!("REDRIVE_UNKNOWN_SEED={seed}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.redb");
    let jobs = redrive::Redrive::open(&path).unwrap();
    for number in 0..12 {
        let policy = asks().budget(FailureClass::Crashed, 50).max_deliveries(50);
        let job = NewJob::new("q", "charge").key(format!("charge:{number}")).policy(policy);
        jobs.enqueue(job).unwrap();
    }
    jobs.close().unwrap();
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs < 100, "it does not end");
        let mut child = child("unknown::p_08_child", dir.path());
        child.env("REDRIVE_CHILD_SEED", seed.wrapping_add(runs).to_string());
        if child.output().unwrap().status.success() {
            break;
        }
    }
    let charged = std::fs::read_to_string(dir.path().join("provider")).unwrap();
    let mut lines: Vec<&str> = charged.lines().collect();
    lines.sort_unstable();
    let before = lines.len();
    lines.dedup();
    assert_eq!((before, lines.len()), (12, 12), "{runs} runs: {charged}");
    let jobs = redrive::Redrive::open(&path).unwrap();
    assert_eq!(jobs.stats().unwrap().total.done, 12);
    check(&jobs);
}

/// P8, P9: a cancel forgets nothing that may have happened. Where the policy lets nobody repeat it, the job
/// goes to the quarantine with its evidence; else it is cancelled, and says that it is in doubt.
#[test]
fn p_08_a_cancel_does_not_erase_an_unknown_outcome() {
    let quarantine = JobPolicy::new().on_unknown(OnUnknown::Quarantine);
    let ends: [fn(&Bench, Lease); 3] = [
        |_, lease| {
            lease.fail(Failure::ambiguous("timeout").provider_ref("ch_1")).unwrap();
        },
        |bench, lease| {
            std::mem::forget(lease);
            bench.advance(30);
            bench.jobs.sweep().unwrap();
        },
        |bench, lease| {
            std::mem::forget(lease);
            bench.jobs.clone().close().unwrap();
        },
    ];
    for policy in [quarantine, asks(), JobPolicy::new()] {
        let retries = policy == JobPolicy::new();
        for end in ends {
            let mut bench = Bench::new();
            let id = bench.add_with(charge(policy.clone()));
            let lease = bench.claim_one();
            bench.jobs.cancel(id).unwrap();
            end(&bench, lease);
            if bench.jobs.stats().is_err() {
                bench.reopen_closed();
            }
            let info = bench.jobs.job(id).unwrap().unwrap();
            let state = if retries { JobState::Cancelled } else { JobState::Dead };
            assert_eq!((info.state, info.outcome_unknown), (state, true));
            bench.check();
        }
    }
}

/// P8: a lease that goes away in the middle of the work was started: a completion that was refused, a
/// panic of the one who held it.
#[test]
fn p_08_a_lease_that_goes_away_in_the_middle_is_not_given_back_as_if_nothing_had_happened() {
    let bench = Bench::new();
    let quarantine = || JobPolicy::new().on_unknown(OnUnknown::Quarantine);
    let refused = bench.add_with(NewJob::new("q", "k").policy(quarantine()));
    bench.claim_one().complete_with(vec![7; 70_000]).unwrap_err();
    let dead = bench.jobs.job(refused).unwrap().unwrap().dead.unwrap();
    assert_eq!((dead.reason, dead.code.as_str()), (DeathReason::Permanent, "result_too_large"));
    let panicked = bench.add_with(NewJob::new("q", "k").policy(quarantine()));
    let lease = bench.claim_one();
    let held = std::panic::AssertUnwindSafe(move || {
        let _lease = lease;
        panic!("after the charge was sent");
    });
    std::panic::catch_unwind(held).unwrap_err();
    bench.jobs.sweep().unwrap();
    let dead = bench.jobs.job(panicked).unwrap().unwrap().dead.unwrap();
    assert_eq!((dead.reason, dead.code.as_str()), (DeathReason::UnknownRefused, "stopped"));
    bench.check();
}

/// P13: an answer from outside parks no job for ever.
#[test]
fn p_13_a_wait_that_is_asked_for_is_bounded() {
    let bench = Bench::new();
    let id = bench.add("x");
    let failure = Failure::throttled("429").retry_after(secs(99_999_999_999));
    bench.claim_one().fail(failure).unwrap();
    bench.advance(86_400);
    bench.jobs.sweep().unwrap();
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().state, JobState::Ready);
}
