//! `redrive job` shows the steps that a job has committed.

use redrive::{ClaimRequest, NewJob, Redrive};

use crate::cli::Program;

#[test]
fn job_shows_the_steps_of_a_job() {
    let program = Program::new();
    let jobs = Redrive::open(program.path("jobs.redb")).unwrap();
    let id = jobs.enqueue(NewJob::new("q", "k")).unwrap().job();
    let lease = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    lease.step("reserve stock", |_| Ok(serde_json::json!({ "items": 3 }))).unwrap();
    lease.release().unwrap();
    jobs.close().unwrap();
    let run = program.run(&format!("job {id}"));
    let text = String::from_utf8(run.stdout).unwrap();
    let shown =
        text.lines().find(|line| line.contains("delivery 1: reserve stock")).expect("a step");
    assert!(shown.ends_with(r#" = {"items":3}"#), "{text}");
    let json = program.json(&format!("job {id} --json"));
    assert_eq!(json["steps"][0]["name"], "reserve stock");
    assert_eq!(json["steps"][0]["output"], r#"{"items":3}"#);
}
