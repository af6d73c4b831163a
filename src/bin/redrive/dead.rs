//! `redrive dead`: looks at the quarantine.

use std::io::{self, Write};
use std::path::Path;

use redrive::{DeadPage, JobInfo, Options, Redrive};
use serde_json::{Value, json};

use crate::args::DeadListArgs;
use crate::exit::{Status, Trouble};
use crate::{output, store};

/// Jobs read at a time: memory does not grow with the quarantine.
const PAGE: usize = 500;

pub(crate) fn list(file: &Path, args: &DeadListArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    if let Some(queue) = &args.queue {
        store::known_queue(&jobs, queue)?;
    }
    let mut unreadable = 0;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut writer = Writer { out: &mut out, json: args.json, count: 0 };
    let mut page = next(&jobs, args, None)?;
    while let Some(found) = page {
        writer.page(&found.jobs).map_err(|error| Trouble::output(&error))?;
        for (job, why) in &found.unreadable {
            output::note(format_args!("redrive: job {job} cannot be read: {why}"));
            unreadable += 1;
        }
        page = next(&jobs, args, Some(&found))?;
    }
    writer.end().map_err(|error| Trouble::output(&error))?;
    jobs.close()?;
    if unreadable == 0 {
        return Ok(Status::Done);
    }
    Err(Trouble::new(Status::NotAStore, format_args!("{unreadable} dead jobs cannot be read")))
}

fn next(
    jobs: &Redrive,
    args: &DeadListArgs,
    after: Option<&DeadPage>,
) -> Result<Option<DeadPage>, Trouble> {
    Ok(jobs.dead_page(args.queue.as_deref(), after, PAGE)?)
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
