//! `redrive dead`: looks at the quarantine, amends and discards.

use std::io::{self, Read, Write};
use std::path::Path;

use clap::{Args as Arguments, Subcommand};
use redrive::{
    Causes, DeadCursor, DeadJob, JobId, JobInfo, Options, Redrive, Removal, RemovalReason,
    RetentionBound,
};
use serde_json::{Value, json};

use crate::args::job_id;
use crate::confirm::confirm;
use crate::exit::{Status, Trouble};
use crate::filter::FilterArgs;
use crate::{job, output, store};

/// Jobs read at a time: memory does not grow with the quarantine.
const PAGE: usize = 500;

#[derive(Debug, Subcommand)]
pub(crate) enum DeadCommand {
    /// Lists dead jobs with their evidence, by queue, kind and time of death.
    List(ListArgs),
    /// Counts dead jobs by what they died of, with a sample of each.
    Causes(CausesArgs),
    /// Shows one dead job with its payload.
    Show(ShowArgs),
    /// Replaces the payload of a dead job by standard input; the first one is kept.
    Amend(AmendArgs),
    /// Removes dead jobs for good, with their evidence.
    Discard(DiscardArgs),
    /// Writes dead jobs to standard output, one line of JSON each. Nothing is changed.
    Export(ExportArgs),
    /// Reads such lines from standard input and puts the jobs back as dead ones. May be repeated.
    Import(ImportArgs),
    /// Tells which dead jobs were removed, and why: the latest 1,000 times.
    Removals(RemovalsArgs),
}

#[derive(Debug, Arguments)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// At most so many.
    #[arg(long, value_name = "JOBS")]
    limit: Option<usize>,
    /// Prints a JSON array. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct CausesArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Prints JSON. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct ShowArgs {
    /// The job.
    #[arg(value_parser = job_id)]
    job: JobId,
    /// Prints JSON. Times are milliseconds since 1970; bytes that are no text are in hexadecimal.
    #[arg(long, conflicts_with_all = ["payload", "original"])]
    json: bool,
    /// Prints the payload's bytes and nothing else.
    #[arg(long, conflicts_with = "original")]
    payload: bool,
    /// Prints the bytes of the payload before it was amended, and nothing else.
    #[arg(long)]
    original: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct AmendArgs {
    /// The job.
    #[arg(value_parser = job_id)]
    job: JobId,
    /// Why; kept in the job's history.
    #[arg(short, long, value_name = "TEXT")]
    note: String,
    /// Takes standard input byte for byte; else a line end at its end is not part of the payload.
    #[arg(long)]
    raw: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Why; kept with the record of it.
    #[arg(short, long, value_name = "TEXT")]
    reason: String,
    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct ExportArgs {
    #[command(flatten)]
    filter: FilterArgs,
}

#[derive(Debug, Arguments)]
pub(crate) struct ImportArgs {
    /// Prints the summary as JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct RemovalsArgs {
    /// Prints a JSON array. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, command: DeadCommand) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let mut status = Status::Done;
    match command {
        DeadCommand::List(args) => list(&jobs, &args)?,
        DeadCommand::Causes(args) => {
            known(&jobs, &args.filter)?;
            let causes = jobs.dead().causes(&args.filter.filter())?;
            if args.json {
                output::print_json(&causes)?;
            } else {
                output::print(|out| table(out, &causes))?;
            }
        }
        DeadCommand::Show(args) => show(&jobs, &args)?,
        DeadCommand::Amend(args) => {
            let mut payload = Vec::new();
            let read = io::stdin().lock().read_to_end(&mut payload);
            let failed = |error| Trouble::new(Status::Io, format_args!("cannot read: {error}"));
            read.map_err(failed)?;
            if !args.raw && payload.ends_with(b"\n") {
                payload.pop();
                payload.pop_if(|last| *last == b'\r');
            }
            let bytes = payload.len();
            jobs.dead().amend(args.job, payload, args.note)?;
            output::note(format_args!(
                "redrive: job {} has a new payload, {bytes} bytes",
                args.job
            ));
        }
        DeadCommand::Discard(args) => discard(&jobs, &args)?,
        DeadCommand::Export(args) => export(&jobs, &args)?,
        DeadCommand::Import(args) => status = import(&jobs, &args)?,
        DeadCommand::Removals(args) => {
            let removals = jobs.dead().removals()?;
            if args.json {
                output::print_json(&removals)?;
            } else {
                output::print(|out| removals.iter().try_for_each(|removal| told(out, removal)))?;
            }
        }
    }
    jobs.close()?;
    Ok(status)
}

fn known(jobs: &Redrive, filter: &FilterArgs) -> Result<(), Trouble> {
    match &filter.queue {
        Some(queue) => store::known_queue(jobs, queue).map(drop),
        None => Ok(()),
    }
}

fn list(jobs: &Redrive, args: &ListArgs) -> Result<(), Trouble> {
    known(jobs, &args.filter)?;
    let filter = args.filter.filter();
    let mut left = args.limit.unwrap_or(usize::MAX);
    let mut unreadable = 0;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut writer = Writer { out: &mut out, json: args.json, count: 0 };
    let mut after: Option<DeadCursor> = None;
    loop {
        let page = jobs.dead().list(&filter, after.as_ref(), PAGE.min(left))?;
        writer.page(&page.jobs).map_err(|error| Trouble::output(&error))?;
        for (job, why) in &page.unreadable {
            output::note(format_args!("redrive: job {job} cannot be read: {why}"));
            unreadable += 1;
        }
        left -= page.jobs.len().min(left);
        after = page.next;
        if after.is_none() || left == 0 {
            break;
        }
    }
    writer.end().map_err(|error| Trouble::output(&error))?;
    if unreadable == 0 {
        return Ok(());
    }
    Err(Trouble::new(Status::NotAStore, format_args!("{unreadable} dead jobs cannot be read")))
}

fn table(out: &mut dyn Write, causes: &Causes) -> io::Result<()> {
    writeln!(out, "{} jobs, {} causes", causes.jobs, causes.causes)?;
    let head = ["CAUSE", "JOBS", "QUEUE/KIND", "CLASS", "CODE", "LAST DIED", "SAMPLE", "MESSAGE"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for cause in &causes.largest {
        rows.push(vec![
            output::cause(cause.cause),
            cause.jobs.to_string(),
            output::one_line(&format!("{}/{}", cause.queue, cause.kind), 60),
            cause.class.name().to_owned(),
            output::one_line(&cause.code, 40),
            output::time(cause.last_died_at),
            cause.sample.to_string(),
            output::one_line(&cause.message, 80),
        ]);
    }
    if rows.len() > 1 { output::table(out, &rows) } else { Ok(()) }
}

fn show(jobs: &Redrive, args: &ShowArgs) -> Result<(), Trouble> {
    let Some(DeadJob { job, payload, original, .. }) = jobs.dead().get(args.job)? else {
        let why = format_args!("job {} is not dead, or there is no such job", args.job);
        return Err(Trouble::new(Status::Missing, why));
    };
    if args.original {
        let none = || Trouble::new(Status::Missing, "its payload was not amended");
        let original = original.ok_or_else(none)?;
        return output::print(|out| out.write_all(&original));
    }
    if args.payload {
        let payload = payload?;
        return output::print(|out| out.write_all(&payload));
    }
    let payload = payload.as_deref().ok();
    if args.json {
        let mut value = job::json(&job, payload)?;
        if let Some(object) = value.as_object_mut() {
            object.insert("original".into(), original.as_deref().map(output::bytes).into());
        }
        return output::print_json(&value);
    }
    output::print(|out| {
        job::describe(out, &job, payload)?;
        match original {
            Some(_) => {
                writeln!(out, "  the payload was amended; `--original` prints the first one")
            }
            None => Ok(()),
        }
    })
}

fn discard(jobs: &Redrive, args: &DiscardArgs) -> Result<(), Trouble> {
    known(jobs, &args.filter)?;
    let filter = args.filter.filter();
    let causes = jobs.dead().causes(&filter)?;
    let question = format_args!("Discard {} dead jobs for good, with their evidence?", causes.jobs);
    confirm(args.yes, question)?;
    let discarded = jobs.dead().discard(&filter, &args.reason)?;
    if discarded.unreadable > 0 {
        let left = discarded.unreadable;
        output::note(format_args!("redrive: {left} dead jobs cannot be read, and stay"));
    }
    if args.json {
        return output::print_json(&discarded);
    }
    output::print(|out| writeln!(out, "{} dead jobs are gone", discarded.jobs))
}

fn export(jobs: &Redrive, args: &ExportArgs) -> Result<(), Trouble> {
    known(jobs, &args.filter)?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let exported = jobs.dead().export(&args.filter.filter(), &mut out)?;
    output::note(format_args!("redrive: {} dead jobs exported", exported.jobs));
    if exported.unreadable.is_empty() {
        return Ok(());
    }
    let left = exported.unreadable.len();
    Err(Trouble::new(Status::NotAStore, format_args!("{left} dead jobs cannot be read")))
}

fn import(jobs: &Redrive, args: &ImportArgs) -> Result<Status, Trouble> {
    let report = jobs.dead().import(&mut io::stdin().lock())?;
    for (line, why) in &report.refused {
        output::note(format_args!("redrive: line {line} is not imported: {why}"));
    }
    if args.json {
        output::print_json(&report)?;
    } else {
        let (new, known, refused) = (report.imported, report.already_here, report.refused_count);
        output::print(|out| {
            writeln!(out, "{new} imported, {known} were here already, {refused} refused")
        })?;
    }
    Ok(if report.refused_count == 0 { Status::Done } else { Status::BadNews })
}

fn told(out: &mut dyn Write, removal: &Removal) -> io::Result<()> {
    let why = match &removal.why {
        RemovalReason::Discarded { reason } => format!("discarded: {reason}"),
        RemovalReason::Evicted { queue, bound } => {
            let bound = match bound {
                RetentionBound::Jobs => "too many jobs",
                RetentionBound::Bytes => "too many bytes",
                RetentionBound::Age => "too old",
                _ => "retention",
            };
            format!("evicted from queue {queue}: {bound}")
        }
        other => format!("{other:?}"),
    };
    let (at, jobs) = (output::time(removal.at), removal.jobs);
    let (first, last) = (removal.first, removal.last);
    writeln!(out, "{at}  {jobs} jobs ({first} to {last}) {}", output::one_line(&why, 300))?;
    for cause in &removal.causes {
        let (fingerprint, code) = (output::cause(cause.cause), output::one_line(&cause.code, 64));
        writeln!(out, "    {} of cause {fingerprint}, {code}", cause.jobs)?;
    }
    Ok(())
}

/// Writes jobs as they come: lines, or the elements of one JSON array.
struct Writer<'a> {
    out: &'a mut dyn Write,
    json: bool,
    count: u64,
}

impl Writer<'_> {
    fn page(&mut self, jobs: &[JobInfo]) -> io::Result<()> {
        for job in jobs {
            if self.json {
                let before = if self.count == 0 { "[\n" } else { ",\n" };
                self.out.write_all(before.as_bytes())?;
                serde_json::to_writer(&mut *self.out, &entry(job))?;
            } else {
                self.text(job)?;
            }
            self.count += 1;
        }
        Ok(())
    }

    fn text(&mut self, job: &JobInfo) -> io::Result<()> {
        let Some(dead) = &job.dead else {
            return Ok(());
        };
        writeln!(
            self.out,
            "job {} {}/{} {}",
            job.id,
            job.queue,
            job.kind,
            job.key.as_deref().unwrap_or("(no key)"),
        )?;
        writeln!(
            self.out,
            "    {} {} {}, after {} deliveries ({} attempts), cause {}",
            output::time(dead.died_at),
            dead.class,
            output::one_line(&dead.code, 64),
            job.deliveries,
            job.attempts,
            output::cause(dead.cause),
        )?;
        if !dead.message.is_empty() {
            writeln!(self.out, "    {}", output::one_line(&dead.message, 200))?;
        }
        Ok(())
    }

    fn end(&mut self) -> io::Result<()> {
        match (self.json, self.count) {
            (true, 0) => writeln!(self.out, "[]")?,
            (true, _) => writeln!(self.out, "\n]")?,
            (false, count) => writeln!(self.out, "{count} dead jobs")?,
        }
        self.out.flush()
    }
}

fn entry(job: &JobInfo) -> Value {
    let dead = job.dead.as_ref();
    json!({
        "id": job.id,
        "queue": job.queue,
        "kind": job.kind,
        "key": job.key,
        "class": dead.map(|dead| dead.class.name()),
        "code": dead.map(|dead| &dead.code),
        "message": dead.map(|dead| &dead.message),
        "reason": dead.map(|dead| dead.reason),
        "deliveries": job.deliveries,
        "attempts": job.attempts,
        "died_at": dead.map(|dead| dead.died_at),
        "cause": dead.map(|dead| output::cause(dead.cause)),
    })
}
