//! Claiming jobs.

use std::time::Duration;

use crate::domain::limits::{BATCH_MAX, CLAIM_BYTES_MAX, WORKER_BYTES_MAX, cut};
use crate::domain::outbox::queue_of;
use crate::domain::time::whole_ms;
use crate::error::ClaimError;
use crate::handle::lease::Lease;
use crate::handle::redrive::Redrive;
use crate::handle::{check_name, check_queue};
use crate::writer::command::{Along, Claim, Claimed, Command, Reconciles, Request, StopFlag};

/// What to claim.
///
/// ```
/// use std::time::Duration;
/// use redrive::ClaimRequest;
///
/// let request = ClaimRequest::new("charges")
///     .kinds(["charge", "refund"])
///     .up_to(10)
///     .wait(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    queue: String,
    kinds: Option<Vec<String>>,
    reconciles: Reconciles,
    jobs_max: usize,
    wait_ms: Option<u64>,
    worker: String,
    version: String,
    stop: Option<StopFlag>,
    bytes_max: usize,
    along: Along,
    /// It names a destination's queue.
    reserved: bool,
}

impl ClaimRequest {
    /// One job of any kind from `queue`, without waiting.
    #[must_use]
    pub fn new(queue: impl Into<String>) -> Self {
        Self {
            queue: queue.into(),
            kinds: None,
            reconciles: Reconciles::Kinds(Vec::new()),
            jobs_max: 1,
            wait_ms: None,
            worker: String::new(),
            version: String::new(),
            stop: None,
            bytes_max: CLAIM_BYTES_MAX,
            along: Along::Nothing,
            reserved: false,
        }
    }

    /// One message of a destination, without waiting.
    pub(crate) fn of_destination(destination: &str) -> Self {
        Self { reserved: true, ..Self::new(queue_of(destination)) }
    }

    /// Only jobs of these kinds. Others stay ready and are charged nothing.
    #[must_use]
    pub fn kinds(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kinds = Some(kinds.into_iter().map(Into::into).collect());
        self
    }

    /// Also jobs of these kinds that wait for a reconciler, because the outcome of a delivery is
    /// unknown and their policy is [`OnUnknown::Reconcile`](crate::OnUnknown::Reconcile). Their leases
    /// are [`Lease::is_reconciliation`]; settle them with [`Lease::reconcile`]. Without this, no such
    /// job is handed out.
    #[must_use]
    pub fn reconciles(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.reconciles = Reconciles::Kinds(kinds.into_iter().map(Into::into).collect());
        self
    }

    /// Also jobs of any kind that wait for a reconciler, see [`reconciles`](Self::reconciles).
    #[must_use]
    pub fn reconciles_any(mut self) -> Self {
        self.reconciles = Reconciles::Any;
        self
    }

    /// Up to this many jobs, 1 to 100,000, but no more once their payloads reach 16 MiB. All are leased
    /// from the same moment.
    #[must_use]
    pub fn up_to(mut self, jobs: usize) -> Self {
        self.jobs_max = jobs;
        self
    }

    /// Waits this long for the first job. The wait costs no polling: an enqueue and the claim that
    /// it satisfies share a commit.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> Self {
        self.wait_ms = Some(whole_ms(wait));
        self
    }

    /// Who claims; kept with the delivery. Cut to 64 bytes.
    #[must_use]
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = cut(worker.into(), WORKER_BYTES_MAX);
        self
    }

    /// The version of the handler; kept with a job that dies under it. Cut to 64 bytes.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = cut(version.into(), WORKER_BYTES_MAX);
        self
    }

    pub(crate) fn stop(mut self, stop: StopFlag) -> Self {
        self.stop = Some(stop);
        self
    }

    /// No more jobs once their payloads reach this many bytes (default, and at most, 16 MiB).
    #[must_use]
    pub fn bytes_max(mut self, bytes: usize) -> Self {
        self.bytes_max = bytes.min(CLAIM_BYTES_MAX);
        self
    }

    /// Together with a job that has an [ordering key](crate::NewJob::order_key), those of its kind that
    /// wait behind it, in their order: a batch for one delivery. Settle them in that order, and give
    /// back unstarted what comes after one that failed: it returns to its place.
    ///
    /// A job that has a deadline, or a policy other than
    /// [`OnUnknown::Retry`](crate::OnUnknown::Retry), is claimed by itself, also where more were
    /// asked for: what was claimed along with it and not started could not be told from what was,
    /// if the process dies or time runs out.
    #[must_use]
    pub fn with_followers(mut self) -> Self {
        self.along = Along::Followers;
        self
    }

    pub(crate) fn check(self, now_ms: u64) -> Result<Request, ClaimError> {
        let check = if self.reserved { check_name } else { check_queue };
        check(&self.queue).map_err(|why| ClaimError::BadName { what: "queue", why })?;
        let reconciles = match &self.reconciles {
            Reconciles::Kinds(kinds) => kinds.as_slice(),
            Reconciles::Any => &[],
        };
        for kind in self.kinds.iter().flatten().chain(reconciles) {
            check_name(kind).map_err(|why| ClaimError::BadName { what: "kind", why })?;
        }
        if self.jobs_max == 0 || self.jobs_max > BATCH_MAX {
            return Err(ClaimError::BadCount { jobs: self.jobs_max, jobs_max: BATCH_MAX });
        }
        Ok(Request {
            queue: self.queue,
            kinds: self.kinds,
            reconciles: self.reconciles,
            jobs_max: self.jobs_max,
            worker: self.worker,
            version: self.version,
            until_ms: self.wait_ms.map(|ms| now_ms.saturating_add(ms)),
            stop: self.stop,
            bytes_max: self.bytes_max,
            along: self.along,
        })
    }
}

impl Redrive {
    /// Leases jobs: the highest priority first, then the longest in line. Each delivery is counted
    /// on the disk before this returns (P4).
    ///
    /// Empty when nothing was ready in time. A queue that does not exist yet is an empty queue.
    ///
    /// # Errors
    ///
    /// [`ClaimError`]: a bad name, a count of 0 or over 100,000, or the store's own trouble.
    pub fn claim(&self, request: ClaimRequest) -> Result<Vec<Lease>, ClaimError> {
        let request = request.check(self.clock().monotonic_ms())?;
        let claimed = self.ask(|reply| Command::Claim(Claim { request, reply }))??;
        Ok(self.leases(claimed))
    }

    pub(crate) fn leases(&self, claimed: Vec<Claimed>) -> Vec<Lease> {
        claimed.into_iter().map(|claimed| Lease::new(self.clone(), claimed)).collect()
    }
}
