//! The rule of ordering keys as a table that a reviewer reads.

use super::*;
use crate::domain::arrival::{Arrival, Start};
use crate::domain::blob::Blob;
use crate::domain::id::{Class, KindId, PolicyId, QueueId};
use crate::domain::job::{Lane, Payload};

const NOW: Timestamp = Timestamp::from_millis(1_000);

fn arrived(start: Start) -> Step {
    let arrival = Arrival {
        id: JobId::new(5),
        class: Class { queue: QueueId::new(0), kind: KindId::new(0) },
        policy: PolicyId::new(0),
        priority: 100,
        key: None,
        payload: Payload::Inline(Blob(Vec::new())),
        start,
        order: Some(OrderKey { key: "k".into(), on_dead: OnDead::Skip }),
        post: None,
    };
    arrival.enqueue(NOW)
}

fn state(before: Option<&Job>, oldest: Option<u64>) -> State {
    in_turn(before, arrived(Start::Now), oldest.map(JobId::new)).job.state
}

fn leased() -> Job {
    use crate::domain::id::Instance;
    use crate::domain::job::Lease;
    let mut job = arrived(Start::Now).job;
    job.state = State::Leased(Lease {
        instance: Instance::new(1),
        worker: String::new(),
        version: String::new(),
        claimed_at: NOW,
        deadline: NOW,
        cancel_requested: false,
        from: Ready { lane: Lane::Fresh, seq: 5, since: NOW },
    });
    job
}

/// O-26: who comes waits for whoever holds the key, also for a younger one (it was sent back from the
/// quarantine); who held it already waits for older ones only (a batch that is given back).
#[test]
fn o_26_a_job_waits_for_those_that_hold_its_key() {
    let blocked = State::Blocked(Blocked { lane: Lane::Fresh, due: None });
    for (before, oldest, waits) in [
        (None, None, false),
        (None, Some(4), true),
        (None, Some(6), true),
        (Some(leased()), None, false),
        (Some(leased()), Some(4), true),
        (Some(leased()), Some(6), false),
    ] {
        let state = state(before.as_ref(), oldest);
        assert_eq!(state == blocked, waits, "{oldest:?}");
    }
}

#[test]
fn a_delayed_job_keeps_its_time_while_it_waits() {
    let step = in_turn(None, arrived(Start::AfterMs(500)), Some(JobId::new(4)));
    let State::Blocked(blocked) = step.job.state else { panic!("{:?}", step.job.state) };
    let due = NOW.plus_ms(500);
    assert_eq!(blocked.due, Some(due));
    let turn = |now| unblocked(JobId::new(5), blocked, now);
    assert_eq!(turn(NOW), State::Delayed(Delayed { lane: Lane::Fresh, due }));
    assert_eq!(turn(due), State::Ready(Ready { lane: Lane::Fresh, seq: 5, since: due }));
}

#[test]
fn a_dead_job_holds_its_key_only_where_the_rule_says_so() {
    use crate::domain::failure::FailureClass;
    use crate::domain::job::{Dead, DeathReason};
    let mut job = leased();
    assert!(holds(&job));
    job.state = State::Dead(Dead {
        reason: DeathReason::Permanent,
        class: FailureClass::Permanent,
        code: String::new(),
        message: String::new(),
        provider_ref: None,
        worker: String::new(),
        version: String::new(),
        died_at: NOW,
        cause: 0,
        seq: 0,
    });
    assert!(!holds(&job));
    job.order = Some(OrderKey { key: "k".into(), on_dead: OnDead::Halt });
    assert!(holds(&job));
    job.order = None;
    assert!(!holds(&job));
}

#[test]
fn p_08_what_a_lost_delivery_may_be_the_end_of_is_leased_by_itself() {
    use std::time::Duration;
    let policy = JobPolicy::new;
    assert!(!goes_alone(&policy()));
    assert!(goes_alone(&policy().deadline(Duration::from_secs(1))));
    assert!(goes_alone(&policy().on_unknown(OnUnknown::Quarantine)));
    assert!(goes_alone(&policy().on_unknown(OnUnknown::Reconcile)));
}

/// P12: a suspect is never part of a batch; nor is what failed before.
#[test]
fn p_12_what_failed_or_is_suspected_runs_alone() {
    let waiting = |lane, due| {
        let mut job = arrived(Start::Now).job;
        job.state = State::Blocked(Blocked { lane, due });
        job
    };
    let head = leased();
    assert!(follows(&head, &waiting(Lane::Fresh, Some(NOW)), NOW));
    assert!(!follows(&head, &waiting(Lane::Retry, None), NOW));
    assert!(!follows(&head, &waiting(Lane::Fresh, Some(NOW.plus_ms(1))), NOW));
    assert!(!follows(&head, &waiting(Lane::Suspect, None), NOW));
    for lane in [Lane::Retry, Lane::Suspect] {
        let mut other = head.clone();
        if let State::Leased(lease) = &mut other.state {
            lease.from.lane = lane;
        }
        assert!(!follows(&other, &waiting(Lane::Fresh, None), NOW));
    }
    let mut other = waiting(Lane::Fresh, None);
    other.class.kind = KindId::new(1);
    assert!(!follows(&head, &other, NOW));
}
