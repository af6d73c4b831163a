//! The bytes on the disk (docs/format.md): a store written by a fixed script is compared, row by row,
//! with a checked-in dump; and a file written by this format version goes on being readable.

use std::fmt::Write;
use std::path::Path;

use redb::{ReadableDatabase, ReadableTable, TableDefinition, TableHandle};
use redrive::{
    Completion, DestinationPolicy, EffectTable, Failure, Filter, Hold, JobPolicy, JobState, Json,
    Message, MessageOrder, NewJob, OnDead, Pause, QueuePolicy, Redrive, RedrivePlan, Scope,
    SweepReport,
};

use crate::support::{Bench, check, secs};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");

/// One job in every state, a large payload, a queue's policy, a history.
fn script(bench: &Bench) {
    let add = |kind: &str, key: &str| {
        bench.add_with(NewJob::new("q", kind).bytes(format!("payload of {key}")).key(key))
    };
    let policy = JobPolicy::new().max_deliveries(4).lease(secs(90));
    bench.jobs.set_queue("r", QueuePolicy::new().jobs(policy).retry_share(0.25)).unwrap();
    add("done", "a");
    let notes = EffectTable::<str, Json<Vec<u64>>>::new("notes");
    let completion = Completion::new().result("result").put(notes, "a", &vec![1, 2]);
    bench.claim_one().complete_with(completion).unwrap();
    add("dead", "b");
    bench.claim_one().fail(Failure::permanent("E_SCHEMA").message("field 7")).unwrap();
    add("delayed", "c");
    bench.advance(1);
    let limit = Failure::throttled("429").retry_after(secs(600)).provider_ref("req-9");
    bench.claim_one().fail(limit).unwrap();
    let cancelled = add("cancelled", "d");
    bench.jobs.cancel(cancelled).unwrap();
    let leased = add("leased", "e");
    let with_a_step = bench.claim_one();
    with_a_step.step("reserve", |_| Ok(7)).unwrap();
    std::mem::forget(with_a_step);
    bench.jobs.cancel(leased).unwrap();
    bench.add_with(NewJob::new("r", "ready").bytes(vec![0xab; 600]).priority(200));
    bench.add_with(NewJob::new("r", "ready").delay(secs(3600)));
    add("held", "f");
    let limit = Failure::throttled("429").retry_after(secs(600)).hold(Hold::Class);
    bench.claim_one().fail(limit).unwrap();
    let redriven = add("redriven", "g");
    bench.claim_one().fail(Failure::permanent("E_SCHEMA").message("field 8")).unwrap();
    let plan = RedrivePlan::new(Filter::new().ids([redriven])).reason("parser fixed");
    bench.jobs.redrive(plan).unwrap();
    while bench.jobs.sweep().unwrap() != SweepReport::default() {}
    bench.jobs.pause(Scope::queue("r"), Pause::new("why").by("ada")).unwrap();
    bench.jobs.pause(Scope::redrive(), Pause::new("not now")).unwrap();
    bench.jobs.pause(Scope::redrive_class("q", "dead"), Pause::new("not yet")).unwrap();
    for _ in 0..2 {
        bench.add_with(NewJob::new("r", "in order").order_key("document 7"));
    }
    let policy = DestinationPolicy::new().order(MessageOrder::Key).on_dead(OnDead::Halt);
    bench.jobs.set_destination("email", policy).unwrap();
    for text in ["first", "second"] {
        let message = Message::to("email").order_key("ada").header("Content-Type", "text/plain");
        bench.jobs.emit(message.bytes(text)).unwrap();
    }
}

fn dump(path: &Path) -> String {
    let database = redb::Database::open(path).unwrap();
    let transaction = database.begin_read().unwrap();
    let mut names: Vec<String> =
        transaction.list_tables().unwrap().map(|table| table.name().to_owned()).collect();
    names.sort();
    let mut text = String::new();
    for name in names {
        writeln!(text, "{name}").unwrap();
        let definition = TableDefinition::<&[u8], &[u8]>::new(&name);
        let table = transaction.open_table(definition).unwrap();
        for row in table.iter().unwrap() {
            let (key, value) = row.unwrap();
            writeln!(text, "    {} = {}", hex(key.value()), hex(value.value())).unwrap();
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// `REDRIVE_BLESS=1 cargo test format` writes dump and file anew; only together with a new version.
#[test]
fn a_store_is_written_as_documented() {
    let bench = Bench::new();
    script(&bench);
    bench.jobs.clone().close().unwrap();
    let written = dump(&bench.path);
    let (text, file) = (format!("{GOLDEN}/store_v1.txt"), format!("{GOLDEN}/store_v1.redb"));
    if std::env::var_os("REDRIVE_BLESS").is_some() {
        std::fs::write(&text, &written).unwrap();
        std::fs::copy(&bench.path, &file).unwrap();
    }
    let reviewed = std::fs::read_to_string(&text).unwrap_or_default();
    assert_eq!(written, reviewed, "the format changed: that needs a new record or format version");
}

#[test]
fn a_file_of_format_version_1_opens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("old.redb");
    std::fs::copy(format!("{GOLDEN}/store_v1.redb"), &path).unwrap();
    let jobs = Redrive::open(&path).unwrap();
    check(&jobs);
    let states: Vec<_> = (1..=8)
        .filter_map(|id| jobs.job(redrive::JobId::new(id)).unwrap())
        .map(|job| (job.kind, job.state))
        .collect();
    // The seven days for which the finished ones are remembered are counted from the file's own time
    // and may be over; the leased one's cancel request was honoured when its process was gone.
    for (kind, state) in [("dead", JobState::Dead), ("ready", JobState::Ready)] {
        assert!(states.contains(&(kind.into(), state)), "{states:?}");
    }
    let total = jobs.stats().unwrap().total;
    assert_eq!((total.done, total.cancelled, total.dead, total.leased), (1, 2, 1, 0));
}
