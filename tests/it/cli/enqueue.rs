//! Lines become jobs.

use serde_json::json;

use super::Program;

#[test]
fn new_duplicate_refused_and_blank_lines_are_counted() {
    let program = Program::new();
    let long_key = "k".repeat(600);
    let lines = [
        b"alpha\n\n  \nbeta\r\nalpha\n".to_vec(),
        b"tab\there\n\xff\xfe\n".to_vec(),
        format!("{long_key}\nlast").into_bytes(),
    ]
    .concat();
    let run = program.run_with("enqueue --queue q --lines --key-line", &[], &lines);
    assert_eq!(run.status, 1);
    assert_eq!(run.text(), "3 new, 1 duplicate, 3 refused, 2 blank lines skipped\n");
    let told: Vec<&str> = run.stderr.lines().collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told[0].starts_with("line 6: refused: ") && told[0].contains("control character"));
    assert!(told[1].starts_with("line 7: refused: ") && told[1].contains("not UTF-8"));
    assert!(told[2].starts_with("line 8: refused: ") && told[2].contains("600 bytes"));

    let again = program.run_with("enqueue --queue q --lines --key-line --json", &[], b"beta\nnew");
    assert_eq!(again.status, 0);
    let summary: serde_json::Value = serde_json::from_slice(&again.stdout).unwrap();
    let expected = json!({
        "new": 1, "duplicate": 1, "replaced": 0, "refused": 0, "blank": 0, "refusals": []
    });
    assert_eq!(summary, expected);
    assert_eq!(program.count("ready"), 4);
}

#[test]
fn a_line_of_10_mb_is_refused_by_its_number_and_stops_nothing() {
    let program = Program::new();
    let lines = [b"first\n".to_vec(), vec![b'x'; 10_000_000], b"\nthird".to_vec()].concat();
    let run = program.run_with("enqueue --queue q --lines --json", &[], &lines);
    run.assert_refused(1, "line 2: refused: the line has 10000000 bytes, the limit is 1048576");
    assert_eq!(program.count("ready"), 2);
}

#[test]
fn a_payload_of_exactly_the_limit_is_accepted_and_comes_back() {
    let program = Program::new();
    let line = vec![b'x'; 1_048_576];
    assert_eq!(program.run_with("enqueue --queue q --lines", &[], &line).status, 0);
    assert_eq!(program.run("job 1 --payload").stdout, line);
}

#[test]
fn payloads_are_bytes() {
    let program = Program::new();
    let run = program.run_with("enqueue --queue q --lines --kind raw", &[], b"\xff\x00z\n");
    assert_eq!(run.status, 0, "{run:?}");
    assert_eq!(program.run("job 1 --payload").stdout, b"\xff\x00z");
    assert_eq!(program.json("job 1 --json")["payload"], json!({ "hex": "ff007a" }));
    assert_eq!(program.work("", &["cat"]).stdout, b"\xff\x00z");
    assert_eq!(program.run("job 1 --result").stdout, b"\xff\x00z");
}

#[test]
fn jsonl_is_checked_and_its_fields_make_the_key() {
    let program = Program::new();
    let lines = concat!(
        r#"{"shop":"a","order":7,"cents":100}"#,
        "\n",
        r#"{"shop":"a","order":7,"cents":100}"#,
        "\n",
        r#"{"shop":"a","order":7,"cents":999}"#,
        "\n",
        "{\"shop\":\n",
        r#"{"shop":"a"}"#,
        "\n",
        r#"{"shop":"a","order":1.5}"#,
    );
    let args = "enqueue --queue q --jsonl --key-field shop,order --kind charge --priority 9";
    let run = program.run_with(args, &[], lines.as_bytes());
    assert_eq!(run.status, 1);
    assert_eq!(run.text(), "1 new, 1 duplicate, 4 refused, 0 blank lines skipped\n");
    for told in [
        "line 3: refused: key \"a:7\" belongs to job 1",
        "line 4: refused: the line is not JSON",
        "line 5: refused: the key cannot be used: there is no field \"order\"",
        "line 6: refused: the key cannot be used: field \"order\" is neither",
    ] {
        assert!(run.stderr.contains(told), "{told:?} is not in {}", run.stderr);
    }
    let job = program.json("job 1 --json");
    assert_eq!(
        (&job["key"], &job["kind"], &job["priority"]),
        (&json!("a:7"), &json!("charge"), &json!(9))
    );
}

#[test]
fn a_long_stream_goes_in_batches() {
    let program = Program::new();
    let lines: String = (0..12_345).map(|n| format!("{n}\n")).collect();
    let run = program.run_with("enqueue --queue q --lines --key-line", &[], lines.as_bytes());
    assert_eq!(run.text(), "12345 new, 0 duplicate, 0 refused, 0 blank lines skipped\n");
    assert_eq!(program.count("ready"), 12_345);
}
