//! What a job cost: the time of workers, and the attempts it took to end. Counted with the transition
//! that ends a delivery or a job.

use crate::domain::counter::Flow;
use crate::domain::job::{Done, Job, Lane, State};
use crate::domain::policy::JobPolicy;
use crate::domain::time::Timestamp;

/// Flows of completed jobs by how many attempts they took, and of dead ones.
pub(crate) const COMPLETED_AFTER: [Flow; 6] = [
    Flow::CompletedAfter1,
    Flow::CompletedAfter2,
    Flow::CompletedAfter3,
    Flow::CompletedAfter6,
    Flow::CompletedAfter12,
    Flow::CompletedAfterMore,
];
pub(crate) const DIED_AFTER: [Flow; 6] = [
    Flow::DiedAfter1,
    Flow::DiedAfter2,
    Flow::DiedAfter3,
    Flow::DiedAfter6,
    Flow::DiedAfter12,
    Flow::DiedAfterMore,
];

/// Flows of the milliseconds of leases.
pub(crate) const WORKED: [Flow; 4] =
    [Flow::WorkedFresh, Flow::WorkedRetry, Flow::WorkedSuspect, Flow::WorkedReconcile];

impl Flow {
    /// The flow that counts the milliseconds of leases from `lane`.
    pub(crate) const fn worked(lane: Lane) -> Self {
        match lane {
            Lane::Fresh => Self::WorkedFresh,
            Lane::Retry => Self::WorkedRetry,
            Lane::Suspect => Self::WorkedSuspect,
            Lane::Reconcile | Lane::SuspectReconcile => Self::WorkedReconcile,
        }
    }
}

/// What the step from `before` to `after`, which counts `flows`, adds to the cost of the class.
pub(crate) fn effort(
    before: &Job,
    after: &Job,
    flows: &[Flow],
    policy: &JobPolicy,
    now: Timestamp,
) -> impl Iterator<Item = (Flow, u64)> {
    let ended = before.lease().filter(|_| after.token() != before.token());
    let worked = ended.map(|lease| {
        let ms = now.ms_since(lease.claimed_at);
        // Nobody knows how long a process that died had worked; the time until it was found out is not
        // all work.
        let known = if flows.contains(&Flow::Crashed) { ms.min(policy.lease_ms) } else { ms };
        (Flow::worked(lease.from.lane), known)
    });
    let attempts = match (&before.state, &after.state) {
        (State::Done(_), State::Done(_)) | (State::Dead(_), State::Dead(_)) => None,
        // Not run, so it took no attempt.
        (_, State::Done(Done { duplicate_of: Some(_), .. })) => None,
        (_, State::Done(_)) => Some((COMPLETED_AFTER, after.cycle.attempts.saturating_add(1))),
        (_, State::Dead(_)) => Some((DIED_AFTER, after.cycle.attempts.max(1))),
        _ => None,
    };
    let attempts = attempts.and_then(|(after, count)| after.get(bucket(count)).copied());
    worked.filter(|&(_, ms)| ms > 0).into_iter().chain(attempts.map(|flow| (flow, 1)))
}

const fn bucket(attempts: u32) -> usize {
    match attempts {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4..=6 => 3,
        7..=12 => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_attempts_has_its_bucket() {
        let of = |attempts: u32| COMPLETED_AFTER[bucket(attempts)].name();
        let named = [
            (0..=1, "completed_after_1"),
            (2..=2, "completed_after_2"),
            (3..=3, "completed_after_3"),
            (4..=6, "completed_after_4_to_6"),
            (7..=12, "completed_after_7_to_12"),
            (13..=20, "completed_after_more"),
        ];
        for (attempts, name) in named {
            assert!(attempts.clone().all(|attempts| of(attempts) == name), "{attempts:?}");
        }
        assert_eq!(of(u32::MAX), "completed_after_more");
        for (completed, died) in COMPLETED_AFTER.iter().zip(DIED_AFTER) {
            assert_eq!(completed.name().replace("completed", "died"), died.name());
        }
    }
}
