//! One job, for people to look at.

use serde::Serialize;

use crate::domain::failure::FailureClass;
use crate::domain::history::{HistoryEntry, kept};
use crate::domain::id::{CohortId, JobId};
use crate::domain::job::{DeathReason, Job, JobState, Lane, State};
use crate::domain::key::Asked;
use crate::domain::outbox::{Post, destination_of};
use crate::domain::time::Timestamp;
use crate::domain::unknown::UnknownOutcome;
use crate::error::StorageError;
use crate::handle::step::StepInfo;
use crate::store::rows::Rows;
use crate::store::{history, job as job_store, names};

/// A job as of the last commit, with its history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its id.
    pub id: JobId,
    /// Its queue.
    pub queue: String,
    /// Its kind.
    pub kind: String,
    /// Its idempotency key.
    pub key: Option<String>,
    /// Its ordering key.
    pub order_key: Option<String>,
    /// What makes it a message; for those of a destination.
    pub message: Option<MessageInfo>,
    /// The state it is in.
    pub state: JobState,
    /// 0 to 255; higher goes first.
    pub priority: u8,
    /// When it was accepted.
    pub enqueued_at: Timestamp,
    /// Claims over its whole life.
    pub deliveries: u32,
    /// Charged deliveries in the present cycle.
    pub attempts: u32,
    /// Crashes in a row in the present cycle.
    pub crashes: u32,
    /// How often an operator sent it back from the quarantine.
    pub redrives: u32,
    /// The cohort that released it last, for as long as its outcome is owed to that one.
    pub cohort: Option<CohortId>,
    /// Somebody replaced its payload while it lay dead.
    pub amended: bool,
    /// An earlier delivery may have had its effect without anybody knowing.
    pub outcome_unknown: bool,
    /// How often it was asked for that it was there already.
    pub asked: Asked,
    /// The job that had its key before, if that was still there.
    pub previous: Option<JobId>,
    /// The job that has taken its key since it died.
    pub taken_by: Option<JobId>,
    /// What is known of that delivery.
    pub unknown: Option<UnknownOutcome>,
    /// How many reconciliations have left it unknown, in the present cycle.
    pub reconciles: u32,
    /// The lane it stands, or will stand, or stood in; for unfinished jobs.
    pub lane: Option<Lane>,
    /// When it becomes ready; for delayed jobs, and for blocked ones that are not to run before that
    /// even when their turn has come.
    pub due: Option<Timestamp>,
    /// The present lease; for leased jobs. Heartbeats extend it without a commit, so it may last
    /// longer than it says here.
    pub lease: Option<LeaseInfo>,
    /// The evidence; for dead jobs.
    pub dead: Option<DeadInfo>,
    /// When it was done or cancelled.
    pub finished_at: Option<Timestamp>,
    /// It was not run, because that job had done the same under its key; for done jobs.
    pub duplicate_of: Option<JobId>,
    /// The result it gave; for done jobs.
    pub result: Option<Vec<u8>>,
    /// What happened to it, oldest first; bounded to the first 4 and the latest 28
    /// entries, and those of redrives, which are never dropped.
    pub history: Vec<HistoryEntry>,
    /// How many of the kept entries are damaged and cannot be shown.
    pub history_unreadable: usize,
    /// How many entries were dropped between the first and the latest ones.
    pub history_dropped: u32,
    /// The steps it has committed, oldest first.
    pub steps: Vec<StepInfo>,
    /// How many more there are whose rows are damaged and cannot be shown.
    pub steps_unreadable: usize,
}

/// What makes a job a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct MessageInfo {
    /// Where it goes.
    pub destination: String,
    /// Dense within the destination, from 1 on, in the order of the commits.
    pub sequence: u64,
    /// Its headers.
    pub headers: Vec<(String, String)>,
}

impl MessageInfo {
    fn new(queue: &str, post: Post) -> Self {
        let destination = destination_of(queue).unwrap_or(queue).to_owned();
        Self { destination, sequence: post.sequence, headers: post.headers }
    }
}

/// The lease of a job as it was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeaseInfo {
    /// Who has it.
    pub worker: String,
    /// The version of the handler.
    pub version: String,
    /// Since when.
    pub claimed_at: Timestamp,
    /// Until when, without a heartbeat.
    pub deadline: Timestamp,
    /// Somebody asked to cancel the job.
    pub cancel_requested: bool,
}

/// The evidence a dead job keeps (P9).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadInfo {
    /// Why it is dead.
    pub reason: DeathReason,
    /// The class of its last failure.
    pub class: FailureClass,
    /// The code of its last failure.
    pub code: String,
    /// The message of its last failure, bounded.
    pub message: String,
    /// The other side's reference, if known.
    pub provider_ref: Option<String>,
    /// Who had it last.
    pub worker: String,
    /// The version of the handler that had it last.
    pub version: String,
    /// When it first failed.
    pub first_failed_at: Option<Timestamp>,
    /// When it died.
    pub died_at: Timestamp,
    /// Groups jobs that died of the same thing: queue, kind, class, code and normalised message.
    /// Serialised as 16 hexadecimal digits, because JSON readers spoil large numbers.
    #[serde(with = "crate::domain::cause::hex")]
    pub cause: u64,
}

impl JobInfo {
    pub(crate) fn read(rows: &impl Rows, id: JobId) -> Result<Option<Self>, StorageError> {
        match job_store::read(rows, id)? {
            Some(job) => Self::of(rows, job).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn of(rows: &impl Rows, job: Job) -> Result<Self, StorageError> {
        let queue = names::queue(rows, job.class.queue)?.map(|queue| queue.name);
        let kind = names::kind(rows, job.class.kind)?;
        let steps = if job.steps > 0 { StepInfo::all(rows, job.id)? } else { Vec::new() };
        let queue_name = queue.unwrap_or_default();
        let kept_rows = history::read(rows, job.id)?;
        let mut info = Self {
            id: job.id,
            queue: queue_name.clone(),
            kind: kind.unwrap_or_default(),
            asked: job.key.as_ref().map(|claim| claim.asked).unwrap_or_default(),
            previous: job.key.as_ref().and_then(|claim| claim.previous),
            taken_by: job.key.as_ref().and_then(|claim| claim.taken_by),
            key: job.key.map(|claim| claim.key),
            order_key: job.order.map(|order| order.key).filter(|key| !key.is_empty()),
            message: job.post.map(|post| MessageInfo::new(&queue_name, post)),
            state: job.state.name(),
            priority: job.priority,
            enqueued_at: job.enqueued_at,
            deliveries: job.deliveries,
            attempts: job.cycle.attempts,
            crashes: job.cycle.crashed,
            redrives: job.redrives,
            cohort: job.cohort,
            amended: job.amended,
            outcome_unknown: job.unknown.is_some(),
            unknown: job.unknown,
            reconciles: job.cycle.reconciles,
            lane: None,
            due: None,
            lease: None,
            dead: None,
            finished_at: None,
            duplicate_of: None,
            result: None,
            history_unreadable: kept_rows.rows - kept_rows.entries.len(),
            history: kept_rows.entries,
            history_dropped: kept(job.history_next, &job.history_pinned).1,
            steps_unreadable: usize::try_from(job.steps).unwrap_or(0).saturating_sub(steps.len()),
            steps,
        };
        info.describe(job.state, job.first_failed_at);
        Ok(info)
    }

    fn describe(&mut self, state: State, first_failed_at: Option<Timestamp>) {
        match state {
            State::Ready(ready) => self.lane = Some(ready.lane),
            State::Delayed(delayed) => {
                self.lane = Some(delayed.lane);
                self.due = Some(delayed.due);
            }
            State::Blocked(blocked) => {
                self.lane = Some(blocked.lane);
                self.due = blocked.due;
            }
            State::Leased(lease) => {
                self.lane = Some(lease.from.lane);
                self.lease = Some(LeaseInfo {
                    worker: lease.worker,
                    version: lease.version,
                    claimed_at: lease.claimed_at,
                    deadline: lease.deadline,
                    cancel_requested: lease.cancel_requested,
                });
            }
            State::Dead(dead) => {
                self.dead = Some(DeadInfo {
                    reason: dead.reason,
                    class: dead.class,
                    code: dead.code,
                    message: dead.message,
                    provider_ref: dead.provider_ref,
                    worker: dead.worker,
                    version: dead.version,
                    first_failed_at,
                    died_at: dead.died_at,
                    cause: dead.cause,
                });
            }
            State::Done(done) => {
                self.finished_at = Some(done.at);
                self.duplicate_of = done.duplicate_of;
                self.result = done.result.map(|blob| blob.0);
            }
            State::Cancelled(cancelled) => self.finished_at = Some(cancelled.at),
        }
    }
}
