//! `redrive explain`: why a job is not running.

use std::path::Path;

use clap::Args as Arguments;
use redrive::{Explanation, JobId, Options, Reason, Timestamp};

use crate::args::job_id;
use crate::exit::{Status, Trouble};
use crate::{output, pause, store};

/// Tells why a job is not running.
#[derive(Debug, Arguments)]
pub(crate) struct ExplainArgs {
    /// The job's id.
    #[arg(value_parser = job_id)]
    id: JobId,
    /// Prints JSON. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, args: &ExplainArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let mut why = jobs.explain(args.id)?;
    // This process claims nothing, and while it has the file nobody else does.
    why.reasons.retain(|reason| !matches!(reason, Reason::NoWorker | Reason::NoHandler));
    if why.reasons.is_empty() {
        why.reasons.push(Reason::Next);
    }
    if args.json {
        output::print_json(&why)?;
    } else {
        output::print(|out| {
            writeln!(out, "{}", head(&why))?;
            for reason in &why.reasons {
                writeln!(out, "    {}", output::one_line(&line(reason), 1_000))?;
            }
            Ok(())
        })?;
    }
    jobs.close()?;
    Ok(if why.state.is_some() { Status::Done } else { Status::Missing })
}

fn head(why: &Explanation) -> String {
    match why.state {
        Some(state) => {
            let (queue, kind) =
                (output::one_line(&why.queue, 128), output::one_line(&why.kind, 128));
            format!("job {} of kind {kind} in queue {queue} is {state}", why.job)
        }
        None => format!("job {}", why.job),
    }
}

/// As the library says it, but with times that people can read.
fn line(reason: &Reason) -> String {
    let at = |at: &Timestamp| output::time(*at);
    match reason {
        Reason::Done { at: done } => format!("it is done since {}", at(done)),
        Reason::Cancelled { at: cancelled } => format!("it was cancelled at {}", at(cancelled)),
        Reason::Dead { class, code, message, at: died, .. } => {
            format!("it is dead since {}: {class} {code} {message}", at(died))
        }
        Reason::Leased { worker, since, .. } => {
            format!("{worker} has had it since {}", at(since))
        }
        Reason::Reconciler { .. } => {
            "the outcome of an earlier delivery is unknown: it waits for a reconciler of its kind"
                .into()
        }
        Reason::Delayed { until } => format!("it is delayed until {}", at(until)),
        Reason::Paused { pause } | Reason::RedrivePaused { pause } => pause::line(pause),
        Reason::Held { hold } => pause::line(hold),
        other => other.to_string(),
    }
}
