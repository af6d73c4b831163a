//! The idempotency key: the stable business identity of a job (P7). What two requests under one key
//! mean to each other is decided here.

use serde::{Deserialize, Serialize};

use crate::domain::id::JobId;
use crate::domain::job::{Job, State};
use crate::domain::policy::{DeadKey, JobPolicy};
use crate::domain::time::Timestamp;

/// The first 16 bytes of a SHA-256 over queue, kind and payload: what makes two requests the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RequestHash(pub(crate) [u8; 16]);

/// What a job row holds about its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyClaim {
    pub(crate) key: String,
    pub(crate) hash: RequestHash,
    /// The job that had the key before this one, if its row still lay there.
    pub(crate) previous: Option<JobId>,
    /// The job that has taken the key of this one, which was dead.
    pub(crate) taken_by: Option<JobId>,
    pub(crate) asked: Asked,
}

/// How often a job was asked for that was there already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Asked {
    /// The same request again: nothing was added.
    pub duplicates: u32,
    /// Another request under its key: refused.
    pub conflicts: u32,
    /// Another request in its place, before it was ever claimed
    /// ([`OnDuplicate::Replace`]).
    pub replaced: u32,
    /// When the last of these came.
    pub last_at: Option<Timestamp>,
}

/// What a job that is enqueued does about the one that owns its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OnDuplicate {
    /// Nothing is added: the same request is told about the owner, another one is a conflict.
    #[default]
    Return,
    /// Takes the owner's place if that was never claimed and is of the same kind: the owner keeps its
    /// id and its policy, and gets the new payload, start time and priority (debounce). Otherwise as
    /// [`Return`](Self::Return).
    Replace,
    /// Takes the key over if the owner is dead: a new job, whatever its request, linked to the dead one,
    /// which stays in the quarantine with its evidence. Otherwise as [`Return`](Self::Return).
    AfterDead,
}

/// What happens to a request that meets the owner of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meeting {
    /// The owner stands for it.
    Duplicate,
    /// It is refused.
    Conflict,
    /// It takes the owner's place.
    Replace,
    /// It takes the key, and the owner stays dead.
    Succeed,
}

/// What `choice` makes of a request with `hash` whose key `owner` has.
pub(crate) fn meet(
    owner: &Job,
    same_kind: bool,
    hash: RequestHash,
    choice: OnDuplicate,
) -> Meeting {
    let same = owner.key.as_ref().is_some_and(|claim| claim.hash == hash);
    match (choice, &owner.state) {
        (OnDuplicate::AfterDead, State::Dead(_)) => Meeting::Succeed,
        (OnDuplicate::Replace, State::Ready(_) | State::Delayed(_) | State::Blocked(_))
            if same_kind && owner.deliveries == 0 && owner.redrives == 0 =>
        {
            Meeting::Replace
        }
        _ if same => Meeting::Duplicate,
        _ => Meeting::Conflict,
    }
}

impl KeyClaim {
    pub(crate) fn new(key: String, hash: RequestHash) -> Self {
        Self { key, hash, previous: None, taken_by: None, asked: Asked::default() }
    }
}

impl Asked {
    /// Notes that the job was asked for once more.
    pub(crate) fn note(&mut self, how: Meeting, now: Timestamp) {
        let count = match how {
            Meeting::Duplicate => &mut self.duplicates,
            Meeting::Conflict => &mut self.conflicts,
            Meeting::Replace => &mut self.replaced,
            Meeting::Succeed => return,
        };
        *count = count.saturating_add(1);
        self.last_at = Some(now);
    }
}

/// Whether the job owns its key at `now` (P7): while it is alive, while its policy keeps the key of
/// a dead job and no other has taken it, and for the stated time after it finished.
pub(crate) fn holds_key(job: &Job, policy: &JobPolicy, now: Timestamp) -> bool {
    let Some(claim) = &job.key else {
        return false;
    };
    match &job.state {
        State::Ready(_) | State::Delayed(_) | State::Leased(_) | State::Blocked(_) => true,
        State::Dead(_) => policy.dead_key == DeadKey::Keep && claim.taken_by.is_none(),
        State::Done(_) | State::Cancelled(_) => {
            job.state.tombstone().is_some_and(|tombstone| now < tombstone.key_until)
        }
    }
}

/// What becomes of a job in line that is not the owner of its key, which `owner` has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Misplaced {
    /// The same request is done: so is this one, without running.
    Duplicate { of: JobId },
    /// There is one live job per key: this one goes to the quarantine.
    Taken { by: JobId },
}

/// The rule for a job that comes to its turn although another has its key. That can only be one that was
/// in the quarantine while its key passed on, so nobody else is looked at.
pub(crate) fn misplaced(job: &Job, owner: &Job) -> Misplaced {
    let hash = |job: &Job| job.key.as_ref().map(|claim| claim.hash);
    match &owner.state {
        State::Done(_) if hash(job) == hash(owner) => Misplaced::Duplicate { of: owner.id },
        State::Ready(_)
        | State::Delayed(_)
        | State::Leased(_)
        | State::Dead(_)
        | State::Done(_)
        | State::Cancelled(_)
        | State::Blocked(_) => Misplaced::Taken { by: owner.id },
    }
}
