//! `redrive enqueue`: a stream of lines becomes jobs, batch by batch.

use std::io::IsTerminal;
use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use redrive::{BatchRule, EnqueueError, Enqueued, JobPolicy, NewJob, Options, Redrive};
use serde::Serialize;
use serde_json::Value;

use crate::args::EnqueueArgs;
use crate::exit::{Status, Trouble};
use crate::key::{self, KeySource};
use crate::lines::{Line, Lines};
use crate::{output, process, store};

/// Most jobs in one commit.
const BATCH_JOBS: usize = 1_000;
/// A batch is full when its payloads have this many bytes.
const BATCH_BYTES: usize = 4 * 1024 * 1024;
/// The store's limit, with the options the program opens it with.
const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Refusals told in the JSON summary; all are told on standard error.
const REFUSALS_MAX: usize = 1_000;

/// What became of the lines.
#[derive(Debug, Default, Serialize)]
struct Summary {
    new: u64,
    duplicate: u64,
    replaced: u64,
    refused: u64,
    blank: u64,
    /// The first thousand.
    refusals: Vec<Refusal>,
}

#[derive(Debug, Serialize)]
struct Refusal {
    line: u64,
    reason: String,
}

pub(crate) fn run(file: &Path, args: &EnqueueArgs) -> Result<Status, Trouble> {
    let options = Options::new().payload_bytes_max(PAYLOAD_BYTES_MAX);
    let jobs = store::open(file, options)?;
    let mut intake = Intake {
        jobs: &jobs,
        args,
        keys: match args {
            EnqueueArgs { key_line: true, .. } => KeySource::Line,
            EnqueueArgs { key_field, .. } if key_field.is_empty() => KeySource::Nowhere,
            EnqueueArgs { key_field, .. } => KeySource::Fields(key_field),
        },
        policy: args.policy.policy(),
        batch: Vec::new(),
        batch_bytes: 0,
        refused: Vec::new(),
        summary: Summary::default(),
        bar: bar(),
    };
    let read = intake.read(&mut Lines::new(std::io::stdin().lock(), PAYLOAD_BYTES_MAX));
    let Intake { summary, bar, .. } = intake;
    bar.finish_and_clear();
    // What was acknowledged is told even if the rest could not be read or written.
    let told = tell(&summary, args.json);
    read.and(told)?;
    jobs.close()?;
    Ok(if summary.refused > 0 { Status::BadNews } else { Status::Done })
}

fn tell(summary: &Summary, json: bool) -> Result<(), Trouble> {
    if json {
        return output::print_json(summary);
    }
    output::print(|out| {
        writeln!(
            out,
            "{} new, {} duplicate, {} refused, {} blank lines skipped",
            summary.new, summary.duplicate, summary.refused, summary.blank
        )?;
        match summary.replaced {
            0 => Ok(()),
            replaced => writeln!(out, "{replaced} put in the place of jobs that had not started"),
        }
    })
}

/// A bar if the input's length is known, a count of bytes otherwise; on a terminal only.
fn bar() -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let (length, template) = match process::input_bytes() {
        Some(bytes) => (Some(bytes), "{bar:30} {bytes}/{total_bytes} {msg} {eta}"),
        None => (None, "{spinner} {bytes} {msg}"),
    };
    let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Lines on their way to being jobs.
struct Intake<'a> {
    jobs: &'a Redrive,
    args: &'a EnqueueArgs,
    keys: KeySource<'a>,
    policy: JobPolicy,
    batch: Vec<(u64, NewJob)>,
    batch_bytes: usize,
    /// Refused lines that were not told yet.
    refused: Vec<Refusal>,
    summary: Summary,
    bar: ProgressBar,
}

impl Intake<'_> {
    fn read(&mut self, lines: &mut Lines<impl std::io::Read>) -> Result<(), Trouble> {
        let mut number: u64 = 0;
        let ended = loop {
            let line = match lines.next() {
                Ok(Some(line)) => line,
                Ok(None) => break Ok(()),
                Err(error) => {
                    let message = format_args!("line {}: cannot be read: {error}", number + 1);
                    break Err(Trouble::new(Status::Io, message));
                }
            };
            number += 1;
            self.take(number, line);
            // What is there is written before anything is waited for.
            let waiting = self.batch.len() + self.refused.len();
            let full = waiting >= BATCH_JOBS || self.batch_bytes >= BATCH_BYTES;
            if full || lines.may_wait() {
                self.write()?;
                self.bar.set_position(lines.bytes_read);
            }
        };
        self.write()?;
        ended
    }

    fn take(&mut self, number: u64, line: Line) {
        let payload = match line {
            Line::Whole(payload) if payload.iter().all(u8::is_ascii_whitespace) => {
                self.summary.blank += 1;
                return;
            }
            Line::Whole(payload) => payload,
            Line::TooLong { bytes } => {
                let limit = PAYLOAD_BYTES_MAX;
                let reason = format!("the line has {bytes} bytes, the limit is {limit}");
                self.refuse(number, reason);
                return;
            }
        };
        match self.job(payload) {
            Ok((bytes, job)) => {
                self.batch_bytes += bytes;
                self.batch.push((number, job));
            }
            Err(reason) => self.refuse(number, reason),
        }
    }

    /// The job a line stands for, and how many bytes it takes; or why it stands for none.
    fn job(&self, payload: Vec<u8>) -> Result<(usize, NewJob), String> {
        let json: Option<Value> = if self.args.jsonl {
            let parsed = serde_json::from_slice(&payload);
            Some(parsed.map_err(|error| format!("the line is not JSON: {error}"))?)
        } else {
            None
        };
        let key = key::of(self.keys, &payload, json.as_ref())?;
        let bytes = payload.len();
        let mut job = NewJob::new(&self.args.queue, &self.args.kind)
            .bytes(payload)
            .priority(self.args.priority)
            .on_duplicate(self.args.on_duplicate.into())
            .policy(self.policy.clone());
        if let Some(key) = key {
            job = job.key(key);
        }
        if let Some(delay) = self.args.delay {
            job = job.delay(delay);
        }
        Ok((bytes, job))
    }

    /// Enqueues the batch and tells what was refused of it, in the order of the lines.
    fn write(&mut self) -> Result<(), Trouble> {
        self.batch_bytes = 0;
        let (numbers, jobs): (Vec<u64>, Vec<NewJob>) = self.batch.drain(..).unzip();
        let outcomes = self.jobs.enqueue_many(jobs, BatchRule::PerItem);
        let failure = match outcomes {
            Ok(outcomes) => numbers.into_iter().zip(outcomes).find_map(|(number, outcome)| {
                match outcome {
                    Ok(Enqueued::New(_)) => self.summary.new += 1,
                    Ok(Enqueued::Replaced(_)) => self.summary.replaced += 1,
                    Ok(_) => self.summary.duplicate += 1,
                    Err(EnqueueError::Storage(error)) => return Some(error.into()),
                    Err(error) => self.refuse(number, error.to_string()),
                }
                None
            }),
            Err(error) => Some(error.into()),
        };
        let Summary { new, duplicate, .. } = self.summary;
        self.bar.set_message(format!("{new} new, {duplicate} duplicate"));
        self.tell_refused();
        failure.map_or(Ok(()), Err)
    }

    fn refuse(&mut self, line: u64, reason: String) {
        self.refused.push(Refusal { line, reason });
    }

    fn tell_refused(&mut self) {
        if self.refused.is_empty() {
            return;
        }
        self.refused.sort_by_key(|refusal| refusal.line);
        let Self { bar, refused, summary, .. } = self;
        bar.suspend(|| {
            for Refusal { line, reason } in refused.iter() {
                let reason = output::one_line(reason, 1_000);
                output::note(format_args!("line {line}: refused: {reason}"));
            }
        });
        summary.refused += u64::try_from(refused.len()).unwrap_or(u64::MAX);
        let room = REFUSALS_MAX.saturating_sub(summary.refusals.len());
        summary.refusals.extend(refused.drain(..).take(room));
    }
}
