//! `redrive report`: the books over a span of time, and what waits now.

use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use clap::Args as Arguments;
use redrive::{Attempts, Balance, Count, DelayedBacklog, Options, Report, Window};

use crate::exit::{Status, Trouble};
use crate::{output, pause, store};

/// Tells what has happened in a span of time, what waits now, and whether the books balance.
#[derive(Debug, Arguments)]
pub(crate) struct ReportArgs {
    /// From so long ago until now, in whole minutes.
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    last: Duration,
    /// Over the whole life of the file.
    #[arg(long, conflicts_with = "last")]
    ever: bool,
    /// Prints JSON, with every figure. Times are milliseconds since 1970.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, args: &ReportArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let window = if args.ever { Window::ever() } else { Window::last(args.last) };
    let report = jobs.report(window)?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(|out| text(out, &report))?;
    }
    jobs.close()?;
    let balanced = report.total.residual == 0 && report.total.dead_residual == 0;
    Ok(if balanced { Status::Done } else { Status::BadNews })
}

fn text(out: &mut dyn Write, report: &Report) -> io::Result<()> {
    writeln!(out, "{} to {}", output::time(report.from), output::time(report.to))?;
    let head = [
        "QUEUE",
        "KIND",
        "BEFORE",
        "ENQUEUED",
        "DONE",
        "CANCELLED",
        "DISCARDED",
        "NOW",
        "RETRIED",
        "DIED",
        "DEAD",
        "RETRY SHARE",
        "OLDEST READY",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (queue, balance) in &report.queues {
        let queue = output::one_line(queue, 128);
        for (kind, balance) in &balance.kinds {
            rows.push(row(&queue, &output::one_line(kind, 128), balance));
        }
    }
    rows.push(row("(all)", "", &report.total));
    output::table(out, &rows)?;
    for (what, attempts) in
        [("completed", report.total.completed_after), ("dead", report.total.died_after)]
    {
        writeln!(out, "{what} after {}", line(attempts))?;
    }
    writeln!(out, "delayed: {}", delayed(&report.delayed))?;
    let arrivals = &report.arrivals;
    if arrivals.causes > 0 {
        let (jobs, causes) = (count(arrivals.jobs), arrivals.causes);
        writeln!(out, "died in this time and still dead: {jobs} jobs, {causes} causes")?;
    }
    for found in &arrivals.largest {
        let text = format!(
            "{} {}/{} {} {}: {} jobs, for example job {}",
            output::cause(found.cause),
            found.queue,
            found.kind,
            found.class,
            found.code,
            found.jobs,
            found.sample,
        );
        writeln!(out, "    {}", output::one_line(&text, 400))?;
    }
    for stop in &report.pauses {
        writeln!(out, "{}", pause::line(stop))?;
    }
    // What the columns above have no room for.
    for flow in ["imported", "evicted", "done_as_duplicate", "damaged_rows_set_aside"] {
        let happened = report.total.flow(flow);
        if happened > 0 {
            writeln!(out, "also {}: {}", flow.replace('_', " "), happened)?;
        }
    }
    let Balance { residual, dead_residual, .. } = report.total;
    match (residual, dead_residual) {
        (0, 0) => writeln!(out, "the books balance: residual 0"),
        _ => writeln!(
            out,
            "the books do not balance: residual {residual}, of the quarantine {dead_residual}; run \
             `redrive verify`"
        ),
    }
}

fn row(queue: &str, kind: &str, balance: &Balance) -> Vec<String> {
    let sum = |prefix: &str| -> u64 {
        let flows = balance.flows.iter().filter(|(name, _)| name.starts_with(prefix));
        flows.map(|(_, count)| count).sum()
    };
    let died = sum("died_") - sum("died_after_");
    let share = balance.retry_share.map(|share| format!("{:.0}%", share * 100.0));
    let oldest = balance.oldest_ready.map(|oldest| {
        humantime::format_duration(Duration::from_secs(oldest.age_ms / 1_000)).to_string()
    });
    vec![
        queue.to_owned(),
        kind.to_owned(),
        balance.alive.before.to_string(),
        balance.flow("enqueued").to_string(),
        balance.flow("completed").to_string(),
        balance.flow("cancelled").to_string(),
        balance.flow("discarded").to_string(),
        balance.alive.after.to_string(),
        sum("retried_").to_string(),
        died.to_string(),
        balance.dead.after.to_string(),
        share.unwrap_or_else(|| "-".into()),
        oldest.unwrap_or_else(|| "-".into()),
    ]
}

fn line(attempts: Attempts) -> String {
    let Attempts { one, two, three, up_to_6, up_to_12, more, .. } = attempts;
    format!("1 attempt {one}, 2: {two}, 3: {three}, 4-6: {up_to_6}, 7-12: {up_to_12}, more: {more}")
}

fn count(Count { count, at_least, .. }: Count) -> String {
    if at_least { format!("at least {count}") } else { count.to_string() }
}

fn delayed(backlog: &DelayedBacklog) -> String {
    format!(
        "{} due already, {} within a minute, {} within an hour, {} within a day, {} later",
        count(backlog.overdue),
        count(backlog.minute),
        count(backlog.hour),
        count(backlog.day),
        count(backlog.later),
    )
}
