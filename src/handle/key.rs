//! What the ledger says of a key.

use std::fmt::Write;

use serde::Serialize;

use crate::domain::id::JobId;
use crate::domain::job::{Job, State};
use crate::domain::key::{RequestHash, holds_key};
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::handle::redrive::Redrive;
use crate::store::names::{policy, queue_id};
use crate::store::rows::Rows;
use crate::store::{job as job_store, key as key_store};

/// A key that has an owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct KeyInfo {
    /// The job that owns it.
    pub owner: JobId,
    /// What has become of the request.
    pub state: KeyState,
    /// What the request is told from others by: 16 bytes over queue, kind and payload, in hexadecimal.
    pub request: String,
    /// When the key will be free; `None` for as long as its owner is alive or lies dead.
    pub until: Option<Timestamp>,
}

/// What has become of the request that a key stands for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum KeyState {
    /// It is waiting or being worked on.
    Live,
    /// The same, and a delivery may have had its effect without anybody knowing (P8).
    Unknown,
    /// It is done.
    Done {
        /// The result it gave.
        result: Option<Vec<u8>>,
    },
    /// It is in quarantine.
    Dead,
    /// It was cancelled.
    Cancelled,
}

impl KeyInfo {
    fn of(job: Job) -> Self {
        let state = match job.state {
            State::Ready(_) | State::Delayed(_) | State::Leased(_) | State::Blocked(_) => {
                if job.unknown.is_some() { KeyState::Unknown } else { KeyState::Live }
            }
            State::Done(ref done) => {
                KeyState::Done { result: done.result.as_ref().map(|blob| blob.0.clone()) }
            }
            State::Dead(_) => KeyState::Dead,
            State::Cancelled(_) => KeyState::Cancelled,
        };
        let until = job.state.tombstone().map(|tombstone| tombstone.key_until);
        let request = job.key.map(|claim| hex(claim.hash)).unwrap_or_default();
        Self { owner: job.id, state, request, until }
    }
}

fn hex(hash: RequestHash) -> String {
    hash.0.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The job that took a key last, and whether it owns it at `now`.
fn last_owner(
    rows: &impl Rows,
    queue: &str,
    key: &str,
    now: Timestamp,
) -> Result<Option<(Job, bool)>, StorageError> {
    let Some(queue) = queue_id(rows, queue)? else { return Ok(None) };
    let Some(owner) = key_store::owner(rows, queue, key)? else { return Ok(None) };
    let Some(owner) = job_store::read(rows, owner)? else { return Ok(None) };
    let policy = policy(rows, owner.policy)?;
    let holds = policy.is_some_and(|policy| holds_key(&owner, &policy, now));
    Ok(Some((owner, holds)))
}

impl Redrive {
    /// What the ledger says of `key` in `queue`: who owns it and what has become of the request, as of
    /// the last commit; `None` when nobody owns it. A queue that does not exist has no keys.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the ledger or the owner cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{ClaimRequest, KeyState, NewJob};
    ///
    /// let id = jobs.enqueue(NewJob::new("charges", "charge").key("charge:O-194"))?.job();
    /// let lease = jobs.claim(ClaimRequest::new("charges"))?.remove(0);
    /// lease.complete_with("receipt 7c1")?;
    /// let known = jobs.key("charges", "charge:O-194")?.ok_or("forgotten")?;
    /// assert_eq!(known.owner, id);
    /// assert_eq!(known.state, KeyState::Done { result: Some(b"receipt 7c1".to_vec()) });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn key(&self, queue: &str, key: &str) -> Result<Option<KeyInfo>, StorageError> {
        let now = self.writer().now(&**self.clock());
        self.store().read(|rows| {
            let owner = last_owner(rows, queue, key, now)?;
            Ok(owner.filter(|(_, holds)| *holds).map(|(owner, _)| KeyInfo::of(owner)))
        })
    }
}
