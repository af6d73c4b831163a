//! Killed, interrupted, drained.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

use super::{Program, Run};

fn signal(name: &str, pid: u32) {
    let sent = Command::new("kill").args([name, &pid.to_string()]).status().unwrap();
    assert!(sent.success());
}

/// Reads lines of the child's standard error until one holds `text`.
fn wait_for(stderr: &mut impl BufRead, text: &str) {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "it ended without {text:?}");
    }
}

/// Waits until a command has made this file.
fn wait_for_file(program: &Program, name: &str, child: &mut Child) {
    while !program.path(name).exists() {
        assert_eq!(child.try_wait().unwrap(), None, "it ended before {name} was there");
        std::thread::yield_now();
    }
}

/// SIGKILL in the middle of 500 lines, twice; then on to the end: each line done exactly once.
#[test]
fn sigkill_in_the_middle_loses_nothing_and_doubles_nothing() {
    let program = Program::new();
    let lines: String = (0..500).map(|n| format!("line-{n}\n")).collect();
    program.enqueue("q", &lines);
    for _ in 0..2 {
        let mut child = program.start("work --queue q --jobs 4", &["echo", "{}"], false);
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        for _ in 0..100 {
            assert_ne!(stdout.read_line(&mut line).unwrap(), 0);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let run = program.work("--jobs 4", &["echo", "{}"]);
    assert_eq!(run.status, 0, "{run:?}");
    program.assert_settled(500, 0);
    assert_eq!(program.flow("enqueued"), 500);
    for job in [1, 250, 500] {
        let job = program.json(&format!("job {job} --json"));
        assert_eq!(job["result"], format!("{}\n", job["key"].as_str().unwrap()));
    }
}

/// P4, P12: the command that kills the program is dead after exactly three deliveries; the others,
/// which were in flight with it, are done.
#[test]
fn a_command_that_kills_the_program_ends_dead_after_three_deliveries() {
    let program = Program::new();
    let lines: String = (0..60).map(|n| format!("line-{n}\n")).collect();
    program.enqueue("q", &lines.replace("line-20\n", "line-20\npoison\n"));
    let script = "[ $1 = poison ] && kill -9 $PPID; echo $1";
    let mut runs = 0;
    let last = loop {
        runs += 1;
        assert!(runs < 10, "it goes on killing");
        let run = program.work("--jobs 4", &["sh", "-c", script, "sh", "{}"]);
        if run.status != -1 {
            break run;
        }
    };
    assert_eq!((runs, last.status), (4, 1), "{last:?}");
    program.assert_settled(60, 1);
    let dead = program.json("dead list --json");
    let evidence = ["key", "class", "code"].map(|name| dead[0][name].as_str().unwrap());
    assert_eq!(evidence, ["poison", "crashed", "crashed"]);
    assert_eq!(dead[0]["deliveries"], 3);
    assert!(program.work("", &["true"]).text().is_empty());
}

#[test]
fn the_first_sigint_drains() {
    let program = Program::new();
    program.enqueue("q", "a\nb\nc");
    let script = "touch started; while [ ! -e go ]; do sleep 0.01; done; echo finished $1";
    let command = ["sh", "-c", script, "sh", "{}"];
    for (signal_name, done) in [("-INT", 1), ("-TERM", 2)] {
        let mut child = program.start("work --queue q", &command, false);
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        wait_for_file(&program, "started", &mut child);
        signal(signal_name, child.id());
        wait_for(&mut stderr, "draining");
        std::fs::write(program.path("go"), "").unwrap();
        let run = Run::of(child.wait_with_output().unwrap());
        assert_eq!(run.status, 0);
        assert!(run.text().starts_with("finished "));
        assert_eq!((program.count("done"), program.count("ready")), (done, 3 - done));
        std::fs::remove_file(program.path("go")).unwrap();
        std::fs::remove_file(program.path("started")).unwrap();
    }
}

#[test]
fn the_second_sigint_gives_running_jobs_back_uncharged() {
    let program = Program::new();
    program.enqueue("q", "polite\nstubborn\nwaiting");
    let script = "[ $1 = stubborn ] && trap '' TERM; echo $$ > pid-$1; mv pid-$1 $1; \
                  while :; do sleep 0.01; done";
    let command = ["sh", "-c", script, "sh", "{}"];
    let mut child = program.start("work --queue q --jobs 2", &command, false);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    wait_for_file(&program, "polite", &mut child);
    wait_for_file(&program, "stubborn", &mut child);
    signal("-INT", child.id());
    wait_for(&mut stderr, "draining");
    signal("-INT", child.id());
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!(run.status, 130);
    for command in ["polite", "stubborn"] {
        let pid = std::fs::read_to_string(program.path(command)).unwrap();
        assert!(!Command::new("kill").args(["-0", pid.trim()]).status().unwrap().success());
    }
    assert_eq!((program.count("ready"), program.count("done")), (3, 0));
    assert_eq!((program.flow("released"), program.flow("crashed")), (2, 0));
    for job in [1, 2] {
        let job = program.json(&format!("job {job} --json"));
        assert_eq!((job["attempts"].as_u64(), job["deliveries"].as_u64()), (Some(0), Some(1)));
        assert_eq!(job["outcome_unknown"], true, "it was running (P8)");
    }
    assert_eq!(
        program.work("--jobs 2", &["echo", "{}"]).sorted(),
        ["polite", "stubborn", "waiting"]
    );
}

#[test]
fn commands_run_in_process_groups_of_their_own() {
    let program = Program::new();
    program.enqueue("q", "a");
    let run = program.work("", &["sh", "-c", "echo $$ $(ps -o pgid= -p $$)"]);
    let numbers: Vec<&str> = run.text().split_whitespace().collect();
    assert_eq!(numbers[0], numbers[1], "{run:?}");
}
