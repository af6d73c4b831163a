//! `redrive job`: one job and what happened to it.

use std::io::{self, Write};
use std::path::Path;

use redrive::{DeliveryEnd, Finding, HistoryEntry, HistoryEvent, JobInfo, Options, Redrive};
use serde_json::Value;

use crate::args::JobArgs;
use crate::exit::{Status, Trouble};
use crate::{output, store};

/// How much of a payload or a result is shown.
const SHOWN_CHARS: usize = 2_000;

pub(crate) fn run(file: &Path, args: &JobArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let Some(job) = jobs.job(args.id)? else {
        return Err(Trouble::new(
            Status::Missing,
            format_args!(
                "there is no job {}: it never existed, or it finished and its row is gone",
                args.id
            ),
        ));
    };
    let payload = jobs.payload(args.id)?;
    if args.payload {
        raw(payload.as_deref(), "payload", args)?;
    } else if args.result {
        raw(job.result.as_deref(), "result", args)?;
    } else if args.json {
        output::print_json(&json(&job, payload.as_deref())?)?;
    } else {
        output::print(|out| describe(out, &job, payload.as_deref()))?;
    }
    close(jobs)
}

fn close(jobs: Redrive) -> Result<Status, Trouble> {
    jobs.close()?;
    Ok(Status::Done)
}

fn raw(bytes: Option<&[u8]>, what: &str, args: &JobArgs) -> Result<(), Trouble> {
    match bytes {
        Some(bytes) => output::print(|out| out.write_all(bytes)),
        None => Err(Trouble::new(Status::Missing, format_args!("job {} has no {what}", args.id))),
    }
}

/// The library's own form, with bytes and fingerprints made readable and the payload added.
pub(crate) fn json(job: &JobInfo, payload: Option<&[u8]>) -> Result<Value, Trouble> {
    let mut value = serde_json::to_value(job).map_err(|error| Trouble::new(Status::Io, error))?;
    if let Some(object) = value.as_object_mut() {
        object.insert("payload".into(), payload.map(output::bytes).into());
        object.insert("result".into(), job.result.as_deref().map(output::bytes).into());
        if let Some(dead) = &job.dead
            && let Some(Value::Object(evidence)) = object.get_mut("dead")
        {
            evidence.insert("cause".into(), output::cause(dead.cause).into());
            evidence.insert("class".into(), dead.class.name().into());
        }
    }
    Ok(value)
}

pub(crate) fn describe(
    out: &mut dyn Write,
    job: &JobInfo,
    payload: Option<&[u8]>,
) -> io::Result<()> {
    writeln!(out, "job {}: {}", job.id, job.state)?;
    let mut rows = vec![
        field("queue", &job.queue),
        field("kind", &job.kind),
        field("key", job.key.as_deref().unwrap_or("(none)")),
        field("order key", job.order_key.as_deref().unwrap_or("(none)")),
        field("priority", &job.priority.to_string()),
        field("enqueued", &output::time(job.enqueued_at)),
        field("deliveries", &job.deliveries.to_string()),
        field("attempts", &job.attempts.to_string()),
    ];
    if job.redrives > 0 {
        rows.push(field("redrives", &job.redrives.to_string()));
    }
    rows.extend(kin(job));
    if let Some(unknown) = &job.unknown {
        let (delivery, since) = (unknown.delivery, output::time(unknown.since));
        let of = format!("unknown since delivery {delivery}, {since} ({})", unknown.code);
        rows.push(field("outcome", &of));
        if let Some(reference) = &unknown.provider_ref {
            rows.push(field("reference", reference));
        }
        if job.reconciles > 0 {
            rows.push(field("reconciled", &format!("{} times, still unknown", job.reconciles)));
        }
    }
    if let Some(due) = job.due {
        rows.push(field("due", &output::time(due)));
    }
    if let Some(lease) = &job.lease {
        let since = output::time(lease.claimed_at);
        rows.push(field("leased", &format!("by {} since {since}", lease.worker)));
    }
    if let Some(finished) = job.finished_at {
        rows.push(field("finished", &output::time(finished)));
    }
    if let Some(dead) = &job.dead {
        let (class, code, cause) = (dead.class, &dead.code, output::cause(dead.cause));
        rows.push(field("died", &output::time(dead.died_at)));
        rows.push(field("of", &format!("{class} {code} ({:?}), cause {cause}", dead.reason)));
        if let Some(reference) = &dead.provider_ref {
            rows.push(field("reference", reference));
        }
    }
    output::table(out, &rows)?;
    if let Some(dead) = &job.dead {
        text(out, "message", dead.message.as_bytes())?;
    }
    if let Some(payload) = payload {
        text(out, "payload", payload)?;
    }
    if let Some(result) = &job.result {
        text(out, "result", result)?;
    }
    steps(out, job)?;
    history(out, job)
}

fn steps(out: &mut dyn Write, job: &JobInfo) -> io::Result<()> {
    if job.steps.is_empty() && job.steps_unreadable == 0 {
        return Ok(());
    }
    writeln!(out, "  steps")?;
    for step in &job.steps {
        let (at, delivery) = (output::time(step.at), step.delivery);
        let (name, saved) =
            (output::one_line(&step.name, 128), output::one_line(&step.output, 120));
        writeln!(out, "    {at}  delivery {delivery}: {name} = {saved}")?;
    }
    if job.steps_unreadable > 0 {
        writeln!(out, "    {} more cannot be read: their rows are damaged", job.steps_unreadable)?;
    }
    Ok(())
}

/// Its neighbours under its key.
fn kin(job: &JobInfo) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let asked = &job.asked;
    if let Some(last) = asked.last_at {
        let counts = format!(
            "{} duplicates suppressed, {} refused, {} replaced; last {}",
            asked.duplicates,
            asked.conflicts,
            asked.replaced,
            output::time(last)
        );
        rows.push(field("asked again", &counts));
    }
    let links = [
        ("key before", job.previous),
        ("key taken by", job.taken_by),
        ("duplicate of", job.duplicate_of),
    ];
    for (name, other) in links {
        rows.extend(other.map(|other| field(name, &format!("job {other}"))));
    }
    rows
}

fn field(name: &str, value: &str) -> Vec<String> {
    vec![format!("  {name}"), output::one_line(value, 600)]
}

/// Bytes as indented text, cut.
fn text(out: &mut dyn Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    writeln!(out, "  {name} ({} bytes)", bytes.len())?;
    let text = String::from_utf8_lossy(bytes);
    let shown: String = text.chars().take(SHOWN_CHARS).collect();
    for line in output::lines(&shown) {
        writeln!(out, "    {line}")?;
    }
    if text.chars().nth(SHOWN_CHARS).is_some() {
        writeln!(out, "    ... (`--json` has all of it)")?;
    }
    Ok(())
}

fn history(out: &mut dyn Write, job: &JobInfo) -> io::Result<()> {
    writeln!(out, "  history")?;
    writeln!(out, "    {}  enqueued", output::time(job.enqueued_at))?;
    for (place, entry) in job.history.iter().enumerate() {
        // The first four entries stay; those that were dropped came after them.
        if place == 4 && job.history_dropped > 0 {
            writeln!(out, "    ... {} entries were dropped", job.history_dropped)?;
        }
        writeln!(out, "    {}  {}", output::time(entry.at), event(entry))?;
    }
    if let Some(finished) = job.finished_at {
        let (at, delivery, state) = (output::time(finished), job.deliveries, job.state);
        writeln!(out, "    {at}  delivery {delivery}: {state}")?;
    }
    Ok(())
}

fn event(entry: &HistoryEntry) -> String {
    match &entry.event {
        HistoryEvent::DeliveryEnded { delivery, worker, end, .. } => {
            let end = match end {
                DeliveryEnd::Failed { class, code, message, .. } => {
                    format!("{class} {code}: {}", output::one_line(message, 120))
                }
                DeliveryEnd::Snoozed { until } => format!("put off until {}", output::time(*until)),
                DeliveryEnd::Released => "given back, uncharged".to_owned(),
                DeliveryEnd::LeaseExpired { deadline_exceeded: true } => {
                    "the deadline passed, outcome unknown".to_owned()
                }
                DeliveryEnd::LeaseExpired { deadline_exceeded: false } => {
                    "the lease ran out, outcome unknown".to_owned()
                }
                DeliveryEnd::Reconciled { finding: Finding::Happened, .. } => {
                    "reconciled: it happened".to_owned()
                }
                DeliveryEnd::Reconciled { finding: Finding::DidNotHappen, .. } => {
                    "reconciled: it did not happen".to_owned()
                }
                DeliveryEnd::Reconciled { code, message, .. } => {
                    format!("still unknown: {code} {}", output::one_line(message, 120))
                }
                DeliveryEnd::Crashed => "the process died, outcome unknown".to_owned(),
                other => format!("{other:?}"),
            };
            format!("delivery {delivery} ({worker}): {end}")
        }
        HistoryEvent::CancelRequested => "cancel requested".to_owned(),
        HistoryEvent::Replaced => "a later request took its place".to_owned(),
        HistoryEvent::Redriven { cohort, reason, death } => format!(
            "redriven by cohort {cohort} ({}) after it had died of {} {}: {}",
            output::one_line(reason, 60),
            death.class,
            output::one_line(&death.code, 64),
            output::one_line(&death.message, 120)
        ),
        HistoryEvent::Imported { from } => format!("imported; in the export it was job {from}"),
        HistoryEvent::Amended { note } => {
            format!("payload replaced: {}", output::one_line(note, 120))
        }
        other => format!("{other:?}"),
    }
}
