//! Steps: what a job has done so far, marked under its lease, so that it is not done again.

use serde::{Deserialize, Serialize};

use crate::domain::blob::Blob;
use crate::domain::counter::Flow;
use crate::domain::id::Token;
use crate::domain::job::Job;
use crate::domain::limits::STEPS_MAX;
use crate::domain::time::Timestamp;
use crate::domain::transition::Step;

/// A step that was committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Marker {
    pub(crate) at: Timestamp,
    /// The delivery that committed it.
    pub(crate) delivery: u32,
    /// What the step gave back, as JSON.
    pub(crate) output: Blob,
}

/// Why a job cannot be marked. Nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unmarked {
    /// The token is not that of the current lease.
    Stale { current: Option<Token> },
    /// It has as many markers as a job may have.
    Full,
}

/// One more marker for the job under `token`'s lease. The lease stays as it is.
pub(crate) fn mark(job: &Job, token: Token) -> Result<Step, Unmarked> {
    let current = job.token();
    if current != Some(token) {
        return Err(Unmarked::Stale { current });
    }
    if job.steps >= STEPS_MAX {
        return Err(Unmarked::Full);
    }
    let job = Job { steps: job.steps + 1, ..job.clone() };
    Ok(Step { job, flows: vec![Flow::Stepped], history: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::arrival::{Arrival, Start};
    use crate::domain::event::{Claimant, Event};
    use crate::domain::id::{Class, Instance, JobId, KindId, PolicyId, QueueId};
    use crate::domain::job::Payload;
    use crate::domain::policy::JobPolicy;
    use crate::domain::transition::{Context, step};

    fn ready() -> Job {
        let arrival = Arrival {
            id: JobId::new(1),
            class: Class { queue: QueueId::new(0), kind: KindId::new(0) },
            policy: PolicyId::new(0),
            priority: 100,
            key: None,
            order: None,
            post: None,
            payload: Payload::Inline(Blob(Vec::new())),
            start: Start::Now,
        };
        arrival.enqueue(Timestamp::default()).job
    }

    fn after(job: &Job, event: Event) -> Job {
        let context = Context {
            policy: &JobPolicy::default(),
            now: Timestamp::default(),
            seed: 0,
            seq: 2,
            queue: "q",
            kind: "k",
        };
        step(job, event, &context).unwrap().job
    }

    /// P5: only the current lease marks; a marker changes the count and nothing else; it is bounded.
    #[test]
    fn only_the_current_lease_marks() {
        let token = |delivery| Token { job: JobId::new(1), delivery };
        let ready = ready();
        assert_eq!(mark(&ready, token(0)), Err(Unmarked::Stale { current: None }));
        let claimant = || Claimant {
            instance: Instance::new(1),
            worker: String::new(),
            version: String::new(),
        };
        let leased = after(&ready, Event::Claim(claimant()));
        assert_eq!(mark(&leased, token(2)), Err(Unmarked::Stale { current: Some(token(1)) }));
        let marked = mark(&leased, token(1)).unwrap().job;
        assert_eq!(Job { steps: 0, ..marked.clone() }, leased);
        assert_eq!(marked.steps, 1);
        let work = crate::domain::event::Work::Unstarted;
        let again = after(&marked, Event::Release { token: token(1), work });
        let again = after(&again, Event::Claim(claimant()));
        assert_eq!(mark(&again, token(1)), Err(Unmarked::Stale { current: Some(token(2)) }));
        assert_eq!(again.steps, 1, "markers outlive the delivery");
        let full = Job { steps: STEPS_MAX, ..leased };
        assert_eq!(mark(&full, token(1)), Err(Unmarked::Full));
    }
}
