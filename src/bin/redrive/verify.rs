//! `redrive verify`.

use std::path::Path;

use redrive::Options;

use crate::args::VerifyArgs;
use crate::exit::{Status, Trouble};
use crate::{output, store};

pub(crate) fn run(file: &Path, args: &VerifyArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new().check_integrity())?;
    let report = jobs.verify()?;
    if args.json {
        output::print_json(&report)?;
    } else {
        output::print(|out| {
            for problem in &report.problems {
                let (table, row) = (problem.table, &problem.row);
                writeln!(out, "{table} {row}: {}", output::one_line(&problem.what, 1_000))?;
            }
            let told = u64::try_from(report.problems.len()).unwrap_or(u64::MAX);
            if report.problem_count > told {
                writeln!(out, "... and {} more", report.problem_count - told)?;
            }
            writeln!(
                out,
                "{} jobs and {} other rows read, {} problems, {} damaged rows set aside earlier",
                report.jobs, report.rows, report.problem_count, report.set_aside
            )
        })?;
    }
    jobs.close()?;
    Ok(if report.is_clean() { Status::Done } else { Status::BadNews })
}
