//! Dead jobs as lines of JSON, to be kept elsewhere, looked at with other tools, and put back.

use std::fmt::Display;
use std::io::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::domain::filter::Filter;
use crate::domain::history::{Death, ENTRIES_MAX, HistoryEntry};
use crate::domain::id::JobId;
use crate::domain::job::State;
use crate::domain::limits::{
    CODE_BYTES_MAX, KEY_BYTES_MAX, MESSAGE_BYTES_MAX, PROVIDER_REF_BYTES_MAX, REDRIVES_MAX,
    STEPS_MAX, WORKER_BYTES_MAX,
};
use crate::domain::mark::Marker;
use crate::domain::outbox::Headers;
use crate::domain::policy::JobPolicy;
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;
use crate::error::{DeadError, ExportError, StorageError};
use crate::handle::dead::{DeadCursor, Quarantine};
use crate::handle::job::JobInfo;
use crate::handle::new_job::check_names;
use crate::handle::{check_name, check_text};
use crate::store::{alone, amendment, job as job_store, mark, names};

/// Jobs in one read, and in one commit.
const PAGE: usize = 500;
/// Longest entry of history that is taken in, as JSON: more than any that is written has.
pub(super) const ENTRY_BYTES_MAX: usize = 32 * 1024;
/// Deliveries are numbered, and a number never comes twice (P5): there have to be some left.
const DELIVERIES_MAX: u32 = 1 << 31;
/// The version of the lines.
pub(super) const FORMAT: u32 = 1;

/// One line of an export.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The version of the line's form.
    pub(super) redrive_dead: u32,
    pub(super) id: JobId,
    pub(super) queue: String,
    pub(super) kind: String,
    /// Of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<Headers>,
    pub(super) key: Option<String>,
    pub(super) priority: u8,
    pub(super) enqueued_at: Timestamp,
    pub(super) deliveries: u32,
    pub(super) redrives: u32,
    pub(super) first_failed_at: Option<Timestamp>,
    pub(super) outcome_unknown: Option<UnknownOutcome>,
    pub(super) death: Death,
    pub(super) payload: Bytes,
    /// Before it was amended.
    pub(super) original: Option<Bytes>,
    pub(super) policy: JobPolicy,
    pub(super) history: Vec<HistoryEntry>,
    /// The store that it comes from, in hexadecimal: what its steps have written is in that one.
    pub(super) store: String,
    pub(super) steps: Vec<Step>,
}

/// A step that the job has committed.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Step {
    pub(super) name: String,
    pub(super) at: Timestamp,
    pub(super) delivery: u32,
    pub(super) output: Bytes,
}

/// A payload: as it is where it is one line of JSON, else in base64.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Bytes {
    Json(Box<RawValue>),
    Base64(String),
}

impl Record {
    /// Whether its texts are as long as an enqueue or a failure would have left them.
    pub(super) fn check(&self) -> Result<(), String> {
        check_names(&self.queue, &self.kind, self.headers.as_deref())
            .map_err(|error| error.to_string())?;
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
        if self.deliveries > DELIVERIES_MAX || self.redrives > DELIVERIES_MAX {
            return Err(format!(
                "it has {} deliveries and {} redrives, more than {DELIVERIES_MAX} are in no export",
                self.deliveries, self.redrives
            ));
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
        if self.steps.len() > usize::try_from(STEPS_MAX).unwrap_or(usize::MAX) {
            return Err(format!("it has more than {STEPS_MAX} steps"));
        }
        for step in &self.steps {
            check_name(&step.name).map_err(|why| format!("a step cannot be used: {why}"))?;
        }
        let entries_max = usize::try_from(ENTRIES_MAX + REDRIVES_MAX).unwrap_or(usize::MAX);
        if self.history.len() > entries_max {
            return Err(format!("its history has more than {entries_max} entries"));
        }
        Ok(())
    }
}

impl Step {
    fn of((name, marker): (String, Marker)) -> Self {
        let Marker { at, delivery, output } = marker;
        Self { name, at, delivery, output: Bytes::of(output.0) }
    }
}

impl Bytes {
    fn of(bytes: Vec<u8>) -> Self {
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            Err(other) => return Self::Base64(BASE64.encode(other.as_bytes())),
        };
        let whole = text.trim().len() == text.len() && !text.contains(['\n', '\r']);
        match RawValue::from_string(text.clone()) {
            Ok(json) if whole => Self::Json(json),
            _ => Self::Base64(BASE64.encode(text)),
        }
    }

    pub(super) fn decode(self) -> Option<Vec<u8>> {
        match self {
            Self::Json(json) => Some(json.get().as_bytes().to_vec()),
            Self::Base64(text) => BASE64.decode(text).ok(),
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

impl Quarantine {
    /// Writes the dead jobs that `filter` holds for as lines of JSON: evidence, history, policy, and the
    /// payload as it is where it is one line of JSON, else in base64. Nothing is changed.
    ///
    /// Each job is read as of one moment; nothing of the store is held while `out` is written to. A job that dies or leaves meanwhile may be missing.
    ///
    /// # Errors
    ///
    /// [`ExportError`]: the filter contradicts itself, `out` failed, or the quarantine cannot be read.
    pub fn export(&self, filter: &Filter, out: &mut dyn Write) -> Result<Exported, ExportError> {
        let mut exported = Exported::default();
        let mut after: Option<DeadCursor> = None;
        let store = self.store_name()?;
        loop {
            let page = self.list(filter, after.as_ref(), PAGE)?;
            exported.unreadable.extend(page.unreadable.iter().map(|(job, _)| *job));
            for job in page.jobs {
                match alone(self.record(job.id, &store))? {
                    Ok(Some(record)) => {
                        write_line(out, &record)?;
                        exported.jobs += 1;
                    }
                    Ok(None) => {}
                    Err(_) => exported.unreadable.push(job.id),
                }
            }
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        out.flush().map_err(output)?;
        Ok(exported)
    }

    /// All of it as of one moment; `None` when it is not dead any more.
    fn record(&self, id: JobId, store: &str) -> Result<Option<Record>, StorageError> {
        self.store().read(|rows| {
            let Some(job) = job_store::read(rows, id)? else { return Ok(None) };
            let State::Dead(dead) = &job.state else { return Ok(None) };
            let Some(payload) = job_store::payload(rows, &job)? else { return Ok(None) };
            let original = if job.amended { amendment::read(rows, id)? } else { None };
            let policy = names::policy(rows, job.policy)?.unwrap_or_default();
            let steps = if job.steps > 0 { mark::all(rows, id)? } else { Vec::new() };
            let info = JobInfo::of(rows, job.clone())?;
            Ok(Some(Record {
                redrive_dead: FORMAT,
                id,
                queue: info.queue,
                kind: info.kind,
                headers: job.post.map(|post| post.headers),
                key: info.key,
                priority: job.priority,
                enqueued_at: job.enqueued_at,
                deliveries: job.deliveries,
                redrives: job.redrives,
                first_failed_at: job.first_failed_at,
                death: Death::of(dead, job.cycle.attempts),
                outcome_unknown: job.unknown,
                payload: Bytes::of(payload),
                original: original.and_then(|original| original.payload).map(|b| Bytes::of(b.0)),
                policy,
                history: info.history,
                store: store.to_owned(),
                steps: steps.into_iter().map(Step::of).collect(),
            }))
        })
    }
}

impl Quarantine {
    /// How exports call this store.
    pub(super) fn store_name(&self) -> Result<String, StorageError> {
        Ok(format!("{:016x}", self.jobs().store_number()?))
    }
}

fn write_line(out: &mut dyn Write, record: &Record) -> Result<(), ExportError> {
    serde_json::to_writer(&mut *out, record).map_err(output)?;
    writeln!(out).map_err(output)
}

fn output(error: impl Display) -> ExportError {
    ExportError::Output { message: error.to_string() }
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
