//! Monitoring and explaining from a shell.

use super::Program;

#[test]
fn health_has_an_exit_status_per_level() {
    let program = Program::new();
    program.enqueue("q", "a");
    let run = program.run("health");
    assert_eq!((run.status, run.text()), (0, "ok\n"), "{run:?}");
    let die = |count: usize| {
        let lines: String = (0..count).map(|n| format!("{count}-{n}\n")).collect();
        program.enqueue("q", &lines);
        program.work("--jobs 8", &["sh", "-c", "exit 65"]);
    };
    die(12);
    let run = program.run("health");
    assert_eq!(run.status, 10, "{run:?}");
    assert!(run.text().contains("warning quarantine_growth: 13 jobs, limits 10/100"), "{run:?}");
    die(90);
    let run = program.run("health --json");
    assert_eq!(run.status, 11, "{run:?}");
    let health: serde_json::Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(health["level"], "critical");
    assert!(health["checks"].as_array().unwrap().len() > 8);
}

#[test]
fn explain_says_what_a_job_waits_for() {
    let program = Program::new();
    program.enqueue("q", "a\nb");
    assert!(program.run("explain 1").text().contains("nothing holds it back"));
    assert!(program.run("explain 2").text().contains("1 jobs stand before it"));
    program.run("pause --queue q --by ada --reason down");
    let run = program.run("explain 1");
    assert!(run.text().starts_with("job 1 of kind line in queue q is ready\n"), "{run:?}");
    assert!(run.text().contains("queue q paused by ada since 2"), "{run:?}");
    let why = program.json("explain 1 --json");
    assert_eq!((&why["state"], &why["reasons"][0]["reason"]), (&"ready".into(), &"paused".into()));
    let run = program.run("explain 99");
    assert!(run.status == 4 && run.text().contains("there is no such job"), "{run:?}");
    program.run("explain x").assert_refused(2, "whole number");
}
