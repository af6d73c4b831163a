//! Redriving from a shell.

use super::Program;

impl Program {
    /// Lines `1` to `count` die in queue `q` of what the command says.
    fn dead(&self, count: usize) {
        let lines: Vec<String> = (1..=count).map(|number| number.to_string()).collect();
        self.enqueue("q", &lines.join("\n"));
        let run = self.work("", &["sh", "-c", "echo bad input >&2; exit 65"]);
        assert_eq!(run.status, 1, "{run:?}");
    }
}

#[test]
fn a_cohort_is_previewed_started_and_carried_out_by_the_next_worker() {
    let program = Program::new();
    program.dead(7);
    let plan = "--queue q --class permanent --reason fixed --batch 3 --every 10ms";
    let preview = program.json(&format!("cohort preview {plan} --json"));
    assert_eq!(preview["counts"]["held"], 7);
    assert_eq!((&preview["canary"], &preview["batches"]), (&1.into(), &2.into()));
    let text = program.run(&format!("cohort preview {plan}"));
    assert!(text.text().contains("7 jobs would be selected, 7 of them released"), "{text:?}");
    assert_eq!(program.json("cohort status --json"), serde_json::json!([]));

    let asked = program.run(&format!("cohort start {plan}"));
    asked.assert_refused(2, "repeat it with --yes");
    let cohort = program.json(&format!("cohort start {plan} --yes --json"));
    assert_eq!(cohort["counts"]["selected"], 7);
    let id = cohort["id"].as_u64().unwrap();
    let run = program.work("", &["echo", "{}"]);
    assert_eq!((run.status, run.text()), (0, "1\n2\n3\n4\n5\n6\n7\n"), "{run:?}");
    let status = program.json(&format!("cohort status {id} --members --json"));
    assert_eq!((&status["state"], &status["counts"]["completed"]), (&"finished".into(), &7.into()));
    assert_eq!(status["members"][6]["outcome"], "completed");
    let text = program.run(&format!("cohort status {id} --members"));
    assert!(text.text().contains("7 selected = 0 held + 0 in flight + 7 completed"), "{text:?}");
    assert!(text.text().contains("job 1 completed\n"), "{text:?}");
    assert!(program.run("cohort status").text().contains("finished"));
    program.assert_settled(7, 0);
}

/// A fix that does not work costs the canary, and the worker does not wait for the rest.
#[test]
fn a_cohort_whose_canary_dies_stops() {
    let program = Program::new();
    program.dead(5);
    let start = program.run("cohort start --queue q --reason fixed --yes");
    assert!(start.status == 0 && start.text().contains("canary"), "{start:?}");
    let run = program.work("", &["sh", "-c", "exit 65"]);
    assert_eq!(run.status, 1, "{run:?}");
    let cohort = &program.json("cohort status --json")[0];
    assert_eq!((&cohort["state"], &cohort["counts"]["held"]), (&"aborted".into(), &4.into()));
    let id = cohort["id"].as_u64().unwrap();
    let text = program.run(&format!("cohort status {id}"));
    assert!(text.text().contains("stopped: a job of the canary died again"), "{text:?}");
    program.assert_settled(0, 5);
}

#[test]
fn cohorts_are_paused_resumed_and_aborted() {
    let program = Program::new();
    program.dead(3);
    let started = program.json("cohort start --all --canary 0 --batch 1 --reason r --yes --json");
    let id = started["id"].as_u64().unwrap();
    let state = || program.json(&format!("cohort status {id} --json"))["state"].clone();
    assert_eq!(program.run(&format!("cohort pause {id}")).status, 0);
    assert_eq!(state(), "paused");
    program.run(&format!("cohort pause {id}")).assert_refused(1, "is paused");
    assert_eq!(program.run(&format!("cohort resume {id}")).status, 0);
    assert_eq!(state(), "running");
    program.run(&format!("cohort abort {id} --reason no")).assert_refused(2, "--yes");
    program.run(&format!("cohort abort {id} --yes")).assert_refused(2, "--reason");
    assert_eq!(program.run(&format!("cohort abort {id} --reason no --yes")).status, 0);
    assert_eq!(state(), "aborted");
    program.run(&format!("cohort resume {id}")).assert_refused(1, "is aborted");
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let program = Program::new();
    program.dead(1);
    for (args, status, said) in [
        ("start --queue q --yes", 2, "--reason"),
        ("start --reason r --yes", 2, "no criteria"),
        ("start --queue none --reason r --yes", 4, "never had a job"),
        ("start --queue q --reason r --batch 0 --yes", 2, "batch is 0"),
        ("start --queue q --reason r --abort-dead-share 2 --yes", 2, "could never stop"),
        ("start --id 1 --reason r --abort-dead-share 0.5 --yes", 2, "needs 10 results"),
        ("start --queue q --reason r --dead-for 2h --dead-within 1h --yes", 2, "no job"),
        ("start --queue q --reason r --cause xyz --yes", 2, "hexadecimal"),
        ("status 99", 4, "no cohort 99"),
        ("pause 99", 4, "no cohort 99"),
        ("abort x --reason r", 2, "whole number"),
    ] {
        program.run(&format!("cohort {args}")).assert_refused(status, said);
    }
    assert_eq!(program.json("cohort status --json"), serde_json::json!([]));
}
