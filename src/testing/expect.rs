//! What the model says a store must show, and the comparison.

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::domain::history::{HistoryEntry, HistoryEvent};
use crate::domain::id::CohortId;
use crate::domain::job::{JobState, Lane};
use crate::handle::job::{DeadInfo, JobInfo, LeaseInfo};
use crate::handle::redrive::Redrive;
use crate::handle::stats::{Counts, QueueStats, Stats};
use crate::testing::effects::step_infos;
use crate::testing::harness::VERSION;
use crate::testing::life::{Life, Place};
use crate::testing::model::{ClassKey, Model, state, time};
use crate::testing::op::{KINDS, QUEUES};
use crate::testing::outbox::message;

/// Every flow there is.
const FLOWS: [&str; 48] = [
    "enqueued",
    "duplicates_suppressed",
    "key_conflicts",
    "claimed",
    "completed",
    "retried_transient",
    "retried_throttled",
    "retried_ambiguous",
    "lease_expired",
    "crashed",
    "snoozed",
    "released",
    "died_permanent",
    "died_transient",
    "died_throttled",
    "died_ambiguous",
    "died_crashed",
    "cancel_requested",
    "cancelled",
    "discarded",
    "stale_calls_refused",
    "damaged_rows_set_aside",
    "redriven",
    "worked_ms_fresh",
    "worked_ms_retry",
    "worked_ms_suspect",
    "completed_after_1",
    "completed_after_2",
    "completed_after_3",
    "completed_after_4_to_6",
    "completed_after_7_to_12",
    "completed_after_more",
    "died_after_1",
    "died_after_2",
    "died_after_3",
    "died_after_4_to_6",
    "died_after_7_to_12",
    "died_after_more",
    "amended",
    "steps_committed",
    "reconciled_happened",
    "reconciled_did_not_happen",
    "reconciled_still_unknown",
    "worked_ms_reconcile",
    "evicted",
    "imported",
    "replaced",
    "done_as_duplicate",
];
/// The history keeps this many first entries of a job, and this many latest ones.
const FIRST: usize = 4;
const LATEST: usize = 28;
/// Of the jobs that are gone, the latest ones are asked for after every step.
const GONE: usize = 4;

/// What is wrong, if anything.
pub(super) type Verdict = Result<(), String>;

pub(super) fn same<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Verdict {
    if found == expected {
        Ok(())
    } else {
        Err(format!("{what}\n  found    {found:?}\n  expected {expected:?}"))
    }
}

impl Model {
    /// Compares everything that can be asked for.
    pub(super) fn compare(&self, jobs: &Redrive) -> Verdict {
        self.compare_cohorts(jobs)?;
        let trouble = |error| format!("the store cannot be read: {error}");
        for (&id, life) in &self.jobs {
            let found = jobs.job(id).map_err(trouble)?;
            let found = found.ok_or_else(|| format!("job {id} is missing: {:?}", life.place))?;
            let expected = expected(life, &found);
            same(&format!("job {id}"), &found, &expected)?;
            let payload = match life.finished_at() {
                None => Some(life.payload.clone()),
                Some(_) => None,
            };
            let found = jobs.payload(id).map_err(trouble)?;
            same(&format!("the payload of job {id}"), &found, &payload)?;
        }
        for &id in self.gone.iter().rev().take(GONE) {
            let found = jobs.job(id).map_err(trouble)?;
            same(&format!("job {id}, which is gone"), &found, &None)?;
        }
        self.compare_effects(jobs)?;
        self.compare_outbox(jobs)?;
        self.compare_keys(jobs)?;
        let found = jobs.stats().map_err(trouble)?;
        // How long something took is no business of the model's: the writer may be looking for more to do
        // while the clock is set on.
        let found =
            Stats { longest_write_ms: 0, longest_transaction_ms: 0, longest_read_ms: 0, ..found };
        same("the counts", &found, &self.stats())?;
        same("the pauses", &jobs.pauses().map_err(trouble)?, &self.pauses())
    }

    /// Compares, and has the store prove itself from its rows.
    pub(super) fn compare_all(&self, jobs: &Redrive) -> Verdict {
        self.compare(jobs)?;
        self.compare_reports(jobs)?;
        let report = jobs.verify().map_err(|error| format!("verify: {error}"))?;
        if !report.is_clean() {
            return Err(format!("verify found {:?}", report.problems));
        }
        let rows = u64::try_from(self.jobs.len()).unwrap_or(u64::MAX);
        same("the number of job rows", &report.jobs, &rows)
    }

    fn stats(&self) -> Stats {
        let mut stats =
            Stats { total: self.counts(|_| true), refused: self.refused, ..Stats::default() };
        for (queue, &name) in QUEUES.iter().enumerate() {
            let mut kinds = BTreeMap::new();
            for (kind, &name) in KINDS.iter().enumerate() {
                if self.flows.contains_key(&(queue, kind)) {
                    kinds.insert(name.to_owned(), self.counts(|class| class == (queue, kind)));
                }
            }
            let counts = self.counts(|class| class.0 == queue);
            stats.queues.insert(name.to_owned(), QueueStats { counts, kinds });
        }
        stats
    }

    fn counts(&self, of: impl Fn(ClassKey) -> bool) -> Counts {
        let mut flows: BTreeMap<&'static str, u64> = FLOWS.iter().map(|&name| (name, 0)).collect();
        for (&class, counted) in &self.flows {
            if of(class) {
                for (name, count) in counted {
                    *flows.entry(name).or_default() += count;
                }
            }
        }
        let jobs: Vec<&Life> = self.jobs.values().filter(|job| of((job.queue, job.kind))).collect();
        let count = |fits: &dyn Fn(&Life) -> bool| -> u64 {
            jobs.iter().filter(|job| fits(job)).map(|_| 1).sum()
        };
        let flow = |name| flows.get(name).copied().unwrap_or(0);
        let suspect = |lane| [Lane::Suspect, Lane::SuspectReconcile].contains(&lane);
        let in_doubt = |lane| [Lane::Reconcile, Lane::SuspectReconcile].contains(&lane);
        Counts {
            ready: count(&|job| state(job) == JobState::Ready),
            delayed: count(&|job| state(job) == JobState::Delayed),
            leased: count(&|job| state(job) == JobState::Leased),
            blocked: count(&|job| state(job) == JobState::Blocked),
            done: flow("completed"),
            dead: count(&|job| state(job) == JobState::Dead),
            dead_bytes: jobs
                .iter()
                .filter(|job| state(job) == JobState::Dead)
                .map(|job| u64::try_from(job.payload.len()).unwrap_or(u64::MAX))
                .sum(),
            cancelled: flow("cancelled"),
            delayed_retry: count(&|job| {
                matches!(job.place, Place::Delayed { lane: Lane::Retry, .. })
            }),
            suspects: count(&|job| match &job.place {
                Place::Ready(spot) => suspect(spot.lane),
                Place::Leased(hold) => suspect(hold.from.lane),
                Place::Delayed { .. }
                | Place::Done { .. }
                | Place::Cancelled { .. }
                | Place::Dead(_)
                | Place::Blocked { .. } => false,
            }),
            ready_reconcile: count(
                &|job| matches!(job.place, Place::Ready(spot) if in_doubt(spot.lane)),
            ),
            delayed_reconcile: count(
                &|job| matches!(job.place, Place::Delayed { lane, .. } if in_doubt(lane)),
            ),
            flows,
            residual: 0,
        }
    }
}

/// What is kept of the history: the first and latest entries, and all redrives.
pub(super) fn kept(life: &Life, found: &JobInfo) -> Vec<HistoryEntry> {
    let entries = life.history.len();
    let between = FIRST..FIRST + entries.saturating_sub(FIRST + LATEST);
    let stays = |(place, entry): &(usize, &HistoryEntry)| {
        !between.contains(place) || matches!(entry.event, HistoryEvent::Redriven { .. })
    };
    life.history
        .iter()
        .enumerate()
        .filter(stays)
        .zip(found.history.iter().map(Some).chain(std::iter::repeat(None)))
        .map(|((_, entry), found)| as_found(entry, found))
        .collect()
}

/// The entry, with the cause that was found.
fn as_found(entry: &HistoryEntry, found: Option<&HistoryEntry>) -> HistoryEntry {
    let mut entry = entry.clone();
    if let HistoryEvent::Redriven { death, .. } = &mut entry.event
        && let Some(HistoryEvent::Redriven { death: found, .. }) = found.map(|found| &found.event)
    {
        death.cause = found.cause;
    }
    entry
}

/// What the store must tell of `life`. The cause is a fingerprint the model does not foresee, so
/// it is taken as `found`.
fn expected(life: &Life, found: &JobInfo) -> JobInfo {
    let kept = kept(life, found);
    let dropped = life.history.len() - kept.len();
    let mut info = JobInfo {
        id: life.id,
        queue: QUEUES.get(life.queue).map(|&name| name.into()).unwrap_or_default(),
        kind: KINDS.get(life.kind).map(|&name| name.into()).unwrap_or_default(),
        key: life.key.clone(),
        order_key: life.order.clone().filter(|key| !key.is_empty()),
        message: message(life),
        state: state(life),
        priority: life.priority,
        enqueued_at: time(life.enqueued_at),
        deliveries: life.deliveries,
        attempts: life.attempts,
        crashes: life.crashes,
        redrives: life.redrives,
        cohort: life.cohort.map(CohortId::new),
        amended: life.amended,
        outcome_unknown: life.unknown.is_some(),
        unknown: life.unknown.clone(),
        reconciles: life.reconciles,
        asked: life.asked,
        previous: life.previous,
        taken_by: life.taken_by,
        duplicate_of: None,
        lane: None,
        due: None,
        lease: None,
        dead: None,
        finished_at: life.finished_at().map(time),
        result: None,
        history: kept,
        history_unreadable: 0,
        history_dropped: u32::try_from(dropped).unwrap_or(u32::MAX),
        steps: step_infos(life),
        steps_unreadable: 0,
    };
    place(life, found, &mut info);
    info
}

/// What the store must tell of where `life` is.
fn place(life: &Life, found: &JobInfo, info: &mut JobInfo) {
    match &life.place {
        Place::Ready(spot) => info.lane = Some(spot.lane),
        Place::Delayed { lane, due } => (info.lane, info.due) = (Some(*lane), Some(time(*due))),
        Place::Blocked { lane, due } => (info.lane, info.due) = (Some(*lane), due.map(time)),
        Place::Leased(hold) => {
            info.lane = Some(hold.from.lane);
            info.lease = Some(LeaseInfo {
                worker: hold.worker.clone(),
                version: VERSION.to_owned(),
                claimed_at: time(hold.at),
                deadline: time(hold.deadline),
                cancel_requested: hold.cancel,
            });
        }
        Place::Done { result, .. } => info.result.clone_from(result),
        Place::Cancelled { .. } => {}
        Place::Dead(corpse) => {
            info.dead = Some(DeadInfo {
                reason: corpse.reason,
                class: corpse.what.class,
                code: corpse.what.code.clone(),
                message: corpse.what.message.clone(),
                provider_ref: corpse.what.provider_ref.clone(),
                worker: corpse.worker.clone(),
                version: VERSION.to_owned(),
                first_failed_at: life.first_failed_at.map(time),
                died_at: time(corpse.at),
                cause: found.dead.as_ref().map_or(0, |dead| dead.cause),
            });
        }
    }
}
