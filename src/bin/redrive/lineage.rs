//! `redrive lineage`: everything under one key, in order.

use std::io::{self, Write};
use std::path::Path;

use clap::Args as Arguments;
use redrive::{Lineage, Options, Repeats};
use serde_json::Value;

use crate::exit::{Status, Trouble};
use crate::{job, output, store};

/// Shows every job under one key with its events, and says whether a producer keeps asking for the same
/// thing or one job is retried again and again.
#[derive(Debug, Arguments)]
pub(crate) struct LineageArgs {
    /// The queue; keys belong to their queue.
    #[arg(short, long, value_parser = crate::args::name)]
    queue: String,
    /// The idempotency key.
    key: String,
    /// Prints JSON. Times are milliseconds since 1970; bytes that are no text are in hexadecimal.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, args: &LineageArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    store::known_queue(&jobs, &args.queue)?;
    let Some(lineage) = jobs.lineage(&args.queue, &args.key)? else {
        return Err(Trouble::new(
            Status::Missing,
            format_args!(
                "nothing is under key {:?} in queue {}: it never was, or all of it has finished and \
                 its rows are gone",
                args.key, args.queue
            ),
        ));
    };
    if args.json {
        output::print_json(&json(&lineage)?)?;
    } else {
        output::print(|out| text(out, &lineage))?;
    }
    jobs.close()?;
    Ok(Status::Done)
}

fn json(lineage: &Lineage) -> Result<Value, Trouble> {
    let told = serde_json::to_value(lineage);
    let mut value = told.map_err(|error| Trouble::new(Status::Io, error))?;
    if let Some(object) = value.as_object_mut() {
        let jobs: Result<Vec<Value>, Trouble> =
            lineage.jobs.iter().map(|job| job::json(job, None)).collect();
        object.insert("jobs".into(), jobs?.into());
    }
    Ok(value)
}

fn text(out: &mut dyn Write, lineage: &Lineage) -> io::Result<()> {
    let Lineage { jobs, enqueues, duplicates, conflicts, replaced, .. } = lineage;
    writeln!(
        out,
        "asked for {enqueues} times: {} jobs, {duplicates} duplicates suppressed, {conflicts} refused, \
         {replaced} replaced",
        jobs.len()
    )?;
    writeln!(out, "handed out {} times, redriven {} times", lineage.deliveries, lineage.redrives)?;
    let verdict = match lineage.repeats {
        Repeats::Nothing => "nothing is repeated here",
        Repeats::Producer => "whoever enqueues keeps asking for it; it is not retried",
        Repeats::Deliveries => "it was asked for once; it is retried or redriven",
        Repeats::Both => "whoever enqueues keeps asking for it, and it is retried or redriven",
        _ => "it is repeated",
    };
    writeln!(out, "{verdict}")?;
    if lineage.incomplete {
        writeln!(out, "there is more that is not shown")?;
    }
    for job in jobs {
        writeln!(out)?;
        job::describe(out, job, None)?;
    }
    Ok(())
}
