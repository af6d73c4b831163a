//! A process that does everything at once is killed at a random moment (P1 to P5). It says on its
//! standard output what was acknowledged, one line each, after the fact; whatever it managed to say
//! must be true of the file. `REDRIVE_KILL_SEED` and `REDRIVE_KILL_ROUNDS` as for the model test.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use redrive::{
    Cancelled, ClaimRequest, Completion, EffectTable, Failure, JobPolicy, JobState, Lane, NewJob,
    Redrive, Schedule,
};

use crate::support::{Random, check, child, child_argument, number, seed};

/// One row for every step and every completion.
const EFFECTS: EffectTable<str, u64> = EffectTable::new("effects");

/// What the lines of the child have told so far, over all its lives.
#[derive(Default)]
struct Told {
    enqueued: BTreeSet<u64>,
    done: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    cancelled: BTreeSet<u64>,
    deliveries: BTreeMap<u64, BTreeSet<u32>>,
    lines: usize,
}

/// The role of the child; in the normal run it does nothing.
#[test]
fn child_works_until_it_is_killed() {
    let Some(path) = child_argument() else { return };
    let jobs = Redrive::open(path).expect("opens");
    let seed = number("REDRIVE_KILL_SEED", 0);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let jobs = &jobs;
            scope.spawn(move || produce(jobs, seed + thread));
        }
        for thread in 2..5 {
            let jobs = &jobs;
            scope.spawn(move || consume(jobs, seed + thread));
        }
    });
}

fn say(line: &str) {
    // The name of the test stands on the same line without the break.
    let mut out = std::io::stdout().lock();
    let said = writeln!(out, "\n= {line}").and_then(|()| out.flush());
    said.expect("the parent listens");
}

fn policy() -> JobPolicy {
    JobPolicy::new()
        .schedule(Schedule::list([Duration::from_millis(1)]).jitter_percent(0))
        .budget(redrive::FailureClass::Crashed, 1_000)
        .max_deliveries(1_000)
        .keep_finished(Duration::from_secs(3_600))
}

fn produce(jobs: &Redrive, seed: u64) {
    let mut random = Random(seed);
    loop {
        let size = [10, 700, 9_000][usize::try_from(random.below(3)).expect("small")];
        let mut job = NewJob::new("q", "k").bytes(random.bytes(size)).policy(policy());
        if random.below(2) == 0 {
            job = job.key(random.next().to_string());
        }
        let id = jobs.enqueue(job).expect("accepts").job();
        say(&format!("enqueued {id}"));
        if random.below(16) == 0 && jobs.cancel(id).is_ok_and(|how| how == Cancelled::Now) {
            say(&format!("cancelled {id}"));
        }
    }
}

fn consume(jobs: &Redrive, seed: u64) {
    let mut random = Random(seed);
    loop {
        let up_to = 1 + usize::try_from(random.below(4)).expect("small");
        let request = ClaimRequest::new("q").up_to(up_to).wait(Duration::from_secs(60));
        for lease in jobs.claim(request).expect("claims") {
            let (id, delivery) = (lease.id(), lease.delivery());
            say(&format!("claimed {id} {delivery}"));
            match random.below(8) {
                0 => {
                    lease.fail(Failure::transient("E_TRY")).ok();
                }
                1 => {
                    if lease.fail(Failure::permanent("E_BAD")).is_ok_and(|s| s == JobState::Dead) {
                        say(&format!("dead {id}"));
                    }
                }
                2 => drop(lease.release()),
                way => {
                    // Every run of the body counts under a name of its own: two would show (P6).
                    let run = format!("{id} step {}", random.next());
                    let stepped = lease.step("step", |fx| {
                        fx.put(EFFECTS, &run, &1);
                        Ok(run.clone())
                    });
                    let done = format!("{id} done {delivery}");
                    let completion = Completion::new().result(stepped.expect("commits"));
                    let completed = if way < 5 {
                        let completion = completion.put(EFFECTS, &done, &1);
                        lease.complete_with(completion).is_ok()
                    } else {
                        jobs.transact(|tx| {
                            tx.put(EFFECTS, &done, &1)?;
                            tx.complete(&lease, completion)
                        })
                        .is_ok()
                    };
                    if completed {
                        say(&format!("done {id}"));
                    }
                }
            }
        }
    }
}

impl Told {
    fn hear(&mut self, line: &str) {
        let mut words = line.split(' ');
        let (Some(what), Some(Ok(id))) = (words.next(), words.next().map(str::parse::<u64>)) else {
            return;
        };
        self.lines += 1;
        match what {
            "enqueued" => drop(self.enqueued.insert(id)),
            "done" => assert!(self.done.insert(id), "job {id} was done twice"),
            "dead" => drop(self.dead.insert(id)),
            "cancelled" => drop(self.cancelled.insert(id)),
            "claimed" => {
                let delivery = words.next().and_then(|word| word.parse().ok()).expect("a number");
                let new = self.deliveries.entry(id).or_default().insert(delivery);
                assert!(new, "job {id}: delivery {delivery} twice");
                // A delivery is told before it can end, so nothing told of the job comes later.
                let ended = [&self.done, &self.dead, &self.cancelled];
                assert!(!ended.iter().any(|ids| ids.contains(&id)), "job {id} has come back");
            }
            other => panic!("unknown word {other}"),
        }
    }

    fn check(&self, jobs: &Redrive, round: u64) {
        check(jobs);
        let mut leases = 0;
        let rows = jobs.read(|r| r.range(EFFECTS, .., 100_000)).expect("reads");
        let mut effects: BTreeMap<String, usize> = BTreeMap::new();
        for (name, _) in rows {
            let job_and_kind = name.rsplit_once(' ').expect("three words").0;
            *effects.entry(job_and_kind.to_owned()).or_default() += 1;
        }
        for &id in &self.enqueued {
            let info = jobs.job(redrive::JobId::new(id)).expect("reads");
            let info = info.unwrap_or_else(|| panic!("round {round}: job {id} is lost"));
            leases += u64::from(info.state == JobState::Leased);
            let count = |kind: &str| effects.get(&format!("{id} {kind}")).copied().unwrap_or(0);
            let done = usize::from(info.state == JobState::Done);
            assert_eq!((count("step"), count("done")), (info.steps.len(), done), "{info:?}");
            let delivered = self.deliveries.get(&id).and_then(BTreeSet::last).copied().unwrap_or(0);
            assert!(info.deliveries >= delivered, "round {round}: {info:?} after {delivered}");
            for (told, state) in [
                (&self.done, JobState::Done),
                (&self.dead, JobState::Dead),
                (&self.cancelled, JobState::Cancelled),
            ] {
                assert!(!told.contains(&id) || info.state == state, "round {round}: {info:?}");
            }
            if info.state == JobState::Ready && info.crashes > 0 {
                assert_eq!(info.lane, Some(Lane::Suspect), "round {round}: {info:?}");
            }
        }
        assert_eq!(leases, 0, "round {round}: a lease outlived its process");
    }
}

/// One life of the child: it is killed after a random number of lines.
fn live_and_die(path: &Path, seed: u64, lines: u64, told: &mut Told) {
    let mut command = child("kill::child_works_until_it_is_killed", path);
    command.env("REDRIVE_KILL_SEED", seed.to_string());
    let mut process = command.stdout(Stdio::piped()).spawn().expect("starts");
    let mut output = BufReader::new(process.stdout.take().expect("piped")).lines();
    let mut left = lines;
    while left > 0
        && let Some(Ok(line)) = output.next()
    {
        if let Some(line) = line.strip_prefix("= ") {
            told.hear(line);
            left -= 1;
        }
    }
    assert_eq!(left, 0, "the child ended by itself");
    process.kill().expect("kills");
    // What it said before it died counts too; the last line may be cut short.
    let mut last: Option<String> = None;
    for line in output.map_while(Result::ok) {
        if let Some(whole) = last.replace(line)
            && let Some(line) = whole.strip_prefix("= ")
        {
            told.hear(line);
        }
    }
    process.wait().expect("ends");
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let seed = seed("REDRIVE_KILL_SEED");
    println!("REDRIVE_KILL_SEED={seed}");
    let mut random = Random(seed);
    let mut lines = 0;
    let mut told = Told::default();
    let mut dir = tempfile::tempdir().expect("a directory");
    for round in 0..number("REDRIVE_KILL_ROUNDS", 50) {
        // A few lives per file, so that files also grow old.
        if round % 10 == 0 {
            lines += std::mem::take(&mut told).lines;
            dir = tempfile::tempdir().expect("a directory");
        }
        let path = dir.path().join("jobs.redb");
        live_and_die(&path, random.next() >> 1, 1 + random.below(400), &mut told);
        let jobs = Redrive::open(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
        told.check(&jobs, round);
        jobs.close().expect("closes");
    }
    println!("{} acknowledgements", lines + told.lines);
}
