//! Ordering keys: the jobs of one queue and one key run one after the other, in the order in which
//! they were accepted. A job either *holds* its key, or waits (`blocked`) for those before it.

use serde::{Deserialize, Serialize};

use crate::domain::id::JobId;
use crate::domain::job::{Blocked, Delayed, Job, Lane, Ready, State};
use crate::domain::policy::{JobPolicy, OnUnknown};
use crate::domain::time::Timestamp;
use crate::domain::transition::Step;

/// What a dead job means for those that wait behind it under the same ordering key. Stored with the
/// job when it is enqueued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum OnDead {
    /// The next one goes on without it. Should the dead one be sent back later, it waits for its turn
    /// in front of all that have not started.
    #[default]
    Skip,
    /// Nobody behind it moves until it is redriven and done, or leaves the quarantine otherwise: discarded,
    /// or evicted where the queue's retention says so.
    Halt,
}

/// What a job row holds about its ordering key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OrderKey {
    pub(crate) key: String,
    pub(crate) on_dead: OnDead,
}

/// How a job stands to its ordering key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    /// Its turn: nobody behind it starts. Several at a time hold a key only when they were leased
    /// together as one batch.
    Holds,
    /// It waits for those that hold the key.
    Waits,
}

impl Standing {
    pub(crate) const fn number(self) -> u8 {
        match self {
            Self::Holds => 0,
            Self::Waits => 1,
        }
    }
}

/// How `job` stands to its ordering key; `None` when it has none, or is through with it.
pub(crate) fn standing(job: &Job) -> Option<(&OrderKey, Standing)> {
    let order = job.order.as_ref()?;
    let standing = match &job.state {
        State::Ready(_) | State::Delayed(_) | State::Leased(_) => Standing::Holds,
        State::Dead(_) if order.on_dead == OnDead::Halt => Standing::Holds,
        State::Blocked(_) => Standing::Waits,
        State::Dead(_) | State::Done(_) | State::Cancelled(_) => return None,
    };
    Some((order, standing))
}

pub(crate) fn holds(job: &Job) -> bool {
    matches!(standing(job), Some((_, Standing::Holds)))
}

/// Whether what was decided depends on who else holds the key: the job has one, and is to become
/// ready or delayed after it was neither.
pub(crate) fn depends(before: Option<&Job>, after: &Job) -> bool {
    let waiting = |job: &Job| matches!(job.state, State::Ready(_) | State::Delayed(_));
    after.order.is_some() && waiting(after) && !before.is_some_and(waiting)
}

/// Puts a job that would become ready or delayed behind those that hold its key. `oldest` is the first
/// of them beside the job itself. Who holds the key already (a batch that is given back) waits for
/// older ones only, so that a batch comes back in its old order.
pub(crate) fn in_turn(before: Option<&Job>, decided: Step, oldest: Option<JobId>) -> Step {
    let id = decided.job.id;
    let waits = oldest.is_some_and(|oldest| oldest < id || !before.is_some_and(holds));
    if !waits || !depends(before, &decided.job) {
        return decided;
    }
    let Step { mut job, flows, history } = decided;
    let blocked = match &job.state {
        State::Ready(ready) => Blocked { lane: ready.lane, due: None },
        State::Delayed(delayed) => Blocked { lane: delayed.lane, due: Some(delayed.due) },
        State::Leased(_)
        | State::Dead(_)
        | State::Done(_)
        | State::Cancelled(_)
        | State::Blocked(_) => return Step { job, flows, history },
    };
    job.state = State::Blocked(blocked);
    Step { job, flows, history }
}

/// Whether a waiting job may be leased together with the job `head` before it: one of the same class
/// whose time has come. What failed before is tried alone, so that a receiver that is away costs one job
/// per attempt and not a batch; a suspect runs alone in any case (P12).
pub(crate) fn follows(head: &Job, job: &Job, now: Timestamp) -> bool {
    let State::Blocked(blocked) = &job.state else { return false };
    let fresh = blocked.lane == Lane::Fresh
        && head.lease().is_some_and(|lease| lease.from.lane == Lane::Fresh);
    job.class == head.class && fresh && blocked.due.is_none_or(|due| due <= now)
}

/// Whether a claim that takes batches takes a job under this policy by itself. While one job of a
/// batch runs, the others are leased and have not started, which nobody can tell from the outside:
/// a crash, or the end of the deadline, would call their outcome unknown, and that may be the end
/// of them.
pub(crate) fn goes_alone(policy: &JobPolicy) -> bool {
    policy.on_unknown != OnUnknown::Retry || policy.deadline_ms.is_some()
}

/// Where a job stands whose turn it is: at the place that it would have had from its acceptance.
pub(crate) fn unblocked(id: JobId, blocked: Blocked, now: Timestamp) -> State {
    match blocked.due {
        Some(due) if due > now => State::Delayed(Delayed { lane: blocked.lane, due }),
        Some(_) | None => State::Ready(place(id, blocked, now)),
    }
}

/// The place in line of a job that waits no longer.
pub(crate) const fn place(id: JobId, blocked: Blocked, now: Timestamp) -> Ready {
    Ready { lane: blocked.lane, seq: id.get(), since: now }
}

#[cfg(test)]
mod tests;
