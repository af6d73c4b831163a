//! A job in somebody's hands.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::domain::arrival::Start;
use crate::domain::event::Work;
use crate::domain::failure::Failure;
use crate::domain::id::{Class, JobId, Token};
use crate::domain::job::{JobState, Lane};
use crate::domain::outbox::Post;
use crate::domain::policy::OnUnknown;
use crate::domain::time::{Timestamp, whole_ms};
use crate::domain::unknown::UnknownOutcome;
use crate::error::{ClaimError, SettleError, StorageError};
use crate::handle::claim::ClaimRequest;
use crate::handle::completion::{Completion, refusal};
use crate::handle::redrive::Redrive;
use crate::handle::settling::{Asked, Settling};
use crate::writer::command::{Claim, Claimed, Command, How, Settle, WriteSet};
use crate::writer::reply::reply;

/// A leased job. Settle it with exactly one of [`complete`](Self::complete), [`fail`](Self::fail),
/// [`snooze`](Self::snooze) or [`release`](Self::release). Dropping it releases it, as not started; by a
/// panic, as started: then its outcome is unknown (P8).
///
/// The lease ends by itself when it is not extended by [`heartbeat`](Self::heartbeat) in time; the
/// outcome is then unknown, and every later call gets [`SettleError::StaleLease`] (P5).
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use redrive::{ClaimRequest, Failure, JobState, NewJob};
///
/// jobs.enqueue(NewJob::new("mail", "welcome").bytes("not an address"))?;
/// let lease = jobs.claim(ClaimRequest::new("mail"))?.remove(0);
/// assert_eq!(lease.fail(Failure::permanent("E_ADDRESS"))?, JobState::Dead);
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct Lease {
    pub(super) jobs: Redrive,
    claimed: Claimed,
    /// Dropped, it is not given back. Shared with a transaction that settles it.
    settled: Arc<AtomicBool>,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Heartbeat {
    /// How long the lease lasts from now, without another heartbeat.
    pub left: Duration,
    /// Somebody asked to cancel the job: stop, and fail or release it.
    pub cancel_requested: bool,
    /// The delivery's hard deadline has passed; the lease is not extended any more.
    pub deadline_passed: bool,
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("token", &self.claimed.token)
            .field("queue", &self.claimed.queue)
            .field("kind", &self.claimed.kind)
            .field("key", &self.claimed.key)
            .finish_non_exhaustive()
    }
}

impl Lease {
    pub(crate) fn new(jobs: Redrive, claimed: Claimed) -> Self {
        Self { jobs, claimed, settled: Arc::default() }
    }

    /// The job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.claimed.token.job
    }

    /// What fences this lease.
    #[must_use]
    pub fn token(&self) -> Token {
        self.claimed.token
    }

    /// The queue's name.
    #[must_use]
    pub fn queue(&self) -> &str {
        &self.claimed.queue
    }

    /// The kind's name.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.claimed.kind
    }

    /// The idempotency key: the same on every delivery.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.claimed.key.as_deref()
    }

    /// The ordering key.
    #[must_use]
    pub fn order_key(&self) -> Option<&str> {
        self.line().filter(|line| !line.is_empty())
    }

    /// What it is ordered with; empty for a destination as a whole.
    pub(crate) fn line(&self) -> Option<&str> {
        self.claimed.order.as_deref()
    }

    /// What its policy says of deliveries whose outcome is unknown.
    pub(crate) fn on_unknown(&self) -> OnUnknown {
        self.claimed.on_unknown
    }

    /// What makes it a message.
    pub(crate) fn post(&self) -> Option<&Post> {
        self.claimed.post.as_ref()
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.claimed.payload
    }

    /// The payload, read as JSON.
    ///
    /// # Errors
    ///
    /// A permanent [`Failure`] with code `undecodable`: the same bytes will not decode next time.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.claimed.payload)
            .map_err(|error| Failure::permanent("undecodable").message(error.to_string()))
    }

    /// Which delivery this is, counted from 1 over the job's life.
    #[must_use]
    pub fn delivery(&self) -> u32 {
        self.claimed.token.delivery
    }

    /// Which attempt this is, counted from 1 within the present cycle; uncharged deliveries do not
    /// count. For a reconciliation: the attempt that would come next.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.claimed.attempt
    }

    /// The lane the job was claimed from.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.claimed.lane
    }

    /// An earlier delivery may have had its effect without anybody knowing (P8): look before you
    /// repeat it.
    #[must_use]
    pub fn outcome_unknown(&self) -> bool {
        self.claimed.unknown.is_some()
    }

    /// What is known of the delivery whose outcome is unknown, if there was one: the evidence for
    /// finding out.
    #[must_use]
    pub fn unknown(&self) -> Option<&UnknownOutcome> {
        self.claimed.unknown.as_ref()
    }

    /// How many reconciliations have left that outcome unknown so far.
    #[must_use]
    pub fn reconciles(&self) -> u32 {
        self.claimed.reconciles
    }

    /// When the job was enqueued.
    #[must_use]
    pub fn enqueued_at(&self) -> Timestamp {
        self.claimed.enqueued_at
    }

    /// The length of the lease; extend it at no more than a third of that.
    #[must_use]
    pub fn length(&self) -> Duration {
        Duration::from_millis(self.claimed.lease_ms)
    }

    /// Extends the lease to its full length from now. Costs no commit: one process owns the file.
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended.
    pub fn heartbeat(&self) -> Result<Heartbeat, SettleError> {
        self.jobs.heartbeat(self.claimed.token)
    }

    /// The job is done. Returns after the commit.
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended: nothing was written.
    pub fn complete(self) -> Result<(), SettleError> {
        self.settle(How::Complete { result: None, effects: WriteSet::default() }).map(drop)
    }

    /// The job is done, with a result, rows in tables of the user's own and follow-up jobs that are
    /// written in the same commit (see [`Completion`]); bytes or a text alone are a result.
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended. [`SettleError::ResultTooLarge`],
    /// [`SettleError::Effect`] or [`SettleError::FollowUp`] when the completion was refused. Then nothing of
    /// it was written, and the job has failed: permanently, because the next delivery would do its work
    /// again and be refused again.
    pub fn complete_with(self, completion: impl Into<Completion>) -> Result<(), SettleError> {
        let how = completion.into().prepare(self.jobs.payload_bytes_max());
        self.settle_prepared(how).map(drop)
    }

    /// The delivery failed. Returns what became of the job: delayed for another attempt, dead, or
    /// cancelled if that was asked for meanwhile.
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended.
    pub fn fail(self, failure: Failure) -> Result<JobState, SettleError> {
        self.settle(How::Fail(failure))
    }

    /// Later, please: the job becomes ready again after `delay` and is charged no attempt. Bounded
    /// by the policy's `snoozes_max`.
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended.
    pub fn snooze(self, delay: Duration) -> Result<JobState, SettleError> {
        self.settle(How::Snooze(Start::AfterMs(whole_ms(delay))))
    }

    /// Gives the job back unstarted, to its old place in line, charged no attempt. Bounded by the
    /// policy's `releases_max`.
    ///
    /// # Errors
    ///
    /// [`SettleError::StaleLease`] when the lease has ended.
    pub fn release(self) -> Result<JobState, SettleError> {
        self.settle(How::Release(Work::Unstarted))
    }

    /// Completes this job and claims the next one in the same commit: what a worker loop wants.
    /// Should nothing be ready, the completion is committed at once and the claim waits as it says.
    ///
    /// # Errors
    ///
    /// The first result is that of the completion, the second that of the claim.
    pub fn complete_then_claim(
        self,
        next: ClaimRequest,
    ) -> (Result<(), SettleError>, Result<Vec<Self>, ClaimError>) {
        let how = How::Complete { result: None, effects: WriteSet::default() };
        let (settled, claimed) = self.ask_to_settle_then_claim(how, next).both();
        (settled.map(drop), claimed)
    }

    /// Another handle of the same lease, for tests of fencing. Feature `test-util`.
    #[cfg(feature = "test-util")]
    #[must_use]
    pub fn twin(&self) -> Self {
        Self::new(self.jobs.clone(), self.claimed.clone())
    }

    /// Whether it needs no giving back.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    fn set_settled(&self, settled: bool) {
        self.settled.store(settled, Ordering::Release);
    }

    /// To be set by a transaction that has settled it.
    pub(crate) fn settled_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.settled)
    }

    pub(crate) fn jobs(&self) -> &Redrive {
        &self.jobs
    }

    pub(crate) fn class(&self) -> Class {
        self.claimed.class
    }

    pub(crate) fn settle(self, how: How) -> Result<JobState, SettleError> {
        self.settle_prepared(Ok(how))
    }

    /// What is refused, before or by the store, is a failure of the job.
    pub(crate) fn settle_prepared(
        self,
        how: Result<How, SettleError>,
    ) -> Result<JobState, SettleError> {
        let (token, class) = (self.token(), self.class());
        let settled = how.and_then(|how| self.jobs.settle(token, class, how));
        let Some(error) = settled.as_ref().err() else {
            self.set_settled(true);
            return settled;
        };
        if let Some(failure) = refusal(error) {
            // The refusal is the news. Should this be refused as well, the lease has ended, or the store.
            let failed = self.jobs.settle(token, class, How::Fail(failure));
            self.set_settled(!failed.is_err_and(|error| is_nested(&error)));
        } else {
            self.set_settled(!is_nested(error));
        }
        settled
    }

    /// Asks for the settle; the answer can be waited for later.
    pub(crate) fn ask_to_settle(self, how: How) -> Asked {
        let jobs = self.jobs.clone();
        let (answer, settled) = reply();
        self.set_settled(true);
        let (token, class) = (self.claimed.token, self.claimed.class);
        let settle = Settle { token, class, how, reply: answer, then: None };
        // A store that takes no more commands drops the reply, which says so.
        let _ = jobs.writer().tell(Command::Settle(Box::new(settle)));
        Asked { jobs, settled }
    }

    /// Asks for the settle and the next claim in one commit. The two are waited for one after the
    /// other: a claim may wait long after the settle was answered.
    pub(crate) fn ask_to_settle_then_claim(self, how: How, next: ClaimRequest) -> Settling {
        let jobs = self.jobs.clone();
        let (settle_reply, settled) = reply();
        let (claim_reply, claimed) = reply();
        let request = next.check(jobs.clock().monotonic_ms());
        let (then, refused) = match request {
            Ok(request) => (Some(Claim { request, reply: claim_reply }), None),
            Err(error) => (None, Some(error)),
        };
        if jobs.writer().is_lent_here() {
            let refused = Some(StorageError::nested().into());
            return Settling { jobs, settled, claimed, refused };
        }
        self.set_settled(true);
        let (token, class) = (self.claimed.token, self.claimed.class);
        let settle = Settle { token, class, how, reply: settle_reply, then };
        // A store that takes no more commands drops both replies, which says so.
        let _ = jobs.writer().tell(Command::Settle(Box::new(settle)));
        Settling { jobs, settled, claimed, refused }
    }
}

fn is_nested(error: &SettleError) -> bool {
    matches!(error, SettleError::Storage(error) if error.is_nested())
}

impl AsRef<Self> for Lease {
    fn as_ref(&self) -> &Self {
        self
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.is_settled() {
            // A panic came in the middle of the work: it may have had its effect.
            let panics = std::thread::panicking();
            let work = if panics { Work::Started } else { Work::Unstarted };
            self.jobs.release(self.claimed.token, self.claimed.class, work);
        }
    }
}

impl Redrive {
    pub(crate) fn heartbeat(&self, token: Token) -> Result<Heartbeat, SettleError> {
        let writer = self.writer();
        let beat = writer.leases.heartbeat(token, self.clock().monotonic_ms());
        match (beat, writer.poisoned()) {
            (_, Some(cause)) => Err(cause.into()),
            (Some(beat), None) => Ok(Heartbeat {
                left: Duration::from_millis(beat.left_ms),
                cancel_requested: beat.cancel_requested,
                deadline_passed: beat.deadline_passed,
            }),
            (None, None) => Err(SettleError::StaleLease { presented: token, current: None }),
        }
    }

    /// Gives a lease back without waiting for the answer.
    pub(crate) fn release(&self, token: Token, class: Class, work: Work) {
        let (reply, _) = reply();
        let settle = Settle { token, class, how: How::Release(work), reply, then: None };
        // A store that no longer answers recovers the lease at its next opening.
        let _ = self.writer().tell(Command::Settle(Box::new(settle)));
    }

    /// Gives a lease back; returns what became of the job.
    pub(crate) fn give_back(
        &self,
        token: Token,
        class: Class,
        work: Work,
    ) -> Result<JobState, SettleError> {
        self.settle(token, class, How::Release(work))
    }

    /// Settles a lease by its token.
    pub(crate) fn settle(
        &self,
        token: Token,
        class: Class,
        how: How,
    ) -> Result<JobState, SettleError> {
        self.ask(|reply| {
            Command::Settle(Box::new(Settle { token, class, how, reply, then: None }))
        })?
    }
}
