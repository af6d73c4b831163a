//! `redrive outbox`.

use std::path::Path;

use clap::Args as Arguments;
use redrive::{Options, OutboxStats};

use crate::exit::{Status, Trouble};
use crate::{output, store};

/// Shows how much is still to be sent, by destination: with how long the oldest message has waited, and
/// how many lie in quarantine.
#[derive(Debug, Arguments)]
pub(crate) struct OutboxArgs {
    /// Prints a JSON object, one field per destination. Times are milliseconds since 1970, ages
    /// milliseconds.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, args: &OutboxArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let outbox = jobs.outbox()?;
    if args.json {
        output::print_json(&outbox)?;
    } else {
        let head =
            ["DESTINATION", "UNSENT", "BLOCKED", "DELAYED", "DEAD", "SENT", "NEXT", "OLDEST"];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(outbox.iter().map(|(name, stats)| row(&output::one_line(name, 128), stats)));
        output::print(|out| output::table(out, &rows))?;
    }
    jobs.close()?;
    Ok(Status::Done)
}

fn row(name: &str, stats: &OutboxStats) -> Vec<String> {
    let numbers =
        [stats.unsent, stats.blocked, stats.delayed, stats.dead, stats.sent, stats.next_sequence];
    let mut row = vec![name.to_owned()];
    row.extend(numbers.map(|number| number.to_string()));
    row.push(match stats.oldest {
        Some(oldest) => format!("{} s, sequence {}", oldest.age_ms / 1_000, oldest.sequence),
        None => "-".to_owned(),
    });
    row
}
