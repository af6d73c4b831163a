//! O-16: payloads and error records are bounded.

use redrive::{
    BadName, ClaimError, ClaimRequest, EnqueueError, Failure, FailureClass, HistoryEvent,
    JobPolicy, NewJob, OpenError, Options, Redrive, Schedule, SettleError,
};

use crate::support::{Bench, secs};

#[test]
fn o_16_a_payload_over_the_limit_is_refused_and_nothing_written() {
    let bench = Bench::new();
    let limit = 1024 * 1024;
    for bytes in [limit - 1, limit] {
        let id = bench.add_with(NewJob::new("q", "k").bytes(vec![7; bytes]));
        assert_eq!(bench.jobs.payload(id).unwrap().unwrap().len(), bytes);
    }
    let before = bench.jobs.stats().unwrap();
    let refused = bench.jobs.enqueue(NewJob::new("never", "seen").bytes(vec![7; limit + 1]));
    match refused {
        Err(EnqueueError::PayloadTooLarge { bytes, bytes_max }) => {
            assert_eq!((bytes, bytes_max), (limit + 1, limit));
        }
        other => panic!("{other:?}"),
    }
    let after = bench.jobs.stats().unwrap();
    assert_eq!((after.refused, after.queues, after.total), (1, before.queues, before.total));
    for lease in bench.claim(2) {
        assert!(lease.payload().len() >= limit - 1);
        lease.complete().unwrap();
    }
    bench.check();
}

#[test]
fn o_16_a_thousand_failures_leave_a_bounded_record() {
    let bench = Bench::new();
    let policy = JobPolicy::new()
        .budget(FailureClass::Transient, 1_000)
        .schedule(Schedule::list([]).jitter_percent(0));
    let id = bench.add_with(NewJob::new("q", "k").policy(policy));
    for number in 0..1_000 {
        let text = format!("{number} {}", "x".repeat(100 * 1024));
        bench.claim_one().fail(Failure::transient("E").message(text)).unwrap();
        bench.clock.advance(std::time::Duration::from_millis(1));
        bench.jobs.sweep().unwrap();
    }
    let info = bench.jobs.job(id).unwrap().unwrap();
    assert_eq!((info.deliveries, info.history.len(), info.history_dropped), (1_000, 32, 968));
    let deliveries: Vec<u32> = info
        .history
        .iter()
        .map(|entry| match &entry.event {
            HistoryEvent::DeliveryEnded { delivery, .. } => *delivery,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(deliveries[..4], [1, 2, 3, 4]);
    assert_eq!(deliveries[4..], (973..=1_000).collect::<Vec<_>>());
    let stored = serde_json::to_vec(&info).unwrap().len();
    assert!(stored < 32 * 3 * 1024, "{stored} bytes");
    bench.check();
}

/// Texts that cannot be names, counts that make no sense: typed, and nothing written.
#[test]
fn bad_names_and_counts_are_typed_and_write_nothing() {
    let bench = Bench::new();
    let long = "x".repeat(129);
    for (name, why) in [
        ("", BadName::Empty),
        (long.as_str(), BadName::TooLong { bytes: 129, bytes_max: 128 }),
        ("a\nb", BadName::ControlCharacter),
    ] {
        for job in [NewJob::new(name, "k"), NewJob::new("q", name)] {
            match bench.jobs.enqueue(job) {
                Err(EnqueueError::BadName { why: found, .. }) => assert_eq!(found, why),
                other => panic!("{other:?}"),
            }
        }
        assert!(matches!(
            bench.jobs.claim(ClaimRequest::new(name)),
            Err(ClaimError::BadName { .. })
        ));
    }
    let key = "x".repeat(513);
    let job = NewJob::new("q", "k").key(key);
    assert!(matches!(bench.jobs.enqueue(job), Err(EnqueueError::BadName { what: "key", .. })));
    for count in [0, 100_001] {
        let claim = bench.jobs.claim(ClaimRequest::new("q").up_to(count));
        assert!(matches!(claim, Err(ClaimError::BadCount { .. })));
    }
    assert!(bench.jobs.stats().unwrap().queues.is_empty());
    // An empty name is accepted nowhere; the longest one is.
    bench.add_with(NewJob::new("x".repeat(128), "k").key("y".repeat(512)));
    bench.check();
}

#[test]
fn a_result_over_the_limit_is_refused_and_the_job_has_failed() {
    let bench = Bench::new();
    bench.add("1");
    let refused = bench.claim_one().complete_with(vec![7; 64 * 1024 + 1]);
    assert!(matches!(refused, Err(SettleError::ResultTooLarge { .. })));
    // The next delivery would do its work again, and be refused again.
    assert_eq!(bench.jobs.stats().unwrap().total.dead, 1);
    bench.add("2");
    bench.claim_one().complete_with(vec![7; 64 * 1024]).unwrap();
    bench.check();
}

/// Files that are not ours are told apart and left as they are.
#[test]
fn p_14_what_cannot_be_opened_is_named_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        let error = Redrive::open(&path).unwrap_err();
        assert_eq!(std::fs::read(&path).unwrap(), bytes, "{name} was changed");
        error
    };
    assert!(matches!(Redrive::open(dir.path()), Err(OpenError::IsDirectory { .. })));
    assert!(matches!(open("empty", b""), OpenError::Empty { .. }));
    assert!(matches!(open("text", b"a text of some length"), OpenError::Foreign { .. }));
    assert!(matches!(open("short", b"redb\x1a"), OpenError::Damaged { .. }));

    let path = dir.path().join("real.redb");
    let jobs = Redrive::open(&path).unwrap();
    jobs.enqueue(NewJob::new("q", "k").bytes(vec![1; 100_000])).unwrap();
    assert!(matches!(Redrive::open(&path), Err(OpenError::InUse { .. })));
    jobs.close().unwrap();
    let whole = std::fs::read(&path).unwrap();
    for part in [320, 4096, whole.len() / 2, whole.len() - 4096] {
        let error = open("cut", &whole[..part]);
        assert!(matches!(error, OpenError::Damaged { .. }), "{part}: {error:?}");
    }

    let foreign = dir.path().join("foreign.redb");
    let database = redb::Database::create(&foreign).unwrap();
    database.begin_write().unwrap().commit().unwrap();
    drop(database);
    let bytes = std::fs::read(&foreign).unwrap();
    assert!(matches!(open("foreign2", &bytes), OpenError::Foreign { .. }));

    let newer = dir.path().join("newer.redb");
    Redrive::open(&newer).unwrap().close().unwrap();
    let database = redb::Database::open(&newer).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let definition = redb::TableDefinition::<&[u8], &[u8]>::new("redrive/meta");
        let mut meta = transaction.open_table(definition).unwrap();
        meta.insert(b"format".as_slice(), b"redrive\0\x02\0\0\0".as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);
    let bytes = std::fs::read(&newer).unwrap();
    assert!(matches!(open("newer2", &bytes), OpenError::Newer { found: 2, supported: 1, .. }));

    let in_nowhere = dir.path().join("no/such/dir/jobs.redb");
    assert!(matches!(Redrive::open(in_nowhere), Err(OpenError::Storage(error)) if error.is_io()));
    let zero = Options::new().payload_bytes_max(0).open(dir.path().join("never"));
    assert!(matches!(zero, Err(OpenError::BadOption { .. })));
    assert!(!dir.path().join("never").exists());
    let leftovers = std::fs::read_dir(dir.path()).unwrap();
    let creating = |name: &str| name.contains(".creating-");
    assert!(leftovers.flatten().all(|entry| !creating(&entry.file_name().to_string_lossy())));
}

/// After a close every call says so, and waiting claims are answered.
#[test]
fn a_closed_store_answers_everybody() {
    let bench = Bench::new();
    let waiting = bench.jobs.clone();
    let waiter = std::thread::spawn(move || waiting.claim(ClaimRequest::new("q").wait(secs(3600))));
    // Whatever the waiter has reached by now, it is answered; often enough it waits already.
    for _ in 0..1_000 {
        std::thread::yield_now();
    }
    bench.jobs.clone().close().unwrap();
    assert!(matches!(waiter.join().unwrap(), Err(ClaimError::Storage(error)) if error.is_closed()));
    let late = bench.jobs.enqueue(NewJob::new("q", "k"));
    assert!(matches!(late, Err(EnqueueError::Storage(error)) if error.is_closed()));
    assert!(bench.jobs.stats().unwrap_err().is_closed());
}

/// A kind named twice is one kind; an endless call ends.
#[test]
fn odd_requests_lose_nothing() {
    let bench = Bench::new();
    for payload in ["1", "2", "3"] {
        bench.add(payload);
    }
    let request = ClaimRequest::new("q").kinds(["k", "k", "other", "k"]).up_to(3);
    let leases = bench.jobs.claim(request).unwrap();
    assert_eq!(leases.len(), 3);
    drop(leases);
    let endless = std::iter::repeat_with(|| NewJob::new("q", "k"));
    let refused = bench.jobs.enqueue_many(endless, redrive::BatchRule::PerItem);
    assert!(matches!(refused, Err(EnqueueError::BatchTooLarge { .. })));
    bench.jobs.sweep().unwrap();
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 3);
    bench.check();
}
