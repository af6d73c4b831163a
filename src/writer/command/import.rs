//! Exported dead jobs on their way in.

use crate::domain::blob::Blob;
use crate::domain::history::{Death, HistoryEntry};
use crate::domain::id::JobId;
use crate::domain::key::KeyClaim;
use crate::domain::mark::Marker;
use crate::domain::outbox::Headers;
use crate::domain::policy::JobPolicy;
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;

/// An exported dead job, checked.
pub(crate) struct Import {
    /// Its id in the export.
    pub(crate) id: JobId,
    /// What it is known by again.
    pub(crate) marker: [u8; 16],
    pub(crate) queue: String,
    pub(crate) kind: String,
    pub(crate) key: Option<KeyClaim>,
    pub(crate) priority: u8,
    pub(crate) enqueued_at: Timestamp,
    pub(crate) deliveries: u32,
    pub(crate) redrives: u32,
    pub(crate) first_failed_at: Option<Timestamp>,
    pub(crate) unknown: Option<UnknownOutcome>,
    pub(crate) death: Death,
    pub(crate) payload: Blob,
    pub(crate) original: Option<Blob>,
    pub(crate) policy: JobPolicy,
    pub(crate) history: Vec<HistoryEntry>,
    /// It is a message, with these headers.
    pub(crate) headers: Option<Headers>,
    /// What it has done in this file.
    pub(crate) steps: Vec<(String, Marker)>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imported {
    New(JobId),
    AlreadyHere(JobId),
    KeyTaken(JobId),
    TooMany(&'static str),
    Unreadable,
}
