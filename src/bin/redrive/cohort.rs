//! `redrive cohort`: sends dead jobs back, with brakes.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::{Args as Arguments, Subcommand};
use redrive::{
    Abort, CohortCounts, CohortId, CohortInfo, CohortState, JobId, Options, Preview, Redrive,
    RedrivePlan, Scope, StorageError,
};
use serde_json::json;

use crate::confirm::confirm;
use crate::exit::{Status, Trouble};
use crate::filter::FilterArgs;
use crate::{output, store};

/// Members and cohorts read at a time.
const PAGE: usize = 1_000;

const START_HELP: &str = "\
Examples:
  redrive cohort preview --queue charges --code E_SCHEMA --reason 'parser fixed in 2.4.1'
  redrive cohort start --queue charges --code E_SCHEMA --reason 'parser fixed in 2.4.1' --canary 5
  redrive work --queue charges --until-empty -- ./charge {}
  redrive cohort status

A cohort belongs to the file: whoever has the file open carries it out, at its pace, until every
member has an outcome or a rule stops it. What it releases waits for a worker like any other job.";

#[derive(Debug, Subcommand)]
pub(crate) enum CohortCommand {
    /// Tells what a start would do, and does nothing.
    Preview(Box<PlanArgs>),
    /// Starts a cohort.
    Start(Box<PlanArgs>),
    /// Shows one cohort, or all of them.
    Status(StatusArgs),
    /// Releases no more until it is resumed.
    Pause(CohortArgs),
    /// Goes on after a pause.
    Resume(CohortArgs),
    /// Stops a cohort for good: what was not released stays dead.
    Abort(AbortArgs),
}

/// Which dead jobs go back, why, how fast, and when to stop.
#[derive(Debug, Arguments)]
#[command(after_help = START_HELP)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Why they go back; kept with the cohort and in the history of each job.
    #[arg(short, long, value_name = "TEXT", help_heading = "Plan")]
    reason: String,
    /// So many go first, and must all succeed before the rest.
    #[arg(long, value_name = "JOBS", default_value_t = 1, help_heading = "Plan")]
    canary: u32,
    /// How many are released at a time.
    #[arg(long, value_name = "JOBS", default_value_t = 10, help_heading = "Plan")]
    batch: u32,
    /// The time from one batch to the next.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration, help_heading = "Plan")]
    every: Duration,
    /// Each batch is twice as large as the one before, up to this.
    #[arg(long, value_name = "JOBS", help_heading = "Plan")]
    ramp_to: Option<u32>,
    /// A batch does not wait for the one before it, as long as no more than this are out.
    #[arg(long, value_name = "JOBS", help_heading = "Plan")]
    in_flight: Option<u32>,
    /// At most so many, the oldest ones.
    #[arg(long, value_name = "JOBS", help_heading = "Plan")]
    limit: Option<u64>,
    /// Skips jobs that were accepted longer ago.
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration, help_heading = "Plan")]
    age_max: Option<Duration>,
    /// What is known about the unknown outcomes among them; without it those are skipped.
    #[arg(long, value_name = "TEXT", help_heading = "Plan")]
    reconciled: Option<String>,
    #[command(flatten)]
    aborts: AbortRules,
    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// The rules that stop a cohort. Without these, each has its own default; see docs/quarantine.md.
#[derive(Debug, Arguments)]
#[command(next_help_heading = "Stops when")]
struct AbortRules {
    /// This share of the latest results died again, 0.01 to 1 [default: 0.2].
    #[arg(long, value_name = "SHARE")]
    abort_dead_share: Option<f64>,
    /// So many died again of the cause that they lay dead of [default: 3].
    #[arg(long, value_name = "JOBS")]
    abort_same_cause: Option<u32>,
    /// More than so many other jobs die within five minutes [default: 100].
    #[arg(long, value_name = "JOBS")]
    abort_growth: Option<u64>,
    /// Some job has been ready for longer than this [default: 5m].
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    abort_ready_age: Option<Duration>,
    /// More than so many deliveries are throttled within a minute [default: 20].
    #[arg(long, value_name = "DELIVERIES")]
    abort_throttling: Option<u64>,
    /// Only by the rules given here, and when the canary dies.
    #[arg(long)]
    no_default_aborts: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct StatusArgs {
    /// The cohort; without it, all of them.
    #[arg(value_parser = cohort_id)]
    cohort: Option<CohortId>,
    /// Also every member and what became of it.
    #[arg(long, requires = "cohort")]
    members: bool,
    /// Prints JSON. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Arguments)]
pub(crate) struct CohortArgs {
    /// The cohort.
    #[arg(value_parser = cohort_id)]
    cohort: CohortId,
}

#[derive(Debug, Arguments)]
pub(crate) struct AbortArgs {
    /// The cohort.
    #[arg(value_parser = cohort_id)]
    cohort: CohortId,
    /// Why.
    #[arg(short, long, value_name = "TEXT")]
    reason: String,
    /// Does not ask.
    #[arg(short, long)]
    yes: bool,
}

pub(crate) fn run(file: &Path, command: CohortCommand) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    match command {
        CohortCommand::Preview(args) => {
            let preview = jobs.preview(&args.plan(&jobs)?)?;
            if args.json {
                output::print_json(&preview)?;
            } else {
                output::print(|out| foretell(out, &preview))?;
            }
        }
        CohortCommand::Start(args) => start(&jobs, &args)?,
        CohortCommand::Status(args) => status(&jobs, &args)?,
        CohortCommand::Pause(args) => {
            jobs.cohort_pause(args.cohort)?;
            output::note(format_args!("redrive: cohort {} is paused", args.cohort));
        }
        CohortCommand::Resume(args) => {
            jobs.cohort_resume(args.cohort)?;
            output::note(format_args!("redrive: cohort {} goes on", args.cohort));
        }
        CohortCommand::Abort(args) => {
            let question = format_args!("Stop cohort {} for good?", args.cohort);
            confirm(args.yes, question)?;
            jobs.cohort_abort(args.cohort, args.reason)?;
            output::note(format_args!("redrive: cohort {} is aborted", args.cohort));
        }
    }
    jobs.close()?;
    Ok(Status::Done)
}

/// Whether a cohort is going to send more into `queue` by itself.
pub(crate) fn will_release(jobs: &Redrive, queue: &str) -> Result<bool, StorageError> {
    let releases = |cohort: &CohortInfo| {
        let goes_on = match cohort.state {
            CohortState::Selecting => true,
            CohortState::Canary | CohortState::Running => cohort.counts.held > 0,
            _ => false,
        };
        goes_on && cohort.queue.as_deref() == Some(queue)
    };
    if !all(jobs)?.iter().any(releases) {
        return Ok(false);
    }
    let stops = |scope: &Scope| match scope {
        Scope::Redrive => true,
        Scope::RedriveClass { queue: paused, .. } => paused == queue,
        _ => false,
    };
    Ok(!jobs.pauses()?.iter().any(|paused| stops(&paused.scope)))
}

impl PlanArgs {
    fn plan(&self, jobs: &Redrive) -> Result<RedrivePlan, Trouble> {
        if let Some(queue) = &self.filter.queue {
            store::known_queue(jobs, queue)?;
        }
        let mut plan = RedrivePlan::new(self.filter.filter())
            .reason(&self.reason)
            .canary(self.canary)
            .batch(self.batch)
            .every(self.every);
        if let Some(jobs) = self.ramp_to {
            plan = plan.ramp_to(jobs);
        }
        if let Some(jobs) = self.in_flight {
            plan = plan.in_flight_max(jobs);
        }
        if let Some(jobs) = self.limit {
            plan = plan.limit(jobs);
        }
        if let Some(age) = self.age_max {
            plan = plan.age_max(age);
        }
        if let Some(evidence) = &self.reconciled {
            plan = plan.reconciled(evidence);
        }
        Ok(self.aborts.add_to(plan))
    }
}

impl AbortRules {
    fn add_to(&self, mut plan: RedrivePlan) -> RedrivePlan {
        if self.no_default_aborts {
            plan = plan.without_abort_rules();
        }
        let rules = [
            self.abort_dead_share.map(Abort::dead_share),
            self.abort_same_cause.map(Abort::same_cause),
            self.abort_growth.map(|jobs| Abort::growth(jobs, Duration::from_secs(300))),
            self.abort_ready_age.map(Abort::ready_age),
            self.abort_throttling.map(|count| Abort::throttling(count, Duration::from_secs(60))),
        ];
        rules.into_iter().flatten().fold(plan, RedrivePlan::abort_if)
    }
}

fn start(jobs: &Redrive, args: &PlanArgs) -> Result<(), Trouble> {
    let plan = args.plan(jobs)?;
    let preview = jobs.preview(&plan)?;
    if !args.yes {
        foretell(&mut io::stderr(), &preview).map_err(|error| Trouble::output(&error))?;
    }
    confirm(args.yes, "Start this cohort?")?;
    let cohort = jobs.redrive(plan)?;
    let info = loop {
        jobs.sweep()?;
        let info = known(jobs, cohort)?;
        if info.state != CohortState::Selecting {
            break info;
        }
    };
    if args.json {
        return output::print_json(&info);
    }
    output::print(|out| {
        writeln!(out, "cohort {cohort}")?;
        describe(out, &info)
    })
}

fn status(jobs: &Redrive, args: &StatusArgs) -> Result<(), Trouble> {
    let Some(cohort) = args.cohort else {
        let cohorts = all(jobs)?;
        return if args.json {
            output::print_json(&cohorts)
        } else {
            output::print(|out| table(out, &cohorts))
        };
    };
    let info = known(jobs, cohort)?;
    let members = if args.members { members(jobs, cohort)? } else { Vec::new() };
    if args.json {
        let mut value = json!(info);
        if let (true, Some(object)) = (args.members, value.as_object_mut()) {
            object.insert("members".to_owned(), json!(members));
        }
        return output::print_json(&value);
    }
    output::print(|out| {
        writeln!(out, "cohort {cohort}")?;
        describe(out, &info)?;
        for member in &members {
            match member.outcome {
                redrive::MemberOutcome::Skipped(why) => {
                    writeln!(out, "job {} skipped: {why}", member.job)?;
                }
                outcome => writeln!(out, "job {} {}", member.job, outcome.name())?,
            }
        }
        Ok(())
    })
}

fn known(jobs: &Redrive, cohort: CohortId) -> Result<CohortInfo, Trouble> {
    let found = jobs.cohort(cohort)?;
    found.ok_or_else(|| {
        Trouble::new(Status::Missing, format_args!("there is no cohort {cohort} in this file"))
    })
}

fn all(jobs: &Redrive) -> Result<Vec<CohortInfo>, StorageError> {
    let mut cohorts = Vec::new();
    loop {
        let page = jobs.cohorts(cohorts.last().map(|info: &CohortInfo| info.id), PAGE)?;
        let more = page.len() == PAGE;
        cohorts.extend(page);
        if !more {
            return Ok(cohorts);
        }
    }
}

fn members(jobs: &Redrive, cohort: CohortId) -> Result<Vec<redrive::CohortMember>, StorageError> {
    let mut members = Vec::new();
    loop {
        let after: Option<JobId> = members.last().map(|member: &redrive::CohortMember| member.job);
        let page = jobs.cohort_members(cohort, after, PAGE)?;
        let more = page.len() == PAGE;
        members.extend(page);
        if !more {
            return Ok(members);
        }
    }
}

fn foretell(out: &mut dyn Write, preview: &Preview) -> io::Result<()> {
    let counts = &preview.counts;
    writeln!(out, "{} jobs would be selected, {} of them released", counts.selected, counts.held)?;
    skipped(out, counts)?;
    if counts.suppressed > 0 {
        let done = counts.suppressed;
        writeln!(out, "    {done} not released: another job has done the same under their key")?;
    }
    if preview.beyond_limit > 0 {
        writeln!(out, "    {} more are beyond the limit", preview.beyond_limit)?;
    }
    let wait = humantime::format_duration(Duration::from_millis(preview.shortest_ms));
    writeln!(
        out,
        "a canary of {}, then {} batches in {wait} or more",
        preview.canary, preview.batches
    )?;
    let first: Vec<String> = preview.first.iter().take(10).map(ToString::to_string).collect();
    if first.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "in this order: {}{}",
        first.join(" "),
        if counts.held > 10 { " ..." } else { "" }
    )
}

fn skipped(out: &mut dyn Write, counts: &CohortCounts) -> io::Result<()> {
    for (reason, count) in &counts.skipped {
        writeln!(out, "    {count} skipped: {reason}")?;
    }
    Ok(())
}

fn describe(out: &mut dyn Write, info: &CohortInfo) -> io::Result<()> {
    writeln!(out, "    {}, because: {}", info.state, output::one_line(&info.reason, 256))?;
    writeln!(out, "    started {}", output::time(info.started_at))?;
    if let Some(at) = info.ended_at {
        writeln!(out, "    ended {}", output::time(at))?;
    }
    if let Some(why) = &info.aborted {
        writeln!(out, "    stopped: {}", output::one_line(&why.to_string(), 400))?;
    }
    if let Some(at) = info.next_release {
        writeln!(out, "    next batch not before {}", output::time(at))?;
    }
    let counts = &info.counts;
    writeln!(
        out,
        "    {} selected = {} held + {} in flight + {} completed + {} died again + {} suppressed \
         + {} cancelled + {} skipped",
        counts.selected,
        counts.held,
        counts.in_flight,
        counts.completed,
        counts.died_again,
        counts.suppressed,
        counts.cancelled,
        counts.skipped.values().sum::<u64>(),
    )?;
    skipped(out, counts)
}

fn table(out: &mut dyn Write, cohorts: &[CohortInfo]) -> io::Result<()> {
    let head = ["COHORT", "STATE", "SELECTED", "HELD", "OUT", "DONE", "DIED", "SKIPPED", "REASON"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for info in cohorts {
        let counts = &info.counts;
        let skipped = counts.skipped.values().sum::<u64>() + counts.suppressed + counts.cancelled;
        let mut row = vec![info.id.to_string(), info.state.name().to_owned()];
        let numbers = [
            counts.selected,
            counts.held,
            counts.in_flight,
            counts.completed,
            counts.died_again,
            skipped,
        ];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(output::one_line(&info.reason, 60));
        rows.push(row);
    }
    output::table(out, &rows)
}

fn cohort_id(text: &str) -> Result<CohortId, String> {
    let id = text.parse().map(CohortId::new);
    id.map_err(|_| "a cohort's id is a whole number".to_owned())
}
