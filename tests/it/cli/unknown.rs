//! Unknown outcomes, as the program's users meet them.

use super::{Program, Run};

fn enqueue(program: &Program, lines: &str) {
    let args = "enqueue --queue q --lines --key-line --on-unknown reconcile";
    assert_eq!(program.run_with(args, &[], lines.as_bytes()).status, 0);
}

/// Works with a command that runs into the timeout for a `slow` line, the first time.
fn work(program: &Program, args: &[&str]) -> Run {
    let script = "echo $1 >> ran; [ -e asked ] && echo ran && exit 0; \
                  case $1 in slow*) sleep 60;; esac; echo ran";
    let mut command = program.command(["work", "-q", "q", "--until-empty", "--timeout", "300ms"]);
    command.args(args).args(["--", "sh", "-c", script, "sh", "{}"]);
    Run::of(command.output().unwrap())
}

/// P8: after a timeout nothing is run again before it has been found out what happened.
#[test]
fn a_job_in_doubt_is_asked_about_before_it_is_run_again() {
    let program = Program::new();
    enqueue(&program, "slow-done\nslow-lost\nfast\n");
    work(&program, &["--jobs", "3"]).assert_refused(1, "2 wait until --reconcile has found out");
    assert_eq!((program.count("ready_reconcile"), program.count("done")), (2, 1));
    let job = program.run("job 1");
    assert!(job.text().contains("unknown since delivery 1"), "{job:?}");
    let stats = program.run("stats");
    assert!(stats.text().contains("2 wait until it is found out"), "{stats:?}");
    // Another run repeats nothing either.
    assert_eq!(work(&program, &[]).status, 1);
    assert_eq!(std::fs::read_to_string(program.path("ran")).unwrap().lines().count(), 3);

    let script = "touch asked; [ $REDRIVE_UNKNOWN_CODE,$REDRIVE_UNKNOWN_DELIVERY = timeout,1 ] \
                  || exit 1; [ $1 = slow-done ] && echo found && exit 0; exit 7";
    std::fs::write(program.path("ask"), script).unwrap();
    let run = work(&program, &["--reconcile", "sh ask {}", "--not-happened-code", "7"]);
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(run.sorted(), ["found", "ran"]);
    program.assert_settled(3, 0);
    let results = [1, 2].map(|job| program.json(&format!("job {job} --json"))["result"].clone());
    assert_eq!(results, ["found\n", "ran\n"]);
    let flows = ["reconciled_happened", "reconciled_did_not_happen", "reconciled_still_unknown"];
    assert_eq!(flows.map(|flow| program.flow(flow)), [1, 1, 0]);
    let job = program.run("job 1");
    assert!(job.text().contains("reconciled: it happened"), "{job:?}");
}

/// Any other exit status is "still unknown": the job is asked about later.
#[test]
fn a_question_without_an_answer_is_asked_again_later() {
    let program = Program::new();
    enqueue(&program, "slow\n");
    work(&program, &[]);
    let script = "echo cannot tell >&2; kill -TERM $PPID; exit 66";
    std::fs::write(program.path("ask"), script).unwrap();
    let run = work(&program, &["--reconcile", "sh ask", "--not-happened-code", "7"]);
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!((program.count("delayed_reconcile"), program.flow("claimed")), (1, 2));
    let job = program.run("job 1");
    assert!(job.text().contains("still unknown: exit_66 exit status 66: cannot tell"), "{job:?}");
    assert_eq!(program.run("verify").status, 0);
}

#[test]
fn a_reconciler_that_cannot_be_used_is_refused() {
    let program = Program::new();
    enqueue(&program, "x");
    work(&program, &["--reconcile", " "]).assert_refused(2, "name a command");
    work(&program, &["--not-happened-code", "7"]).assert_refused(2, "--reconcile");
}
