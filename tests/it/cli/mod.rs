//! The program `redrive`, as a user meets it: its output, its exit status, the file it leaves.
#![expect(clippy::indexing_slicing, reason = "a test says what is missing by panicking")]

mod bad_input;
mod cohort;
mod dead;
mod enqueue;
mod health;
mod lineage;
mod outbox;
mod pause;
mod report;
mod signals;
mod steps;
mod unknown;
mod work;

use std::ffi::OsStr;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// The program in a folder of its own, where its file is `jobs.redb`.
struct Program {
    dir: TempDir,
}

/// What a run said.
#[derive(Debug)]
struct Run {
    /// The exit status; -1 when a signal ended it.
    status: i32,
    stdout: Vec<u8>,
    stderr: String,
}

impl Program {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive"));
        command.args(args).current_dir(self.dir.path()).env_remove("REDRIVE_FILE");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Runs with arguments given as one line, split at spaces; what follows ` -- ` is given apart.
    fn run(&self, args: &str) -> Run {
        self.run_with(args, &[], b"")
    }

    fn run_with(&self, args: &str, command: &[&str], input: &[u8]) -> Run {
        let mut child = self.start(args, command, true);
        let mut stdin = child.stdin.take().unwrap();
        let input = input.to_vec();
        let feed = std::thread::spawn(move || drop(stdin.write_all(&input)));
        let run = Run::of(child.wait_with_output().unwrap());
        feed.join().unwrap();
        run
    }

    fn start(&self, args: &str, command: &[&str], input: bool) -> Child {
        let separator = if command.is_empty() { None } else { Some("--") };
        let words = args.split(' ').chain(separator).chain(command.iter().copied());
        let mut command = self.command(words);
        if input {
            command.stdin(Stdio::piped());
        }
        command.spawn().unwrap()
    }

    /// Enqueues lines with themselves as keys, retried almost at once.
    fn enqueue(&self, queue: &str, lines: &str) {
        let args = format!("enqueue --queue {queue} --lines --key-line --retry-wait 1ms");
        let run = self.run_with(&args, &[], lines.as_bytes());
        assert_eq!(run.status, 0, "{run:?}");
    }

    /// Works a queue until it is empty.
    fn work(&self, args: &str, command: &[&str]) -> Run {
        self.run_with(format!("work --queue q --until-empty {args}").trim_end(), command, b"")
    }

    /// The value of a command that prints JSON.
    fn json(&self, args: &str) -> Value {
        let run = self.run(args);
        assert_eq!(run.status, 0, "{run:?}");
        serde_json::from_slice(&run.stdout).unwrap()
    }

    /// A count of queue `q`.
    fn count(&self, state: &str) -> u64 {
        self.json("stats --json")["queues"]["q"][state].as_u64().unwrap()
    }

    /// How often something happened to jobs of queue `q`.
    fn flow(&self, name: &str) -> u64 {
        self.json("stats --json")["queues"]["q"]["flows"][name].as_u64().unwrap()
    }

    /// Nothing is left to do, and the books balance.
    fn assert_settled(&self, done: u64, dead: u64) {
        let stats = self.json("stats --json");
        let queue = &stats["queues"]["q"];
        let states = ["ready", "delayed", "leased", "done", "dead", "cancelled"];
        let counts = states.map(|state| queue[state].as_u64().unwrap());
        assert_eq!(counts, [0, 0, 0, done, dead, 0]);
        assert_eq!(stats["total"]["residual"], 0);
        assert_eq!(self.run("verify").status, 0);
    }
}

impl Run {
    fn of(output: Output) -> Self {
        Self {
            status: output.status.code().unwrap_or(-1),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    /// The lines of standard output, sorted.
    fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.text().lines().collect();
        lines.sort_unstable();
        lines
    }

    /// It ended with this status, said this on standard error, and did not panic.
    #[track_caller]
    fn assert_refused(&self, status: i32, said: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert!(self.stderr.contains(said), "{said:?} is not in {self:?}");
        assert!(!self.stderr.contains("panicked"), "{self:?}");
    }
}
