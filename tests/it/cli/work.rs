//! A command per job.

use serde_json::json;

use super::Program;

/// Takes its payload as `$1`.
fn sh(script: &str) -> [&str; 5] {
    ["sh", "-c", script, "sh", "{}"]
}

#[test]
fn a_command_runs_per_line_and_its_output_is_the_result() {
    let program = Program::new();
    program.enqueue("q", "one\ntwo\nit's \"3\" $HOME\n");
    let run = program.work("--jobs 4", &["printf", "<%s|%s>\\n", "{}", "a{}b{}"]);
    assert_eq!(run.status, 0, "{run:?}");
    let expected = [
        "<it's \"3\" $HOME|ait's \"3\" $HOMEbit's \"3\" $HOME>",
        "<one|aonebone>",
        "<two|atwobtwo>",
    ];
    assert_eq!(run.sorted(), expected);
    let job = program.json("job 1 --json");
    assert_eq!(job["result"], "<one|aonebone>\n");
    assert_eq!((&job["state"], &job["payload"]), (&json!("done"), &json!(null)));
    program.assert_settled(3, 0);

    // Again: nothing is enqueued twice, nothing runs twice.
    program.enqueue("q", "one\ntwo\n");
    assert_eq!(program.work("", &["echo", "{}"]).text(), "");
}

#[test]
fn the_environment_says_which_delivery_it_is() {
    let program = Program::new();
    program.enqueue("q", "a line");
    let script = "echo $REDRIVE_JOB_ID,$REDRIVE_QUEUE,$REDRIVE_KIND,$REDRIVE_KEY,$REDRIVE_DELIVERY,\
                  $REDRIVE_ATTEMPT,$REDRIVE_OUTCOME_UNKNOWN,$(cat); [ $REDRIVE_DELIVERY -ge 2 ]";
    let run = program.work("", &["sh", "-c", script]);
    let lines: Vec<&str> = run.text().lines().collect();
    assert_eq!(lines, ["1,q,line,a line,1,1,0,a line", "1,q,line,a line,2,2,0,a line"]);
    assert_eq!(program.json("job 1 --json")["result"], format!("{}\n", lines[1]));

    program.run_with("enqueue --queue q --lines", &[], b"no key");
    let mut command = program.command(["work", "-q", "q", "--until-empty", "--"]);
    command.args(["sh", "-c", "echo ${REDRIVE_KEY-unset}"]).env("REDRIVE_KEY", "of another");
    assert_eq!(command.output().unwrap().stdout, b"unset\n");
}

#[test]
fn exit_statuses_are_classes() {
    let program = Program::new();
    program.enqueue("q", "65\n66\n75\n9\n111\nkill\n");
    let script = "echo trouble with $1 >&2; [ $1 = kill ] && kill -9 $$; \
                  [ $REDRIVE_DELIVERY -lt 2 ] && exit $1; [ $1 = 9 ] && exit 9; echo fine";
    let run = program.work("--permanent-code 65,66 --throttled-code 111 --jobs 3", &sh(script));
    assert_eq!(run.status, 1, "{run:?}");
    program.assert_settled(2, 4);
    assert_eq!(program.flow("retried_throttled"), 1);

    let dead = program.json("dead list --json");
    let mut dead: Vec<_> = dead
        .as_array()
        .unwrap()
        .iter()
        .map(|job| {
            assert_eq!((&job["queue"], &job["kind"]), (&json!("q"), &json!("line")));
            assert!(job["died_at"].is_u64() && job["cause"].is_string(), "{job}");
            let message = job["message"].as_str().unwrap();
            let key = job["key"].as_str().unwrap().to_owned();
            assert!(message.contains(&format!("trouble with {key}")), "{message}");
            let text = |name: &str| job[name].as_str().unwrap().to_owned();
            (key, text("class"), text("code"), job["deliveries"].as_u64().unwrap())
        })
        .collect();
    dead.sort();
    let expected = [
        ("65", "permanent", "exit_65", 1),
        ("66", "permanent", "exit_66", 1),
        ("9", "transient", "exit_9", 6),
        ("kill", "transient", "signal_9", 6),
    ];
    let expected = expected.map(|(key, class, code, n)| (key.into(), class.into(), code.into(), n));
    assert_eq!(dead, expected);

    // People get the same, with times they can read.
    let listed = program.run("dead list --queue q");
    assert!(listed.text().contains("permanent exit_65, after 1 deliveries"), "{listed:?}");
    assert!(listed.text().contains("trouble with 65") && listed.text().contains("Z "));
    let job = program.run("job 1");
    assert!(job.text().contains("job 1: dead") && job.text().contains("delivery 1 (q-"), "{job:?}");
    // Those died in an earlier run.
    assert_eq!(program.work("", &["true"]).status, 0);
}

#[test]
fn a_timeout_kills_the_whole_group_and_leaves_the_outcome_unknown() {
    let program = Program::new();
    program.enqueue("q", "x");
    let script = "if [ $REDRIVE_OUTCOME_UNKNOWN = 1 ]; then echo looked; else sleep 1000 & \
                  echo $! > pid; echo before >&2; wait; fi";
    let run = program.work("--timeout 300ms", &["sh", "-c", script]);
    assert_eq!((run.status, run.text()), (0, "looked\n"), "{run:?}");
    assert_eq!(program.flow("retried_ambiguous"), 1);
    let job = program.json("job 1 --json");
    let end = &job["history"][0]["event"]["delivery_ended"]["end"]["failed"];
    assert_eq!(end["code"], "timeout");
    assert_eq!(end["message"], "killed at the timeout: before");
    assert!(!alive(&program, "pid"));

    let enqueue = "enqueue --queue q --lines --on-unknown quarantine";
    program.run_with(enqueue, &[], b"never twice");
    assert_eq!(program.work("--timeout 50ms", &["sleep", "1000"]).status, 1);
    assert_eq!(program.json("dead list --json")[0]["class"], "ambiguous");
}

/// Whether the process whose number is in a file still runs (a zombie does not).
fn alive(program: &Program, file: &str) -> bool {
    let pid = std::fs::read_to_string(program.path(file)).unwrap();
    let ps = std::process::Command::new("ps").args(["-o", "stat=", "-p", pid.trim()]).output();
    let state = String::from_utf8(ps.unwrap().stdout).unwrap();
    !state.trim().is_empty() && !state.trim().starts_with('Z')
}

#[test]
fn a_command_that_cannot_be_run_costs_no_job_anything() {
    let program = Program::new();
    let lines: String = (0..20).map(|n| format!("{n}\n")).collect();
    program.enqueue("q", &lines);
    let missing = program.work("--jobs 4", &["no-such-command-here", "{}"]);
    missing.assert_refused(127, "cannot run no-such-command-here");
    std::fs::write(program.path("plain"), "text").unwrap();
    program.work("--jobs 4", &["./plain", "{}"]).assert_refused(126, "cannot run ./plain");
    program.work("--jobs 4", &["/", "{}"]).assert_refused(126, "cannot run /");
    assert_eq!(program.count("ready"), 20);
    for job in 1..=20 {
        assert_eq!(program.json(&format!("job {job} --json"))["attempts"], 0);
    }
    // Where the command is the payload, it is that job's own fault.
    assert_eq!(program.work("--jobs 4", &["./no-such-{}"]).status, 1);
    program.assert_settled(0, 20);
}

#[test]
fn a_payload_that_cannot_be_an_argument_is_dead_at_once() {
    let program = Program::new();
    let lines = [b"a\0b\n".to_vec(), vec![b'x'; 1_000_000], b"\nfine".to_vec()].concat();
    program.run_with("enqueue --queue q --lines", &[], &lines);
    let run = program.work("", &["echo", "{}"]);
    assert_eq!((run.status, run.text()), (1, "fine\n"));
    program.assert_settled(1, 2);
    assert_eq!(program.json("dead list --json")[1]["code"], "bad_argument");
}

#[test]
fn long_outputs_pass_whole_and_unmixed_and_are_kept_cut() {
    let program = Program::new();
    program.enqueue("q", "a\nb\nc\nd\n");
    let script = "i=0; while [ $i -lt 600 ]; do echo $1$1$1$1$1$1$1$1$1$1; i=$((i+1)); done; \
                  head -c 300000 /dev/zero | tr '\\0' $1; echo; seq 1 2000 >&2";
    let run = program.work("--jobs 4", &sh(script));
    assert_eq!(run.status, 0);
    let mut outputs: Vec<&str> = run.text().lines().collect();
    assert_eq!(outputs.len(), 4 * 601);
    outputs.dedup();
    // Each letter's lines stand together: a short one repeated, then a long one.
    assert_eq!(outputs.len(), 8);
    assert!(outputs.chunks(2).all(|pair| pair[1].len() == 300_000 && pair[1].starts_with(pair[0])));
    let result = program.run("job 1 --result");
    assert_eq!(result.stdout.len(), 64 * 1024);
    assert!(result.text().ends_with("\n[cut by redrive: 306601 bytes in all]\n"));
}

#[test]
fn the_end_of_standard_error_is_the_message() {
    let program = Program::new();
    program.enqueue("q", "a");
    let run = program.work("", &["sh", "-c", "seq 1 100000 >&2; exit 65"]);
    assert!(run.stderr.contains("\n50000\n"));
    let message = program.json("dead list --json")[0]["message"].clone();
    let message = message.as_str().unwrap();
    assert!(message.starts_with("exit status 65: ") && message.ends_with("\n100000"));
    assert!(message.len() <= 2_048);
}

#[test]
fn large_payloads_and_commands_that_read_nothing_do_not_block() {
    let program = Program::new();
    let lines = format!("{}\n{}", "x".repeat(900_000), "y".repeat(900_000));
    program.run_with("enqueue --queue q --lines", &[], lines.as_bytes());
    let script = "[ $REDRIVE_JOB_ID = 1 ] || exec wc -c";
    let run = program.work("--jobs 2", &["sh", "-c", script]);
    assert_eq!((run.status, run.text().trim()), (0, "900000"));
}

#[test]
fn a_process_that_a_command_leaves_behind_holds_nothing() {
    let program = Program::new();
    program.enqueue("q", "a");
    let run = program.work("", &["sh", "-c", "echo $$; sleep 1000 & echo $! > pid"]);
    assert_eq!(run.status, 0);
    assert_eq!(program.count("done"), 1);
    let pid = std::fs::read_to_string(program.path("pid")).unwrap();
    assert!(std::process::Command::new("kill").arg(pid.trim()).status().unwrap().success());
}

#[test]
fn jobs_put_off_when_they_were_enqueued_do_not_hold_until_empty() {
    let program = Program::new();
    program.run_with("enqueue --queue q --lines --delay 1h", &[], b"later");
    program.enqueue("q", "now");
    let run = program.work("", &["sh", "-c", "cat; [ $REDRIVE_DELIVERY -ge 3 ]"]);
    assert_eq!((run.status, run.text()), (0, "nownownow"), "{run:?}");
    assert_eq!((program.count("delayed"), program.count("done")), (1, 1));
}

#[test]
fn priorities_go_first_and_policies_are_stored() {
    let program = Program::new();
    program.run_with("enqueue --queue q --lines", &[], b"low");
    let high = "enqueue --queue q --lines --priority 200 --max-deliveries 2 --retry-wait 1ms";
    program.run_with(high, &[], b"high");
    let run = program.work("", &sh("echo $1; [ $1 = low ]"));
    assert_eq!((run.status, run.sorted()), (1, vec!["high", "high", "low"]));
    assert!(run.text().starts_with("high\n"));
}

#[test]
fn help_says_what_braces_do_in_a_shell() {
    let run = Program::new().run("work --help");
    assert!(run.text().contains("quoting is your business"), "{run:?}");
}

/// P12: a shortage of the program's own (here: open files) is no job's fault. Jobs wait with their
/// leases until others have ended.
#[test]
fn a_shortage_of_open_files_charges_no_job() {
    let program = Program::new();
    let lines: String = (0..100).map(|n| format!("{n}\n")).collect();
    program.enqueue("q", &lines);
    let redrive = env!("CARGO_BIN_EXE_redrive");
    let file = program.path("jobs.redb");
    let script = format!(
        "ulimit -n 40; exec '{redrive}' -f '{}' work --queue q --jobs 64 --until-empty -- true",
        file.display()
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!((program.count("done"), program.count("dead")), (100, 0));
    assert_eq!((program.flow("retried_transient"), program.flow("claimed")), (0, 100));
}

/// An output that cannot be written is an error, not the end of the work.
#[cfg(target_os = "linux")]
#[test]
fn an_output_that_cannot_be_written_is_told() {
    let program = Program::new();
    program.enqueue("q", "1\n2\n3\n");
    let redrive = env!("CARGO_BIN_EXE_redrive");
    let file = program.path("jobs.redb");
    let script = format!(
        "exec '{redrive}' -f '{}' work --queue q --until-empty -- echo {{}} > /dev/full",
        file.display()
    );
    let output = std::process::Command::new("sh").args(["-c", &script]).output().unwrap();
    assert_eq!(output.status.code(), Some(6), "{output:?}");
    assert_eq!(program.flow("retried_transient"), 0);
}

/// P8: a command that could not be started has done nothing, also under a policy that quarantines what
/// may have happened.
#[test]
fn a_command_that_is_not_there_leaves_its_jobs_as_they_were() {
    let program = Program::new();
    program.run_with("enqueue --queue q --lines --on-unknown quarantine", &[], b"1\n2\n");
    let run = program.work("--jobs 2", &["no-such-command-anywhere", "{}"]);
    assert_eq!(run.status, 127, "{run:?}");
    assert_eq!((program.count("ready"), program.count("dead")), (2, 0));
    for job in [1, 2] {
        let job = program.json(&format!("job {job} --json"));
        assert_eq!((&job["outcome_unknown"], &job["attempts"]), (&json!(false), &json!(0)));
    }
}

/// P3: while one slot waits for its next job, a retry of the job it had before runs undisturbed in
/// another slot.
#[test]
fn an_idle_slot_does_not_end_the_command_of_another() {
    let program = Program::new();
    program.run_with("enqueue --queue q --lines --lease 1s --retry-wait 100ms", &[], b"1\n");
    let script = "if [ $REDRIVE_DELIVERY = 1 ]; then exit 1; fi; sleep 2; echo done";
    let run = program.work("--jobs 2", &["sh", "-c", script]);
    assert_eq!((run.status, run.text()), (0, "done\n"), "{run:?}");
    assert_eq!(program.flow("claimed"), 2);
}
