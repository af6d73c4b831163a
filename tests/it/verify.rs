//! P11, P14: `verify` names every difference, and a damaged row is set aside alone.

use std::path::Path;

use redb::{ReadableTable, TableDefinition};
use redrive::{
    BatchRule, ClaimRequest, Completion, EffectTable, EnqueueError, Failure, Filter, JobState,
    NewJob, Redrive, RedrivePlan, SettleError, SweepReport, VerifyReport,
};

use crate::support::{Bench, check, secs};

/// Changes the rows of one table behind the store's back: for every row, `change` gives the new value
/// (`None` removes it), and the rows in `add` come on top.
pub(crate) fn tamper(
    path: &Path,
    table: &str,
    change: impl Fn(&[u8], &[u8]) -> Option<Vec<u8>>,
    add: &[(Vec<u8>, Vec<u8>)],
) {
    let database = redb::Database::open(path).unwrap();
    let transaction = database.begin_write().unwrap();
    {
        let definition = TableDefinition::<&[u8], &[u8]>::new(table);
        let mut open = transaction.open_table(definition).unwrap();
        let rows: Vec<(Vec<u8>, Vec<u8>)> = open
            .iter()
            .unwrap()
            .map(|row| row.map(|(key, value)| (key.value().to_vec(), value.value().to_vec())))
            .collect::<Result<_, _>>()
            .unwrap();
        for (key, value) in rows {
            match change(&key, &value) {
                Some(value) => drop(open.insert(key.as_slice(), value.as_slice()).unwrap()),
                None => drop(open.remove(key.as_slice()).unwrap()),
            }
        }
        for (key, value) in add {
            open.insert(key.as_slice(), value.as_slice()).unwrap();
        }
    }
    transaction.commit().unwrap();
}

/// A closed store with a job in every state, a stored payload and a history.
fn store() -> Bench {
    let bench = Bench::new();
    bench.add_with(NewJob::new("q", "done").key("a"));
    bench.claim_one().complete().unwrap();
    bench.add_with(NewJob::new("q", "dead").key("b"));
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    // What was counted so far is in a window of its own from the next minute on.
    bench.advance(60);
    bench.add_with(NewJob::new("q", "done").key("e"));
    bench.claim_one().complete().unwrap();
    let canary = bench.add_with(NewJob::new("q", "redriven"));
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    let plan = RedrivePlan::new(Filter::new().ids([canary])).reason("why");
    bench.jobs.redrive(plan).unwrap();
    while bench.jobs.sweep().unwrap() != SweepReport::default() {}
    bench.add_with(NewJob::new("q", "delayed").key("c").delay(secs(1 << 40)));
    bench.add_with(NewJob::new("q", "ready").key("d").bytes(vec![7; 1_000]));
    bench.jobs.clone().close().unwrap();
    bench
}

fn verify(bench: &Bench) -> VerifyReport {
    let jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    let report = jobs.verify().unwrap();
    jobs.close().unwrap();
    report
}

/// Losing the rows of any table that follows from the jobs is found, and named by its table.
#[test]
fn p_11_verify_names_what_is_missing() {
    for table in [
        "ready",
        "delayed",
        "dead",
        "keys",
        "payloads",
        "history",
        "tombstones",
        "windows",
        "cohorts",
        "cohort_members",
    ] {
        let bench = store();
        assert!(verify(&bench).is_clean());
        let name = format!("redrive/{table}");
        tamper(&bench.path, &name, |_, _| None, &[]);
        let report = verify(&bench);
        assert!(
            report.problems.iter().any(|problem| problem.table == name),
            "{table}: {report:#?}"
        );
    }
}

/// Rows that follow from no job are found as well.
#[test]
fn p_11_verify_names_what_is_too_much() {
    // A row of each table under a key of the right length that no job has.
    for (table, key) in [
        ("ready", 18),
        ("delayed", 16),
        ("dead", 24),
        ("payloads", 8),
        ("keys", 9),
        ("history", 12),
        ("cohort_members", 16),
    ] {
        let bench = store();
        let name = format!("redrive/{table}");
        let row = (vec![1; key], vec![1, 9, 9, 9, 9, 9]);
        tamper(&bench.path, &name, |_, value| Some(value.to_vec()), &[row]);
        let jobs = Redrive::open(&bench.path).unwrap();
        let report = jobs.verify().unwrap();
        assert!(
            report.problems.iter().any(|problem| problem.table == name),
            "{table}: {report:#?}"
        );
    }
}

/// A job row that is gone leaves its traces everywhere; the counters no longer fit either.
#[test]
fn p_11_verify_notices_a_lost_job() {
    let bench = store();
    tamper(&bench.path, "redrive/jobs", |_, _| None, &[]);
    let tables: std::collections::BTreeSet<_> =
        verify(&bench).problems.into_iter().map(|problem| problem.table).collect();
    for table in ["ready", "delayed", "dead", "keys", "payloads", "history", "counters"] {
        assert!(tables.contains(format!("redrive/{table}").as_str()), "{table}: {tables:?}");
    }
}

/// Rows of the user's tables that belong to no table, tables without a number of their own, and damage
/// are found; what is damaged costs whoever needs it, and nobody else.
#[test]
fn p_14_damage_in_effect_tables_is_named_and_told() {
    let table = EffectTable::<str, u64>::new("count");
    let other = EffectTable::<str, u64>::new("other");
    let store = || {
        let bench = Bench::new();
        bench.add("1");
        let done = Completion::new().put(table, "a", &1).put(table, "b", &2).put(other, "a", &3);
        bench.claim_one().complete_with(done).unwrap();
        bench.jobs.clone().close().unwrap();
        bench
    };
    let named = |bench: &Bench, name: &str| {
        let report = verify(bench);
        assert!(report.problems.iter().any(|problem| problem.table == name), "{report:#?}");
    };
    let (tables, rows) = ("redrive/effect_tables", "redrive/effect_rows");
    let bench = store();
    assert!(verify(&bench).is_clean());
    tamper(&bench.path, tables, |_, _| None, &[]);
    named(&bench, rows);

    let bench = store();
    let copy = std::cell::RefCell::new(Vec::new());
    let first = |_: &[u8], value: &[u8]| {
        copy.borrow_mut().push((b"copy".to_vec(), value.to_vec()));
        Some(value.to_vec())
    };
    tamper(&bench.path, tables, first, &[]);
    tamper(&bench.path, tables, |_, value| Some(value.to_vec()), &copy.borrow()[..1]);
    named(&bench, tables);

    let mut bench = store();
    let spoil = |key: &[u8], value: &[u8]| {
        let mut value = value.to_vec();
        if key.ends_with(b"a") {
            value[1] ^= 1;
        }
        Some(value)
    };
    tamper(&bench.path, rows, spoil, &[]);
    named(&bench, rows);
    bench.jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    assert!(bench.jobs.read(|r| r.get(table, "a")).is_err());
    assert_eq!(bench.jobs.read(|r| r.get(table, "b")).unwrap(), Some(2));
    bench.add("2");
    bench.claim_one().complete_with(Completion::new().put(table, "a", &1)).unwrap();
    assert_eq!(bench.jobs.read(|r| r.get(table, "a")).unwrap(), Some(1));
    bench.jobs.clone().close().unwrap();

    // A damaged table row: its users are told, the job stays with its worker, the others go on.
    tamper(
        &bench.path,
        tables,
        |key, value| {
            let mut value = value.to_vec();
            value[1] ^= u8::from(key == b"count");
            Some(value)
        },
        &[],
    );
    named(&bench, tables);
    bench.jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    bench.add("3");
    let told = bench.claim_one().complete_with(Completion::new().put(table, "c", &1));
    assert!(matches!(told, Err(SettleError::Storage(error)) if error.is_corrupt()));
    bench.add("4");
    bench.claim_one().complete_with(Completion::new().put(other, "c", &1)).unwrap();
    assert!(bench.jobs.poisoned().is_none());
}

/// Lost, added and damaged step markers are named; a damaged one is told, and its step is not run anew.
#[test]
fn p_14_damage_in_step_markers_is_named_and_told() {
    let markers = "redrive/effects";
    let store = || {
        let bench = Bench::new();
        bench.add("1");
        let lease = bench.claim_one();
        lease.step("one", |_| Ok(1)).unwrap();
        lease.step("two", |_| Ok(2)).unwrap();
        lease.release().unwrap();
        bench.jobs.clone().close().unwrap();
        bench
    };
    let named = |bench: &Bench| {
        let report = verify(bench);
        assert!(report.problems.iter().any(|problem| problem.table == markers), "{report:#?}");
    };
    let bench = store();
    assert!(verify(&bench).is_clean());
    tamper(
        &bench.path,
        markers,
        |key, value| (!key.ends_with(b"one")).then(|| value.to_vec()),
        &[],
    );
    named(&bench);

    let bench = store();
    let row = ([&[0, 0, 0, 0, 0, 0, 0, 77][..], b"x"].concat(), vec![1, 9, 9, 9, 9, 9]);
    tamper(&bench.path, markers, |_, value| Some(value.to_vec()), &[row]);
    named(&bench);

    let mut bench = store();
    let spoil = |key: &[u8], value: &[u8]| {
        let mut value = value.to_vec();
        value[1] ^= u8::from(key.ends_with(b"one"));
        Some(value)
    };
    tamper(&bench.path, markers, spoil, &[]);
    named(&bench);
    bench.jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    let lease = bench.claim_one();
    let told = lease.step::<u64>("one", |_| panic!("nobody knows whether it was done"));
    assert_eq!(told.unwrap_err().code(), "storage");
    assert_eq!(lease.step::<u64>("two", |_| panic!()).unwrap(), 2);
    let info = bench.jobs.job(lease.id()).unwrap().unwrap();
    assert_eq!((info.steps.len(), info.steps_unreadable), (1, 1));
    lease.complete().unwrap();
    assert!(bench.jobs.verify().unwrap().problems.iter().all(|problem| problem.table != markers));
}

/// P14: one damaged job among many is set aside when it comes up; all others run.
#[test]
fn p_14_a_damaged_row_is_set_aside_alone() {
    let bench = Bench::new();
    let jobs = (0..20).map(|n| NewJob::new("q", "k").bytes(format!("{n}")));
    bench.jobs.enqueue_many(jobs, BatchRule::PerItem).unwrap();
    let delayed = NewJob::new("q", "k").delay(secs(1));
    let late = bench.add_with(delayed.clone());
    bench.add_with(delayed);
    bench.jobs.clone().close().unwrap();
    let damaged = [7, late.get()];
    tamper(
        &bench.path,
        "redrive/jobs",
        |key, value| {
            let mut value = value.to_vec();
            let id = u64::from_be_bytes(key.try_into().unwrap());
            if damaged.contains(&id) {
                value[3] ^= 0x40;
            }
            Some(value)
        },
        &[],
    );
    let mut bench = bench;
    bench.jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
    assert!(bench.jobs.job(redrive::JobId::new(7)).unwrap_err().is_corrupt());
    bench.advance(1);
    bench.jobs.sweep().unwrap();
    let mut done = 0;
    loop {
        let leases = bench.jobs.claim(ClaimRequest::new("q").up_to(5)).unwrap();
        if leases.is_empty() {
            break;
        }
        for lease in leases {
            assert!(!damaged.contains(&lease.id().get()));
            lease.complete().unwrap();
            done += 1;
        }
    }
    assert_eq!(done, 20);
    let stats = bench.jobs.stats().unwrap();
    assert_eq!((stats.set_aside, stats.total.ready, stats.total.delayed), (2, 0, 0));
    assert_eq!(stats.total.residual, 0);
    check(&bench.jobs);
}

/// Damage in a leased job's row does not stop an opening.
#[test]
fn p_14_a_damaged_leased_row_does_not_stop_the_recovery() {
    let bench = Bench::new();
    let ids = [bench.add("1"), bench.add("2"), bench.add("3")];
    bench.claim(3).into_iter().for_each(std::mem::forget);
    bench.jobs.clone().close().unwrap();
    tamper(
        &bench.path,
        "redrive/jobs",
        |key, value| {
            let mut value = value.to_vec();
            if key == ids[1].get().to_be_bytes() {
                value.truncate(5);
            }
            Some(value)
        },
        &[],
    );
    let jobs = Redrive::open(&bench.path).unwrap();
    assert_eq!((jobs.recovered().expired, jobs.recovered().set_aside), (2, 1));
    for id in [ids[0], ids[2]] {
        assert_eq!(jobs.job(id).unwrap().unwrap().state, JobState::Ready);
    }
    check(&jobs);
}

/// P14: whoever needs a damaged row is told; nobody else notices, nothing is poisoned, and `verify`
/// names the table.
#[test]
fn p_14_damage_is_told_to_those_who_need_the_row_and_to_nobody_else() {
    let flip = |_: &[u8], value: &[u8]| {
        let mut value = value.to_vec();
        let last = value.len() - 1;
        value[last] ^= 1;
        Some(value)
    };
    for table in
        ["jobs", "keys", "payloads", "ready", "delayed", "dead", "history", "tombstones", "windows"]
    {
        let bench = store();
        tamper(&bench.path, &format!("redrive/{table}"), flip, &[]);
        let jobs = redrive::Options::new().clock(bench.clock.clone()).open(&bench.path).unwrap();
        let report = jobs.verify().unwrap();
        let name = format!("redrive/{table}");
        assert!(
            report.problems.iter().any(|problem| problem.table == name),
            "{table}: {report:#?}"
        );

        let needed = ["jobs", "keys"].contains(&table);
        for key in ["a", "b", "c", "d"] {
            let outcome = jobs.enqueue(NewJob::new("q", "other").key(key));
            let told = matches!(&outcome, Err(EnqueueError::Storage(error)) if error.is_corrupt());
            let conflict = matches!(outcome, Err(EnqueueError::KeyConflict { .. }));
            assert_eq!((told, conflict), (needed, !needed), "{table}, key {key}");
        }
        let dead = redrive::JobId::new(2);
        assert_eq!(jobs.job(dead).is_err(), table == "jobs", "{table}");
        let filter = Filter::new().ids([dead]);
        let gone = jobs.dead().discard(&filter, "old").unwrap();
        let index = ["jobs", "dead"].contains(&table);
        assert_eq!(
            (gone.jobs, gone.not_dead + gone.unreadable),
            (u64::from(!index), u64::from(index))
        );
        bench.clock.advance(secs(60 * 86_400));
        jobs.sweep().unwrap();
        let claimed = jobs.claim(ClaimRequest::new("q").kinds(["ready"])).unwrap();
        assert_eq!(claimed.len(), usize::from(!["jobs", "payloads"].contains(&table)), "{table}");
        drop(claimed);

        assert!(jobs.poisoned().is_none(), "{table}: {:?}", jobs.poisoned());
        jobs.enqueue(NewJob::new("q", "fresh")).unwrap();
        let fresh = ClaimRequest::new("q").kinds(["fresh"]);
        jobs.claim(fresh).unwrap().remove(0).complete().unwrap();
    }
}

/// P14: an opening survives damage in the index of leases; the jobs themselves say what they are.
#[test]
fn p_14_damaged_lease_rows_do_not_stop_the_recovery() {
    let bench = Bench::new();
    let id = bench.add("1");
    std::mem::forget(bench.claim_one());
    bench.jobs.clone().close().unwrap();
    tamper(&bench.path, "redrive/leased", |_, _| Some(vec![1]), &[]);
    let jobs = Redrive::open(&bench.path).unwrap();
    assert_eq!(jobs.recovered().expired, 1);
    assert_eq!(jobs.job(id).unwrap().unwrap().state, JobState::Ready);
    check(&jobs);
}

/// P9, P14: a job whose payload is damaged is dead, with its evidence; its neighbours run, and the books
/// balance whatever is done to it afterwards.
#[test]
fn p_14_a_damaged_payload_makes_its_job_dead() {
    let bench = Bench::new();
    let ids = [1, 2].map(|_| bench.add_with(NewJob::new("q", "k").bytes(vec![7; 5_000])));
    bench.jobs.clone().close().unwrap();
    let first = ids[0].get().to_be_bytes();
    let cut = |key: &[u8], value: &[u8]| {
        Some(if key == first { value[..100].to_vec() } else { value.to_vec() })
    };
    tamper(&bench.path, "redrive/payloads", cut, &[]);
    let jobs = Redrive::open(&bench.path).unwrap();
    let lease = jobs.claim(ClaimRequest::new("q").up_to(2)).unwrap().remove(0);
    assert_eq!(lease.id(), ids[1]);
    lease.release().unwrap();
    let dead = jobs.job(ids[0]).unwrap().unwrap().dead.unwrap();
    assert_eq!(dead.reason, redrive::DeathReason::Damaged);
    let gone = jobs.dead().discard(&Filter::new().ids([ids[0]]), "damaged").unwrap();
    assert_eq!(gone.jobs, 1);
    jobs.claim(ClaimRequest::new("q")).unwrap().remove(0).complete().unwrap();
    assert_eq!(jobs.stats().unwrap().total.residual, 0);
    check(&jobs);
}

/// P14: an index row that is damaged, or stands where no job does, hides no job.
#[test]
fn p_14_damaged_ready_rows_hide_no_job() {
    let bench = Bench::new();
    let ids = [bench.add("1"), bench.add("2")];
    bench.claim_one().snooze(secs(0)).unwrap();
    bench.jobs.clone().close().unwrap();
    // A second row for the first job, at the front of the line.
    let stray = |rows: &redb::Database| {
        let transaction = rows.begin_write().unwrap();
        {
            let definition = TableDefinition::<&[u8], &[u8]>::new("redrive/ready");
            let mut ready = transaction.open_table(definition).unwrap();
            let (mut key, value) = {
                let (key, value) = ready.last().unwrap().unwrap();
                (key.value().to_vec(), value.value().to_vec())
            };
            let last = key.len() - 1;
            key[last] = 0;
            ready.insert(key.as_slice(), value.as_slice()).unwrap();
        }
        transaction.commit().unwrap();
    };
    stray(&redb::Database::open(&bench.path).unwrap());
    let jobs = Redrive::open(&bench.path).unwrap();
    let leases = jobs.claim(ClaimRequest::new("q").up_to(5)).unwrap();
    let found: Vec<_> = leases.iter().map(redrive::Lease::id).collect();
    assert_eq!(found, [ids[1], ids[0]]);
    for lease in leases {
        lease.release().unwrap();
    }
    jobs.close().unwrap();

    tamper(&bench.path, "redrive/ready", |_, _| Some(vec![1, 2, 3]), &[]);
    let jobs = Redrive::open(&bench.path).unwrap();
    for lease in jobs.claim(ClaimRequest::new("q").up_to(5)).unwrap() {
        lease.complete().unwrap();
    }
    let total = jobs.stats().unwrap().total;
    assert_eq!((total.done, total.ready, total.residual), (2, 0, 0));
    check(&jobs);
}

/// P9, P14: a damaged history row costs its job that entry, and is named.
#[test]
fn p_14_a_damaged_history_row_is_one_entry_less() {
    let bench = store();
    tamper(&bench.path, "redrive/history", |_, value| Some(value[1..].to_vec()), &[]);
    let jobs = Redrive::open(&bench.path).unwrap();
    let report = jobs.verify().unwrap();
    assert!(report.problems.iter().any(|problem| problem.table == "redrive/history"), "{report:?}");
    let page = jobs.dead().list(&Filter::new(), None, 10).unwrap();
    let job = &page.jobs[0];
    assert_eq!((job.history.len(), job.history_unreadable, job.state), (0, 1, JobState::Dead));
}

/// Two jobs under one ordering key in a closed store: the first holds it, the second waits.
fn ordered() -> Bench {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.add_with(NewJob::new("q", "k").order_key("document 7"));
    }
    bench.jobs.clone().close().unwrap();
    bench
}

/// P11: rows of ordering keys that are missing, or too much, or wait for nobody.
#[test]
fn p_11_verify_checks_the_ordering_keys() {
    let holder = |row: &[u8]| row[row.len() - 9] == 0;
    type Change<'c> = &'c dyn Fn(&[u8], &[u8]) -> Option<Vec<u8>>;
    let problems = |change: Change<'_>| {
        let bench = ordered();
        assert!(verify(&bench).is_clean());
        tamper(&bench.path, "redrive/order", change, &[]);
        let told: Vec<String> = verify(&bench).problems.into_iter().map(|one| one.what).collect();
        told.join("; ")
    };
    let lost = problems(&|row, value| (!holder(row)).then(|| value.to_vec()));
    assert!(lost.contains("missing") && lost.contains("nobody holds"), "{lost}");
    let lost = problems(&|row, value| holder(row).then(|| value.to_vec()));
    assert!(lost.contains("missing"), "{lost}");
    let flipped = problems(&|_, value| Some(value[1..].to_vec()));
    assert!(flipped.contains("another value"), "{flipped}");

    let bench = ordered();
    let row = [&[0; 4], &b"x"[..], &[0, 0], &[0; 7], &[2]].concat();
    tamper(&bench.path, "redrive/order", |_, v| Some(v.to_vec()), &[(row, vec![])]);
    let report = verify(&bench);
    assert!(report.problems.iter().any(|one| one.what.contains("stands here")), "{report:?}");
}

/// P14: a damaged job under an ordering key holds up nobody behind it, whether it held the key or
/// waited.
#[test]
fn p_14_a_damaged_job_does_not_hold_its_ordering_key() {
    for damaged in [1, 2] {
        let bench = ordered();
        let change = |key: &[u8], value: &[u8]| {
            let mut value = value.to_vec();
            if key[7] == damaged {
                value.truncate(5);
            }
            Some(value)
        };
        tamper(&bench.path, "redrive/jobs", change, &[]);
        let jobs = Redrive::open(&bench.path).unwrap();
        for _ in 0..2 {
            let lease = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
            assert_ne!(lease.id().get(), u64::from(damaged));
            lease.complete().unwrap();
        }
        let stats = jobs.stats().unwrap();
        assert_eq!((stats.set_aside, stats.total.blocked, stats.total.residual), (1, 0, 0));
        check(&jobs);
    }
}

/// P11: the outbox follows from the messages; what is missing, too much or was never given out is named.
#[test]
fn p_11_verify_checks_the_outbox() {
    let store = || {
        let bench = Bench::new();
        for _ in 0..2 {
            bench.jobs.emit(redrive::Message::to("email").bytes("x")).unwrap();
        }
        bench.jobs.clone().close().unwrap();
        bench
    };
    type Change<'c> = &'c dyn Fn(&[u8], &[u8]) -> Option<Vec<u8>>;
    let problems = |table: &str, change: Change<'_>, add: &[(Vec<u8>, Vec<u8>)]| {
        let bench = store();
        assert!(verify(&bench).is_clean());
        tamper(&bench.path, table, change, add);
        let told: Vec<String> = verify(&bench).problems.into_iter().map(|one| one.what).collect();
        told.join("; ")
    };
    let outbox = "redrive/outbox";
    let missing = problems(outbox, &|_, _| None, &[]);
    assert!(missing.contains("missing"), "{missing}");
    let value = std::sync::Mutex::new(Vec::new());
    let keep = |_: &[u8], found: &[u8]| {
        *value.lock().unwrap() = found.to_vec();
        Some(found.to_vec())
    };
    problems(outbox, &keep, &[]);
    let stray = [(vec![0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9], value.lock().unwrap().clone())];
    let stray = problems(outbox, &|_, v| Some(v.to_vec()), &stray);
    assert!(stray.contains("stands here"), "{stray}");
    let damaged = problems(outbox, &|_, v| Some(v[1..].to_vec()), &[]);
    assert!(damaged.contains("another value"), "{damaged}");
}

/// P14: a damaged message counts no longer as unsent once it was set aside.
#[test]
fn p_14_a_damaged_message_is_not_waited_for() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.jobs.emit(redrive::Message::to("email").bytes("x")).unwrap();
    }
    bench.jobs.clone().close().unwrap();
    let cut = |key: &[u8], value: &[u8]| {
        Some(if key[7] == 1 { value[..5].to_vec() } else { value.to_vec() })
    };
    tamper(&bench.path, "redrive/jobs", cut, &[]);
    let jobs = Redrive::open(&bench.path).unwrap();
    let out = bench.path.with_extension("jsonl");
    let sink = redrive::FileSink::open(&out).unwrap();
    let relay = redrive::Relay::new(&jobs).sink("email", sink).start().unwrap();
    while jobs.outbox().unwrap()["email"].sent < 2 {
        std::thread::yield_now();
    }
    relay.shutdown(secs(10));
    let stats = &jobs.outbox().unwrap()["email"];
    assert_eq!((stats.unsent, stats.oldest), (0, None));
    check(&jobs);
}
