//! P9: dead jobs can be taken out as lines of JSON and put back with their evidence.

use std::io::{BufReader, Write};

use redrive::{
    ClaimRequest, EffectTable, ExportError, Failure, Filter, HistoryEvent, ImportError,
    ImportRefusal, JobId, JobPolicy, JobState, NewJob, Options, RedrivePlan, Schedule, SweepReport,
};

use crate::support::{Bench, secs};

const ROWS: EffectTable<str, u64> = EffectTable::new("rows");

const PAYLOADS: [&[u8]; 8] = [
    b"{\"amount\":  4900, \"b\":1}",
    b"not json",
    b"",
    b" 1",
    b"[1,\n2]",
    &[0xff, 0, 7],
    b"null",
    b"\"text\"",
];

/// Dead jobs with every sort of payload, of a policy of their own, with a history.
fn store() -> (Bench, Vec<JobId>) {
    let bench = Bench::new();
    let policy = JobPolicy::new()
        .max_deliveries(2)
        .schedule(Schedule::list([secs(1), secs(5)]).jitter_percent(0))
        .redrives_max(5);
    let mut ids = Vec::new();
    for (number, payload) in PAYLOADS.into_iter().enumerate() {
        let job = NewJob::new("q", "k").bytes(payload).policy(policy.clone()).priority(7);
        ids.push(bench.add_with(job.key(format!("key:{number}"))));
        for _ in 0..2 {
            let request = ClaimRequest::new("q").worker("w").version("1.2");
            let lease = bench.jobs.claim(request).unwrap().remove(0);
            lease.fail(Failure::transient("503").message("down").provider_ref("r")).unwrap();
            bench.advance(1);
            bench.jobs.sweep().unwrap();
        }
    }
    bench.jobs.dead().amend(ids[1], "amended", "typo").unwrap();
    (bench, ids)
}

fn export(bench: &Bench) -> Vec<u8> {
    let mut lines = Vec::new();
    bench.jobs.dead().export(&Filter::new(), &mut lines).unwrap();
    lines
}

fn import(bench: &Bench, lines: &[u8]) -> (u64, u64, u64) {
    let report = bench.jobs.dead().import(&mut BufReader::new(lines)).unwrap();
    (report.imported, report.already_here, report.refused_count)
}

#[test]
fn p9_an_export_put_into_another_file_is_the_same_export() {
    let (bench, ids) = store();
    let lines = export(&bench);
    assert_eq!(lines.iter().filter(|&&byte| byte == b'\n').count(), ids.len());
    let text = String::from_utf8(lines.clone()).unwrap();
    assert!(text.contains(r#""payload":{"json":{"amount":  4900, "b":1}}"#), "{text}");
    assert!(text.contains(r#""base64":"WzEsCjJd""#), "{text}");
    let other = Bench::new();
    assert_eq!(import(&other, &lines), (8, 0, 0));
    for (&id, payload) in ids.iter().zip(PAYLOADS) {
        let before = bench.jobs.dead().get(id).unwrap().unwrap();
        let after = other.jobs.dead().get(id).unwrap().unwrap();
        assert_eq!(before.payload.unwrap(), after.payload.unwrap());
        assert_eq!(before.original, after.original);
        let amended = (id == ids[1]).then_some(payload.to_vec());
        assert_eq!(after.original, amended);
        let (before, mut after) = (before.job, after.job);
        let Some(last) = after.history.pop() else { panic!("no history") };
        assert_eq!(last.event, HistoryEvent::Imported { from: id });
        assert_eq!(after, before);
    }
    other.check();
    // A job goes on where it was: its key is known, and it can be redriven.
    let again = NewJob::new("q", "k").bytes(PAYLOADS[0]).key("key:0");
    assert_eq!(other.jobs.enqueue(again).unwrap().job(), ids[0]);
    other.jobs.redrive(RedrivePlan::new(Filter::new().ids([ids[0]])).reason("r")).unwrap();
    while other.jobs.sweep().unwrap() != SweepReport::default() {}
    let lease = other.claim_one();
    assert_eq!((lease.payload(), lease.delivery(), lease.attempt()), (PAYLOADS[0], 3, 1));
    lease.complete().unwrap();
    other.check();
}

/// An import may be repeated: in the file it came from, in another one, and after its jobs have got
/// new ids.
#[test]
fn p9_an_import_may_be_repeated() {
    let (bench, ids) = store();
    let lines = export(&bench);
    assert_eq!(import(&bench, &lines), (0, 8, 0), "they are still here");
    bench.jobs.dead().discard(&Filter::new().queue("q"), "moved away").unwrap();
    assert_eq!(import(&bench, &lines), (8, 0, 0));
    assert_eq!(import(&bench, &lines), (0, 8, 0));
    // An id that was given out before never begins again (P5).
    assert!(ids.iter().all(|&id| bench.jobs.job(id).unwrap().is_none()));
    let page = bench.jobs.dead().list(&Filter::new(), None, 100).unwrap();
    assert!(page.jobs.iter().all(|job| job.id > ids[7] && job.state == JobState::Dead));
    let total = bench.jobs.stats().unwrap().total;
    assert_eq!((total.flow("imported"), total.dead, total.residual), (8, 8, 0));
    bench.check();
    bench.jobs.dead().discard(&Filter::new().queue("q"), "moved away").unwrap();
    assert_eq!(import(&bench, &lines), (8, 0, 0), "gone is gone, also for the import");
    bench.check();
}

/// Bad lines are told by number and stop nothing; nothing is half-done.
#[test]
fn p9_lines_that_cannot_be_taken_are_told() {
    let (bench, _) = store();
    let lines = String::from_utf8(export(&bench)).unwrap();
    let lines: Vec<&str> = lines.lines().collect();
    let other = Bench::new();
    let owner = other.add_with(NewJob::new("q", "k").key("key:3"));
    let form = lines[4].replace("\"redrive_dead\":1", "\"redrive_dead\":2");
    let queue = lines[4].replace("\"queue\":\"q\"", "\"queue\":\"\"");
    let huge = lines[4].replace("\"code\":\"503\"", &format!("\"code\":\"{}\"", "x".repeat(65)));
    let spent = lines[4].replace("\"deliveries\":2", "\"deliveries\":4294967295");
    let base64 = lines[5].replace("\"base64\":\"", "\"base64\":\"!");
    let long = format!("{{{}", "x".repeat(64 << 20));
    let cut = &lines[2][..lines[2].len() / 2];
    let input =
        [lines[0], "", "{}", cut, lines[3], &form, &queue, &huge, &base64, &long, &spent, lines[7]];
    let report = other.jobs.dead().import(&mut input.join("\n").as_bytes()).unwrap();
    assert_eq!((report.imported, report.refused_count), (2, 9), "{report:?}");
    let mut numbers: Vec<u64> = report.refused.iter().map(|(line, _)| *line).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [3, 4, 5, 6, 7, 8, 9, 10, 11]);
    let taken = report.refused.iter().find(|(line, _)| *line == 5).unwrap();
    assert_eq!(taken.1, ImportRefusal::KeyTaken { owner });
    for (line, said) in [
        (6, "form 2"),
        (7, "queue cannot be used"),
        (8, "code has 65"),
        (9, "base64"),
        (10, "as no export has"),
        (11, "4294967295 deliveries"),
    ] {
        let (_, why) = report.refused.iter().find(|(number, _)| *number == line).unwrap();
        assert!(why.to_string().contains(said), "{line}: {why}");
    }
    other.check();
}

/// An output or an input that fails is told; what was done before is there.
#[test]
fn p9_a_failing_output_or_input_is_told() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::UnexpectedEof.into())
        }
    }
    let (bench, _) = store();
    let refused = bench.jobs.dead().export(&Filter::new(), &mut Full(1_000));
    assert!(matches!(refused, Err(ExportError::Output { .. })), "{refused:?}");
    let lines = export(&bench);
    let half = lines.len() / 2;
    let other = Bench::new();
    let mut input = BufReader::new(std::io::Read::chain(&lines[..half], Broken));
    let refused = other.jobs.dead().import(&mut input);
    assert!(matches!(refused, Err(ImportError::Input { .. })), "{refused:?}");
    assert_eq!(import(&other, &lines).2, 0);
    assert_eq!(other.jobs.stats().unwrap().total.dead, 8);
    other.check();
}

/// P6: what a step has done in this file is not done again by a job that comes back into it; in another
/// file it is not there, and is done.
#[test]
fn p6_the_steps_of_an_export_count_where_they_were_done() {
    let bench = Bench::new();
    bench.add("x");
    let ran = std::cell::Cell::new(0);
    let step = |lease: &redrive::Lease| -> u32 {
        let output = lease.step("reserve", |fx| {
            ran.set(ran.get() + 1);
            fx.put(ROWS, "reserved", &1);
            Ok(7)
        });
        output.unwrap()
    };
    let lease = bench.claim_one();
    step(&lease);
    lease.fail(Failure::permanent("E")).unwrap();
    let lines = export(&bench);
    bench.jobs.dead().discard(&Filter::new().queue("q"), "moved away").unwrap();
    let mut other = Bench::new();
    // A file is known by the moment at which it was made.
    other.advance(1);
    let path = other.path.with_extension("later");
    other.jobs = Options::new().clock(other.clock.clone()).open(path).unwrap();
    for (store, runs) in [(&bench, 1), (&other, 2)] {
        assert_eq!(import(store, &lines), (1, 0, 0));
        store.check();
        let plan = RedrivePlan::new(Filter::new().queue("q")).reason("r");
        store.jobs.redrive(plan).unwrap();
        while store.jobs.sweep().unwrap() != SweepReport::default() {}
        let lease = store.claim_one();
        assert_eq!((step(&lease), ran.get()), (7, runs));
        lease.complete().unwrap();
        assert_eq!(store.jobs.read(|r| r.get(ROWS, "reserved")).unwrap(), Some(1));
        store.check();
    }
}

/// P9: a history that is full when it comes back stays within its bound, and nothing of it is left over.
#[test]
fn p9_a_full_history_is_imported_within_its_bound() {
    let bench = Bench::new();
    let policy = JobPolicy::new().releases_max(100);
    bench.add_with(NewJob::new("q", "k").policy(policy));
    for _ in 0..50 {
        bench.claim_one().release().unwrap();
    }
    bench.claim_one().fail(Failure::permanent("E")).unwrap();
    let lines = export(&bench);
    bench.jobs.dead().discard(&Filter::new().queue("q"), "moved away").unwrap();
    assert_eq!(import(&bench, &lines), (1, 0, 0));
    let page = bench.jobs.dead().list(&Filter::new(), None, 1).unwrap();
    let history = &page.jobs[0].history;
    assert_eq!(history.len(), 32);
    let last = &history[31].event;
    assert!(matches!(last, HistoryEvent::Imported { .. }), "{last:?}");
    bench.check();
    bench.jobs.dead().discard(&Filter::new().queue("q"), "moved away").unwrap();
    bench.check();
}
