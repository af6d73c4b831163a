//! Dead jobs as lines of JSON, to be kept elsewhere, looked at with other tools, and put back.

use std::fmt;
use std::io::{BufRead, Write};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use crate::domain::blob::Blob;
use crate::domain::filter::Filter;
use crate::domain::history::{Death, ENTRIES_MAX, HistoryEntry};
use crate::domain::id::JobId;
use crate::domain::key::KeyClaim;
use crate::domain::limits::{
    CODE_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, PROVIDER_REF_BYTES_MAX, REDRIVES_MAX,
    WORKER_BYTES_MAX,
};
use crate::domain::policy::JobPolicy;
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;
use crate::error::{DeadError, ExportError, ImportError, StorageError};
use crate::handle::dead::{DeadCursor, Quarantine};
use crate::handle::job::JobInfo;
use crate::handle::new_job::request_hash;
use crate::handle::{base64, check_name, check_text};
use crate::store::names::{Known, Names};
use crate::store::{alone, amendment, job as job_store};
use crate::writer::command::{Command, Import, Imported};

/// Jobs in one read, and in one commit.
const PAGE: usize = 500;
/// Longest entry of history that is taken in, as JSON: more than any that is written has.
const ENTRY_BYTES_MAX: usize = 32 * 1024;
/// The version of the lines.
const FORMAT: u32 = 1;

/// One line of an export.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    /// The version of the line's form.
    redrive_dead: u32,
    id: JobId,
    queue: String,
    kind: String,
    key: Option<String>,
    priority: u8,
    enqueued_at: Timestamp,
    deliveries: u32,
    redrives: u32,
    first_failed_at: Option<Timestamp>,
    outcome_unknown: Option<UnknownOutcome>,
    death: Death,
    payload: Bytes,
    /// Before it was amended.
    original: Option<Bytes>,
    policy: JobPolicy,
    history: Vec<HistoryEntry>,
}

/// A payload: as it is where it is one line of JSON, else in base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Bytes {
    Json(Box<RawValue>),
    Base64(String),
}

impl Line {
    /// Whether its texts are as long as an enqueue or a failure would have left them.
    fn check(&self) -> Result<(), String> {
        check_name(&self.queue).map_err(|why| format!("the queue cannot be used: {why}"))?;
        check_name(&self.kind).map_err(|why| format!("the kind cannot be used: {why}"))?;
        if let Some(key) = &self.key {
            check_text(key, KEY_BYTES_MAX)
                .map_err(|why| format!("the key cannot be used: {why}"))?;
        }
        for (what, found, bytes_max) in [
            ("code", self.death.code.len(), CODE_BYTES_MAX),
            ("message", self.death.message.len(), MESSAGE_BYTES_MAX),
            ("worker", self.death.worker.len(), WORKER_BYTES_MAX),
            ("version", self.death.version.len(), WORKER_BYTES_MAX),
            (
                "provider reference",
                self.death.provider_ref.as_ref().map_or(0, String::len),
                PROVIDER_REF_BYTES_MAX,
            ),
        ] {
            if found > bytes_max {
                return Err(format!(
                    "the {what} has {found} bytes, at most {bytes_max} are allowed"
                ));
            }
        }
        if let Some(unknown) = &self.outcome_unknown {
            let reference = unknown.provider_ref.as_ref().map_or(0, String::len);
            if unknown.code.len() > CODE_BYTES_MAX || reference > PROVIDER_REF_BYTES_MAX {
                return Err("the texts of its unknown outcome are too long".to_owned());
            }
        }
        for entry in &self.history {
            let entry = serde_json::to_vec(entry).map_err(|error| error.to_string())?;
            if entry.len() > ENTRY_BYTES_MAX {
                return Err(format!(
                    "an entry of its history has more than {ENTRY_BYTES_MAX} bytes"
                ));
            }
        }
        let entries_max = usize::try_from(ENTRIES_MAX + REDRIVES_MAX).unwrap_or(usize::MAX);
        if self.history.len() > entries_max {
            return Err(format!("its history has more than {entries_max} entries"));
        }
        Ok(())
    }
}

impl Bytes {
    fn of(bytes: Vec<u8>) -> Self {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(other) => return Self::Base64(base64::encode(other.as_bytes())),
        };
        let whole = text.trim().len() == text.len() && !text.contains(['\n', '\r']);
        match RawValue::from_string(text.clone()) {
            Ok(json) if whole => Self::Json(json),
            _ => Self::Base64(base64::encode(text.as_bytes())),
        }
    }

    fn decode(self) -> Option<Vec<u8>> {
        match self {
            Self::Json(json) => Some(json.get().as_bytes().to_vec()),
            Self::Base64(text) => base64::decode(&text),
        }
    }
}

/// What an export wrote.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Exported {
    /// Jobs that were written, one line each.
    pub jobs: u64,
    /// Dead jobs that cannot be read.
    pub unreadable: Vec<JobId>,
}

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
    /// Writes the dead jobs that `filter` holds for as lines of JSON: evidence, history, policy, and the
    /// payload as it is where it is one line of JSON, else in base64. Nothing is changed.
    ///
    /// Each 500 jobs are a short read of their own; nothing of the store is held while `out` is written
    /// to. A job that dies or leaves meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// [`ExportError`]: the filter contradicts itself, `out` failed, or the quarantine cannot be read.
    pub fn export(&self, filter: &Filter, out: &mut dyn Write) -> Result<Exported, ExportError> {
        let mut exported = Exported::default();
        let mut after: Option<DeadCursor> = None;
        loop {
            let page = self.list(filter, after.as_ref(), PAGE)?;
            exported.unreadable.extend(page.unreadable.iter().map(|(job, _)| *job));
            for job in page.jobs {
                let id = job.id;
                match self.line(job)? {
                    Some(line) => {
                        serde_json::to_writer(&mut *out, &line)
                            .map_err(|error| ExportError::Output { message: error.to_string() })?;
                        writeln!(out)
                            .map_err(|error| ExportError::Output { message: error.to_string() })?;
                        exported.jobs += 1;
                    }
                    None => exported.unreadable.push(id),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        out.flush().map_err(|error| ExportError::Output { message: error.to_string() })?;
        Ok(exported)
    }

    /// `None` when it cannot be read, or is not dead any more.
    fn line(&self, info: JobInfo) -> Result<Option<Line>, StorageError> {
        self.store().read(|rows| {
            let Ok(Some(job)) = alone(job_store::read(rows, info.id))? else {
                return Ok(None);
            };
            let Ok(Some(payload)) = alone(job_store::payload(rows, &job))? else {
                return Ok(None);
            };
            let original = if job.amended {
                alone(amendment::read(rows, job.id))?.ok().flatten()
            } else {
                None
            };
            let names = Known::read(rows)?;
            let policy = names.policy(job.policy).cloned().unwrap_or_default();
            let crate::domain::job::State::Dead(dead) = &job.state else {
                return Ok(None);
            };
            Ok(Some(Line {
                redrive_dead: FORMAT,
                id: job.id,
                queue: info.queue,
                kind: info.kind,
                key: info.key,
                priority: job.priority,
                enqueued_at: job.enqueued_at,
                deliveries: job.deliveries,
                redrives: job.redrives,
                first_failed_at: job.first_failed_at,
                outcome_unknown: job.unknown.clone(),
                death: Death::of(dead, job.cycle.attempts),
                payload: Bytes::of(payload),
                original: original.and_then(|original| original.payload).map(|b| Bytes::of(b.0)),
                policy,
                history: info.history,
            }))
        })
    }

    /// Puts exported jobs back as dead jobs, with their evidence and history. A job that is here
    /// already, under its own id or imported earlier, is left alone: an import may be repeated. Lines
    /// that cannot be taken are reported, and stop nothing; blank lines are skipped. Each 500 lines
    /// are one commit.
    ///
    /// A job keeps its id where this file has never given out so high a number, and gets a new one
    /// else, because the leases of an id must never begin again from a number that was used before; the
    /// history tells of the old one. An ordering key is not taken along: its line has gone on.
    ///
    /// # Errors
    ///
    /// [`ImportError`]: `lines` failed, or the store did. What was read before is imported.
    pub fn import(&self, lines: &mut dyn BufRead) -> Result<ImportReport, ImportError> {
        let mut report = ImportReport::default();
        let mut batch: Vec<(u64, Import)> = Vec::new();
        let mut number = 0;
        let mut text = Vec::new();
        loop {
            text.clear();
            let read = lines.read_until(b'\n', &mut text);
            let read = read.map_err(|error| ImportError::Input {
                line: number + 1,
                message: error.to_string(),
            })?;
            if read > 0 {
                number += 1;
                if !text.trim_ascii().is_empty() {
                    match self.read_line(&text) {
                        Ok(import) => batch.push((number, import)),
                        Err(why) => report.refuse(number, ImportRefusal::BadLine { why }),
                    }
                }
            }
            let bytes: usize = batch.iter().map(|(_, import)| import.payload.0.len()).sum();
            if batch.len() >= PAGE || bytes > (16 << 20) || (read == 0 && !batch.is_empty()) {
                self.import_batch(std::mem::take(&mut batch), &mut report)?;
            }
            if read == 0 {
                return Ok(report);
            }
        }
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
    fn read_line(&self, text: &[u8]) -> Result<Import, String> {
        let line: Line = serde_json::from_slice(text).map_err(|error| error.to_string())?;
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
        let bytes_max = self.jobs().payload_bytes_max();
        let longest = payload.len().max(original.as_ref().map_or(0, Vec::len));
        if longest > bytes_max {
            return Err(format!("the payload has {longest} bytes, the limit is {bytes_max}"));
        }
        let hash = request_hash(&line.queue, &line.kind, &payload);
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
            key: line.key.map(|key| KeyClaim { key, hash }),
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

impl From<DeadError> for ExportError {
    fn from(error: DeadError) -> Self {
        match error {
            DeadError::Storage(error) => error.into(),
            DeadError::Filter { why } => Self::Filter { why },
            other => Self::Output { message: other.to_string() },
        }
    }
}
