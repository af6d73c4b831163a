//! `redrive pause`, `redrive resume` and `redrive pauses`.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args as Arguments;
use redrive::{Options, Pause, PauseError, Paused, Redrive, Scope};

use crate::args::name;
use crate::exit::{Status, Trouble};
use crate::{output, store};

/// Pauses a queue, one kind of it, or the sending back of dead jobs. It lasts until `redrive resume`.
#[derive(Debug, Arguments)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    scope: ScopeArgs,
    /// Why; shown to everybody who looks.
    #[arg(short, long, value_name = "TEXT", value_parser = reason)]
    reason: String,
    /// Who pauses.
    #[arg(long, value_name = "NAME", env = "USER", default_value = "")]
    by: String,
    /// The queue may be one that never had a job.
    #[arg(long)]
    new: bool,
}

/// Lifts a pause, and the hold of a throttled failure.
#[derive(Debug, Arguments)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    scope: ScopeArgs,
}

/// Lists what is paused or held, by whom and why.
#[derive(Debug, Arguments)]
pub(crate) struct PausesArgs {
    /// Prints a JSON array. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
struct ScopeArgs {
    /// The queue.
    #[arg(short, long, value_parser = name, required_unless_present = "redrive")]
    queue: Option<String>,
    /// Only this kind of it.
    #[arg(short, long, value_parser = name, requires = "queue")]
    kind: Option<String>,
    /// Not the work but the sending back of dead jobs: of all, or of one kind of a queue.
    #[arg(long)]
    redrive: bool,
}

impl ScopeArgs {
    fn scope(&self) -> Result<Scope, Trouble> {
        match (self.redrive, &self.queue, &self.kind) {
            (false, Some(queue), None) => Ok(Scope::queue(queue)),
            (false, Some(queue), Some(kind)) => Ok(Scope::class(queue, kind)),
            (true, Some(queue), Some(kind)) => Ok(Scope::redrive_class(queue, kind)),
            (true, None, _) => Ok(Scope::redrive()),
            (true, Some(_), None) => Err(Trouble::new(
                Status::Usage,
                "--redrive needs --kind too, or neither of the two",
            )),
            (false, None, _) => Err(Trouble::new(Status::Usage, "name a queue, or give --redrive")),
        }
    }

    /// A name that is not known is rather misspelt than new.
    fn known(&self, jobs: &Redrive) -> Result<(), Trouble> {
        let Some(queue) = &self.queue else { return Ok(()) };
        let found = store::known_queue(jobs, queue)?;
        match &self.kind {
            Some(kind) if !found.kinds.contains_key(kind) => Err(Trouble::new(
                Status::Missing,
                format_args!("queue {queue:?} never had a job of kind {kind:?}"),
            )),
            _ => Ok(()),
        }
    }
}

pub(crate) fn pause(file: &Path, args: PauseArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let scope = args.scope.scope()?;
    if !args.new {
        args.scope.known(&jobs)?;
    }
    let replaced = jobs.pause(scope.clone(), Pause::new(args.reason).by(args.by))?;
    if let Some(earlier) = replaced {
        output::note(format_args!("redrive: this replaces {}", line(&earlier)));
    }
    output::print(|out| writeln!(out, "{} is paused", output::one_line(&scope.to_string(), 300)))?;
    jobs.close()?;
    Ok(Status::Done)
}

pub(crate) fn resume(file: &Path, args: &ResumeArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let scope = args.scope.scope()?;
    let lifted = jobs.resume(scope.clone())?;
    if lifted.is_empty() {
        args.scope.known(&jobs)?;
        let scope = output::one_line(&scope.to_string(), 300);
        output::note(format_args!("redrive: {scope} was neither paused nor held"));
    }
    output::print(|out| {
        for stop in &lifted {
            writeln!(out, "lifted: {}", line(stop))?;
        }
        Ok(())
    })?;
    jobs.close()?;
    Ok(Status::Done)
}

pub(crate) fn list(file: &Path, args: &PausesArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let pauses = jobs.pauses()?;
    if args.json {
        output::print_json(&pauses)?;
    } else {
        output::print(|out| {
            for stop in &pauses {
                writeln!(out, "{}", line(stop))?;
            }
            writeln!(out, "{} paused or held", pauses.len())
        })?;
    }
    jobs.close()?;
    Ok(Status::Done)
}

/// One pause on one line.
pub(crate) fn line(stop: &Paused) -> String {
    let word = if stop.is_hold() { "held" } else { "paused" };
    let by = if stop.by.is_empty() { "(nobody said who)" } else { &stop.by };
    let until = stop.until.map(|until| format!(" until {}", output::time(until)));
    let text = format!(
        "{} {word} by {by} since {}{}: {}",
        stop.scope,
        output::time(stop.since),
        until.unwrap_or_default(),
        stop.reason,
    );
    output::one_line(&text, 1_000)
}

/// The paused kinds of a queue. Nobody can lift a pause while this process has the file: a queue that
/// is paused whole is not worked at all.
pub(crate) fn paused_kinds(jobs: &Redrive, queue: &str) -> Result<BTreeSet<String>, Trouble> {
    let mut kinds = BTreeSet::new();
    for stop in jobs.pauses()?.into_iter().filter(|stop| !stop.is_hold()) {
        match &stop.scope {
            Scope::Queue { queue: paused } if paused == queue => {
                let message =
                    format_args!("{}; `redrive resume` lifts it", line(&stop)).to_string();
                return Err(Trouble::new(Status::BadNews, message));
            }
            Scope::Class { queue: paused, kind } if paused == queue => {
                output::note(format_args!("redrive: {}", line(&stop)));
                kinds.insert(kind.clone());
            }
            _ => {}
        }
    }
    Ok(kinds)
}

fn reason(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("say why".to_owned()) } else { Ok(text.to_owned()) }
}

impl From<PauseError> for Trouble {
    fn from(error: PauseError) -> Self {
        match error {
            PauseError::Storage(error) => error.into(),
            other => Self::new(Status::Usage, other),
        }
    }
}
