//! P6: what a completion writes along is written with the acknowledgement, once, or not at all.

use std::borrow::Cow;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use redrive::{
    BadName, Completion, DeadRetention, EffectError, EffectKey, EffectTable, EffectValue,
    EnqueueError, Filter, JobInfo, JobState, Json, NewJob, QueuePolicy, Redrive, SettleError,
    Workers,
};
use serde::{Deserialize, Serialize};

use crate::support::{Bench, full, secs};

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Receipt {
    cents: u64,
    #[serde(default)]
    note: String,
}

const RECEIPTS: EffectTable<str, Json<Receipt>> = EffectTable::new("receipts");
const COUNT: EffectTable<str, u64> = EffectTable::new("count");
const LINES: EffectTable<u64, [u8]> = EffectTable::new("lines");

fn receipt(cents: u64) -> Receipt {
    Receipt { cents, note: "thanks".into() }
}

/// Why the completion was refused.
fn effect(refused: Result<(), SettleError>) -> EffectError {
    match refused {
        Err(SettleError::Effect { why }) => why,
        other => panic!("not refused for its effects: {other:?}"),
    }
}

/// Everything of a completion is there after it, and after a restart.
/// A lease of a job that was just added, or of one that waits for longer.
fn another(bench: &Bench) -> redrive::Lease {
    bench.add("another");
    bench.claim_one()
}

#[test]
fn p_06_a_completion_writes_all_it_has() {
    let mut bench = Bench::new();
    bench.add("O-194");
    let order = String::from("O-194");
    let completion = Completion::new()
        .put(RECEIPTS, &order, &receipt(4_900))
        .put(COUNT, "charges", &1)
        .put(LINES, &7, b"seven")
        .delete(LINES, &8)
        .enqueue(NewJob::new("q", "post").bytes("O-194").key("post:O-194"))
        .result("receipt 7c1");
    bench.claim_one().complete_with(completion).unwrap();
    for _ in 0..2 {
        let found = bench.jobs.read(|r| {
            Ok((r.get(RECEIPTS, &order)?, r.get(COUNT, "charges")?, r.range(LINES, .., 10)?))
        });
        let lines = vec![(7, b"seven".to_vec())];
        assert_eq!(found.unwrap(), (Some(receipt(4_900)), Some(1), lines));
        bench.reopen();
    }
    let next = bench.claim_one();
    assert_eq!((next.kind(), next.key()), ("post", Some("post:O-194")));
    bench.check();
}

/// A field that was added later has its default; one that is gone is passed over.
#[test]
fn values_as_json_tolerate_other_fields() {
    #[derive(Serialize, Deserialize)]
    struct Older {
        cents: u64,
        currency: String,
    }
    let bench = Bench::new();
    bench.add("1");
    let older = EffectTable::<str, Json<Older>>::new("receipts");
    let value = Older { cents: 5, currency: "EUR".into() };
    another(&bench).complete_with(Completion::new().put(older, "a", &value)).unwrap();
    let found = bench.jobs.read(|r| r.get(RECEIPTS, "a")).unwrap();
    assert_eq!(found, Some(Receipt { cents: 5, note: String::new() }));
}

/// P5: a lease that has ended writes nothing, whatever it brings.
#[test]
fn p_05_a_stale_lease_writes_nothing() {
    let bench = Bench::new();
    bench.add("1");
    let stale = bench.claim_one();
    bench.advance(3_600);
    bench.jobs.sweep().unwrap();
    let current = bench.claim_one();
    let completion = |cents| {
        Completion::new()
            .put(RECEIPTS, "a", &receipt(cents))
            .enqueue(NewJob::new("q", "next").bytes(cents.to_string()))
    };
    let refused = stale.complete_with(completion(1));
    assert!(matches!(refused, Err(SettleError::StaleLease { .. })), "{refused:?}");
    assert_eq!(bench.jobs.read(|r| r.get(RECEIPTS, "a")).unwrap(), None);
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 0);
    current.complete_with(completion(2)).unwrap();
    assert_eq!(bench.jobs.read(|r| r.get(RECEIPTS, "a")).unwrap(), Some(receipt(2)));
    assert_eq!(bench.jobs.stats().unwrap().total.ready, 1);
    bench.check();
}

/// Pages of a range: every row once, in the order of the keys.
#[test]
fn a_range_is_read_in_pages() {
    let bench = Bench::new();
    bench.add("1");
    let mut completion = Completion::new();
    for number in (0..100).rev() {
        completion = completion.put(LINES, &(number << 32), number.to_string().as_bytes());
    }
    // Its neighbours in the file are not in the range.
    completion = completion.put(COUNT, "z", &1);
    another(&bench).complete_with(completion).unwrap();
    let mut found = Vec::new();
    let mut after: Option<u64> = None;
    loop {
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (from, Bound::Unbounded);
        let page = bench.jobs.read(|r| r.range(LINES, range, 7)).unwrap();
        found.extend(page.iter().map(|(key, _)| key >> 32));
        match page.last() {
            Some((last, _)) => after = Some(*last),
            None => break,
        }
    }
    assert_eq!(found, (0..100).collect::<Vec<_>>());
    let some = bench.jobs.read(|r| r.range(LINES, &(3 << 32)..&(6 << 32), 10)).unwrap();
    assert_eq!(some.len(), 3);
    let none = bench.jobs.read(|r| r.range(LINES, &(6 << 32)..&(3 << 32), 10)).unwrap();
    assert!(none.is_empty());
}

/// A reserved name is refused before anything is written; the job was given back.
#[test]
fn reserved_names_are_refused() {
    let bench = Bench::new();
    bench.add("1");
    let table = EffectTable::<[u8], [u8]>::new("redrive/jobs");
    let refused = another(&bench).complete_with(Completion::new().put(table, b"1", b"2"));
    let reserved = |error| matches!(error, EffectError::ReservedTable { .. });
    assert!(reserved(effect(refused)));
    assert!(reserved(bench.jobs.read(|r| r.get(table, b"1")).unwrap_err()));
    let empty = EffectTable::<[u8], [u8]>::new("");
    let refused = another(&bench).complete_with(Completion::new().delete(empty, b"1"));
    let empty = |error| matches!(error, EffectError::BadTable { why: BadName::Empty, .. });
    assert!(empty(effect(refused)));
    // Each of them has failed by then: the next delivery would have been refused again.
    let page = bench.jobs.dead().list(&Filter::new(), None, 10).unwrap();
    let code = |job: &JobInfo| job.dead.as_ref().map(|dead| dead.code.clone());
    let codes: Vec<_> = page.jobs.iter().filter_map(code).collect();
    assert_eq!(codes, ["effect_refused", "effect_refused"]);
    bench.check();
}

/// A table keeps the types it was made with; using others writes nothing and reads nothing.
#[test]
fn other_types_are_refused() {
    let bench = Bench::new();
    bench.add("1");
    another(&bench).complete_with(Completion::new().put(COUNT, "a", &1)).unwrap();
    let other_key = EffectTable::<u64, u64>::new("count");
    let other_value = EffectTable::<str, str>::new("count");
    bench.add("2");
    for completion in [
        Completion::new().put(RECEIPTS, "x", &receipt(1)).put(other_key, &1, &1),
        Completion::new().put(RECEIPTS, "x", &receipt(1)).delete(other_value, "a"),
        // Within one completion, also where the table is new.
        Completion::new().put(RECEIPTS, "x", &receipt(1)).put(
            EffectTable::<str, str>::new("receipts"),
            "y",
            "z",
        ),
    ] {
        let refused = another(&bench).complete_with(completion);
        let other_types = |why| matches!(why, EffectError::OtherTypes { .. });
        assert!(other_types(effect(refused)));
    }
    let read = bench.jobs.read(|r| r.get(other_value, "a"));
    let Err(error) = read else { panic!("{read:?}") };
    let text = error.to_string();
    assert!(text.contains("str -> u64") && text.contains("str -> str"), "{text}");
    assert_eq!(bench.jobs.read(|r| r.get(RECEIPTS, "x")).unwrap(), None);
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), Some(1));
    bench.check();
}

/// A follow-up that is a duplicate adds nothing; one under another request's key, or with a bad name,
/// refuses the whole.
#[test]
fn follow_up_jobs_are_all_or_nothing() {
    let bench = Bench::new();
    let post = |payload: &str| NewJob::new("r", "post").bytes(payload).key("post:1");
    bench.add_with(post("1"));
    bench.add("1");
    let done = Completion::new().enqueue(post("1")).put(COUNT, "done", &1);
    another(&bench).complete_with(done).unwrap();
    assert_eq!(bench.jobs.stats().unwrap().total.flow("duplicates_suppressed"), 1);
    bench.add("2");
    let conflict = Completion::new()
        .enqueue(NewJob::new("r", "fine"))
        .enqueue(post("another"))
        .put(COUNT, "done", &2);
    let refused = another(&bench).complete_with(conflict);
    let Err(SettleError::FollowUp { place: 1, why }) = refused else { panic!("{refused:?}") };
    assert!(matches!(*why, EnqueueError::KeyConflict { .. }));
    let bad = Completion::new().enqueue(NewJob::new("", "k")).put(COUNT, "done", &3);
    let refused = another(&bench).complete_with(bad);
    let Err(SettleError::FollowUp { place: 0, why }) = refused else { panic!("{refused:?}") };
    assert!(matches!(*why, EnqueueError::BadName { what: "queue", .. }));
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "done")).unwrap(), Some(1));
    let stats = bench.jobs.stats().unwrap();
    assert_eq!((stats.queues["r"].counts.ready, stats.total.done), (1, 1));
    bench.check();
}

/// What is over a limit is refused whole, with the limit in the error.
#[test]
fn limits_are_typed() {
    let bench = Bench::new();
    bench.add("1");
    let long = "k".repeat(1_025);
    let refused = another(&bench).complete_with(Completion::new().put(COUNT, &long, &1));
    let too_long = |why| matches!(why, EffectError::KeyTooLong { bytes_max: 1_024, .. });
    assert!(too_long(effect(refused)));
    let block = vec![7; 1024 * 1024];
    let mut large = Completion::new();
    for number in 0..17 {
        large = large.put(LINES, &number, &block);
    }
    let refused = another(&bench).complete_with(large);
    let too_large =
        |why| matches!(why, EffectError::TooLarge { bytes_max, .. } if bytes_max == 16 << 20);
    assert!(too_large(effect(refused)));
    let mut many = Completion::new();
    for number in 0..10_001 {
        many = many.enqueue(NewJob::new("q", "k").bytes(number.to_string()));
    }
    let refused = another(&bench).complete_with(many);
    let too_many = |why| matches!(why, EffectError::TooManyFollowUps { jobs_max: 10_000 });
    assert!(too_many(effect(refused)));
    // The longest key, and sixteen mebibytes less what the keys take, are fine.
    let mut most = Completion::new().put(COUNT, &long[1..], &1);
    for number in 0..15 {
        most = most.put(LINES, &number, &block);
    }
    another(&bench).complete_with(most).unwrap();
    assert_eq!(bench.jobs.stats().unwrap().total.done, 1);
    bench.check();
}

/// More tables than a file may hold.
#[test]
fn the_number_of_tables_is_bounded() {
    let bench = Bench::new();
    bench.add("1");
    let name = |number: usize| -> &'static str { format!("table {number}").leak() };
    let with = |numbers: std::ops::Range<usize>| {
        numbers.fold(Completion::new(), |completion, number| {
            completion.put(EffectTable::<str, u64>::new(name(number)), "a", &1)
        })
    };
    let refused = another(&bench).complete_with(with(0..1_001));
    let full = |why| matches!(why, EffectError::TooManyTables { count_max: 1_000 });
    assert!(full(effect(refused)));
    another(&bench).complete_with(with(0..1_000)).unwrap();
    bench.add("2");
    let refused = another(&bench).complete_with(with(999..1_001));
    assert!(full(effect(refused)));
    another(&bench).complete_with(with(990..1_000)).unwrap();
    bench.check();
}

struct Panics;

impl EffectValue for Panics {
    const TYPE: &'static str = "panics";
    type Given = Self;
    type Read = ();

    fn encode(_: &Self) -> Result<Vec<u8>, String> {
        panic!("an encoder that panics")
    }

    fn decode(_: &[u8]) -> Result<(), String> {
        panic!("a decoder that panics")
    }
}

impl EffectKey for Panics {
    const TYPE: &'static str = "bytes";
    type Read = ();

    fn encode(&self) -> Cow<'_, [u8]> {
        panic!("an encoder that panics")
    }

    fn decode(_: &[u8]) -> Option<()> {
        None
    }
}

/// O-22 a: an encoder that panics is a typed error each time, and the file does not grow.
#[test]
fn o_22_a_panicking_encoder_of_an_effect_is_a_typed_error_and_costs_nothing() {
    let bench = Bench::new();
    // Of the jobs that die of it, one is kept.
    let kept = DeadRetention::new().jobs(1);
    bench.jobs.set_queue("q", QueuePolicy::new().dead(kept)).unwrap();
    let bytes = || std::fs::metadata(&bench.path).unwrap().len();
    let values = EffectTable::<str, Panics>::new("values");
    let keys = EffectTable::<Panics, [u8]>::new("keys");
    let mut before = 0;
    for round in 0..1_000 {
        if round == 100 {
            before = bytes();
        }
        let completion = if round % 2 == 0 {
            Completion::new().put(COUNT, "a", &1).put(values, "a", &Panics)
        } else {
            Completion::new().put(COUNT, "a", &1).delete(keys, &Panics)
        };
        let refused = another(&bench).complete_with(completion);
        let typed = |why| matches!(why, EffectError::Unencodable { .. });
        assert!(typed(effect(refused)));
    }
    assert_eq!(bytes(), before);
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), None);
    bench.check();
}

/// A decoder that panics is an error of that read.
#[test]
fn a_panicking_decoder_is_a_typed_error() {
    let bench = Bench::new();
    bench.add("1");
    let written = EffectTable::<[u8], Panics>::new("t");
    struct Same;
    impl EffectValue for Same {
        const TYPE: &'static str = "panics";
        type Given = u8;
        type Read = u8;
        fn encode(value: &u8) -> Result<Vec<u8>, String> {
            Ok(vec![*value])
        }
        fn decode(bytes: &[u8]) -> Result<u8, String> {
            Err(format!("{bytes:?}"))
        }
    }
    let put = Completion::new().put(EffectTable::<[u8], Same>::new("t"), b"a", &1);
    another(&bench).complete_with(put).unwrap();
    let read = bench.jobs.read(|r| r.get(written, b"a"));
    assert!(matches!(read, Err(EffectError::Undecodable { .. })), "{read:?}");
    let read = bench.jobs.read(|r| r.range(EffectTable::<Panics, Same>::new("t"), .., 9));
    assert!(matches!(read, Err(EffectError::Undecodable { .. })), "{read:?}");
}

/// In workers: what cannot be written kills its job with a code that says why, and no other.
#[test]
fn workers_tell_what_was_refused() {
    let bench = Bench::new();
    let owner = NewJob::new("r", "post").bytes("1").key("post");
    bench.add_with(owner);
    let jobs: Vec<_> = ["unencodable", "effect_refused", "follow_up_refused", "result_too_large"]
        .into_iter()
        .map(|code| (bench.add(code), code))
        .collect();
    let fine = bench.add("fine");
    let workers = Workers::new(&bench.jobs).queue("q", 2).handle("k", |job| {
        let completion = Completion::new().put(COUNT, std::str::from_utf8(job.payload())?, &1);
        Ok(match job.payload() {
            b"unencodable" => {
                completion.put(EffectTable::<str, Panics>::new("values"), "a", &Panics)
            }
            b"effect_refused" => completion.put(EffectTable::<u64, u64>::new("count"), &1, &1),
            b"follow_up_refused" => completion.enqueue(NewJob::new("r", "post").key("post")),
            b"result_too_large" => completion.result(vec![7; 64 * 1024 + 1]),
            _ => completion,
        })
    });
    let workers = workers.start().unwrap();
    let over = || bench.jobs.stats().unwrap().total;
    while over().dead + over().done < 5 {
        std::thread::yield_now();
    }
    // Both counters are settled once the threads have ended.
    workers.shutdown(secs(60));
    for (id, code) in jobs {
        let job = bench.jobs.job(id).unwrap().unwrap();
        let dead = job.dead.expect("dead");
        assert_eq!((job.state, dead.code.as_str(), job.deliveries), (JobState::Dead, code, 1));
    }
    assert!(bench.jobs.job(fine).unwrap().is_none_or(|job| job.state == JobState::Done));
    let rows = bench.jobs.read(|r| r.range(COUNT, .., 10)).unwrap();
    assert_eq!(rows, [("fine".to_owned(), 1)]);
    bench.check();
}

/// Readers see one moment, and neither wait for the writer nor hold it up.
#[test]
fn a_reader_sees_one_moment() {
    let bench = Bench::new();
    let put = |value: u64| {
        bench.add(&value.to_string());
        let both = Completion::new().put(COUNT, "a", &value).put(COUNT, "b", &value);
        another(&bench).complete_with(both).unwrap();
    };
    put(1);
    let seen = bench.jobs.read(|r| {
        let a = r.get(COUNT, "a")?;
        put(2);
        Ok((a, r.get(COUNT, "b")?, r.job(redrive::JobId::new(1))?.is_none()))
    });
    assert_eq!(seen.unwrap(), (Some(1), Some(1), true));
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "b")).unwrap(), Some(2));
    bench.check();
}

/// A reader that panics, or that closes the store, harms nobody else.
#[test]
fn a_reader_may_panic_or_close_the_store() {
    let mut bench = Bench::new();
    let jobs = bench.jobs.clone();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        jobs.read(|_| -> Result<(), _> { panic!("on purpose") })
    }));
    assert!(panicked.is_err());
    bench.add("1");
    let after_close = bench.jobs.read(|r| {
        Redrive::close(jobs.clone())?;
        r.get(COUNT, "a")
    });
    assert!(after_close.is_err() || matches!(after_close, Ok(None)));
    bench.reopen();
    bench.check();
}

/// P6, by workers: as many effects as jobs, whatever is delivered twice.
#[test]
fn p_06_effects_are_counted_once_under_redeliveries() {
    let bench = Bench::new();
    let count = if full() { 2_000 } else { 200 };
    for number in 0..count {
        bench.add(&number.to_string());
    }
    let calls = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&calls);
    let workers = Workers::new(&bench.jobs).queue("q", 4).handle("k", move |job| {
        let call = seen.fetch_add(1, Ordering::Relaxed);
        let number: u64 = std::str::from_utf8(job.payload())?.parse()?;
        let done = Completion::new().put(LINES, &number, &job.delivery().to_be_bytes());
        match call % 3 {
            0 => Ok(Completion::give_back_unstarted()),
            _ => Ok(done),
        }
    });
    let workers = workers.start().unwrap();
    while bench.jobs.stats().unwrap().total.done < count {
        std::thread::yield_now();
    }
    workers.shutdown(secs(60));
    let rows = bench.jobs.read(|r| r.range(LINES, .., 10_000)).unwrap();
    assert_eq!(u64::try_from(rows.len()).unwrap(), count);
    assert!(calls.load(Ordering::Relaxed) > count);
    bench.check();
}
