//! The incidents of docs/runbook.md, from the first page to the last count (P9, P10, P11).

use std::collections::BTreeSet;

use redrive::{
    Abort, ClaimRequest, CohortId, CohortInfo, CohortState, Failure, FailureClass, Filter,
    HistoryEvent, JobId, JobInfo, JobState, Lease, NewJob, Pause, RedrivePlan, Scope, SweepReport,
    Window,
};

use crate::support::{Bench, secs};

/// What a version of the handler does with one job.
type Handler = fn(&[u8]) -> Result<(), Failure>;

impl Bench {
    /// Claims and handles everything that is ready, as version `version` of the handler. Returns how many
    /// jobs were delivered.
    fn work(&self, version: &str, handler: Handler) -> usize {
        let mut delivered = 0;
        loop {
            let request = ClaimRequest::new("q").up_to(100).version(version);
            let leases = self.jobs.claim(request).unwrap();
            if leases.is_empty() {
                return delivered;
            }
            delivered += leases.len();
            for lease in leases {
                settle(lease, handler);
            }
        }
    }

    /// The cohort once the writer has done all that can be done at this moment; its sums hold.
    fn watch(&self, cohort: CohortId) -> CohortInfo {
        while self.jobs.sweep().unwrap() != SweepReport::default() {}
        let info = self.jobs.cohort(cohort).unwrap().unwrap();
        assert!(info.counts.balances(), "{info:?}");
        info
    }

    fn quarantined(&self) -> u64 {
        self.jobs.stats().unwrap().total.dead
    }

    fn balanced(&self) {
        self.check();
        let report = self.jobs.report(Window::ever()).unwrap();
        assert_eq!((report.total.residual, report.total.dead_residual), (0, 0), "{report:#?}");
    }

    /// `count` jobs of one deployment, each with its key.
    fn enqueue_rows(&self, count: usize) -> Vec<JobId> {
        let row = |number: usize| {
            NewJob::new("q", "parse").bytes(format!("row {number}")).key(format!("row:{number}"))
        };
        (0..count).map(|number| self.add_with(row(number))).collect()
    }
}

fn settle(lease: Lease, handler: Handler) {
    match handler(lease.payload()) {
        Ok(()) => lease.complete().unwrap(),
        Err(failure) => drop(lease.fail(failure).unwrap()),
    }
}

fn schema(_: &[u8]) -> Result<(), Failure> {
    Err(Failure::permanent("E_SCHEMA").message("field `amount` is missing"))
}

fn fixed(_: &[u8]) -> Result<(), Failure> {
    Ok(())
}

fn by_schema() -> RedrivePlan {
    let filter = Filter::new().queue("q").kind("parse").class(FailureClass::Permanent);
    RedrivePlan::new(filter.code("E_SCHEMA")).reason("parser fixed in 2.4.1")
}

/// (a) 2,000 jobs die of one validation error after a deployment: pause the redrive of that class, inspect
/// one, redrive a canary of one with the fixed handler, then in batches, watching.
#[test]
fn a_deployment_kills_2_000_jobs_and_its_fix_brings_them_back() {
    let bench = Bench::deferred();
    let rows = bench.enqueue_rows(2_000);
    assert_eq!(bench.work("2.4.0", schema), 2_000);
    assert_eq!(bench.quarantined(), 2_000);

    // Nobody sends them back while the cause is still there; new work of the class goes on.
    let class = || Scope::redrive_class("q", "parse");
    bench.jobs.pause(class(), Pause::new("E_SCHEMA since 2.4.0").by("ana")).unwrap();
    let cohort = bench.jobs.redrive(by_schema().canary(1).batch(100).every(secs(10))).unwrap();
    bench.add_with(NewJob::new("q", "parse").bytes("fresh"));
    assert_eq!((bench.work("2.4.0", fixed), bench.watch(cohort).counts.held), (1, 2_000));

    // "2,000 jobs, 1 cause". One of them: what, by which version, how often, of what.
    let causes = bench.jobs.dead().causes(&Filter::new().queue("q")).unwrap();
    assert_eq!((causes.jobs, causes.causes), (2_000, 1));
    let one = bench.jobs.job(rows[0]).unwrap().unwrap();
    let evidence = one.dead.unwrap();
    assert_eq!((one.deliveries, one.key.as_deref()), (1, Some("row:0")));
    assert_eq!((evidence.code.as_str(), evidence.version.as_str()), ("E_SCHEMA", "2.4.0"));
    assert!(evidence.message.contains("amount"));

    // The fix is out: the canary first, and alone.
    bench.jobs.resume(class()).unwrap();
    let info = bench.watch(cohort);
    assert_eq!((info.state, info.counts.in_flight), (CohortState::Canary, 1));
    assert_eq!(bench.claim(100).into_iter().map(|lease| settle(lease, fixed)).count(), 1);

    // Then in batches, one every 10 s.
    let mut batches = 0;
    while bench.watch(cohort).state != CohortState::Finished {
        let delivered = bench.work("2.4.1", fixed);
        assert!(delivered <= 100, "more than a batch at a time: {delivered}");
        batches += usize::from(delivered > 0);
        bench.advance(10);
    }
    assert_eq!((batches, bench.watch(cohort).counts.completed), (20, 2_000));
    assert_eq!(bench.quarantined(), 0);
    for id in rows {
        let job = bench.jobs.job(id).unwrap().unwrap();
        assert_eq!((job.state, job.deliveries, job.redrives), (JobState::Done, 2, 1));
        let redriven = |event: &HistoryEvent| matches!(event, HistoryEvent::Redriven { .. });
        assert!(job.history.iter().any(|entry| redriven(&entry.event)), "{job:?}");
    }
    bench.balanced();
}

/// (b) The fix is wrong: the cohort stops itself, and at most the canary and one batch were touched.
#[test]
fn a_wrong_fix_stops_its_cohort_before_more_than_a_canary_and_a_batch_were_touched() {
    // It fails for every job: the canary shows it.
    let bench = Bench::deferred();
    let rows = bench.enqueue_rows(2_000);
    bench.work("2.4.0", schema);
    let cohort = bench.jobs.redrive(by_schema().canary(5).batch(50).every(secs(10))).unwrap();
    stops(&bench, cohort, schema);
    assert_eq!(touched(&bench, &rows), 5);

    // It works for the oldest, which are the canary, and for none of the others.
    let bench = Bench::deferred();
    let rows = bench.enqueue_rows(2_000);
    bench.work("2.4.0", schema);
    let cohort = bench.jobs.redrive(by_schema().canary(5).batch(50).every(secs(10))).unwrap();
    stops(
        &bench,
        cohort,
        |payload| {
            if payload.len() <= "row 4".len() { Ok(()) } else { schema(payload) }
        },
    );
    assert!(touched(&bench, &rows) <= 55, "{}", touched(&bench, &rows));
    let info = bench.watch(cohort);
    assert_eq!((info.state, info.counts.in_flight), (CohortState::Aborted, 0));
    assert_eq!(bench.quarantined(), 2_000 - info.counts.completed);
    bench.balanced();
}

/// Works with `handler` for ten minutes, by which time the cohort has long been stopped.
fn stops(bench: &Bench, cohort: CohortId, handler: Handler) {
    for _ in 0..60 {
        bench.watch(cohort);
        bench.work("2.4.1", handler);
        bench.advance(10);
    }
    assert_eq!(bench.watch(cohort).state, CohortState::Aborted);
}

/// How many of the jobs have been delivered again.
fn touched(bench: &Bench, jobs: &[JobId]) -> usize {
    let again = |id: &&JobId| bench.jobs.job(**id).unwrap().unwrap().deliveries > 1;
    jobs.iter().filter(again).count()
}

/// (c) 400 dead of one event with three causes, of which one is fixed: its jobs come back, the others lie
/// as they lay.
#[test]
fn of_three_causes_only_the_fixed_one_is_redriven() {
    let bench = Bench::deferred();
    let deliver = |number: usize| {
        let job = NewJob::new("q", "callback").bytes(number.to_string());
        bench.add_with(job.key(format!("ship_18472:{number}")))
    };
    let jobs: Vec<JobId> = (0..400).map(deliver).collect();
    let three: Handler = |payload| {
        let number: usize = std::str::from_utf8(payload).unwrap().parse().unwrap();
        Err(match number % 4 {
            0 | 1 => Failure::permanent("E_SCHEMA").message(format!("field {number}")),
            2 => Failure::permanent("404").message("the subscription is gone"),
            _ => Failure::permanent("E_SCHEME").message("callback with scheme `htp`"),
        })
    };
    bench.work("2.4.0", three);
    let event = || Filter::new().key_prefix("ship_18472:");
    let causes = bench.jobs.dead().causes(&event()).unwrap();
    let counts: BTreeSet<_> = causes.largest.iter().map(|c| (c.code.as_str(), c.jobs)).collect();
    assert_eq!((causes.jobs, causes.causes), (400, 3));
    assert_eq!(counts, BTreeSet::from([("404", 100), ("E_SCHEMA", 200), ("E_SCHEME", 100)]));

    // Only the first of them is fixed.
    let cause = causes.largest[0].cause;
    let plan = RedrivePlan::new(event().cause(cause))
        .reason("schema 7 is understood")
        .canary(5)
        .batch(50)
        .abort_if(Abort::dead_share(0.2));
    assert_eq!(bench.jobs.preview(&plan).unwrap().counts.held, 200);
    let look = |id: &JobId| bench.jobs.job(*id).unwrap().unwrap();
    let unfixed = |job: &JobInfo| job.dead.as_ref().is_some_and(|dead| dead.cause != cause);
    let before: Vec<JobInfo> = jobs.iter().map(look).filter(unfixed).collect();
    let cohort = bench.jobs.redrive(plan).unwrap();
    for _ in 0..20 {
        bench.watch(cohort);
        bench.work("2.4.1", fixed);
        bench.advance(10);
    }
    let info = bench.watch(cohort);
    assert_eq!((info.state, info.counts.completed), (CohortState::Finished, 200));
    assert_eq!(bench.quarantined(), 200);
    assert_eq!(before, before.iter().map(|job| look(&job.id)).collect::<Vec<_>>());
    bench.balanced();
}

/// (d) 10,000 good jobs and a malformed one, whose failure nobody has classified: it costs the good ones
/// no more than its budget of deliveries, and those less than 1 per cent of what the store does.
#[test]
fn one_malformed_job_costs_ten_thousand_good_ones_less_than_a_hundredth() {
    let handler: Handler = |payload| {
        if payload == b"malformed" { Err(Failure::transient("error")) } else { Ok(()) }
    };
    let spent = |malformed: bool| {
        let bench = Bench::deferred();
        let mut jobs: Vec<NewJob> =
            (0..10_000).map(|number| NewJob::new("q", "k").bytes(number.to_string())).collect();
        if malformed {
            jobs.insert(0, NewJob::new("q", "k").bytes("malformed"));
        }
        bench.jobs.enqueue_many(jobs, redrive::BatchRule::AllOrNothing).unwrap();
        let before = bench.jobs.rows_touched();
        let mut delivered = bench.work("1", handler);
        let good_rows = bench.jobs.rows_touched() - before;
        for _ in 0..10 {
            bench.advance(3_600);
            delivered += bench.work("1", handler);
        }
        let stats = bench.jobs.stats().unwrap();
        assert_eq!(stats.total.done, 10_000);
        assert_eq!(stats.total.flows["completed"], 10_000);
        assert_eq!(stats.total.dead, u64::from(malformed));
        (delivered, good_rows, bench.jobs.rows_touched() - before)
    };
    let (good, good_rows, _) = spent(false);
    let (mixed, mixed_rows, mixed_rows_in_all) = spent(true);
    assert_eq!((good, mixed), (10_000, 10_006));
    assert!(mixed_rows * 100 <= good_rows * 101, "{mixed_rows} rows, {good_rows} without it");
    assert!(mixed_rows_in_all * 100 <= good_rows * 101, "{mixed_rows_in_all} rows in all");
}
