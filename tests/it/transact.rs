//! Transactions on the caller's thread (P2, P5, P6, O-22): all of it or nothing, and whatever the caller's
//! code does wrong ends with its transaction.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use redrive::redb::{
    Database, MultimapTableDefinition, ReadableDatabase, ReadableTable, TableDefinition,
};
use redrive::testing::{CrashDisk, Survival};
use redrive::{
    ClaimError, ClaimRequest, Completion, Durability, EffectTable, EnqueueError, Failure, JobState,
    NewJob, OpenError, Options, Redrive, SettleError, StorageError, TransactError, Workers,
};

use crate::support::{Bench, Random, check, secs, seed};

const ORDERS: TableDefinition<'_, &str, u64> = TableDefinition::new("orders");
const COUNT: EffectTable<str, u64> = EffectTable::new("count");

/// The app's own table, as the last commit has it.
fn orders(jobs: &Redrive) -> Vec<(String, u64)> {
    // Through a transaction, because the file is the store's; nothing is written in it.
    let all = jobs.transact(|tx| {
        let table = tx.open_table(ORDERS)?;
        let rows = table
            .iter()?
            .map(|row| row.map(|(key, value)| (key.value().to_owned(), value.value())));
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    });
    all.unwrap()
}

/// Everything of a transaction is there after it, and after a restart.
#[test]
fn p_02_a_transaction_commits_all_it_has() {
    let mut bench = Bench::new();
    bench.add_with(NewJob::new("q", "charge"));
    let lease = bench.claim_one();
    let key = "post:O-194";
    let added = bench.jobs.transact(|tx| {
        // The app's table may stay open while the other calls are made.
        let mut table = tx.open_table(ORDERS)?;
        table.insert("O-194", 4_900)?;
        let added = tx.enqueue(NewJob::new("q", "post").key(key))?;
        tx.put(COUNT, "charges", &1)?;
        assert_eq!(tx.get(COUNT, "charges")?, Some(1), "it sees its own rows");
        tx.put(COUNT, "gone", &1)?;
        tx.delete(COUNT, "gone")?;
        tx.complete(&lease, Completion::new().put(COUNT, "done", &7).result("receipt"))?;
        table.insert("O-195", 1)?;
        let again = tx.enqueue(NewJob::new("q", "post").key(key))?;
        assert_eq!(again.job(), added.job());
        Ok(added)
    });
    let added = added.unwrap().job();
    assert!(matches!(lease.heartbeat(), Err(SettleError::StaleLease { .. })), "it has ended");
    drop(lease);
    for _ in 0..2 {
        let rows = orders(&bench.jobs);
        assert_eq!(rows, [("O-194".to_owned(), 4_900), ("O-195".to_owned(), 1)]);
        let rows = bench.jobs.read(|r| r.range(COUNT, .., 10)).unwrap();
        assert_eq!(rows, [("charges".to_owned(), 1), ("done".to_owned(), 7)]);
        bench.reopen();
    }
    let total = bench.jobs.stats().unwrap().total;
    // The lease was settled in the transaction, so that dropping it gave nothing back.
    assert_eq!((total.done, total.ready, total.flow("stale_calls_refused")), (1, 1, 0));
    assert_eq!(bench.claim_one().id(), added);
    bench.check();
}

/// What a transaction that is taken back has done, seen from outside: nothing.
fn unchanged(bench: &Bench, act: impl FnOnce(&Redrive)) {
    let before = (bench.jobs.stats().unwrap().total, orders(&bench.jobs));
    act(&bench.jobs);
    let after = (bench.jobs.stats().unwrap().total, orders(&bench.jobs));
    assert_eq!(before, after);
    assert!(bench.jobs.read(|r| r.range(COUNT, .., 10)).unwrap().is_empty());
    bench.check();
}

/// An error takes back everything, memory included: names, ids, leases, counts.
#[test]
fn p_02_an_error_takes_everything_back() {
    let mut bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    let next = bench.add("2").get() + 1;
    unchanged(&bench, |jobs| {
        for number in 0..3 {
            let taken_back = jobs.transact(|tx| {
                tx.open_table(ORDERS)?.insert("O-194", number)?;
                for queue in ["new queue", "q", "another"] {
                    tx.enqueue(NewJob::new(queue, "new kind").key("k").delay(secs(number)))?;
                }
                tx.put(COUNT, "a", &1)?;
                tx.complete(&lease, Completion::new().enqueue(NewJob::new("q", "k")))?;
                Err::<(), _>(TransactError::app("out of stock"))
            });
            let error = taken_back.unwrap_err();
            assert_eq!(error.app_error().unwrap().to_string(), "out of stock");
            assert!(lease.heartbeat().is_ok(), "the lease is as it was");
        }
    });
    // As if it had never been: the same id, no queue, the lease can be settled.
    assert_eq!(bench.add("3").get(), next);
    assert!(!bench.jobs.stats().unwrap().queues.contains_key("new queue"));
    lease.complete().unwrap();
    bench.reopen();
    assert_eq!(bench.jobs.stats().unwrap().total.done, 1);
    bench.check();
}

/// O-22: a panic takes everything back and goes on to the caller; a thousand of them leak nothing.
#[test]
fn o_22_a_panic_in_a_transaction_takes_it_back_and_leaks_nothing() {
    let mut bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    let bytes = || std::fs::metadata(&bench.path).unwrap().len();
    let mut before = 0;
    for round in 0..1_000_u64 {
        if round == 10 {
            before = bytes();
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            bench.jobs.transact(|tx| -> Result<(), _> {
                let mut table = tx.open_table(ORDERS)?;
                table.insert("O-194", round)?;
                tx.enqueue(NewJob::new("q", "k").bytes(vec![7; 20_000]))?;
                tx.put(COUNT, "a", &1)?;
                tx.complete(&lease, Completion::new())?;
                // The app's table is open while it unwinds.
                panic!("round {round}")
            })
        }));
        let panic = panicked.unwrap_err();
        assert_eq!(panic.downcast_ref::<String>(), Some(&format!("round {round}")));
    }
    assert_eq!(bytes(), before);
    unchanged(&bench, |_| {});
    lease.complete().unwrap();
    bench.reopen();
    assert_eq!(bench.jobs.stats().unwrap().total.done, 1);
    bench.check();
}

fn nested<T: std::fmt::Debug, E: Into<TransactError>>(outcome: Result<T, E>) {
    match outcome {
        Err(error) => match error.into() {
            TransactError::Storage(error) if error.is_nested() => {}
            other => panic!("{other}"),
        },
        Ok(value) => panic!("not refused: {value:?}"),
    }
}

/// Whatever would wait for the writer, which is this very thread, is an error at once; never a deadlock.
#[test]
fn o_22_calls_that_would_wait_for_this_transaction_are_refused() {
    let bench = Bench::new();
    for number in 0..6 {
        bench.add(&number.to_string());
    }
    let mut leases = bench.claim(6);
    let jobs = &bench.jobs;
    let done = jobs.transact(|tx| {
        tx.put(COUNT, "a", &1)?;
        nested(jobs.transact(|tx| tx.put(COUNT, "b", &1)));
        nested(jobs.clone().enqueue(NewJob::new("q", "k")));
        let storage = |nested: bool| assert!(nested);
        match jobs.claim(ClaimRequest::new("q").wait(secs(5))) {
            Err(ClaimError::Storage(error)) => storage(error.is_nested()),
            other => panic!("{other:?}"),
        }
        nested(leases.remove(0).complete());
        nested(leases.remove(0).fail(Failure::transient("E")));
        let (settled, claimed) = leases.remove(0).complete_then_claim(ClaimRequest::new("q"));
        nested(settled);
        assert!(matches!(claimed, Err(ClaimError::Storage(error)) if error.is_nested()));
        nested(leases.remove(0).complete_with(Completion::new().put(COUNT, "c", &1)));
        let step = leases[0].step("s", |fx| {
            fx.put(COUNT, "d", &1);
            Ok(1)
        });
        assert_eq!(step.unwrap_err().code(), "storage");
        drop(leases.remove(0));
        storage(jobs.sweep().unwrap_err().is_nested());
        storage(jobs.clone().close().unwrap_err().is_nested());
        let missing = redrive::JobId::new(99);
        assert!(matches!(jobs.cancel(missing), Err(redrive::CancelError::Storage(error)) if error.is_nested()));
        // Reading is not refused, and sees the last commit.
        assert_eq!(jobs.stats()?.total.leased, 6);
        assert_eq!(jobs.read(|r| r.get(COUNT, "a"))?, None);
        assert!(leases[0].heartbeat().is_ok());
        // Another store is another matter.
        let other = Bench::new();
        other.add("1");
        other.jobs.transact(|tx| tx.put(COUNT, "x", &1))?;
        Ok(())
    });
    done.unwrap();
    // The leases that were used up in it were given back afterwards; the one that is held is held.
    jobs.sweep().unwrap();
    let total = jobs.stats().unwrap().total;
    assert_eq!((total.ready, total.leased, total.done), (5, 1, 0));
    assert_eq!(jobs.read(|r| r.range(COUNT, .., 9)).unwrap(), [("a".to_owned(), 1)]);
    leases.remove(0).complete().unwrap();
    bench.check();
}

/// P5: a lease that has ended refuses the completion, and what goes with it.
#[test]
fn p_05_a_stale_lease_completes_nothing() {
    let bench = Bench::new();
    bench.add("1");
    let stale = bench.claim_one();
    bench.advance(3_600);
    bench.jobs.sweep().unwrap();
    let current = bench.claim_one();
    let refused = bench.jobs.transact(|tx| {
        tx.open_table(ORDERS)?.insert("O-194", 1)?;
        tx.complete(&stale, Completion::new().put(COUNT, "a", &1))
    });
    let stale_lease = |why| matches!(why, SettleError::StaleLease { .. });
    assert!(matches!(refused, Err(TransactError::Settle { why }) if stale_lease(why.clone())));
    assert!(orders(&bench.jobs).is_empty());
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), None);
    // Twice in one transaction: the second one is stale.
    let twice = bench.jobs.transact(|tx| {
        tx.complete(&current, Completion::new())?;
        tx.complete(&current, Completion::new())
    });
    assert!(matches!(twice, Err(TransactError::Settle { why }) if stale_lease(why.clone())));
    bench.jobs.transact(|tx| tx.complete(&current, Completion::new())).unwrap();
    let refused = current.complete();
    assert!(matches!(refused, Err(SettleError::StaleLease { .. })));
    bench.check();
}

/// One refused call does not end the transaction, unless the caller passes it on.
#[test]
fn what_is_refused_alone_leaves_the_rest() {
    let bench = Bench::new();
    bench.add_with(NewJob::new("q", "k").bytes("1").key("a"));
    let other_types = EffectTable::<u64, u64>::new("count");
    bench
        .jobs
        .transact(|tx| {
            let conflict = tx.enqueue(NewJob::new("q", "k").bytes("2").key("a"));
            assert!(matches!(
                conflict,
                Err(TransactError::Enqueue { why: EnqueueError::KeyConflict { .. } })
            ));
            let bad = tx.enqueue(NewJob::new("", "k"));
            assert!(matches!(
                bad,
                Err(TransactError::Enqueue { why: EnqueueError::BadName { .. } })
            ));
            tx.put(COUNT, "a", &1)?;
            assert!(matches!(tx.put(other_types, &1, &1), Err(TransactError::Effect { .. })));
            assert!(matches!(tx.get(other_types, &1), Err(TransactError::Effect { .. })));
            let reserved = TableDefinition::<&[u8], &[u8]>::new("redrive/jobs");
            assert!(matches!(tx.open_table(reserved), Err(TransactError::ReservedTable { .. })));
            let reserved = MultimapTableDefinition::<&[u8], &[u8]>::new("redrive/mine");
            assert!(matches!(
                tx.open_multimap_table(reserved),
                Err(TransactError::ReservedTable { .. })
            ));
            let reserved = EffectTable::<str, u64>::new("redrive/mine");
            assert!(matches!(tx.put(reserved, "a", &1), Err(TransactError::Effect { .. })));
            let table = tx.open_table(ORDERS)?;
            assert!(matches!(tx.open_table(ORDERS), Err(TransactError::Table { .. })));
            drop(table);
            let other = TableDefinition::<u64, u64>::new("orders");
            assert!(matches!(tx.open_table(other), Err(TransactError::OtherTypes { .. })));
            tx.enqueue(NewJob::new("q", "k").bytes("fine"))
        })
        .unwrap();
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.ready, total.flow("key_conflicts")), (2, 1));
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), Some(1));
    bench.check();
}

/// A worker that waits for a job has what a transaction enqueued when that returns: in the same commit.
#[test]
fn waiting_workers_wake_with_the_commit() {
    let bench = Bench::new();
    let (let_go, hold) = mpsc::channel::<()>();
    let hold = std::sync::Mutex::new(hold);
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |_| {
        hold.lock().unwrap().recv().unwrap();
        Ok(Completion::new())
    });
    let workers = workers.start().unwrap();
    let done = |count| {
        while bench.jobs.stats().unwrap().total.done < count {
            std::thread::yield_now();
        }
    };
    // From here on a claim waits whenever a job is done: it came with that.
    bench.add("first");
    let_go.send(()).unwrap();
    done(1);
    for round in 0..30 {
        let id = bench.jobs.transact(|tx| {
            tx.open_table(ORDERS)?.insert("last", round)?;
            tx.enqueue(NewJob::new("q", "k"))
        });
        let id = id.unwrap().job();
        assert_eq!(bench.jobs.job(id).unwrap().unwrap().state, JobState::Leased, "round {round}");
        let_go.send(()).unwrap();
        done(round + 2);
    }
    workers.shutdown(secs(60));
    bench.check();
}

/// While a transaction takes its time, heartbeats and reads of other threads go on; what writes waits, and
/// is answered after it.
#[test]
fn others_read_and_beat_while_a_transaction_runs() {
    let bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    let (entered, inside) = mpsc::channel();
    let (let_go, hold) = mpsc::channel::<()>();
    let jobs = bench.jobs.clone();
    let running = std::thread::spawn(move || {
        jobs.transact(|tx| {
            tx.put(COUNT, "a", &1)?;
            entered.send(()).unwrap();
            hold.recv().unwrap();
            Ok(())
        })
        .unwrap();
    });
    inside.recv().unwrap();
    let written = Arc::new(AtomicBool::new(false));
    let (jobs, flag) = (bench.jobs.clone(), Arc::clone(&written));
    let writing = std::thread::spawn(move || {
        jobs.enqueue(NewJob::new("q", "k")).unwrap();
        flag.store(true, Ordering::SeqCst);
    });
    bench.clock.advance(secs(20));
    assert!(lease.heartbeat().is_ok());
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), None);
    assert_eq!(bench.jobs.stats().unwrap().total.leased, 1);
    assert!(!written.load(Ordering::SeqCst));
    let_go.send(()).unwrap();
    running.join().unwrap();
    writing.join().unwrap();
    let stats = bench.jobs.stats().unwrap();
    assert!(
        stats.longest_transaction_ms >= 20_000 && stats.longest_write_ms < 20_000,
        "{stats:#?}"
    );
    lease.complete().unwrap();
    bench.check();
}

/// A handler may complete its own job in a transaction with the app's tables; what it returns then changes
/// nothing.
#[test]
fn a_handler_may_complete_its_job_in_a_transaction() {
    let bench = Bench::new();
    let jobs = bench.jobs.clone();
    let workers = Workers::new(&bench.jobs).queue("q", 2).handle("k", move |job| {
        jobs.transact(|tx| {
            let mut table = tx.open_table(ORDERS)?;
            let count = table.get("count")?.map_or(0, |count| count.value());
            table.insert("count", count + 1)?;
            tx.complete(job, Completion::new().result("done"))
        })?;
        if job.id().get() % 2 == 0 {
            Err(Failure::permanent("too late"))
        } else {
            Ok(Completion::new())
        }
    });
    let workers = workers.start().unwrap();
    for number in 0..50 {
        bench.add(&number.to_string());
    }
    while bench.jobs.stats().unwrap().total.done < 50 {
        std::thread::yield_now();
    }
    let report = workers.report();
    workers.shutdown(secs(60));
    assert_eq!(orders(&bench.jobs), [("count".to_owned(), 50)]);
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.done, total.dead, total.flow("stale_calls_refused")), (50, 0, 0));
    assert_eq!(report.stale, 0);
    bench.check();
}

/// Many threads, each counting up a row that it reads first: no count is lost, and every transaction that
/// committed is seen by those after it.
#[test]
fn p_06_read_modify_write_loses_nothing() {
    let bench = Bench::new();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let jobs = &bench.jobs;
            scope.spawn(move || {
                for round in 0..25 {
                    let counted = jobs.transact(|tx| {
                        let count = tx.get(COUNT, "n")?.unwrap_or(0);
                        tx.put(COUNT, "n", &(count + 1))?;
                        if (round + thread) % 5 == 0 {
                            return Err(TransactError::app("taken back"));
                        }
                        tx.enqueue(NewJob::new("q", "k"))
                    });
                    assert_eq!(counted.is_err(), (round + thread) % 5 == 0);
                    jobs.enqueue(NewJob::new("q", "beside")).unwrap();
                }
            });
        }
    });
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "n")).unwrap(), Some(80));
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 180);
    bench.check();
}

/// P1, P2: a power cut at any write or sync of a transaction leaves it whole or absent, the app's own rows
/// included.
#[test]
fn p_02_a_power_cut_leaves_a_transaction_whole_or_absent() {
    let start = seed("REDRIVE_TRANSACT_SEED");
    println!("REDRIVE_TRANSACT_SEED={start}");
    let disk = CrashDisk::new().recording();
    let jobs = Options::new().open_backend(disk.backend()).unwrap();
    let mut marks = vec![disk.operations()];
    for number in 0..6_u64 {
        jobs.transact(|tx| {
            tx.open_table(ORDERS)?.insert(number.to_string().as_str(), number)?;
            tx.put(COUNT, &number.to_string(), &number)?;
            tx.enqueue(NewJob::new("q", "k").bytes(number.to_string()).key(number.to_string()))?;
            if number == 3 {
                return Err(TransactError::app("taken back"));
            }
            Ok(())
        })
        .map_or_else(|error| assert!(error.app_error().is_some()), |()| {});
        marks.push(disk.operations());
    }
    for cut in marks[0]..marks[6] {
        let survival = match Random(start ^ cut).below(4) {
            0 => Survival::Nothing,
            1 => Survival::Torn(cut),
            2 => Survival::Some(cut),
            _ => Survival::Everything,
        };
        let left = CrashDisk::from_image(disk.image_at(usize::try_from(cut).unwrap(), survival));
        let after = Options::new().open_backend(left.backend()).unwrap();
        let acked = marks.iter().filter(|&&mark| mark <= cut).count() - 1;
        let ready = after.stats().unwrap().total.ready;
        let rows = u64::try_from(after.read(|r| r.range(COUNT, .., 10)).unwrap().len()).unwrap();
        let own = u64::try_from(orders(&after).len()).unwrap();
        assert_eq!((ready, own), (rows, rows), "cut in change {cut}, {survival:?}");
        let expected = u64::try_from(acked).unwrap() - u64::from(acked > 3);
        assert!(rows == expected || rows == expected + 1, "{rows} after {acked}, cut in {cut}");
        check(&after);
        after.close().unwrap();
    }
}

/// P14: a commit that fails reaches the caller, latches, and the store is sound after it is opened again.
#[test]
fn p_14_a_commit_that_fails_is_told_and_latches() {
    let disk = CrashDisk::new();
    let jobs = Options::new().open_backend(disk.backend()).unwrap();
    jobs.enqueue(NewJob::new("q", "k")).unwrap();
    let lease = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    let failed = jobs.transact(|tx| {
        tx.put(COUNT, "a", &1)?;
        tx.complete(&lease, Completion::new())?;
        disk.cut_now();
        Ok(())
    });
    assert!(matches!(failed, Err(TransactError::Storage(error)) if error.is_poisoned()));
    assert!(jobs.poisoned().is_some());
    let later = jobs.transact(|_| Ok(()));
    assert!(matches!(later, Err(TransactError::Storage(error)) if error.is_poisoned()));
    assert!(matches!(lease.complete(), Err(SettleError::Storage(error)) if error.is_poisoned()));
    drop(jobs);
    let left = CrashDisk::from_image(disk.image(Survival::Nothing));
    let after = Options::new().open_backend(left.backend()).unwrap();
    assert_eq!(after.read(|r| r.get(COUNT, "a")).unwrap(), None);
    assert_eq!(after.stats().unwrap().total.done, 0);
    check(&after);
}

/// The bounded loss of deferred durability holds for transactions, too: a clean close keeps them.
#[test]
fn a_deferred_transaction_is_kept_by_a_clean_close() {
    let disk = CrashDisk::new();
    let options = Options::new().durability(Durability::Deferred { flush_every_ms: 3_600_000 });
    let jobs = options.open_backend(disk.backend()).unwrap();
    jobs.transact(|tx| tx.put(COUNT, "a", &1)).unwrap();
    assert_eq!(jobs.read(|r| r.get(COUNT, "a")).unwrap(), Some(1));
    jobs.close().unwrap();
    let after =
        Options::new().open_backend(CrashDisk::from_image(disk.image(Survival::Nothing)).backend());
    assert_eq!(after.unwrap().read(|r| r.get(COUNT, "a")).unwrap(), Some(1));
}

/// A transaction that only looks makes no commit.
#[test]
fn a_transaction_without_writes_commits_nothing() {
    let disk = CrashDisk::new();
    let jobs = Options::new().open_backend(disk.backend()).unwrap();
    jobs.transact(|tx| tx.put(COUNT, "a", &1)).unwrap();
    let before = disk.operations();
    for _ in 0..5 {
        assert_eq!(jobs.transact(|tx| tx.get(COUNT, "a")).unwrap(), Some(1));
    }
    assert_eq!(disk.operations(), before);
}

/// The queue inside the app's own database: one commit for both, and closing leaves the database open.
#[test]
fn the_queue_lives_in_the_apps_own_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("app.redb");
    let database = Arc::new(Database::create(&path).unwrap());
    let write = |value: u64| {
        let transaction = database.begin_write().unwrap();
        transaction.open_table(ORDERS).unwrap().insert("app", value).unwrap();
        transaction.commit().unwrap();
    };
    write(1);
    let jobs = Redrive::with_database(Arc::clone(&database)).unwrap();
    // A second queue in the same database would be a second writer.
    let second = Redrive::with_database(Arc::clone(&database));
    assert!(matches!(second, Err(OpenError::InUse { .. })));
    jobs.transact(|tx| {
        let mut table = tx.open_table(ORDERS)?;
        assert_eq!(table.get("app")?.map(|value| value.value()), Some(1));
        table.insert("tx", 2)?;
        tx.enqueue(NewJob::new("q", "k").key("a"))
    })
    .unwrap();
    write(3);
    let read = database.begin_read().unwrap();
    assert_eq!(read.open_table(ORDERS).unwrap().get("tx").unwrap().unwrap().value(), 2);
    drop(read);
    let lease = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    std::mem::forget(lease);
    check(&jobs);
    jobs.close().unwrap();
    write(4);
    // Opened again, in the database or as a file, it is the same queue; the lease that was held is recovered.
    let jobs = Redrive::with_database(Arc::clone(&database)).unwrap();
    assert_eq!(jobs.recovered().expired, 1);
    assert_eq!(jobs.stats().unwrap().total.suspects, 1);
    drop(jobs);
    drop(database);
    let jobs = Redrive::open(&path).unwrap();
    assert_eq!(orders(&jobs), [("app".to_owned(), 4), ("tx".to_owned(), 2)]);
    assert_eq!(jobs.stats().unwrap().total.ready, 1);
    check(&jobs);
}

/// A database whose format row is newer, damaged, or lost is refused as it is.
#[test]
fn a_database_of_another_format_is_refused_and_left() {
    const META: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("redrive/meta");
    let newer = [&b"redrive\0"[..], &99_u32.to_le_bytes()].concat();
    for (value, name) in
        [(Some(newer), "newer"), (Some(b"nonsense".to_vec()), "damaged"), (None, "lost")]
    {
        let dir = tempfile::tempdir().unwrap();
        let database = Arc::new(Database::create(dir.path().join("app.redb")).unwrap());
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(META).unwrap();
            if let Some(value) = &value {
                table.insert(&b"format"[..], value.as_slice()).unwrap();
            }
        }
        transaction.commit().unwrap();
        let error = Redrive::with_database(Arc::clone(&database)).unwrap_err();
        match name {
            "newer" => assert!(matches!(error, OpenError::Newer { found: 99, .. }), "{error}"),
            _ => assert!(matches!(error, OpenError::Damaged { .. }), "{error}"),
        }
        let read = database.begin_read().unwrap();
        assert_eq!(read.list_tables().unwrap().count(), 1, "nothing was written");
    }
}

/// A panic that goes through a worker's handler is that delivery's failure, and its transaction is taken back.
#[test]
fn a_panic_in_a_handlers_transaction_fails_the_delivery() {
    let bench = Bench::new();
    let jobs = bench.jobs.clone();
    let workers = Workers::new(&bench.jobs).queue("q", 1).handle("k", move |job| {
        jobs.transact(|tx| {
            tx.put(COUNT, "a", &1)?;
            tx.complete(job, Completion::new())?;
            panic!("on purpose")
        })?;
        Ok(Completion::new())
    });
    let workers = workers.start().unwrap();
    let id = bench.add("1");
    while bench.jobs.stats().unwrap().total.delayed == 0 {
        std::thread::yield_now();
    }
    workers.shutdown(secs(60));
    assert_eq!(bench.jobs.job(id).unwrap().unwrap().state, JobState::Delayed);
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), None);
    let stopped: Option<StorageError> = bench.jobs.poisoned();
    assert!(stopped.is_none());
    bench.check();
}
