//! The quarantine from a shell.

use super::Program;

#[test]
fn dead_jobs_are_listed_by_cause_shown_amended_and_discarded() {
    let program = Program::new();
    program.enqueue("q", "one\ntwo\nthree");
    let script = "case {} in one) exit 65;; *) echo 'no such file: {}' >&2; exit 65;; esac";
    assert_eq!(program.work("", &["sh", "-c", script]).status, 1);

    let listed = program.json("dead list --queue q --class permanent --limit 2 --json");
    assert_eq!(listed.as_array().unwrap().len(), 2);
    assert_eq!(program.json("dead list --key-prefix t --json").as_array().unwrap().len(), 2);
    let causes = program.json("dead causes --json");
    assert_eq!((&causes["jobs"], &causes["causes"]), (&3.into(), &3.into()));
    let text = program.run("dead causes");
    assert!(text.text().starts_with("3 jobs, 3 causes\nCAUSE"), "{text:?}");
    let cause = causes["largest"][0]["cause"].as_str().unwrap();
    let one = program.json(&format!("dead list --cause {cause} --json"));
    assert_eq!(one.as_array().unwrap().len(), 1);

    let shown = program.json("dead show 1 --json");
    assert_eq!((&shown["payload"], &shown["original"]), (&"one".into(), &serde_json::Value::Null));
    let amended = program.run_with("dead amend 1 --note typo --raw", &[], b"eins\n");
    assert!(amended.stderr.contains("5 bytes"), "{amended:?}");
    let amended = program.run_with("dead amend 1 --note typo", &[], b"eins\n");
    assert!(amended.status == 0 && amended.stderr.contains("4 bytes"), "{amended:?}");
    assert_eq!(program.run("dead show 1 --payload").text(), "eins");
    assert_eq!(program.run("dead show 1 --original").text(), "one");
    let text = program.run("dead show 1");
    assert!(text.text().contains("payload replaced: typo"), "{text:?}");
    assert!(program.run("job 1").text().contains("payload replaced: typo"));
    program.run("dead show 2 --original").assert_refused(4, "not amended");

    program.run("dead discard --id 2 --reason junk").assert_refused(2, "Discard 1 dead jobs");
    let gone = program.json("dead discard --id 2,99 --reason junk --yes --json");
    assert_eq!((&gone["jobs"], &gone["not_dead"]), (&1.into(), &1.into()));
    program.run("dead show 2").assert_refused(4, "not dead");
    let removals = program.json("dead removals --json");
    assert_eq!(removals[0]["why"]["discarded"]["reason"], "junk");
    let text = program.run("dead removals");
    assert!(text.text().contains("1 jobs (2 to 2) discarded: junk"), "{text:?}");
    let all = program.run("dead discard --all --reason over --yes");
    assert_eq!(all.text(), "2 dead jobs are gone\n");
    assert_eq!(program.flow("discarded"), 3);
    assert_eq!(program.run("verify").status, 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let program = Program::new();
    program.enqueue("q", "one");
    for (args, status, said) in [
        ("list --queue none", 4, "never had a job"),
        ("list --since yesterday", 2, "invalid value"),
        ("causes --dead-for 2h --dead-within 1h", 2, "holds for no job"),
        ("show 1", 4, "not dead"),
        ("amend 1 --note typo", 1, "only dead jobs can be amended"),
        ("amend 99 --note typo", 4, "no job 99"),
        ("amend 1", 2, "--note"),
        ("discard --reason junk --yes", 2, "no criteria"),
        ("discard --all --yes", 2, "--reason"),
    ] {
        program.run(&format!("dead {args}")).assert_refused(status, said);
    }
}

#[test]
fn dead_jobs_are_exported_and_imported() {
    let program = Program::new();
    program.enqueue("q", "one\ntwo");
    assert_eq!(program.work("", &["sh", "-c", "exit 65"]).status, 1);
    let lines = program.run("dead export --queue q");
    assert_eq!((lines.status, lines.text().lines().count()), (0, 2), "{lines:?}");
    let again = program.run_with("dead import", &[], &lines.stdout);
    assert_eq!(again.text(), "0 imported, 2 were here already, 0 refused\n");
    program.run("dead discard --queue q --reason moved --yes");
    let back = program.run_with("dead import --json", &[], &lines.stdout);
    let report: serde_json::Value = serde_json::from_slice(&back.stdout).unwrap();
    assert_eq!((&report["imported"], &report["already_here"]), (&2.into(), &0.into()));
    let bad = program.run_with("dead import", &[], b"{}\n");
    bad.assert_refused(1, "line 1 is not imported");
    assert_eq!(program.count("dead"), 2);
    assert_eq!(program.run("verify").status, 0);
}
