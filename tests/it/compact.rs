//! O-24: a file is made smaller at its close, or says why not.

use std::sync::Arc;

use redb::Database;
use redrive::{BatchRule, CompactError, NewJob, Redrive};

use crate::support::{Bench, check};

#[test]
fn o_24_a_close_gives_space_back_and_keeps_everything() {
    let mut bench = Bench::new();
    let big = || (0..2_000).map(|_| NewJob::new("q", "k").bytes(vec![7; 4_000]));
    bench.jobs.enqueue_many(big(), BatchRule::PerItem).unwrap();
    bench.add_with(NewJob::new("q", "last").key("K").bytes("kept"));
    for id in 1..=2_000 {
        bench.jobs.cancel(redrive::JobId::new(id)).unwrap();
    }
    let length = || std::fs::metadata(&bench.path).unwrap().len();
    let before = length();
    let done = bench.jobs.clone().close_compacted().unwrap();
    assert_eq!((done.bytes_before, done.bytes_after), (before, length()));
    assert!(done.bytes_after * 4 < done.bytes_before, "{done:?}");
    assert!(bench.jobs.stats().unwrap_err().is_closed());
    bench.reopen_closed();
    assert_eq!(bench.claim_one().payload(), b"kept");
    bench.check();
    assert!(matches!(bench.jobs.clone().close_compacted(), Ok(done) if done.bytes_after > 0));
    assert!(
        matches!(bench.jobs.clone().close_compacted(), Err(CompactError::Storage(error)) if error.is_closed())
    );
}

#[test]
fn o_24_a_database_that_cannot_be_compacted_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.redb");
    let app = Arc::new(Database::create(&path).unwrap());
    let jobs = Redrive::with_database(Arc::clone(&app)).unwrap();
    assert!(matches!(jobs.close_compacted(), Err(CompactError::Shared)));
    let jobs = Redrive::with_database(Arc::clone(&app)).unwrap();
    jobs.enqueue(NewJob::new("q", "k")).unwrap();
    jobs.close().unwrap();
    let transaction = app.begin_write().unwrap();
    let savepoint = transaction.persistent_savepoint().unwrap();
    transaction.commit().unwrap();
    drop(app);
    let refused = Redrive::open(&path).unwrap().close_compacted().unwrap_err();
    assert!(matches!(refused, CompactError::Savepoint), "{refused}");
    let app = Database::open(&path).unwrap();
    let transaction = app.begin_write().unwrap();
    assert!(transaction.delete_persistent_savepoint(savepoint).unwrap());
    transaction.commit().unwrap();
    drop(app);
    Redrive::open(&path).unwrap().close_compacted().unwrap();
    let jobs = Redrive::open(&path).unwrap();
    assert_eq!(jobs.stats().unwrap().total.ready, 1);
    check(&jobs);
}
