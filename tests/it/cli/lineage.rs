//! Everything under one key.

use super::Program;

#[test]
fn a_producer_that_repeats_is_told_apart_from_a_retry() {
    let program = Program::new();
    program.enqueue("q", "again\nfails\n");
    program.enqueue("q", "again\n");
    program.enqueue("q", "again\n");
    let run = program.run("lineage -q q again");
    assert!(run.text().contains("asked for 3 times: 1 jobs, 2 duplicates suppressed"), "{run:?}");
    assert!(run.text().contains("keeps asking for it; it is not retried"), "{run:?}");
    program.work("", &["sh", "-c", "[ $1 = again ]", "sh", "{}"]);
    let run = program.run("lineage -q q fails");
    assert!(run.text().contains("asked for once; it is retried"), "{run:?}");
    let json = program.json("lineage --queue q fails --json");
    assert_eq!((&json["repeats"], &json["deliveries"]), (&"deliveries".into(), &6.into()));
    assert_eq!(json["jobs"][0]["state"], "dead");
    program.run("lineage -q q never").assert_refused(4, "nothing is under key");
    program.run("lineage -q none again").assert_refused(4, "never had a job");

    // A line in the place of one that had not started, and after one that is dead.
    let enqueue = |choice: &str, line: &str| {
        let args =
            format!("enqueue -q q --jsonl --key-field k --on-duplicate {choice} --delay 1h --json");
        let run = program.run_with(&args, &[], line.as_bytes());
        serde_json::from_slice::<serde_json::Value>(&run.stdout).unwrap()
    };
    assert_eq!(enqueue("replace", r#"{"k":"d","v":1}"#)["new"], 1);
    assert_eq!(enqueue("replace", r#"{"k":"d","v":2}"#)["replaced"], 1);
    assert_eq!(enqueue("return", r#"{"k":"d","v":3}"#)["refused"], 1);
    assert_eq!(enqueue("after-dead", r#"{"k":"fails","v":1}"#)["new"], 1);
    let run = program.run("lineage -q q fails");
    assert!(run.text().contains("key taken by  job "), "{run:?}");
    assert_eq!(program.run("verify").status, 0);
}
