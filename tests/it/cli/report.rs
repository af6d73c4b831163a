//! The books from a shell.

use super::Program;

#[test]
fn a_report_tells_what_happened_and_that_the_books_balance() {
    let program = Program::new();
    program.enqueue("q", "65\n75\nok");
    let script = "[ $1 = ok ] || [ $REDRIVE_DELIVERY = 2 ] || exit $1";
    program.work("", &["sh", "-c", script, "sh", "{}"]);
    program.run_with("enqueue --queue q --lines --delay 2h", &[], b"later");
    let report = program.json("report --json");
    let kind = &report["queues"]["q"]["kinds"]["line"];
    assert_eq!(kind["alive"], serde_json::json!({ "before": 0, "after": 2 }));
    assert_eq!(kind["dead"], serde_json::json!({ "before": 0, "after": 1 }));
    assert_eq!((&kind["residual"], &kind["dead_residual"]), (&0.into(), &0.into()));
    assert_eq!(kind["flows"]["completed"], 2);
    assert_eq!(
        (&kind["completed_after"]["one"], &kind["completed_after"]["two"]),
        (&1.into(), &1.into())
    );
    assert_eq!(kind["died_after"]["one"], 1);
    assert_eq!(report["delayed"]["day"]["count"], 1);
    for last in ["", " --ever", " --last 5m"] {
        let run = program.run(&format!("report{last}"));
        assert_eq!(run.status, 0, "{run:?}");
        assert!(run.text().contains("the books balance: residual 0"), "{run:?}");
        assert!(run.text().contains("1 within a day, 0 later"), "{run:?}");
    }
    program.run("report --last never").assert_refused(2, "--last");
}

#[test]
fn compact_makes_the_file_smaller_and_loses_nothing() {
    let program = Program::new();
    program.enqueue("q", &"x".repeat(100).lines().collect::<String>());
    let told = program.json("compact --json");
    assert!(told["bytes_after"].as_u64().unwrap() <= told["bytes_before"].as_u64().unwrap());
    assert_eq!(program.count("ready"), 1);
    assert_eq!(program.run("verify").status, 0);
}
