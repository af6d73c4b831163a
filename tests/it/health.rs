//! Whether a store is well, by names and numbers.

use redrive::{Check, Failure, HealthLimits, Level, Limit, Message, NewJob, Options, Pause, Scope};

use crate::support::{Bench, every_second};

fn check(bench: &Bench, name: &str) -> Check {
    let health = bench.jobs.health().unwrap();
    let found = health.checks.iter().find(|check| check.name == name).unwrap().clone();
    assert!(health.level >= found.level);
    assert_eq!(health.findings().contains(&&found), found.level > Level::Ok);
    found
}

#[test]
fn an_empty_store_and_one_at_work_are_well() {
    let bench = Bench::new();
    assert_eq!(bench.jobs.health().unwrap().level, Level::Ok);
    for _ in 0..20 {
        bench.add("x");
        let lease = bench.claim_one();
        bench.advance(1);
        lease.complete().unwrap();
    }
    let health = bench.jobs.health().unwrap();
    assert_eq!((health.level, health.findings().len()), (Level::Ok, 0), "{health:#?}");
    assert!(health.checks.iter().all(|check| !check.advice.is_empty()));
}

/// The one to be woken for: retries take the workers while fresh work waits.
#[test]
fn retries_that_take_the_workers_while_fresh_work_waits_are_critical() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.add_with(NewJob::new("q", "k").policy(every_second()));
    }
    for lease in bench.claim(2) {
        lease.fail(Failure::transient("E")).unwrap();
    }
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let retries = bench.claim(2);
    assert_eq!(retries.len(), 2);
    bench.advance(20);
    for lease in retries {
        lease.heartbeat().unwrap();
        lease.complete().unwrap();
    }
    assert_eq!(check(&bench, "retry_share").measured, 0, "no fresh work waits");
    bench.add("fresh");
    bench.advance(5);
    assert_eq!(check(&bench, "retry_share").measured, 0, "it has not waited long");
    bench.advance(1);
    let found = check(&bench, "retry_share");
    assert_eq!((found.level, found.measured), (Level::Critical, 100));
    assert_eq!(found.subject.as_deref(), Some("queue q"));
    // Nobody is to be woken for work that is paused.
    bench.jobs.pause(Scope::queue("q"), Pause::new("why")).unwrap();
    assert_eq!(check(&bench, "retry_share").level, Level::Ok);
    bench.jobs.resume(Scope::queue("q")).unwrap();
    bench.advance(400);
    assert_eq!(check(&bench, "retry_share").measured, 0, "five minutes ago");
    bench.check();
}

#[test]
fn each_measure_has_its_limits() {
    let mut bench = Bench::new();
    let id = bench.add("x");
    bench.advance(299);
    assert_eq!(check(&bench, "oldest_ready").level, Level::Ok);
    bench.advance(1);
    let found = check(&bench, "oldest_ready");
    assert_eq!((found.level, found.measured), (Level::Warning, 300_000));
    assert_eq!(found.subject, Some(format!("job {id}, kind k of queue q")));
    bench.advance(3_300);
    assert_eq!(check(&bench, "oldest_ready").level, Level::Critical);

    std::mem::forget(bench.claim_one());
    bench.advance(30);
    bench.jobs.sweep().unwrap();
    let found = check(&bench, "lease_expiries");
    assert_eq!((found.level, found.measured), (Level::Warning, 1));
    bench.claim_one().complete().unwrap();

    for dead in 1..=100_u64 {
        bench.add("x");
        bench.claim_one().fail(Failure::permanent("E")).unwrap();
        let level = match dead {
            0..10 => Level::Ok,
            10..100 => Level::Warning,
            _ => Level::Critical,
        };
        if [9, 10, 99, 100].contains(&dead) {
            assert_eq!(check(&bench, "quarantine_growth").level, level);
        }
    }
    bench.advance(3_700);
    assert_eq!(check(&bench, "quarantine_growth").measured, 0, "it grows no more");

    bench.jobs.pause(Scope::class("q", "k"), Pause::new("why")).unwrap();
    bench.advance(86_400);
    assert_eq!(check(&bench, "oldest_pause").level, Level::Warning);
    bench.jobs.resume(Scope::class("q", "k")).unwrap();

    bench.add("x");
    std::mem::forget(bench.claim_one());
    bench.jobs.clone().close().unwrap();
    bench.jobs = Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    assert_eq!(check(&bench, "crashes").measured, 1);
    assert!(check(&bench, "file_size").measured > 10_000);
    bench.check();
}

#[test]
fn limits_are_the_users_own() {
    let bench = Bench::new();
    bench.add("x");
    bench.advance(1);
    let mut limits = HealthLimits::default();
    limits.file_bytes = Limit::new(1, u64::MAX);
    limits.oldest_ready_ms = Limit::new(1, 1_000);
    let health = bench.jobs.health_with(&limits).unwrap();
    let found: Vec<_> = health.findings().iter().map(|check| (check.name, check.level)).collect();
    assert_eq!(found, [("oldest_ready", Level::Critical), ("file_size", Level::Warning)]);
    assert_eq!(health.level, Level::Critical);
}

/// P14: a store that stopped is told as such, by itself.
#[test]
fn p_14_a_poisoned_store_is_critical() {
    let disk = redrive::testing::CrashDisk::new();
    let (backend, switch) = redrive::testing::FaultBackend::new(disk.backend());
    let jobs = Options::new().open_backend(backend).unwrap();
    switch.fail(switch.calls(), redrive::testing::Times::Once, std::io::ErrorKind::Other);
    let mut refused = 0;
    while jobs.poisoned().is_none() && refused < 100 {
        refused += i32::from(jobs.enqueue(NewJob::new("q", "k")).is_err());
    }
    let health = jobs.health().unwrap();
    let found = health.checks.iter().find(|check| check.name == "poisoned").unwrap();
    assert_eq!((health.level, found.measured), (Level::Critical, 1));
}

/// The age of what is not sent yet, for each destination.
#[test]
fn unsent_messages_are_told_and_judged_by_destination() {
    let bench = Bench::new();
    bench.jobs.emit(Message::to("email").bytes("a")).unwrap();
    bench.advance(600);
    bench.jobs.emit(Message::to("audit").bytes("b")).unwrap();
    bench.advance(300);
    let found = || -> Vec<(String, u64, Level)> {
        let health = bench.jobs.health().unwrap();
        let unsent = health.checks.into_iter().filter(|check| check.name == "oldest_unsent");
        unsent.map(|check| (check.subject.unwrap(), check.measured, check.level)).collect()
    };
    let [audit, email] = ["destination audit", "destination email"].map(str::to_owned);
    assert_eq!(
        found(),
        [(audit.clone(), 300_000, Level::Ok), (email.clone(), 900_000, Level::Warning)]
    );
    bench.jobs.pause(Scope::destination("email"), Pause::new("the server moves")).unwrap();
    assert_eq!(found(), [(audit, 300_000, Level::Ok), (email, 900_000, Level::Ok)]);
}

/// Everybody waits for a transaction of the app's as they wait for a write of the store's own.
#[test]
fn a_long_transaction_is_a_long_write() {
    let bench = Bench::new();
    let held = bench.jobs.transact(|_| {
        bench.advance(3);
        Ok(())
    });
    held.unwrap();
    let longest = check(&bench, "longest_write");
    assert_eq!((longest.measured, longest.level), (3_000, Level::Warning), "{longest:?}");
    assert!(longest.subject.is_some_and(|subject| subject.contains("transaction")));
}
