//! P12: blame is fair.

use std::collections::BTreeMap;

use redrive::{ClaimRequest, JobState, Lane, NewJob, Options, Redrive, Workers};

use crate::support::{Bench, check, child, child_argument, secs};

/// The child: ten threads at once; the job "poison" kills the process when all ten have started.
#[test]
fn p_12_child() {
    let Some(path) = child_argument() else { return };
    let jobs = Redrive::open(path).unwrap();
    let all_leased = jobs.clone();
    let workers = Workers::new(&jobs).queue("q", 10).handle("k", move |job| {
        println!("start {}", String::from_utf8_lossy(job.payload()));
        if job.delivery() == 1 {
            // The first time all ten are in flight together.
            while all_leased.stats()?.total.flow("claimed") < 10 {
                std::thread::yield_now();
            }
        }
        if job.payload() == b"poison" {
            std::process::abort();
        }
        if job.delivery() == 1 {
            // Stays in flight until the poison has struck.
            std::thread::park();
        }
        Ok(redrive::Completion::new())
    });
    let workers = workers.start().unwrap();
    while jobs.stats().unwrap().total.ready + jobs.stats().unwrap().total.leased > 0 {
        std::thread::yield_now();
    }
    workers.shutdown(secs(1));
}

#[test]
fn p_12_nine_bystanders_end_done_and_the_culprit_dead_after_three_starts() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.redb");
    let jobs = Redrive::open(&path).unwrap();
    let mut ids = BTreeMap::new();
    for number in 0..10 {
        let payload = if number == 4 { "poison".to_owned() } else { format!("good {number}") };
        let policy = redrive::JobPolicy::new().keep_finished(secs(3600));
        let job = NewJob::new("q", "k").bytes(payload.clone()).policy(policy);
        ids.insert(payload, jobs.enqueue(job).unwrap().job());
    }
    jobs.close().unwrap();

    let mut starts = 0;
    let mut runs = 0;
    loop {
        runs += 1;
        assert!(runs <= 5, "it does not end");
        let output = child("cases::blame::p_12_child", &path).output().unwrap();
        starts += String::from_utf8_lossy(&output.stdout).matches("start poison").count();
        if output.status.success() {
            break;
        }
    }
    assert_eq!(starts, 3);
    let jobs = Redrive::open(&path).unwrap();
    for (payload, id) in ids {
        let info = jobs.job(id).unwrap().unwrap();
        if payload == "poison" {
            assert_eq!((info.state, info.deliveries), (JobState::Dead, 3));
        } else {
            assert_eq!((info.state, info.attempts), (JobState::Done, 0), "{payload}: {info:?}");
        }
    }
    check(&jobs);
}

/// Whatever is claimed and however it is asked for, one suspect at a time is in flight.
#[test]
fn p_12_one_suspect_at_a_time_in_the_whole_store() {
    let mut bench = Bench::new();
    for queue in ["q", "r"] {
        for _ in 0..3 {
            bench.add_with(NewJob::new(queue, "k"));
        }
    }
    let mut leases = bench.claim(10);
    leases.extend(bench.jobs.claim(ClaimRequest::new("r").up_to(10)).unwrap());
    assert_eq!(leases.len(), 6);
    // As a process that dies: the leases are never given back.
    leases.into_iter().for_each(std::mem::forget);
    bench.jobs.clone().close().unwrap();
    bench.jobs = Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    assert_eq!(bench.jobs.recovered().expired, 6);
    bench.add("fresh");

    let first = bench.claim(10);
    let lanes: Vec<Lane> = first.iter().map(redrive::Lease::lane).collect();
    assert_eq!(lanes, [Lane::Suspect, Lane::Fresh]);
    assert!(first[0].outcome_unknown() && !first[1].outcome_unknown());
    assert!(bench.jobs.claim(ClaimRequest::new("r")).unwrap().is_empty());
    for lease in first {
        lease.complete().unwrap();
    }
    let other = bench.jobs.claim(ClaimRequest::new("r").up_to(10)).unwrap();
    assert_eq!(other.len(), 1);
    assert!(bench.claim(10).is_empty());
    bench.check();
}
