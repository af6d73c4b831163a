//! The outbox from a shell.

use redrive::{ClaimRequest, Message, NewJob, Redrive};

use super::Program;

#[test]
fn the_outbox_is_shown_by_destination() {
    let program = Program::new();
    let jobs = Redrive::open(program.path("jobs.redb")).unwrap();
    jobs.enqueue(NewJob::new("q", "k")).unwrap();
    for text in ["one", "two"] {
        jobs.emit(Message::to("email").bytes(text)).unwrap();
    }
    assert!(jobs.claim(ClaimRequest::new("email")).unwrap().is_empty());
    jobs.close().unwrap();
    let shown = program.json("outbox --json");
    assert_eq!(shown.as_object().unwrap().len(), 1, "{shown}");
    assert_eq!((&shown["email"]["unsent"], &shown["email"]["blocked"]), (&2.into(), &1.into()));
    assert_eq!(shown["email"]["oldest"]["sequence"], 1);
    let run = program.run("outbox");
    assert!(run.status == 0 && run.text().contains("email"), "{run:?}");
    for args in ["enqueue --queue outbox:email --lines", "work --queue outbox:email -- true"] {
        program.run(args).assert_refused(2, "belong to destinations");
    }
    program.run("pause --queue outbox:email --reason why");
    assert_eq!(program.json("pauses --json")[0]["queue"], "outbox:email");
}
