//! `redrive stats`.

use std::path::Path;

use redrive::{Counts, Options};

use crate::args::StatsArgs;
use crate::exit::{Status, Trouble};
use crate::{output, store};

pub(crate) fn run(file: &Path, args: &StatsArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let stats = jobs.stats()?;
    if args.json {
        output::print_json(&stats)?;
    } else {
        let head = ["QUEUE", "READY", "DELAYED", "BLOCKED", "LEASED", "DONE", "DEAD", "CANCELLED"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        for (queue, counts) in &stats.queues {
            rows.push(row(&output::one_line(queue, 128), &counts.counts));
        }
        rows.push(row("(all)", &stats.total));
        output::print(|out| {
            output::table(out, &rows)?;
            let unreconciled = stats.total.unreconciled();
            if unreconciled > 0 {
                writeln!(out, "{unreconciled} wait until it is found out whether they happened")?;
            }
            if stats.set_aside > 0 {
                writeln!(out, "{} damaged rows were set aside", stats.set_aside)?;
            }
            if stats.total.residual != 0 {
                let residual = stats.total.residual;
                writeln!(out, "the books do not balance by {residual}: run `redrive verify`")?;
            }
            Ok(())
        })?;
    }
    jobs.close()?;
    Ok(Status::Done)
}

fn row(name: &str, counts: &Counts) -> Vec<String> {
    let numbers = [
        counts.ready,
        counts.delayed,
        counts.blocked,
        counts.leased,
        counts.done,
        counts.dead,
        counts.cancelled,
    ];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(|number| number.to_string()));
    row
}
