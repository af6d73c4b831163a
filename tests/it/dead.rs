//! P9: the quarantine can be read, page by page, with its evidence; jobs leave it by redrive or discard.

use std::collections::BTreeSet;
use std::time::Duration;

use redrive::{
    AmendError, ClaimRequest, DeadError, DeadKey, Enqueued, Failure, FailureClass, Filter,
    HistoryEvent, JobId, JobPolicy, JobState, Lease, NewJob, OnTheirWay, Redrive, RedrivePlan,
    RemovalReason, SettleError, SweepReport, Timestamp,
};

use crate::support::{Bench, check};

fn ids(jobs: &Redrive, filter: &Filter, limit: usize) -> Vec<JobId> {
    let mut ids = Vec::new();
    let mut after = None;
    loop {
        let page = jobs.dead().list(filter, after.as_ref(), limit).unwrap();
        assert!(page.jobs.len() <= limit && page.unreadable.is_empty());
        ids.extend(page.jobs.iter().map(|job| job.id));
        after = page.next;
        if after.is_none() {
            return ids;
        }
    }
}

/// A dead job of each sort, with different evidence.
fn sorts(bench: &Bench) -> Vec<JobId> {
    let mut dead = Vec::new();
    for (number, (queue, kind, version)) in
        [("q", "a", "1.0"), ("q", "b", "1.0"), ("r", "a", "2.0"), ("r", "b", "2.1")]
            .into_iter()
            .enumerate()
    {
        for round in 0..3 {
            let job = NewJob::new(queue, kind).key(format!("{kind}:{round}")).bytes(vec![7; 20]);
            let id = bench.add_with(job);
            let request = ClaimRequest::new(queue).version(version).worker("w");
            let lease = bench.jobs.claim(request).unwrap().remove(0);
            let failure = match round {
                0 => Failure::permanent("E_SCHEMA").message(format!("row {number}{round}")),
                1 => Failure::permanent("E_BAD").message("no good"),
                _ => {
                    let failure = Failure::permanent("E_REF").provider_ref("ref-1");
                    failure.message("gone")
                }
            };
            lease.fail(failure).unwrap();
            dead.push(id);
            bench.advance(10);
        }
    }
    dead
}

#[test]
fn p9_pages_of_dead_jobs_hold_each_once_with_its_evidence() {
    let bench = Bench::new();
    let all = sorts(&bench);
    bench.add("alive");
    let jobs = &bench.jobs;
    assert_eq!(ids(jobs, &Filter::new(), 100), all);
    for limit in 1..=13 {
        assert_eq!(ids(jobs, &Filter::new(), limit), all, "pages of {limit}");
    }
    let page = jobs.dead().list(&Filter::new(), None, 1).unwrap();
    let dead = page.jobs[0].dead.as_ref().unwrap();
    assert_eq!((dead.class, dead.code.as_str()), (FailureClass::Permanent, "E_SCHEMA"));
    assert_eq!((dead.message.as_str(), dead.worker.as_str()), ("row 00", "w"));
    assert_eq!((dead.version.as_str(), page.jobs[0].history.len()), ("1.0", 1));
    assert_eq!(jobs.dead().list(&Filter::new(), None, 0).unwrap().jobs.len(), 0);
}

/// Every criterion, alone and together, says the same of the list, the causes and the preview as a look
/// at every job does.
#[test]
fn p9_filters_agree_with_a_look_at_every_job() {
    let bench = Bench::new();
    let all = sorts(&bench);
    let jobs = &bench.jobs;
    let infos: Vec<_> = all.iter().map(|&id| jobs.job(id).unwrap().unwrap()).collect();
    let died = |n: usize| infos[n].dead.as_ref().unwrap().died_at;
    let cause = infos[1].dead.as_ref().unwrap().cause;
    let age = |n: usize| Duration::from_millis(bench.now().as_millis() - died(n).as_millis());
    let f = Filter::new;
    for (filter, expected) in [
        (f(), (0..12).collect::<Vec<usize>>()),
        (f().queue("r"), (6..12).collect()),
        (f().queue("r").kind("b"), (9..12).collect()),
        (f().kind("a"), vec![0, 1, 2, 6, 7, 8]),
        (f().class(FailureClass::Permanent), (0..12).collect()),
        (f().class(FailureClass::Crashed), vec![]),
        (f().code("E_BAD"), vec![1, 4, 7, 10]),
        (f().cause(cause), vec![1]),
        (f().since(died(4)), (4..12).collect()),
        (f().before(died(4)), (0..4).collect()),
        (f().since(died(2)).before(died(4)), vec![2, 3]),
        (f().version("2.1"), (9..12).collect()),
        (f().key_prefix("b:1"), vec![4, 10]),
        (f().dead_for(age(3)), (0..4).collect()),
        (f().dead_within(age(3)), (3..12).collect()),
        (f().redriven_at_least(1), vec![]),
        (f().redriven_at_most(0).queue("q").code("E_REF"), vec![2, 5]),
        (f().ids([all[3], all[8], JobId::new(999)]).queue("r"), vec![8]),
        (f().queue("none"), vec![]),
        (f().queue("q").kind("none"), vec![]),
    ] {
        let expected: Vec<JobId> = expected.iter().map(|&n| all[n]).collect();
        assert_eq!(ids(jobs, &filter, 5), expected, "{filter:?}");
        let causes = jobs.dead().causes(&filter).unwrap();
        let distinct: BTreeSet<u64> = infos
            .iter()
            .filter(|info| expected.contains(&info.id))
            .map(|info| info.dead.as_ref().unwrap().cause)
            .collect();
        assert_eq!((causes.jobs, causes.causes), (expected.len() as u64, distinct.len()));
        if !expected.is_empty() {
            let plan = RedrivePlan::new(filter.clone().everything()).reason("look");
            let preview = jobs.preview(&plan).unwrap();
            assert_eq!(preview.counts.held, expected.len() as u64, "{filter:?}");
        }
    }
    let never = f().since(Timestamp::from_millis(5)).before(Timestamp::from_millis(5));
    assert!(matches!(jobs.dead().list(&never, None, 1), Err(DeadError::Filter { .. })));
    assert!(matches!(jobs.dead().causes(&never), Err(DeadError::Filter { .. })));
}

#[test]
fn p9_causes_are_counted_with_a_sample_of_each() {
    let bench = Bench::new();
    for number in 0..20 {
        bench.add("x");
        let message = match number % 4 {
            0 => format!("row {number}: bad \"{number}\""),
            1 => "timeout after 30 s".to_owned(),
            _ => "no such account".to_owned(),
        };
        bench.claim_one().fail(Failure::permanent("E").message(message)).unwrap();
        bench.advance(1);
    }
    let causes = bench.jobs.dead().causes(&Filter::new().queue("q")).unwrap();
    assert_eq!((causes.jobs, causes.causes), (20, 3));
    let told: Vec<(u64, &str, u64)> = causes
        .largest
        .iter()
        .map(|cause| (cause.jobs, cause.message.as_str(), cause.sample.get()))
        .collect();
    assert_eq!(told[0], (10, "no such account", 20));
    assert_eq!(told[1..].iter().map(|told| told.0).sum::<u64>(), 10);
    let last = causes.largest[0].last_died_at.as_millis();
    assert_eq!(last - causes.largest[0].first_died_at.as_millis(), 17_000);
}

/// P9: an amended job keeps its key, which stands for the new request; the first payload is kept until the
/// job's row goes.
#[test]
fn p9_amend_replaces_the_payload_and_keeps_the_first_one() {
    let bench = Bench::new();
    let job = |bytes: &[u8]| NewJob::new("q", "k").bytes(bytes).key("a");
    let id = bench.add_with(job(b"bad"));
    let refused = bench.jobs.dead().amend(id, "good", "typo").unwrap_err();
    assert!(matches!(refused, AmendError::WrongState { state: JobState::Ready, .. }));
    bench.claim_one().fail(Failure::permanent("E_SCHEMA")).unwrap();
    let dead = bench.jobs.dead();
    assert!(matches!(dead.amend(id, "good", " "), Err(AmendError::NoNote)));
    let missing = dead.amend(JobId::new(99), "good", "typo");
    assert!(matches!(missing, Err(AmendError::NotFound { .. })));
    let huge = dead.amend(id, vec![0; 2 << 20], "typo");
    assert!(matches!(huge, Err(AmendError::PayloadTooLarge { .. })));
    assert_eq!(dead.get(id).unwrap().unwrap().original, None);

    dead.amend(id, vec![1; 5_000], "first try").unwrap();
    dead.amend(id, "good", "typo").unwrap();
    let found = dead.get(id).unwrap().unwrap();
    assert_eq!(found.payload.unwrap(), b"good");
    assert_eq!(found.original.as_deref(), Some(b"bad".as_slice()));
    let notes = found.job.history.iter().filter_map(|entry| match &entry.event {
        HistoryEvent::Amended { note } => Some(note.as_str()),
        _ => None,
    });
    let notes: Vec<_> = notes.collect();
    assert_eq!(notes, ["first try", "typo"]);
    bench.check();

    let conflict = bench.jobs.enqueue(job(b"bad"));
    assert!(matches!(conflict, Err(redrive::EnqueueError::KeyConflict { .. })), "{conflict:?}");
    let again = bench.jobs.enqueue(job(b"good")).unwrap();
    assert!(matches!(again, Enqueued::Duplicate { of, .. } if of == id));

    bench.jobs.redrive(RedrivePlan::new(Filter::new().ids([id])).reason("amended")).unwrap();
    while bench.jobs.sweep().unwrap() != SweepReport::default() {}
    let lease = bench.claim_one();
    assert_eq!((lease.id(), lease.payload()), (id, b"good".as_slice()));
    lease.complete().unwrap();
    assert!(dead.get(id).unwrap().is_none());
    bench.advance(8 * 86_400);
    bench.jobs.sweep().unwrap();
    assert!(bench.jobs.job(id).unwrap().is_none());
    bench.check();
}

/// P9: a damaged payload can be replaced.
#[test]
fn p9_a_job_that_died_of_its_damaged_payload_can_be_mended() {
    let mut bench = Bench::new();
    let id = bench.add_with(NewJob::new("q", "k").bytes(vec![7; 5_000]));
    bench.jobs.clone().close().unwrap();
    let cut = |_: &[u8], value: &[u8]| Some(value[..100].to_vec());
    crate::verify::tamper(&bench.path, "redrive/payloads", cut, &[]);
    bench.jobs = Redrive::open(&bench.path).unwrap();
    assert!(bench.claim(1).is_empty());
    let dead = bench.jobs.dead();
    assert!(dead.get(id).unwrap().unwrap().payload.is_err());
    dead.amend(id, "whole again", "from the order book").unwrap();
    let found = dead.get(id).unwrap().unwrap();
    assert_eq!((found.payload.unwrap(), found.original), (b"whole again".to_vec(), None));
    check(&bench.jobs);
}

/// P9: nothing leaves but what was meant, and what left is remembered.
#[test]
fn p9_discard_removes_what_the_filter_holds_for_and_notes_it() {
    let bench = Bench::new();
    let all = sorts(&bench);
    let dead = bench.jobs.dead();
    let before = bench.jobs.rows_touched();
    let refused = dead.discard(&Filter::new(), "why");
    assert!(matches!(refused, Err(DeadError::Filter { .. })), "{refused:?}");
    let refused = dead.discard(&Filter::new().queue("q"), "  ");
    assert!(matches!(refused, Err(DeadError::NoReason)), "{refused:?}");
    assert_eq!(bench.jobs.rows_touched(), before);
    let alive = bench.add("alive");

    let gone = dead.discard(&Filter::new().code("E_BAD"), "fixed by hand").unwrap();
    assert_eq!((gone.jobs, gone.not_dead), (4, 0));
    let left: Vec<JobId> =
        all.iter().enumerate().filter(|(n, _)| n % 3 != 1).map(|(_, &id)| id).collect();
    assert_eq!(ids(&bench.jobs, &Filter::new(), 100), left);
    let named = Filter::new().ids([all[0], all[1], alive, JobId::new(999)]);
    let gone = dead.discard(&named, "these").unwrap();
    assert_eq!((gone.jobs, gone.not_dead), (1, 3));
    assert_eq!(bench.jobs.job(alive).unwrap().unwrap().state, JobState::Ready);
    // The key is free again.
    let again = bench.jobs.enqueue(NewJob::new("q", "a").key("a:1")).unwrap();
    assert!(matches!(again, Enqueued::New(_)));

    let removals = dead.removals().unwrap();
    assert_eq!(removals.len(), 2);
    assert_eq!(removals[0].why, RemovalReason::Discarded { reason: "fixed by hand".into() });
    assert_eq!((removals[0].jobs, removals[0].first, removals[0].last), (4, all[1], all[10]));
    assert_eq!(removals[0].causes.iter().map(|cause| cause.jobs).sum::<u64>(), 4);
    let stats = bench.jobs.stats().unwrap().total;
    assert_eq!((stats.flow("discarded"), stats.dead), (5, 7));
    let everything = dead.discard(&Filter::new().everything(), "over").unwrap();
    assert_eq!(everything.jobs, 7);
    bench.check();
}

/// Slices: a discard of many is several commits; what dies meanwhile stays. Records are bounded.
#[test]
fn p9_discards_are_bounded_per_commit_and_so_are_their_records() {
    let bench = Bench::new();
    let jobs: Vec<NewJob> = (0..2_500).map(|_| NewJob::new("q", "k")).collect();
    bench.jobs.enqueue_many(jobs, redrive::BatchRule::PerItem).unwrap();
    for lease in bench.claim(2_500) {
        lease.fail(Failure::permanent("E")).unwrap();
    }
    let gone = bench.jobs.dead().discard(&Filter::new().kind("k"), "junk").unwrap();
    assert_eq!(gone.jobs, 2_500);
    let removals = bench.jobs.dead().removals().unwrap();
    assert_eq!((removals.len(), removals[0].jobs), (1, 2_500));
    let policy = JobPolicy::new().dead_key(DeadKey::Release);
    for _ in 0..1_010 {
        bench.add_with(NewJob::new("q", "one").policy(policy.clone()));
        bench.claim_one().fail(Failure::permanent("E")).unwrap();
        bench.jobs.dead().discard(&Filter::new().kind("one"), "junk").unwrap();
    }
    let removals = bench.jobs.dead().removals().unwrap();
    assert_eq!((removals.len(), removals[0].jobs), (1_000, 1));
    bench.check();
}

/// O-24: a list that is left half-way holds nothing back, one of the quarantine or of live jobs: the file
/// stays as small as without it. 500,000 lives with `REDRIVE_FULL=1`.
#[test]
fn o_24_a_list_left_half_way_keeps_no_space_from_being_used_again() {
    let rounds = if std::env::var_os("REDRIVE_FULL").is_some() { 500 } else { 30 };
    let bytes = |listing: bool| {
        let bench = Bench::new();
        let jobs = |queue: &str, count: usize| {
            let job = NewJob::new(queue, "k").bytes([7; 100]);
            let jobs = std::iter::repeat_n(job, count);
            bench.jobs.enqueue_many(jobs, redrive::BatchRule::PerItem).unwrap();
        };
        jobs("idle", 10_000);
        jobs("q", 2_000);
        at_once(bench.claim(2_000), |lease| lease.fail(Failure::permanent("E")).map(drop));
        let pages = listing.then(|| {
            let dead = bench.jobs.dead().list(&Filter::new(), None, 1_000).unwrap();
            let live = bench.jobs.list(OnTheirWay::Ready, Some("idle"), None, 5_000).unwrap();
            (dead, live.unwrap())
        });
        for _ in 0..rounds {
            jobs("q", 1_000);
            at_once(bench.claim(1_000), Lease::complete);
        }
        if let Some((dead, live)) = pages {
            let rest = bench.jobs.dead().list(&Filter::new(), dead.next.as_ref(), 5_000).unwrap();
            assert_eq!(dead.jobs.len() + rest.jobs.len(), 2_000);
            let rest =
                bench.jobs.list(OnTheirWay::Ready, Some("idle"), Some(&live), 9_000).unwrap();
            assert_eq!(live.jobs.len() + rest.unwrap().jobs.len(), 10_000);
        }
        bench.jobs.clone().close().unwrap();
        std::fs::metadata(&bench.path).unwrap().len()
    };
    let (without, with) = (bytes(false), bytes(true));
    assert!(with <= 2 * without, "{with} bytes with a listing, {without} without");
}

/// Settles from several threads, which share commits.
fn at_once(
    mut leases: Vec<Lease>,
    settle: impl Fn(Lease) -> Result<(), SettleError> + Copy + Send + Sync,
) {
    std::thread::scope(|scope| {
        while !leases.is_empty() {
            let some = leases.split_off(leases.len().saturating_sub(50));
            scope.spawn(move || some.into_iter().for_each(|lease| settle(lease).unwrap()));
        }
    });
}

fn kill_a_hundred_thousand(jobs: &Redrive) {
    for part in 0..20 {
        let new = (0..5_000).map(|number| {
            NewJob::new("q", "k").bytes([7; 100]).key(format!("order:{part}:{number}"))
        });
        jobs.enqueue_many(new, redrive::BatchRule::PerItem).unwrap();
        let leases = jobs.claim(ClaimRequest::new("q").up_to(5_000)).unwrap();
        std::thread::scope(|scope| {
            let mut leases = leases;
            while !leases.is_empty() {
                let some = leases.split_off(leases.len().saturating_sub(1_250));
                scope.spawn(move || {
                    for (number, lease) in some.into_iter().enumerate() {
                        let failure = Failure::permanent(format!("E_{}", number % 3));
                        lease.fail(failure.message(format!("row {number} is bad"))).unwrap();
                    }
                });
            }
        });
    }
}

/// 100,000 dead jobs: a page of the list, the causes and a preview each below 100 ms; starting a cohort of
/// all of them holds no claim up for 250 ms. `REDRIVE_FULL=1`, in a release build.
#[test]
fn p15_a_hundred_thousand_dead_jobs_are_looked_through_quickly() {
    if std::env::var_os("REDRIVE_FULL").is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let jobs = Redrive::open(dir.path().join("jobs.redb")).unwrap();
    kill_a_hundred_thousand(&jobs);
    let timed = |what: &str, work: &mut dyn FnMut()| {
        let clock = redrive::SystemClock::new();
        let mut best = u64::MAX;
        for _ in 0..5 {
            let before = redrive::Clock::monotonic_ms(&clock);
            work();
            best = best.min(redrive::Clock::monotonic_ms(&clock) - before);
        }
        println!("{what}: {best} ms");
        assert!(best < 100, "{what} took {best} ms");
    };
    let filter = Filter::new().queue("q");
    let mut after = None;
    timed("a page of 100", &mut || {
        after = jobs.dead().list(&filter, after.as_ref(), 100).unwrap().next;
    });
    timed("a page of 100, of the last ones", &mut || {
        let last = Filter::new().key_prefix("order:19:4999");
        let mut after = None;
        loop {
            after = jobs.dead().list(&last, after.as_ref(), 100).unwrap().next;
            if after.is_none() {
                break;
            }
        }
    });
    timed("causes", &mut || {
        let causes = jobs.dead().causes(&filter).unwrap();
        assert_eq!((causes.jobs, causes.causes), (100_000, 3));
    });
    let plan = RedrivePlan::new(filter).reason("fixed").canary(0).batch(1);
    timed("a preview", &mut || {
        assert_eq!(jobs.preview(&plan).unwrap().counts.held, 100_000);
    });
    // The longest write is counted from the opening on.
    jobs.close().unwrap();
    let jobs = Redrive::open(dir.path().join("jobs.redb")).unwrap();
    let cohort = jobs.redrive(plan).unwrap();
    let clock = redrive::SystemClock::new();
    let mut longest = 0;
    while jobs.cohort(cohort).unwrap().unwrap().counts.selected < 100_000 {
        let before = redrive::Clock::monotonic_ms(&clock);
        jobs.enqueue(NewJob::new("other", "k")).unwrap();
        jobs.claim(ClaimRequest::new("other")).unwrap().remove(0).complete().unwrap();
        longest = longest.max(redrive::Clock::monotonic_ms(&clock) - before);
    }
    let write = jobs.stats().unwrap().longest_write_ms;
    println!("longest life of another job meanwhile: {longest} ms, longest write: {write} ms");
    assert!(longest < 250, "a claim was held up for {longest} ms");
    assert!(write < 250, "a write took {write} ms");
}
