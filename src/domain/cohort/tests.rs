use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::domain::abort::Abort;
use crate::domain::id::PolicyId;
use crate::domain::job::DeathReason;

fn plan() -> RedrivePlan {
    RedrivePlan::new(Filter::new().everything()).reason("fixed")
}

fn facts(class: FailureClass, redrives: u32) -> DeadFacts {
    DeadFacts {
        class,
        reason: DeathReason::Permanent,
        code: "E".into(),
        cause: 1,
        version: String::new(),
        redrives,
        policy: PolicyId::new(0),
        enqueued_at: Timestamp::from_millis(1_000),
        seq: 1,
        key: None,
        holds_key: false,
    }
}

#[test]
fn skips_have_their_reasons() {
    let now = Timestamp::from_millis(61_000);
    let judged = |plan: &RedrivePlan, class, redrives, key| {
        judge(plan, &facts(class, redrives), 2, key, now)
    };
    let (own, permanent) = (KeyOwner::Itself, FailureClass::Permanent);
    let skipped = MemberOutcome::Skipped;
    assert_eq!(judged(&plan(), permanent, 1, own), MemberOutcome::Held);
    assert_eq!(judged(&plan(), permanent, 2, own), skipped(SkipReason::Budget));
    let young = plan().age_max(Duration::from_secs(60));
    assert_eq!(judged(&young, permanent, 0, own), MemberOutcome::Held);
    let younger = plan().age_max(Duration::from_millis(59_999));
    assert_eq!(judged(&younger, permanent, 0, own), skipped(SkipReason::TooOld));
    for class in [FailureClass::Ambiguous, FailureClass::Crashed] {
        let evidence = plan().reconciled("the provider has no record of these");
        assert_eq!(judged(&plan(), class, 0, own), skipped(SkipReason::UnknownOutcome));
        assert_eq!(judged(&evidence, class, 0, own), MemberOutcome::Held);
    }
    assert_eq!(judged(&plan(), permanent, 0, KeyOwner::DoneTheSame), MemberOutcome::Suppressed);
    assert_eq!(judged(&plan(), permanent, 0, KeyOwner::Another), skipped(SkipReason::KeyTaken));
}

/// What happens to a cohort from outside.
#[derive(Clone, Copy, Debug)]
enum Move {
    End(MemberOutcome, bool),
    Pass(u64),
    Pause,
    Resume,
    Abort,
}

fn any_move() -> impl Strategy<Value = Move> {
    prop_oneof![
        6 => Just(Move::End(MemberOutcome::Completed, false)),
        1 => any::<bool>().prop_map(|same| Move::End(MemberOutcome::DiedAgain, same)),
        1 => Just(Move::End(MemberOutcome::Cancelled, false)),
        6 => (0..3_000u64).prop_map(Move::Pass),
        1 => Just(Move::Pause),
        2 => Just(Move::Resume),
        1 => Just(Move::Abort),
    ]
}

proptest! {
    /// P10: whatever comes in whatever order, every member is counted once, no more are out than the
    /// plan allows, nothing is released by one that is paused or over, and the batches keep their
    /// distance.
    #[test]
    fn p10_the_sums_hold_and_the_brakes_do(
        members in 1..200u64,
        canary in 0..6u32,
        batch in 1..8u32,
        ramp in 0..20u32,
        overlap in prop::option::of(0..20u32),
        moves in prop::collection::vec(any_move(), 0..300),
    ) {
        let plan = plan().canary(canary).batch(batch).every(Duration::from_secs(1));
        let plan = if ramp >= batch { plan.ramp_to(ramp) } else { plan };
        let plan = match overlap {
            Some(more) => plan.in_flight_max(batch + more),
            None => plan,
        };
        let plan = plan.without_abort_rules().abort_if(Abort::dead_share(0.5)).check().unwrap();
        let widest = u64::from(plan.canary.max(match plan.in_flight_max {
            0 => plan.batch.max(plan.ramp_to),
            most => most,
        }));
        let mut now = Timestamp::from_millis(1);
        let mut cohort = Cohort::new(CohortId::new(1), plan, now);
        for _ in 0..members {
            cohort.counts.join(MemberOutcome::Held);
        }
        cohort.selected(now);
        let mut last_batch: Option<Timestamp> = None;
        for one in moves {
            match one {
                Move::End(outcome, same) if cohort.counts.in_flight > 0 => {
                    cohort.told(MemberOutcome::InFlight, outcome, same);
                }
                Move::End(..) => {}
                Move::Pass(ms) => now = now.plus_ms(ms),
                Move::Pause if cohort.is_live() => cohort.paused = Some(now),
                Move::Resume => cohort.paused = None,
                Move::Abort if cohort.is_live() && members % 3 == 0 => {
                    cohort.abort(AbortReason::Operator { reason: "stop".into() }, now);
                }
                Move::Pause | Move::Abort => {}
            }
            cohort.advance(Weather::default(), now);
            let canary = matches!(cohort.stage, Stage::Canary);
            let due = cohort.due(now).min(cohort.counts.held);
            if due > 0 {
                prop_assert!(cohort.is_live() && cohort.paused.is_none());
                prop_assert!(cohort.counts.died_again == 0 || !canary);
                if !canary {
                    let early = |last: Timestamp| now.ms_since(last) < 1_000;
                    prop_assert!(!last_batch.is_some_and(early));
                    last_batch = Some(now);
                }
                for _ in 0..due {
                    cohort.told(MemberOutcome::Held, MemberOutcome::InFlight, false);
                }
                cohort.released(now);
            }
            prop_assert!(cohort.counts.balances(), "{:?}", cohort.counts);
            prop_assert_eq!(cohort.counts.selected, members);
            prop_assert!(cohort.counts.in_flight <= widest, "{:?}", cohort);
            prop_assert!(cohort.next_look(now).is_none_or(|at| cohort.due(at) > 0 || at > now));
        }
    }
}
