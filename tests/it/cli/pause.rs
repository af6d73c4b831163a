//! Pausing and resuming from a shell.

use super::Program;

#[test]
fn a_paused_queue_is_not_worked_until_it_is_resumed() {
    let program = Program::new();
    program.enqueue("q", "a");
    program.run("pause --queue q").assert_refused(2, "--reason");
    program.run("pause --queue q --reason ").assert_refused(2, "say why");
    program.run("pause --reason why").assert_refused(2, "--queue");
    program.run("pause --queue q --redrive --reason why").assert_refused(2, "--kind");
    program.run("pause --queue typo --reason why").assert_refused(4, "\"typo\" never had a job");
    program.run("pause --queue q --kind typo --reason why").assert_refused(4, "of kind \"typo\"");
    assert!(program.json("pauses --json").as_array().unwrap().is_empty());

    let run = program.run("pause --queue q --by ada --reason down");
    assert_eq!((run.status, run.text()), (0, "queue q is paused\n"), "{run:?}");
    let run = program.work("", &["echo", "{}"]);
    run.assert_refused(1, "queue q paused by ada since ");
    assert_eq!(run.text(), "");
    let pauses = program.json("pauses --json");
    assert_eq!((&pauses[0]["scope"], &pauses[0]["queue"]), (&"queue".into(), &"q".into()));
    assert_eq!((&pauses[0]["by"], &pauses[0]["reason"]), (&"ada".into(), &"down".into()));
    assert!(program.run("pauses").text().contains("1 paused or held"));

    let run = program.run("resume --queue q");
    assert!(run.status == 0 && run.text().contains("lifted: queue q paused by ada"), "{run:?}");
    let again = program.run("resume --queue q");
    assert!(again.status == 0 && again.stderr.contains("neither paused nor held"), "{again:?}");
    program.run("resume --queue typo").assert_refused(4, "never had a job");
    assert_eq!(program.work("", &["echo", "{}"]).text(), "a\n");
}

/// The jobs of a paused kind do not keep `--until-empty` waiting, and are told.
#[test]
fn a_paused_kind_is_left_behind() {
    let program = Program::new();
    program.enqueue("q", "a\nb");
    program.run_with("enqueue --queue q --lines --kind other", &[], b"c");
    program.run("pause --queue q --kind line --reason why");
    let run = program.work("", &["echo", "{}"]);
    assert_eq!((run.status, run.text()), (1, "c\n"), "{run:?}");
    assert!(run.stderr.contains("2 jobs of paused kinds are left"), "{run:?}");
    // Redrive alone, and a queue that is to come.
    program.run("resume --queue q --kind line");
    assert_eq!(program.run("pause --redrive --reason why").text(), "redrive is paused\n");
    assert_eq!(program.run("pause --queue next --new --reason why").status, 0);
    assert_eq!(program.work("", &["echo", "{}"]).sorted(), ["a", "b"]);
}
