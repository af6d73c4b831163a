//! Exported dead jobs, put back.

use std::fmt;
use std::io::{BufRead, Read};

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::domain::blob::Blob;
use crate::domain::history::ENTRIES_MAX;
use crate::domain::id::JobId;
use crate::domain::key::KeyClaim;
use crate::domain::limits::{NAME_BYTES_MAX, REDRIVES_MAX, RESULT_BYTES_MAX, STEPS_MAX};
use crate::domain::mark::Marker;
use crate::error::{ImportError, StorageError};
use crate::handle::dead::Quarantine;
use crate::handle::export::{ENTRY_BYTES_MAX, FORMAT, Record, Step};
use crate::handle::new_job::request_hash;
use crate::writer::command::{Command, Import, Imported};

/// Lines in one commit.
const PAGE: usize = 500;
/// No more lines are taken into one commit once they have so many bytes.
const BYTES_MAX: usize = 16 * 1024 * 1024;

/// What an import did.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct ImportReport {
    /// Jobs that are dead in this file now.
    pub imported: u64,
    /// Jobs that were here already: nothing was done.
    pub already_here: u64,
    /// Lines that were refused, by their number, counted from 1, and why. The first 1,000.
    pub refused: Vec<(u64, ImportRefusal)>,
    /// How many lines were refused.
    pub refused_count: u64,
}

/// Why a line was not imported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ImportRefusal {
    /// It is not a line of an export.
    BadLine {
        /// What is wrong with it.
        why: String,
    },
    /// Its key belongs to another job.
    KeyTaken {
        /// That job.
        owner: JobId,
    },
    /// The file knows as many queues, kinds, policies or jobs as it may.
    TooMany {
        /// Of what.
        what: &'static str,
    },
    /// The rows of the one who may own its key cannot be read.
    Unreadable,
}

impl fmt::Display for ImportRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadLine { why } => f.write_str(why),
            Self::KeyTaken { owner } => write!(f, "its key belongs to job {owner}"),
            Self::TooMany { what } => write!(f, "the file can hold no more {what}"),
            Self::Unreadable => f.write_str("rows that it depends on cannot be read"),
        }
    }
}

impl Quarantine {
    /// Puts exported jobs back as dead jobs, with their evidence and history. A job that is here
    /// already, under its own id or imported earlier, is left alone: an import may be repeated. Lines
    /// that cannot be taken are reported, and stop nothing; blank lines are skipped. Each 500 lines
    /// are one commit.
    ///
    /// A job keeps its id where this file has never given out so high a number, and gets a new one
    /// else, because the leases of an id must never begin again from a number that was used before; the
    /// history tells of the old one. An ordering key is not taken along: its line has gone on. A message
    /// gets the next sequence of its destination, and another [`id`](crate::Outgoing::id). The markers of
    /// its steps come along where the export is this file's own: what they wrote is here. In another file
    /// they run again.
    ///
    /// A job without a key that was redriven and done since its export is dead again after an import:
    /// nothing here remembers it. Retention applies to what is imported as to what dies.
    ///
    /// # Errors
    ///
    /// [`ImportError`]: `lines` failed, or the store did. What was read before is imported.
    pub fn import(&self, lines: &mut dyn BufRead) -> Result<ImportReport, ImportError> {
        let mut report = ImportReport::default();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let bytes_max = self.line_bytes_max();
        let store = self.store_name()?;
        let mut number = 0;
        loop {
            number += 1;
            let line = next_line(lines, bytes_max);
            let line = line
                .map_err(|error| ImportError::Input { line: number, message: error.to_string() })?;
            let ended = matches!(line, Line::End);
            match line {
                Line::Whole(text) if !text.trim_ascii().is_empty() => {
                    match self.read_line(&text, &store) {
                        Ok(import) => {
                            bytes += text.len();
                            batch.push((number, import));
                        }
                        Err(why) => report.refuse(number, ImportRefusal::BadLine { why }),
                    }
                }
                Line::TooLong => {
                    let why = format!("it has more than {bytes_max} bytes, as no export has");
                    report.refuse(number, ImportRefusal::BadLine { why });
                }
                Line::Whole(_) | Line::End => {}
            }
            if batch.len() >= PAGE || bytes > BYTES_MAX || (ended && !batch.is_empty()) {
                self.import_batch(std::mem::take(&mut batch), &mut report)?;
                bytes = 0;
            }
            if ended {
                return Ok(report);
            }
        }
    }

    /// No line that an export writes has more: two payloads and the outputs of steps in base64, the
    /// history, and the rest.
    fn line_bytes_max(&self) -> u64 {
        let payloads = whole(self.jobs().payload_bytes_max()).saturating_mul(3);
        let history = u64::from(ENTRIES_MAX + REDRIVES_MAX + 2) * whole(ENTRY_BYTES_MAX);
        let steps = u64::from(STEPS_MAX) * whole(RESULT_BYTES_MAX + NAME_BYTES_MAX) * 2;
        payloads.saturating_add(history).saturating_add(steps)
    }

    fn import_batch(
        &self,
        batch: Vec<(u64, Import)>,
        report: &mut ImportReport,
    ) -> Result<(), StorageError> {
        let (numbers, items): (Vec<u64>, Vec<Import>) = batch.into_iter().unzip();
        let outcomes = self.jobs().ask(|reply| Command::Import { items, reply })??;
        for (number, outcome) in numbers.into_iter().zip(outcomes) {
            match outcome {
                Imported::New(_) => report.imported += 1,
                Imported::AlreadyHere(_) => report.already_here += 1,
                Imported::KeyTaken(owner) => {
                    report.refuse(number, ImportRefusal::KeyTaken { owner });
                }
                Imported::TooMany(what) => report.refuse(number, ImportRefusal::TooMany { what }),
                Imported::Unreadable => report.refuse(number, ImportRefusal::Unreadable),
            }
        }
        Ok(())
    }

    /// Checks a line as an enqueue would be checked, and hashes the request.
    fn read_line(&self, text: &[u8], store: &str) -> Result<Import, String> {
        let line: Record = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if line.redrive_dead != FORMAT {
            return Err(format!("form {} is not known, only {FORMAT}", line.redrive_dead));
        }
        line.check()?;
        let bad = |what| move || format!("the {what} is not in base64");
        let payload = line.payload.decode().ok_or_else(bad("payload"))?;
        let original = match line.original {
            Some(original) => Some(original.decode().ok_or_else(bad("original payload"))?),
            None => None,
        };
        let steps = if line.store == store { markers(line.steps)? } else { Vec::new() };
        let bytes_max = self.jobs().payload_bytes_max();
        let longest = payload.len().max(original.as_ref().map_or(0, Vec::len));
        if longest > bytes_max {
            return Err(format!("the payload has {longest} bytes, the limit is {bytes_max}"));
        }
        let headers = line.headers.as_deref().unwrap_or_default();
        let hash = request_hash(&line.queue, &line.kind, &payload, headers);
        let identity = (line.id, &line.queue, &line.kind, line.enqueued_at, &line.key);
        let identity = serde_json::to_vec(&identity).map_err(|error| error.to_string())?;
        let mut marker = [0; 16];
        for (to, from) in marker.iter_mut().zip(Sha256::digest(&identity)) {
            *to = from;
        }
        Ok(Import {
            id: line.id,
            marker,
            queue: line.queue,
            kind: line.kind,
            key: line.key.map(|key| KeyClaim::new(key, hash)),
            priority: line.priority,
            enqueued_at: line.enqueued_at,
            deliveries: line.deliveries,
            redrives: line.redrives,
            first_failed_at: line.first_failed_at,
            unknown: line.outcome_unknown,
            death: line.death,
            payload: Blob(payload),
            original: original.map(Blob),
            policy: line.policy.checked(),
            history: line.history,
            headers: line.headers,
            steps,
        })
    }
}

impl ImportReport {
    fn refuse(&mut self, line: u64, why: ImportRefusal) {
        const TOLD_MAX: usize = 1_000;
        self.refused_count += 1;
        if self.refused.len() < TOLD_MAX {
            self.refused.push((line, why));
        }
    }
}

fn markers(steps: Vec<Step>) -> Result<Vec<(String, Marker)>, String> {
    let marker = |step: Step| {
        let output = step.output.decode().filter(|output| output.len() <= RESULT_BYTES_MAX);
        let output = output.ok_or_else(|| format!("the output of step {:?} is none", step.name))?;
        Ok((step.name, Marker { at: step.at, delivery: step.delivery, output: Blob(output) }))
    };
    steps.into_iter().map(marker).collect()
}

/// A line of an import.
enum Line {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// In bounded memory: what is too long is passed over.
fn next_line(lines: &mut dyn BufRead, bytes_max: u64) -> std::io::Result<Line> {
    let mut text = Vec::new();
    let read = (&mut *lines).take(bytes_max).read_until(b'\n', &mut text)?;
    if read == 0 {
        return Ok(Line::End);
    }
    if text.last() == Some(&b'\n') || whole(read) < bytes_max {
        return Ok(Line::Whole(text));
    }
    loop {
        text.clear();
        let read = (&mut *lines).take(bytes_max).read_until(b'\n', &mut text)?;
        if read == 0 || text.last() == Some(&b'\n') {
            return Ok(Line::TooLong);
        }
    }
}

fn whole(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}
