//! P14: a row that is damaged while the store is open is told to whoever needs it, and costs nobody else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redb::{Database, ReadableTable, TableDefinition};
use redrive::{
    ClaimRequest, Failure, Filter, JobId, Lane, ManualClock, Message, NewJob, Options, Redrive,
    RedrivePlan, SweepReport,
};

use crate::support::{Bench, secs};
use crate::verify::tamper;

fn flip(value: &[u8]) -> Vec<u8> {
    let (last, rest) = value.split_last().unwrap();
    [rest, &[!last]].concat()
}

/// A store inside a database that the test can reach into.
struct World {
    clock: Arc<ManualClock>,
    database: Arc<Database>,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let database = Arc::new(Database::create(dir.path().join("app.redb")).unwrap());
        Self { clock: ManualClock::new(), database, _dir: dir }
    }

    fn open(&self) -> Redrive {
        let options = Options::new().clock(self.clock.clone());
        options.with_database(Arc::clone(&self.database)).unwrap()
    }

    fn damage(&self, job: JobId) {
        let key = job.to_string().parse::<u64>().unwrap().to_be_bytes();
        let write = self.database.begin_write().unwrap();
        {
            let definition = TableDefinition::<&[u8], &[u8]>::new("redrive/jobs");
            let mut table = write.open_table(definition).unwrap();
            let value = flip(table.get(key.as_slice()).unwrap().unwrap().value());
            table.insert(key.as_slice(), value.as_slice()).unwrap();
        }
        write.commit().unwrap();
    }
}

/// P12: a suspect in flight that cannot be read any more does not keep the others waiting for ever.
#[test]
fn p_14_a_damaged_suspect_in_flight_stops_no_others() {
    let world = World::new();
    let jobs = world.open();
    for _ in 0..2 {
        jobs.enqueue(NewJob::new("q", "k")).unwrap();
    }
    let leases = jobs.claim(ClaimRequest::new("q").up_to(2)).unwrap();
    leases.into_iter().for_each(std::mem::forget);
    jobs.close().unwrap();
    let jobs = world.open();
    let suspect = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    assert_eq!(suspect.lane(), Lane::Suspect);
    world.damage(suspect.id());
    std::mem::forget(suspect);
    assert!(jobs.claim(ClaimRequest::new("q")).unwrap().is_empty(), "one at a time");
    world.clock.advance(secs(60));
    assert_eq!(jobs.sweep().unwrap().set_aside, 1);
    assert_eq!(jobs.claim(ClaimRequest::new("q")).unwrap().len(), 1);
    let told = jobs.health().unwrap();
    assert!(told.findings().iter().any(|finding| finding.name == "set_aside"));
}

/// P10: a cohort hears of a member that cannot be read any more.
#[test]
fn p_14_a_cohort_waits_for_no_member_that_is_damaged_in_flight() {
    let world = World::new();
    let jobs = world.open();
    jobs.enqueue(NewJob::new("q", "k")).unwrap();
    jobs.claim(ClaimRequest::new("q")).unwrap().remove(0).fail(Failure::permanent("E")).unwrap();
    let cohort = jobs.redrive(RedrivePlan::new(Filter::new().queue("q")).reason("r")).unwrap();
    while jobs.sweep().unwrap() != SweepReport::default() {}
    let lease = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    world.damage(lease.id());
    assert!(lease.complete().is_err(), "it is told");
    world.clock.advance(secs(60));
    while jobs.sweep().unwrap() != SweepReport::default() {}
    let info = jobs.cohort(cohort).unwrap().unwrap();
    assert_eq!((info.counts.in_flight, jobs.stats().unwrap().total.leased), (0, 0), "{info:?}");
    assert!(info.counts.balances());
}

/// A damaged row of one destination hides neither the others nor the health of the store.
#[test]
fn p_14_a_damaged_row_of_the_outbox_hides_nothing_else() {
    let mut bench = Bench::new();
    for destination in ["email", "audit"] {
        bench.jobs.emit(Message::to(destination).bytes("a")).unwrap();
        bench.jobs.emit(Message::to(destination).bytes("b")).unwrap();
    }
    bench.jobs.clone().close().unwrap();
    let rows = AtomicU64::new(0);
    let first = |_: &[u8], value: &[u8]| {
        let is_first = rows.fetch_add(1, Ordering::SeqCst) == 0;
        Some(if is_first { flip(value) } else { value.to_vec() })
    };
    tamper(&bench.path, "redrive/outbox", first, &[]);
    bench.reopen_closed();
    let outbox = bench.jobs.outbox().unwrap();
    let sequence = |name: &str| outbox[name].oldest.unwrap().sequence;
    assert_eq!((sequence("email"), sequence("audit")), (2, 1));
    bench.jobs.health().unwrap();
}
