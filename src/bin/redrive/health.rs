//! `redrive health`: for monitors, and for those whom they woke.

use std::path::Path;

use clap::Args as Arguments;
use redrive::{Level, Options};

use crate::exit::{Status, Trouble};
use crate::{output, store};

/// Tells whether the store is well: exit status 0 it is, 10 a warning, 11 critical.
#[derive(Debug, Arguments)]
pub(crate) struct HealthArgs {
    /// Prints JSON, with every measure and its limits.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, args: &HealthArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let health = jobs.health()?;
    if args.json {
        output::print_json(&health)?;
    } else {
        output::print(|out| {
            writeln!(out, "{}", health.level)?;
            for finding in health.findings() {
                let at = finding.subject.as_deref().map(|at| format!(" ({at})"));
                writeln!(
                    out,
                    "{} {}: {} {}, limits {}{}",
                    finding.level,
                    finding.name,
                    finding.measured,
                    finding.unit,
                    limits(finding.limit.warning, finding.limit.critical),
                    output::one_line(&at.unwrap_or_default(), 400),
                )?;
                writeln!(out, "    {}", finding.advice)?;
            }
            Ok(())
        })?;
    }
    jobs.close()?;
    Ok(match health.level {
        Level::Ok => Status::Done,
        Level::Warning => Status::Warning,
        _ => Status::Critical,
    })
}

fn limits(warning: u64, critical: u64) -> String {
    let one = |limit: u64| if limit == u64::MAX { "never".to_owned() } else { limit.to_string() };
    format!("{}/{}", one(warning), one(critical))
}
