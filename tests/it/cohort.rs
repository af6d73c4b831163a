//! P10: redrive has brakes. Cases O-13, O-14, O-26.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use redrive::{
    Abort, AbortReason, ClaimRequest, CohortCounts, CohortError, CohortId, CohortInfo, CohortState,
    DeadKey, Failure, FailureClass, Filter, HistoryEvent, JobId, JobPolicy, JobState, Lane, Lease,
    MemberOutcome, NewJob, Options, Pause, PlanError, Redrive, RedriveError, RedrivePlan, Scope,
    SkipReason, SweepReport,
};

use crate::support::{Bench, Random, check, child, child_argument, secs, seed};
use crate::verify::tamper;

fn plan() -> RedrivePlan {
    RedrivePlan::new(Filter::new().everything()).reason("parser fixed")
}

/// Everything at once, without any brake.
fn at_once() -> RedrivePlan {
    plan().canary(0).batch(1_000).without_abort_rules()
}

impl Bench {
    /// A job that died of `code`.
    fn dead(&self, code: &str) -> JobId {
        self.dead_with(NewJob::new("q", "k"), Failure::permanent(code))
    }

    fn dead_with(&self, job: NewJob, failure: Failure) -> JobId {
        let id = self.add_with(job);
        assert_eq!(self.claim_one().fail(failure).unwrap(), JobState::Dead);
        id
    }

    fn deads(&self, count: usize) -> Vec<JobId> {
        let ids: Vec<JobId> = (0..count).map(|number| self.add(&number.to_string())).collect();
        for lease in self.claim(count) {
            lease.fail(Failure::permanent("E_SCHEMA").message("field 7")).unwrap();
        }
        ids
    }

    /// Lets the writer do all that can be done at this moment.
    fn settle(&self) {
        while self.jobs.sweep().unwrap() != SweepReport::default() {}
    }

    fn start(&self, plan: RedrivePlan) -> CohortId {
        let cohort = self.jobs.redrive(plan).unwrap();
        self.settle();
        cohort
    }

    /// The cohort, whose sums must hold.
    fn cohort(&self, id: CohortId) -> CohortInfo {
        self.settle();
        let info = self.jobs.cohort(id).unwrap().unwrap();
        assert!(info.counts.balances(), "{info:?}");
        info
    }

    fn skipped(&self, id: CohortId) -> Vec<(SkipReason, u64)> {
        self.cohort(id).counts.skipped.into_iter().collect()
    }

    fn state(&self, id: JobId) -> Option<JobState> {
        self.jobs.job(id).unwrap().map(|job| job.state)
    }

    fn outcomes(&self, cohort: CohortId) -> Vec<(JobId, MemberOutcome)> {
        let members = self.jobs.cohort_members(cohort, None, 10_000).unwrap();
        members.into_iter().map(|member| (member.job, member.outcome)).collect()
    }
}

fn same_failure(lease: Lease) {
    lease.fail(Failure::permanent("E_SCHEMA").message("field 9")).unwrap();
}

/// O-13: 51 jobs that always fail, ten per second, halt at 50% after 10 results. It halts by itself, none
/// is released twice, also when the process is killed and goes on half-way.
#[test]
fn o_13_a_redrive_that_repeats_the_incident_stops_itself() {
    // They fail at once; or so slowly that the next batch is out before the first one's results are in.
    o_13(51, 20);
    o_13(4, 30);
}

fn o_13(failures_per_second: usize, touched_max: usize) {
    let mut bench = Bench::new();
    let ids = bench.deads(51);
    let plan = plan()
        .canary(0)
        .batch(10)
        .every(secs(1))
        .in_flight_max(20)
        .without_abort_rules()
        .abort_if(Abort::dead_share(0.5));
    let preview = bench.jobs.preview(&plan).unwrap();
    assert_eq!((preview.counts.held, preview.batches, preview.shortest_ms), (51, 6, 5_000));
    assert_eq!(preview.first, ids);

    let cohort = bench.start(plan);
    let mut touched: Vec<JobId> = Vec::new();
    for second in 0..20 {
        for lease in bench.claim(failures_per_second) {
            assert!(!touched.contains(&lease.id()), "released twice");
            touched.push(lease.id());
            same_failure(lease);
        }
        bench.cohort(cohort);
        if second % 3 == 2 {
            bench.reopen();
        }
        bench.advance(1);
    }
    let info = bench.cohort(cohort);
    assert_eq!(info.state, CohortState::Aborted, "{info:?}");
    assert!(matches!(info.aborted, Some(AbortReason::DeadShare { died: 10.., .. })), "{info:?}");
    assert!((10..=touched_max).contains(&touched.len()), "{touched:?}");
    assert_eq!(touched, ids[..touched.len()]);
    assert_eq!(info.counts.died_again, u64::try_from(touched.len()).unwrap());
    for &id in &ids[touched.len()..] {
        let job = bench.jobs.job(id).unwrap().unwrap();
        assert_eq!((job.state, job.redrives, job.deliveries), (JobState::Dead, 0, 1));
    }
    bench.check();
}

/// O-13: with the default plan, a fix that does not work touches the canary and nothing else.
#[test]
fn o_13_the_canary_alone_pays_for_a_fix_that_does_not_work() {
    let bench = Bench::new();
    let ids = bench.deads(40);
    let cohort = bench.start(plan());
    assert_eq!(bench.cohort(cohort).state, CohortState::Canary);
    let mut lease = bench.claim(50);
    assert_eq!(lease.len(), 1);
    same_failure(lease.pop().unwrap());
    bench.advance(3_600);
    let info = bench.cohort(cohort);
    assert_eq!((info.state, info.aborted), (CohortState::Aborted, Some(AbortReason::CanaryDied)));
    assert_eq!((info.counts.held, info.counts.died_again), (39, 1));
    assert!(bench.claim(50).is_empty());
    assert_eq!(bench.jobs.job(ids[1]).unwrap().unwrap().redrives, 0);
    bench.check();
}

/// O-13: where the canary happens to succeed, at most one batch more is touched.
#[test]
fn o_13_at_most_the_canary_and_one_batch_are_touched() {
    let bench = Bench::new();
    bench.deads(100);
    let cohort = bench.start(plan().canary(3).batch(20).every(secs(1)));
    for lease in bench.claim(100) {
        lease.complete().unwrap();
    }
    // The results come in one by one, slower than the batches would.
    for _ in 0..60 {
        bench.cohort(cohort);
        bench.claim(1).into_iter().for_each(same_failure);
        bench.advance(2);
    }
    let info = bench.cohort(cohort);
    assert_eq!(info.state, CohortState::Aborted);
    assert_eq!(info.aborted, Some(AbortReason::SameCause { times: 3 }));
    assert_eq!((info.counts.completed, info.counts.released()), (3, 23));
    bench.check();
}

/// O-14: three attempts per cycle, two redrives: nine deliveries and nine errors in one history, one id,
/// one key; then the redrive budget is spent.
#[test]
fn o_14_a_redrive_gives_a_fresh_budget_and_forgets_nothing() {
    let bench = Bench::new();
    let policy = JobPolicy::new()
        .max_deliveries(3)
        .schedule(redrive::Schedule::list([secs(1)]).jitter_percent(0));
    let job = || NewJob::new("q", "k").key("charge:O-194").bytes("4900");
    let id = bench.add_with(job().policy(policy));
    for cycle in 0..3 {
        for attempt in 1..=3 {
            let lease = bench.claim_one();
            assert_eq!((lease.id(), lease.attempt()), (id, attempt));
            assert_eq!(lease.delivery(), cycle * 3 + attempt);
            let failure = Failure::transient("503").message(format!("cycle {cycle}"));
            lease.fail(failure).unwrap();
            bench.advance(1);
            bench.settle();
        }
        assert_eq!(bench.state(id), Some(JobState::Dead));
        // The key is still its own.
        let again = bench.jobs.enqueue(job()).unwrap();
        assert_eq!(again.job(), id);
        if cycle < 2 {
            bench.start(at_once());
            let redriven = bench.jobs.job(id).unwrap().unwrap();
            assert_eq!((redriven.state, redriven.lane), (JobState::Ready, Some(Lane::Retry)));
            assert_eq!((redriven.attempts, redriven.redrives), (0, cycle + 1));
        }
    }
    let job = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((job.deliveries, job.attempts, job.redrives), (9, 3, 2));
    let failed =
        |entry: &&redrive::HistoryEntry| matches!(entry.event, HistoryEvent::DeliveryEnded { .. });
    assert_eq!(job.history.iter().filter(failed).count(), 9);
    let deaths: Vec<String> = job
        .history
        .iter()
        .filter_map(|entry| match &entry.event {
            HistoryEvent::Redriven { death, reason, .. } => {
                assert_eq!((reason.as_str(), death.attempts), ("parser fixed", 3));
                Some(death.message.clone())
            }
            _ => None,
        })
        .collect();
    assert_eq!(deaths, ["cycle 0", "cycle 1"]);
    let cohort = bench.start(at_once());
    assert_eq!(bench.skipped(cohort), [(SkipReason::Budget, 1)]);
    assert_eq!(bench.state(id), Some(JobState::Dead));
    bench.check();
}

/// O-14, P9: the evidence of an earlier death outlives any number of deliveries after it.
#[test]
fn o_14_the_evidence_of_a_death_is_never_dropped_from_the_history() {
    let bench = Bench::new();
    let policy = JobPolicy::new().max_deliveries(60).budget(FailureClass::Transient, 60);
    let id = bench.add_with(NewJob::new("q", "k").policy(policy.redrives_max(3)));
    for _ in 0..5 {
        bench.claim_one().release().unwrap();
    }
    bench.claim_one().fail(Failure::permanent("E_FIRST")).unwrap();
    bench.start(at_once());
    for _ in 0..50 {
        bench.claim_one().release().unwrap();
    }
    bench.check();
    let job = bench.jobs.job(id).unwrap().unwrap();
    let death = job.history.iter().find_map(|entry| match &entry.event {
        HistoryEvent::Redriven { death, .. } => Some(death.code.clone()),
        _ => None,
    });
    assert_eq!(death.as_deref(), Some("E_FIRST"));
    assert_eq!(job.history.len(), 33);
    assert_eq!(job.history_dropped, 5 + 1 + 1 + 50 - 33);
}

/// O-26: whatever order they died in, a cohort releases in the order in which they were accepted.
#[test]
fn o_26_redrive_keeps_the_original_order() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..30).map(|number| bench.add(&number.to_string())).collect();
    let mut leases = bench.claim(30);
    // The last ones die first, of different kinds of failure.
    while let Some(lease) = leases.pop() {
        lease.fail(Failure::permanent(format!("E_{}", leases.len() % 4))).unwrap();
        bench.advance(1);
    }
    let fresh = bench.add("fresh");
    let cohort = bench.start(plan().canary(2).batch(7).every(secs(5)));
    let mut order = Vec::new();
    while bench.cohort(cohort).state != CohortState::Finished {
        for lease in bench.claim(3) {
            order.push(lease.id());
            lease.complete().unwrap();
        }
        bench.advance(5);
    }
    order.retain(|&id| id != fresh);
    assert_eq!(order, ids);
    bench.check();
}

/// P10: the list is fixed at the start: what dies later, also in the same millisecond, does not join.
#[test]
fn p10_what_dies_after_the_start_does_not_join() {
    let bench = Bench::new();
    let ids = bench.deads(3);
    let cohort = bench.jobs.redrive(at_once()).unwrap();
    let late = bench.dead_with(NewJob::new("q", "k").priority(200), bad());
    assert_eq!(bench.cohort(cohort).counts.selected, 3);
    for lease in bench.claim(10) {
        assert!(ids.contains(&lease.id()));
        same_failure(lease);
    }
    let info = bench.cohort(cohort);
    assert_eq!((info.state, info.counts.died_again), (CohortState::Finished, 3));
    assert_eq!(bench.jobs.job(late).unwrap().unwrap().redrives, 0);
    assert!(bench.claim(10).is_empty(), "they do not go round again");
}

/// P10: every way in which a member can end is counted, and the sum holds throughout.
#[test]
fn p10_every_member_is_counted_once() {
    let bench = Bench::new();
    let ids = bench.deads(7);
    let cohort = bench.start(plan().canary(0).batch(5).in_flight_max(10).without_abort_rules());
    bench.jobs.cancel(ids[0]).unwrap();
    let mut leases = bench.claim(3);
    leases.pop().unwrap().complete().unwrap();
    same_failure(leases.pop().unwrap());
    bench.jobs.dead().discard(&Filter::new().ids([ids[6]]), "junk").unwrap();
    assert_eq!(
        bench.cohort(cohort).counts,
        counts(|counts| {
            (counts.selected, counts.held, counts.in_flight) = (7, 2, 2);
            (counts.completed, counts.died_again, counts.cancelled) = (1, 1, 1);
        })
    );
    bench.advance(10);
    let info = bench.cohort(cohort);
    assert_eq!((info.counts.held, info.counts.in_flight), (0, 3));
    assert_eq!(bench.skipped(cohort), [(SkipReason::Gone, 1)]);
    drop(leases);
    for lease in bench.claim(10) {
        lease.complete().unwrap();
    }
    let info = bench.cohort(cohort);
    assert_eq!((info.state, info.counts.completed), (CohortState::Finished, 4));
    let skipped = bench.outcomes(cohort);
    assert_eq!(skipped[6], (ids[6], MemberOutcome::Skipped(SkipReason::Gone)));
    bench.check();
}

fn counts(set: impl FnOnce(&mut CohortCounts)) -> CohortCounts {
    let mut counts = CohortCounts::default();
    set(&mut counts);
    counts
}

/// P10: pausing stops the release and nothing else; aborting leaves what was not released as it was.
#[test]
fn p10_pause_resume_and_abort() {
    let mut bench = Bench::new();
    bench.deads(20);
    let before = bench.jobs.job(JobId::new(20)).unwrap();
    let cohort = bench.start(plan().canary(1).batch(5).every(secs(1)));
    bench.jobs.cohort_pause(cohort).unwrap();
    bench.claim_one().complete().unwrap();
    bench.advance(100);
    bench.reopen();
    assert_eq!(bench.cohort(cohort).state, CohortState::Paused);
    assert!(bench.claim(10).is_empty());
    let again = bench.jobs.cohort_pause(cohort).unwrap_err();
    assert!(matches!(again, CohortError::WrongState { state: CohortState::Paused, .. }));
    bench.jobs.cohort_resume(cohort).unwrap();
    bench.settle();
    let out = bench.claim(10);
    assert_eq!(out.len(), 5);
    assert!(matches!(bench.jobs.cohort_abort(cohort, " "), Err(CohortError::NoReason)));
    bench.jobs.cohort_abort(cohort, "the provider called").unwrap();
    bench.advance(10);
    for lease in out {
        lease.complete().unwrap();
    }
    let info = bench.cohort(cohort);
    assert_eq!(info.state, CohortState::Aborted);
    let why = AbortReason::Operator { reason: "the provider called".into() };
    assert_eq!(info.aborted, Some(why));
    assert_eq!((info.counts.completed, info.counts.held), (6, 14));
    assert_eq!(bench.jobs.job(JobId::new(20)).unwrap(), before, "evidence untouched");
    for refused in [
        bench.jobs.cohort_abort(cohort, "again"),
        bench.jobs.cohort_pause(cohort),
        bench.jobs.cohort_resume(cohort),
    ] {
        assert!(matches!(refused, Err(CohortError::WrongState { .. })), "{refused:?}");
    }
    let unknown = bench.jobs.cohort_pause(CohortId::new(7));
    assert!(matches!(unknown, Err(CohortError::NotFound { .. })), "{unknown:?}");
    assert_eq!(bench.jobs.cohort(CohortId::new(7)).unwrap(), None);
    // Those are free for another cohort.
    let next = bench.start(at_once());
    assert_eq!(bench.cohort(next).counts.in_flight, 14);
    bench.check();
}

/// Two cohorts at once never have the same job; one over jobs that are out skips those that it names.
#[test]
fn redriving_a_job_twice_at_once_is_a_skip() {
    let bench = Bench::new();
    let ids = bench.deads(6);
    let first = bench.start(plan().canary(2));
    let second = bench.start(at_once());
    assert_eq!(bench.skipped(second), [(SkipReason::InCohort, 4)], "two are out, four are held");
    assert_eq!(bench.cohort(second).state, CohortState::Finished);
    let by_name = RedrivePlan::new(Filter::new().ids(ids.iter().copied().chain([JobId::new(99)])))
        .reason("again")
        .canary(0);
    let third = bench.start(by_name);
    let skipped = bench.skipped(third);
    assert_eq!(skipped, [(SkipReason::InCohort, 6), (SkipReason::Gone, 1)]);
    assert_eq!(bench.cohort(first).counts.in_flight, 2);
    bench.check();
}

/// What is skipped, and why, is foreseen exactly.
#[test]
fn a_preview_is_what_the_start_finds() {
    let bench = Bench::new();
    bench.deads(5);
    let unknown = JobPolicy::new().on_unknown(redrive::OnUnknown::Quarantine);
    for _ in 0..2 {
        let job = NewJob::new("q", "k").policy(unknown.clone());
        bench.dead_with(job, Failure::ambiguous("timeout"));
    }
    bench.dead_with(NewJob::new("q", "k").policy(JobPolicy::new().redrives_max(0)), bad());
    bench.advance(100);
    bench.deads(8);
    let held = bench.start(RedrivePlan::new(Filter::new().ids([JobId::new(1)])).reason("one"));
    bench.jobs.cohort_pause(held).unwrap();
    for plan in [
        plan(),
        plan().limit(3),
        plan().age_max(secs(50)),
        plan().reconciled("asked the provider"),
        plan().reconciled("asked the provider").limit(8).canary(0),
        RedrivePlan::new(Filter::new().class(FailureClass::Ambiguous)).reason("look"),
        RedrivePlan::new(Filter::new().queue("none")).reason("look"),
        RedrivePlan::new(Filter::new().queue("q").kind("none")).reason("look"),
        RedrivePlan::new(Filter::new().ids([JobId::new(2), JobId::new(77)])).reason("look"),
    ] {
        let preview = bench.jobs.preview(&plan).unwrap();
        assert_eq!(preview, bench.jobs.preview(&plan).unwrap());
        // Paused at once, so that it shows what it began with.
        let cohort = bench.jobs.redrive(plan.clone()).unwrap();
        let _ = bench.jobs.cohort_pause(cohort);
        let mut found = bench.cohort(cohort).counts;
        found.held += std::mem::take(&mut found.in_flight);
        assert_eq!(found, preview.counts, "{plan:?}");
        let members = bench.outcomes(cohort);
        let released = members.iter().filter(|(_, outcome)| {
            matches!(outcome, MemberOutcome::Held | MemberOutcome::InFlight)
        });
        let released: Vec<JobId> = released.map(|(id, _)| *id).collect();
        assert_eq!(released, preview.first);
        // As it was before, for the next plan.
        for lease in bench.claim(100) {
            same_failure(lease);
        }
        let _ = bench.jobs.cohort_abort(cohort, "only looking");
    }
    bench.check();
}

fn bad() -> Failure {
    Failure::permanent("E_BAD")
}

/// P7: a dead job that gave its key away is not run beside the job that has it now.
#[test]
fn p7_a_redriven_job_does_not_share_its_key() {
    let bench = Bench::new();
    let policy = JobPolicy::new().dead_key(DeadKey::Release);
    let job = |payload: &str, key: &str| {
        NewJob::new("q", "k").bytes(payload).key(key).policy(policy.clone())
    };
    let done = bench.dead_with(job("1", "done"), bad());
    let alive = bench.dead_with(job("1", "alive"), bad());
    let other = bench.dead_with(job("1", "other"), bad());
    let free = bench.dead_with(job("1", "free"), bad());
    bench.add_with(job("1", "done"));
    bench.claim_one().complete().unwrap();
    bench.add_with(job("2", "other"));
    bench.claim_one().complete().unwrap();
    bench.add_with(job("1", "alive"));
    let cohort = bench.start(at_once());
    let skipped = MemberOutcome::Skipped(SkipReason::KeyTaken);
    let found = bench.outcomes(cohort);
    let expected = [
        (done, MemberOutcome::Suppressed),
        (alive, skipped),
        (other, skipped),
        (free, MemberOutcome::InFlight),
    ];
    assert_eq!(found, expected);
    // The free key is its own again, and the books know it.
    let again = bench.jobs.enqueue(job("1", "free")).unwrap();
    assert_eq!(again.job(), free);
    assert_eq!(bench.cohort(cohort).counts.suppressed, 1);
    bench.check();
}

/// P7: a key that was taken between the selection and the release is seen at the release.
#[test]
fn p7_a_key_taken_meanwhile_is_seen_at_the_release() {
    let bench = Bench::new();
    let policy = JobPolicy::new().dead_key(DeadKey::Release);
    let job = || NewJob::new("q", "k").key("a").policy(policy.clone());
    bench.dead("E_FIRST");
    let id = bench.dead_with(job(), bad());
    let cohort = bench.start(plan());
    let again = bench.add_with(job());
    for lease in bench.claim(10).into_iter().rev() {
        lease.complete().unwrap();
    }
    assert_eq!(bench.state(again), Some(JobState::Done));
    bench.settle();
    assert_eq!(bench.outcomes(cohort)[1], (id, MemberOutcome::Suppressed));
    assert_eq!(bench.cohort(cohort).state, CohortState::Finished);
    bench.check();
}

/// P12: what was convicted of crashes goes on as a suspect.
#[test]
fn p12_a_job_that_died_of_crashes_is_redriven_alone() {
    let mut bench = Bench::new();
    let policy = JobPolicy::new().budget(FailureClass::Crashed, 1);
    let id = bench.add_with(NewJob::new("q", "k").policy(policy));
    std::mem::forget(bench.claim_one());
    bench.reopen();
    assert_eq!(bench.state(id), Some(JobState::Dead));
    let skipped = bench.start(at_once());
    assert_eq!(bench.skipped(skipped), [(SkipReason::UnknownOutcome, 1)]);
    bench.start(at_once().reconciled("no trace of it at the provider"));
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().lane, Some(Lane::Suspect));
    assert!(bench.claim_one().outcome_unknown());
    bench.check();
}

/// A release that was due while nobody had the file open comes at the opening, once.
#[test]
fn p10_a_cohort_goes_on_over_restarts_in_its_own_time() {
    let mut bench = Bench::new();
    let ids = bench.deads(9);
    let cohort = bench.start(plan().canary(0).batch(3).every(secs(60)).in_flight_max(9));
    for round in 1..=3 {
        assert_eq!(bench.cohort(cohort).counts.in_flight, round * 3);
        bench.reopen();
        bench.settle();
        assert_eq!(bench.cohort(cohort).counts.in_flight, round * 3);
        bench.clock.jump_wall(secs(60));
    }
    let released: Vec<JobId> = bench.claim(100).iter().map(Lease::id).collect();
    assert_eq!(released, ids);
    bench.check();
}

/// A rule, and what makes it stop a cohort.
type Trouble = (Abort, fn(&Bench));

/// Growth of the quarantine, a line that stands still, throttling: each stops a cohort.
#[test]
fn p10_trouble_elsewhere_in_the_queue_stops_a_cohort() {
    let minute = secs(60);
    let cases: [Trouble; 3] = [
        (Abort::growth(3, minute), |bench| {
            for _ in 0..4 {
                bench.dead_with(NewJob::new("q", "fresh").priority(200), bad());
            }
        }),
        (Abort::throttling(3, minute), |bench| {
            for _ in 0..4 {
                bench.add_with(NewJob::new("q", "fresh").priority(200));
                bench.claim_one().fail(Failure::throttled("429").retry_after(secs(900))).unwrap();
            }
        }),
        (Abort::ready_age(minute), |bench| {
            bench.add_with(NewJob::new("q", "fresh").priority(0));
            for _ in 0..20 {
                bench.advance(5);
                bench.settle();
            }
        }),
    ];
    for (rule, trouble) in cases {
        let bench = Bench::new();
        bench.deads(10);
        let filter = Filter::new().queue("q");
        let plan = RedrivePlan::new(filter).reason("fixed").canary(0).batch(1);
        let cohort = bench.start(plan.every(secs(3_600)).without_abort_rules().abort_if(rule));
        bench.claim_one().complete().unwrap();
        assert_eq!(bench.cohort(cohort).state, CohortState::Running);
        bench.advance(30);
        bench.settle();
        trouble(&bench);
        bench.advance(20);
        let info = bench.cohort(cohort);
        let why = info.aborted.clone();
        let told = match rule {
            Abort::Growth { .. } => matches!(why, Some(AbortReason::Growth { jobs: 4 })),
            Abort::Throttling { .. } => {
                matches!(why, Some(AbortReason::Throttling { deliveries: 4 }))
            }
            _ => matches!(why, Some(AbortReason::ReadyAge { age_ms: 90_000.. })),
        };
        assert!(told, "{rule:?}: {info:?}");
        assert_eq!(info.counts.held, 9);
        bench.check();
    }
}

/// P10: a pause of redrive, of all of it or of a class, holds a cohort where it is; it goes on when the
/// pause is lifted. Other work goes on.
#[test]
fn p10_a_cohort_waits_while_redrive_is_paused() {
    for scope in [Scope::redrive(), Scope::redrive_class("q", "k")] {
        let bench = Bench::new();
        bench.deads(4);
        bench.jobs.pause(scope.clone(), Pause::new("look first").by("ada")).unwrap();
        let cohort = bench.start(plan().canary(0).batch(2).every(secs(1)));
        bench.advance(10);
        let info = bench.cohort(cohort);
        assert_eq!((info.state, info.counts.held), (CohortState::Running, 4));
        bench.add("fresh");
        bench.claim_one().complete().unwrap();
        bench.jobs.resume(scope).unwrap();
        bench.advance(10);
        assert_eq!(bench.cohort(cohort).counts.in_flight, 2);
        bench.check();
    }
}

/// Bad input: typed, and nothing is written.
#[test]
fn bad_plans_are_refused_and_write_nothing() {
    let bench = Bench::new();
    bench.deads(2);
    let before = bench.jobs.rows_touched();
    let filter = || Filter::new().queue("q");
    let late = redrive::Timestamp::from_millis(2);
    for (plan, what) in [
        (RedrivePlan::new(filter()), "no reason"),
        (RedrivePlan::new(Filter::new()).reason("r"), "no criteria"),
        (RedrivePlan::new(filter().since(late).before(late)).reason("r"), "holds for no job"),
        (RedrivePlan::new(filter().redriven_at_least(2).redriven_at_most(1)).reason("r"), "often"),
        (RedrivePlan::new(filter().dead_for(secs(2)).dead_within(secs(1))).reason("r"), "longer"),
        (RedrivePlan::new(filter().ids([])).reason("r"), "names no job"),
        (RedrivePlan::new(filter()).reason("r").batch(0), "batch is 0: give 1 to 1000"),
        (RedrivePlan::new(filter()).reason("r").limit(2).canary(3), "limit is 2"),
        (
            RedrivePlan::new(filter()).reason("r").limit(5).abort_if(Abort::dead_share(0.2)),
            "needs 10 results, the plan has 5 jobs",
        ),
        (RedrivePlan::new(filter()).reason("r").reconciled(" "), "evidence"),
    ] {
        let refused = bench.jobs.redrive(plan.clone()).unwrap_err();
        assert!(refused.to_string().contains(what), "{what}: {refused}");
        assert!(matches!(refused, RedriveError::Plan { .. }));
        assert!(bench.jobs.preview(&plan).is_err());
    }
    let no_reason = bench.jobs.redrive(RedrivePlan::new(filter())).unwrap_err();
    assert!(matches!(no_reason, RedriveError::Plan { why: PlanError::NoReason }));
    assert_eq!(bench.jobs.rows_touched(), before);
    assert!(bench.jobs.cohorts(None, 10).unwrap().is_empty());
}

/// A cohort of many is selected in slices, and listed in pages.
#[test]
fn p15_selection_is_bounded_per_commit() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.deads(1_000);
    }
    let cohort = bench.jobs.redrive(plan().limit(1_500).canary(0).batch(1_000)).unwrap();
    bench.settle();
    let info = bench.cohort(cohort);
    assert_eq!((info.counts.selected, info.counts.in_flight), (1_500, 1_000));
    let mut members = Vec::new();
    loop {
        let after = members.last().copied();
        let page = bench.jobs.cohort_members(cohort, after, 400).unwrap();
        if page.is_empty() {
            break;
        }
        members.extend(page.iter().map(|member| member.job));
    }
    assert_eq!(members, (1..=1_500).map(JobId::new).collect::<Vec<_>>());
    let ids: Vec<_> = bench.jobs.cohorts(None, 10).unwrap().iter().map(|info| info.id).collect();
    assert_eq!(ids, [cohort]);
    bench.check();
}

/// At most 100 cohorts are under way; the next one is refused, and nothing of it is written.
#[test]
fn too_many_cohorts_at_once_are_refused() {
    let bench = Bench::new();
    bench.deads(1);
    let mut cohorts = vec![bench.start(plan())];
    for _ in 1..100 {
        let plan = RedrivePlan::new(Filter::new().everything()).reason("r").canary(0);
        let cohort = bench.jobs.redrive(plan).unwrap();
        let _ = bench.jobs.cohort_pause(cohort);
        cohorts.push(cohort);
    }
    // Those that had nothing to do are over, so there is room again.
    assert_eq!(bench.cohort(cohorts[99]).state, CohortState::Finished);
    let every = Duration::from_secs(60);
    let ids = bench.deads(120);
    let mut refused = 0;
    for id in ids {
        let plan = RedrivePlan::new(Filter::new().ids([id])).reason("r").every(every);
        match bench.jobs.redrive(plan) {
            Ok(_) => {}
            Err(RedriveError::TooManyCohorts { count_max: 100 }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
    }
    // The canary of the first one was claimed and died with those.
    assert_eq!(refused, 20);
    bench.check();
}

/// Damage to a cohort's rows costs that cohort: it is told, nothing is released twice, the queue goes on.
#[test]
fn p14_damage_to_a_cohort_costs_nobody_else() {
    for (table, released) in [("cohorts", 0), ("cohort_members", 1)] {
        let mut bench = Bench::new();
        bench.deads(4);
        let cohort = bench.start(plan().canary(1).batch(2));
        let canary = bench.claim_one();
        bench.jobs.clone().close().unwrap();
        let last_byte = |_: &[u8], value: &[u8]| {
            let mut value = value.to_vec();
            let last = value.len() - 1;
            value[last] ^= 1;
            Some(value)
        };
        tamper(&bench.path, &format!("redrive/{table}"), last_byte, &[]);
        drop(canary);
        bench.jobs = Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
        bench.settle();
        assert!(!bench.jobs.verify().unwrap().is_clean());
        let suspect = bench.claim_one();
        assert_eq!(suspect.lane(), Lane::Suspect);
        suspect.complete().unwrap();
        bench.add("fresh");
        bench.claim_one().complete().unwrap();
        bench.advance(100);
        bench.settle();
        // Members whose rows cannot be read are skipped, as what they are.
        match bench.jobs.cohort(cohort) {
            Ok(info) => {
                let info = info.unwrap();
                assert!(info.counts.balances(), "{info:?}");
                assert_eq!(info.state, CohortState::Finished);
                assert_eq!(info.counts.completed, released);
                assert_eq!(bench.skipped(cohort), [(SkipReason::Damaged, 3)]);
            }
            Err(error) => assert!(error.is_corrupt(), "{error}"),
        }
        assert!(bench.claim(10).is_empty());
    }
}

/// The role of the child; in the normal run it does nothing.
#[test]
fn child_redrives_until_it_is_killed() {
    let Some(path) = child_argument() else { return };
    let jobs = Redrive::open(path).unwrap();
    let done = |line: &str| println!("\n= {line}");
    let mut ends = 0;
    loop {
        let wait = Duration::from_millis(5);
        for lease in jobs.claim(ClaimRequest::new("q").up_to(3).wait(wait)).unwrap() {
            done(&format!("claimed {}", lease.id()));
            ends += 1;
            match ends % 5 {
                0 => drop(lease.fail(Failure::permanent("E_AGAIN"))),
                _ => lease.complete().unwrap(),
            }
        }
        if jobs.cohorts(None, 10).unwrap().iter().all(|cohort| cohort.ended_at.is_some()) {
            done("over");
            std::thread::park();
        }
    }
}

/// P10: killed again and again, a cohort releases every member once, and its sums hold at every opening.
#[test]
fn p10_a_killed_process_releases_nobody_twice() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.redb");
    let jobs = Redrive::open(&path).unwrap();
    let policy = JobPolicy::new().budget(FailureClass::Crashed, 1_000).keep_finished(secs(3_600));
    for number in 0..300 {
        jobs.enqueue(NewJob::new("q", "k").bytes(number.to_string()).policy(policy.clone()))
            .unwrap();
    }
    for lease in jobs.claim(ClaimRequest::new("q").up_to(300)).unwrap() {
        lease.fail(Failure::permanent("E_SCHEMA")).unwrap();
    }
    let everything = || RedrivePlan::new(Filter::new().everything()).reason("fixed").canary(0);
    let pace = Duration::from_millis(2);
    let plan = everything().batch(7).every(pace).in_flight_max(20).without_abort_rules();
    let cohorts = [jobs.redrive(plan).unwrap(), jobs.redrive(everything()).unwrap()];
    jobs.close().unwrap();
    let mut random = Random(seed("REDRIVE_KILL_SEED"));
    let mut rounds = 0;
    loop {
        let mut process = child("cohort::child_redrives_until_it_is_killed", &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let lines = lines.map_while(Result::ok).filter(|line| line.starts_with("= "));
        let count = usize::try_from(1 + random.below(60)).unwrap();
        let over = lines.take(count).any(|line| line == "= over");
        process.kill().unwrap();
        process.wait().unwrap();
        rounds += 1;
        let jobs = Redrive::open(&path).unwrap();
        check(&jobs);
        for cohort in cohorts {
            let info = jobs.cohort(cohort).unwrap().unwrap();
            assert!(info.counts.balances(), "round {rounds}: {info:?}");
        }
        for id in 1..=300 {
            let job = jobs.job(JobId::new(id)).unwrap().unwrap();
            assert!(job.redrives <= 1, "round {rounds}: {job:?}");
        }
        if over {
            let [first, second] = cohorts.map(|cohort| jobs.cohort(cohort).unwrap().unwrap());
            assert_eq!(first.counts.selected, 300);
            assert_eq!(first.counts.released(), 300, "{first:?}");
            assert_eq!(second.counts.released(), 0, "{second:?}");
            break;
        }
        jobs.close().unwrap();
        assert!(rounds < 1_000, "it never ends");
    }
    println!("{rounds} lives");
}
