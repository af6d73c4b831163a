//! P9: dead jobs leave by a retention rule only where the user set one; each eviction is counted and noted.

use redrive::{
    BatchRule, DeadRetention, EnqueueError, Enqueued, Failure, Filter, JobId, JobState, NewJob,
    Overflow, QueuePolicy, RedrivePlan, RemovalReason, RetentionBound, SweepReport,
};

use crate::support::{Bench, Random, secs, seed};
use crate::verify::tamper;

impl Bench {
    fn bury(&self, queue: &str, kind: &str, bytes: usize) -> JobId {
        let id = self.add_with(NewJob::new(queue, kind).bytes(vec![7; bytes]));
        let request = redrive::ClaimRequest::new(queue);
        let lease = self.jobs.claim(request).unwrap().remove(0);
        lease.fail(Failure::permanent("E")).unwrap();
        id
    }

    fn keep(&self, queue: &str, retention: DeadRetention) {
        self.jobs.set_queue(queue, QueuePolicy::new().dead(retention)).unwrap();
    }

    fn all_dead(&self) -> Vec<JobId> {
        while self.jobs.sweep().unwrap() != SweepReport::default() {}
        let page = self.jobs.dead().list(&Filter::new(), None, 10_000).unwrap();
        let mut ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
        ids.sort_unstable();
        ids
    }
}

#[test]
fn p9_nothing_is_dropped_by_default() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..50).map(|_| bench.bury("q", "k", 2_000)).collect();
    bench.advance(100 * 365 * 86_400);
    assert_eq!(bench.all_dead(), ids);
    assert_eq!(bench.jobs.stats().unwrap().total.dead_bytes, 100_000);
    bench.check();
}

/// The oldest go first, over all kinds of the queue; other queues keep theirs.
#[test]
fn p9_the_oldest_of_a_queue_are_evicted_by_count() {
    let bench = Bench::new();
    bench.keep("q", DeadRetention::new().jobs(5));
    let kinds = ["a", "b", "c"];
    let ids: Vec<JobId> = (0..20)
        .map(|number| {
            bench.advance(1);
            bench.bury("q", kinds[number % 3], 10)
        })
        .collect();
    let other = bench.bury("r", "a", 10);
    let mut left = ids[15..].to_vec();
    left.push(other);
    assert_eq!(bench.all_dead(), left);
    assert!(bench.jobs.job(ids[0]).unwrap().is_none());
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.flow("evicted"), total.dead, total.residual), (15, 6, 0));
    let removals = bench.jobs.dead().removals().unwrap();
    assert_eq!(removals.len(), 1, "one record a minute: {removals:?}");
    let why = RemovalReason::Evicted { queue: "q".into(), bound: RetentionBound::Jobs };
    assert_eq!((&removals[0].why, removals[0].jobs), (&why, 15));
    assert_eq!((removals[0].first, removals[0].last), (ids[0], ids[14]));
    bench.check();
}

#[test]
fn p9_eviction_by_bytes_and_by_age() {
    let mut bench = Bench::new();
    bench.keep("q", DeadRetention::new().bytes(10_000));
    let ids: Vec<JobId> = (0..6).map(|_| bench.bury("q", "k", 3_000)).collect();
    assert_eq!(bench.all_dead(), ids[3..]);
    bench.keep("q", DeadRetention::new().age(secs(60)));
    bench.advance(61);
    assert!(bench.all_dead().is_empty(), "by themselves, when their time is over");
    let ids: Vec<JobId> = (0..3)
        .map(|_| {
            bench.advance(10);
            bench.bury("q", "k", 1)
        })
        .collect();
    bench.reopen();
    bench.advance(45);
    assert_eq!(bench.all_dead(), ids[1..]);
    let bounds: Vec<RetentionBound> = bench
        .jobs
        .dead()
        .removals()
        .unwrap()
        .iter()
        .map(|removal| match &removal.why {
            RemovalReason::Evicted { bound, .. } => *bound,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(bounds, [RetentionBound::Bytes, RetentionBound::Age, RetentionBound::Age]);
    bench.check();
}

/// Rules that are set on a large quarantine are carried out in slices.
#[test]
fn p15_evictions_are_bounded_per_commit() {
    let bench = Bench::new();
    let jobs: Vec<NewJob> = (0..2_500).map(|_| NewJob::new("q", "k")).collect();
    bench.jobs.enqueue_many(jobs, BatchRule::PerItem).unwrap();
    for lease in bench.claim(2_500) {
        lease.fail(Failure::permanent("E")).unwrap();
    }
    bench.keep("q", DeadRetention::new().jobs(100));
    assert_eq!(bench.all_dead(), (2_401..=2_500).map(JobId::new).collect::<Vec<_>>());
    bench.check();
}

/// A queue that refuses takes no new work while its quarantine is full, and says so; duplicates are
/// still answered; room made by a redrive or a discard opens it again.
#[test]
fn p9_a_full_quarantine_refuses_new_work() {
    let bench = Bench::new();
    bench.keep("q", DeadRetention::new().jobs(2).overflow(Overflow::Refuse));
    let keyed = || NewJob::new("q", "k").key("a");
    let alive = bench.add_with(keyed().priority(0));
    let ids = [0, 1].map(|_| bench.bury("q", "k", 5));
    let full = |outcome: Result<Enqueued, EnqueueError>| {
        matches!(outcome, Err(EnqueueError::QuarantineFull { jobs: 2, bytes: 10, .. }))
    };
    assert!(full(bench.jobs.enqueue(NewJob::new("q", "other"))));
    let again = bench.jobs.enqueue(keyed()).unwrap();
    assert!(matches!(again, Enqueued::Duplicate { of, .. } if of == alive));
    let both = [NewJob::new("r", "k"), NewJob::new("q", "k")];
    let outcomes = bench.jobs.enqueue_many(both, BatchRule::AllOrNothing).unwrap();
    assert!(outcomes.iter().all(Result::is_err), "{outcomes:?}");
    assert_eq!(bench.all_dead(), ids);
    bench.jobs.redrive(RedrivePlan::new(Filter::new().ids([ids[0]])).reason("room")).unwrap();
    while bench.jobs.sweep().unwrap() != SweepReport::default() {}
    assert!(bench.jobs.enqueue(NewJob::new("q", "other")).is_ok());
    assert_eq!(bench.jobs.job(ids[0]).unwrap().unwrap().state, JobState::Ready);
    bench.check();
}

/// P9, P11: whatever happens in whatever order, a queue never keeps more than its rules allow, none goes
/// that is within them, the youngest stay, and the books balance.
#[test]
fn p9_random_lives_under_retention() {
    let seed = seed("REDRIVE_MODEL_SEED");
    println!("REDRIVE_MODEL_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..6 {
        let mut bench = Bench::new();
        let (jobs, bytes) = (1 + random.below(6), 1_000 * (1 + random.below(4)));
        bench.keep("q", DeadRetention::new().jobs(jobs).bytes(bytes));
        // Died at, id, bytes: what should be there.
        let mut kept: Vec<(JobId, u64)> = Vec::new();
        for _ in 0..60 {
            match random.below(8) {
                0 => bench.reopen(),
                1 => bench.advance(random.below(90)),
                2 if !kept.is_empty() => {
                    let place = usize::try_from(random.below(kept.len() as u64)).unwrap();
                    let (id, _) = kept.remove(place);
                    bench.jobs.dead().discard(&Filter::new().ids([id]), "chance").unwrap();
                }
                _ => {
                    let size = [3, 600, 1_500][usize::try_from(random.below(3)).unwrap()];
                    let kind = ["a", "b"][usize::try_from(random.below(2)).unwrap()];
                    let id = bench.bury("q", kind, size);
                    kept.push((id, size as u64));
                }
            }
            let size = |kept: &[(JobId, u64)]| kept.iter().map(|(_, size)| size).sum::<u64>();
            while kept.len() as u64 > jobs || size(&kept) > bytes {
                kept.remove(0);
            }
            let expected: Vec<JobId> = kept.iter().map(|(id, _)| *id).collect();
            assert_eq!(bench.all_dead(), expected);
        }
        bench.check();
    }
}

/// P9, P14: dead jobs that cannot be read take no place from those that can, and keep nobody busy.
#[test]
fn p9_unreadable_dead_jobs_push_out_no_others() {
    for unreadable in [3, 1_500] {
        let mut bench = Bench::new();
        let jobs = (0..unreadable).map(|_| NewJob::new("q", "k"));
        bench.jobs.enqueue_many(jobs, BatchRule::PerItem).unwrap();
        for lease in bench.claim(unreadable) {
            lease.fail(Failure::permanent("E")).unwrap();
        }
        bench.jobs.clone().close().unwrap();
        let flip = |_: &[u8], value: &[u8]| {
            let (last, rest) = value.split_last().unwrap();
            Some([rest, &[!last]].concat())
        };
        tamper(&bench.path, "redrive/jobs", flip, &[]);
        bench.reopen_closed();
        bench.jobs.set_queue("q", QueuePolicy::new().dead(DeadRetention::new().jobs(2))).unwrap();
        bench.advance(1);
        let ids = [1, 2, 3].map(|number| {
            let id = bench.add(&number.to_string());
            bench.claim_one().fail(Failure::permanent("E")).unwrap();
            bench.advance(1);
            id
        });
        while bench.jobs.sweep().unwrap() != SweepReport::default() {}
        let kept = ids.map(|id| bench.jobs.job(id).unwrap().is_some());
        // Of more than can be known by name, nothing more goes.
        let some = unreadable < 1_000;
        assert_eq!(kept, [!some, true, true], "{unreadable}");
        let evicted = bench.jobs.stats().unwrap().total.flow("evicted");
        assert_eq!(evicted, u64::from(some));
    }
}
