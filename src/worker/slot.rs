//! One worker thread: claim, run, settle together with the next claim.

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::domain::failure::Failure;
use crate::error::{ClaimError, SettleError, StorageError};
use crate::handle::claim::ClaimRequest;
use crate::handle::completion::{Completion, refusal};
use crate::handle::lease::Lease;
use crate::handle::reconcile::Reconciled;
use crate::handle::redrive::Redrive;
use crate::worker::delivery::Delivery;
use crate::worker::ending::Ending;
use crate::worker::heart::Heart;
use crate::worker::unknown::Unknown;
use crate::writer::command::{How, StopFlag};

/// A waiting claim is renewed after this long; waking it costs nothing.
const CLAIM_WAIT: Duration = Duration::from_secs(60);

pub(crate) type Handler = Arc<dyn Fn(&Delivery) -> Result<Completion, Failure> + Send + Sync>;
pub(crate) type Reconciler = Arc<dyn Fn(&Unknown) -> Result<Reconciled, Failure> + Send + Sync>;

/// What the threads of one set of workers share.
pub(crate) struct Shared {
    pub(crate) jobs: Redrive,
    pub(crate) handlers: BTreeMap<String, Handler>,
    pub(crate) any: Option<Handler>,
    pub(crate) reconcilers: BTreeMap<String, Reconciler>,
    pub(crate) any_reconciler: Option<Reconciler>,
    pub(crate) heart: Heart,
    pub(crate) stop: StopFlag,
    /// Slots that have not ended; `ended` is raised when one does.
    pub(crate) active: AtomicU64,
    pub(crate) ended: Arc<Signal>,
    pub(crate) tally: Tally,
}

/// What has happened, as this set of workers saw it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) completed: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) reconciled: AtomicU64,
    pub(crate) still_unknown: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) stale: AtomicU64,
    /// What ended the slots before their time: an error, or a panic.
    pub(crate) error: Mutex<Option<StorageError>>,
}

impl Shared {
    /// Runs one slot to its end.
    pub(crate) fn run(&self, request: &ClaimRequest) {
        let (active, ended, error) = (&self.active, &*self.ended, &self.tally.error);
        let _ending = Ending { active, ended, error };
        let request = request.clone().wait(CLAIM_WAIT).stop(self.stop.clone());
        let mut next = None;
        while let Some(lease) = next.take().or_else(|| self.claim(&request)) {
            if self.stop.is_set() {
                // Claimed and not started: it goes back uncharged.
                drop(lease);
                break;
            }
            next = self.deliver(lease, &request);
        }
    }

    /// The next lease; `None` when this slot is to end.
    fn claim(&self, request: &ClaimRequest) -> Option<Lease> {
        while !self.stop.is_set() {
            let claimed = self.jobs.claim(request.clone());
            if let Some(lease) = self.claimed(claimed)? {
                return Some(lease);
            }
        }
        None
    }

    /// The lease of a claim for one job; the outer `None` when the store gives no more.
    fn claimed(&self, claimed: Result<Vec<Lease>, ClaimError>) -> Option<Option<Lease>> {
        match claimed {
            Ok(mut leases) => Some(leases.pop()),
            Err(ClaimError::Storage(error)) => {
                if !error.is_closed() {
                    self.tally.error.lock().get_or_insert(error);
                }
                None
            }
            // Checked when the workers were started.
            Err(ClaimError::BadName { .. } | ClaimError::BadCount { .. }) => None,
        }
    }

    /// Runs the handler and settles; returns the lease claimed in the same commit, if any.
    fn deliver(&self, lease: Lease, request: &ClaimRequest) -> Option<Lease> {
        // Too late to start: dropped, it goes back uncharged.
        let pulse = self.heart.add(&lease)?;
        let (token, class) = (lease.token(), lease.class());
        let delivery = Delivery { lease, pulse };
        let reconciles = delivery.lease.is_reconciliation();
        let (delivery, how) = if reconciles {
            let unknown = Unknown { delivery };
            let found = self.reconcile(&unknown);
            let asks = found.map(|found| found.prepare(self.jobs.payload_bytes_max()));
            (unknown.delivery, how(asks))
        } else {
            let done = self.handle(&delivery);
            let asks = done.map(|completion| completion.prepare(self.jobs.payload_bytes_max()));
            (delivery, how(asks))
        };
        let Delivery { lease, .. } = delivery;
        if lease.is_settled() {
            // The handler has settled it in a transaction; nothing that it says now changes that.
            self.heart.remove(token);
            self.tally.completed.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let mut counter = match (&how, reconciles) {
            (How::Complete { .. } | How::DidNotHappen, true) => Some(&self.tally.reconciled),
            (How::Fail(_), true) => Some(&self.tally.still_unknown),
            (How::Complete { .. }, false) => Some(&self.tally.completed),
            (How::Fail(_), false) => Some(&self.tally.failed),
            (How::DidNotHappen | How::Snooze(_) | How::Release(_), _) => None,
        };
        // What was just given back is not what to claim next.
        let goes_on = !matches!(how, How::Release(_)) && !self.stop.is_set();
        let (mut settled, claiming) = if goes_on {
            let (settled, claiming) =
                lease.ask_to_settle_then_claim(how, request.clone()).settled();
            (settled, Some(claiming))
        } else {
            (lease.settle(how), None)
        };
        // What the store refused, the next delivery would ask for again.
        if let Some(failure) = settled.as_ref().err().and_then(refusal) {
            settled = self.jobs.settle(token, class, How::Fail(failure));
            counter = Some(if reconciles { &self.tally.still_unknown } else { &self.tally.failed });
        }
        // Beats go on until the settle is answered, because a slow disk must not cost the lease; and
        // no longer, because the claim may wait long.
        self.heart.remove(token);
        match (&settled, counter) {
            (Ok(_), Some(counter)) => drop(counter.fetch_add(1, Ordering::Relaxed)),
            (Err(SettleError::StaleLease { .. }), _) => {
                self.tally.stale.fetch_add(1, Ordering::Relaxed);
            }
            (Ok(_) | Err(_), _) => {}
        }
        self.claimed(claiming?.claimed()).flatten()
    }

    fn handle(&self, delivery: &Delivery) -> Result<Completion, Failure> {
        let handler = self.handlers.get(delivery.kind()).or(self.any.as_ref());
        // Claims name the handled kinds, so this is a kind that was asked for.
        let handler = handler.ok_or_else(|| Failure::transient("no_handler"))?;
        self.caught(|| handler(delivery))
    }

    fn reconcile(&self, unknown: &Unknown) -> Result<Reconciled, Failure> {
        let reconciler = self.reconcilers.get(unknown.kind()).or(self.any_reconciler.as_ref());
        let reconciler = reconciler.ok_or_else(|| Failure::transient("no_reconciler"))?;
        self.caught(|| reconciler(unknown))
    }

    fn caught<T>(&self, run: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
        catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
            self.tally.panicked.fetch_add(1, Ordering::Relaxed);
            Err(Failure::transient("panicked").message(panic_text(&*panic)))
        })
    }
}

/// What to ask the store for; what cannot be asked for is a failure.
pub(crate) fn how(asks: Result<Result<How, SettleError>, Failure>) -> How {
    match asks {
        Ok(Ok(how)) => how,
        Ok(Err(refused)) => How::Fail(refusal(&refused).unwrap_or_else(|| refused.into())),
        Err(failure) => How::Fail(failure),
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "the handler panicked with something that is not a text".to_owned())
}
