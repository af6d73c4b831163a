//! Wrong files, wrong names, wrong numbers: told clearly, nothing written.

use std::process::Stdio;

use super::{Program, Run};

/// Every command that must find a store, with what it needs.
const LOOKING: [&str; 10] = [
    "stats",
    "stats --json",
    "job 1",
    "dead list",
    "verify",
    "pauses",
    "report",
    "pause --queue q --reason why",
    "resume --queue q",
    "work --queue q --until-empty -- true",
];

#[test]
fn a_command_that_only_looks_creates_no_file() {
    let program = Program::new();
    for command in LOOKING {
        program.run(command).assert_refused(4, "jobs.redb does not exist");
    }
    assert_eq!(std::fs::read_dir(program.dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_not_a_store_is_refused_and_left_as_it_is() {
    let program = Program::new();
    program.enqueue("q", "a\nb");
    let store = std::fs::read(program.path("jobs.redb")).unwrap();
    let bad: [(&str, &[u8], &str); 4] = [
        ("text", b"these are not the bytes you are looking for", "is not a redrive store"),
        ("empty", b"", "exists but is empty"),
        ("short", &store[..store.len() / 2], ""),
        ("stub", &store[..100], ""),
    ];
    for (name, bytes, said) in bad {
        std::fs::write(program.path(name), bytes).unwrap();
        for command in LOOKING.into_iter().chain(["enqueue --queue q --lines"]) {
            let run = program.run(&format!("-f {name} {command}"));
            run.assert_refused(5, said);
            assert!(run.stderr.contains(name), "{run:?}");
            assert_eq!(std::fs::read(program.path(name)).unwrap(), bytes, "{name}: {command}");
        }
    }
    program.run("-f . stats").assert_refused(5, "is a directory");
}

#[test]
fn a_second_process_is_refused() {
    let program = Program::new();
    program.enqueue("q", "a");
    let open = redrive::Redrive::open(program.path("jobs.redb")).unwrap();
    for command in LOOKING {
        program.run(command).assert_refused(3, "open elsewhere");
    }
    open.close().unwrap();
    assert_eq!(program.count("ready"), 1);
}

#[test]
fn the_file_comes_from_the_option_or_the_environment_or_is_jobs_redb() {
    let program = Program::new();
    program.run_with("-f other enqueue --queue q --lines", &[], b"x");
    let run = program.command(["stats"]).env("REDRIVE_FILE", "other").output().unwrap();
    assert_eq!(Run::of(run).status, 0);
    assert_eq!(program.run("stats --file other").status, 0);
    assert_eq!(program.run("stats").status, 4);
}

#[test]
fn what_the_command_line_gets_wrong_is_a_usage_error() {
    let program = Program::new();
    let long = "q".repeat(129);
    for (args, said) in [
        ("work --queue q --jobs 0 -- true", "from 1 to 1024"),
        ("work --queue q --jobs x -- true", "from 1 to 1024"),
        ("work --queue q", "COMMAND"),
        ("work --queue q --timeout 0s -- true", "above zero"),
        ("work --queue q --permanent-code 0 -- true", "permanent-code"),
        ("work --queue  -- true", "empty"),
        ("enqueue --queue  --lines", "empty"),
        ("enqueue --queue q --kind  --lines", "empty"),
        ("enqueue --queue q", "--lines"),
        ("enqueue --queue q --lines --jsonl", "cannot be used with"),
        ("enqueue --queue q --jsonl --key-line", "cannot be used with"),
        ("enqueue --queue q --lines --key-field a", "cannot be used with"),
        ("enqueue --queue q --lines --priority 256", "256"),
        ("enqueue --queue q --lines --lease 1ms", "10ms to 7days"),
        ("enqueue --queue q --lines --delay soon", "soon"),
        ("job one", "whole number"),
        ("dead", ""),
        ("bury", "bury"),
    ] {
        program.run(args).assert_refused(2, said);
    }
    program.run(&format!("enqueue --queue {long} --lines")).assert_refused(2, "129 bytes");
    program.run("enqueue --queue a\tb --lines").assert_refused(2, "control character");
    assert_eq!(std::fs::read_dir(program.dir.path()).unwrap().count(), 0);
}

#[test]
fn an_unknown_queue_or_job_is_told() {
    let program = Program::new();
    program.enqueue("sums", "a");
    program.enqueue("mail", "a");
    for command in ["work --queue smus --until-empty -- true", "dead list --queue smus"] {
        let run = program.run(command);
        run.assert_refused(4, "queue \"smus\" never had a job");
        assert!(run.stderr.contains("mail, sums"), "{run:?}");
    }
    program.run("job 999").assert_refused(4, "there is no job 999");
    program.run("job 1 --result").assert_refused(4, "job 1 has no result");
}

#[test]
fn a_reader_that_goes_away_is_no_trouble() {
    let program = Program::new();
    program.enqueue("q", "a\nb\nc");
    for command in
        ["stats", "stats --json", "outbox", "job 1", "dead list --json", "verify", "--help"]
    {
        let mut child = program.start(command, &[], false);
        drop(child.stdout.take());
        Run::of(child.wait_with_output().unwrap()).assert_refused(0, "");
    }
    // Its commands' output has no reader: it starts no more of them.
    let mut child = program.command(["work", "--queue", "q", "--", "echo", "{}"]);
    let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    Run::of(child.wait_with_output().unwrap()).assert_refused(0, "1 done");
    assert_eq!((program.count("done"), program.count("ready")), (1, 2));
}
