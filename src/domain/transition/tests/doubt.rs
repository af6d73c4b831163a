use super::*;

/// The situations of jobs whose policy says to ask a reconciler.
pub(super) fn situations() -> Vec<(&'static str, Job, JobPolicy)> {
    let ask = || policy().on_unknown(OnUnknown::Reconcile);
    let in_doubt = |job: &mut Job| {
        let failure = Failure::ambiguous("timeout").provider_ref("req-7");
        job.unknown = Some(UnknownOutcome::new(&failure, 2, Timestamp::from_millis(980_000)));
        job.cycle.attempts = 1;
        job.cycle.ambiguous = 1;
    };
    vec![
        ("leased, unknown outcomes go to a reconciler", leased(Lane::Fresh, |_| {}), ask()),
        (
            "leased, suspect, unknown outcomes go to a reconciler, one short of the budget of crashes",
            leased(Lane::Suspect, |job| job.cycle.crashed = 2),
            ask(),
        ),
        ("with a reconciler", leased(Lane::Reconcile, in_doubt), ask()),
        (
            "with a reconciler, suspect",
            leased(Lane::SuspectReconcile, |job| {
                in_doubt(job);
                job.cycle.crashed = 1;
            }),
            ask(),
        ),
        (
            "with a reconciler, each budget spent or one short of it",
            leased(Lane::Reconcile, |job| {
                in_doubt(job);
                job.cycle.ambiguous = 6;
                job.cycle.crashed = 2;
                job.cycle.reconciles = 9;
            }),
            ask(),
        ),
        (
            "with a reconciler, cancel requested",
            leased(Lane::Reconcile, |job| {
                in_doubt(job);
                if let State::Leased(lease) = &mut job.state {
                    lease.cancel_requested = true;
                }
            }),
            ask(),
        ),
    ]
}
