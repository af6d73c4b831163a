//! One relay thread: claim a batch, offer it, settle all of it in one commit.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::domain::event::Work;
use crate::domain::failure::Failure;
use crate::domain::id::{Class, Token};
use crate::domain::unknown::UnknownOutcome;
use crate::error::{ClaimError, SettleError, StorageError};
use crate::handle::claim::ClaimRequest;
use crate::handle::completion::refusal;
use crate::handle::lease::Lease;
use crate::handle::reconcile::Reconciled;
use crate::handle::redrive::Redrive;
use crate::handle::settling;
use crate::relay::errand::{self, Fate, panicked};
use crate::relay::outgoing::Outgoing;
use crate::relay::sink::Sink;
use crate::worker::delivery::Pulse;
use crate::worker::ending::Ending;
use crate::worker::heart::Heart;
use crate::worker::slot::how;
use crate::writer::command::{How, StopFlag, WriteSet};

/// A waiting claim is renewed after this long; waking it costs nothing.
const CLAIM_WAIT: Duration = Duration::from_secs(60);

/// What the threads of one relay share.
pub(crate) struct Shared {
    pub(crate) jobs: Redrive,
    /// Tells this file from others.
    pub(crate) store: u64,
    pub(crate) heart: Heart,
    pub(crate) stop: StopFlag,
    /// Threads that have not ended; `ended` is raised when one does.
    pub(crate) active: AtomicU64,
    pub(crate) ended: Arc<Signal>,
    /// Messages that were offered to a sink which has not answered yet.
    pub(crate) offered: Mutex<HashSet<Token>>,
    pub(crate) tally: Tally,
}

/// What has happened, as this relay saw it.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) sent: AtomicU64,
    pub(crate) failed: AtomicU64,
    pub(crate) panicked: AtomicU64,
    pub(crate) splits: AtomicU64,
    pub(crate) stale: AtomicU64,
    pub(crate) reconciled: AtomicU64,
    /// What ended the threads before their time: an error, or a panic.
    pub(crate) error: Mutex<Option<StorageError>>,
}

/// A destination's sink, and who finds out what became of its messages in doubt.
pub(crate) struct Route {
    pub(crate) sink: Arc<dyn Sink>,
    /// The most messages of one call.
    pub(crate) batch_max: usize,
    pub(crate) reconciler: Option<Arc<MessageReconciler>>,
}

/// Finds out what became of a message.
pub(crate) type MessageReconciler =
    dyn Fn(&Outgoing, &UnknownOutcome) -> Result<Reconciled, Failure> + Send + Sync;

/// A settle that was asked for.
struct Asked<'t> {
    token: Token,
    class: Class,
    settling: settling::Asked,
    counter: Option<&'t AtomicU64>,
}

impl Shared {
    /// Serves one destination until told to stop.
    pub(crate) fn run(&self, route: &Route, request: &ClaimRequest) {
        let (active, ended, error) = (&self.active, &*self.ended, &self.tally.error);
        let _ending = Ending { active, ended, error };
        let request = request.clone().wait(CLAIM_WAIT).stop(self.stop.clone());
        while !self.stop.is_set() {
            match self.jobs.claim(request.clone()) {
                Ok(leases) if self.stop.is_set() => drop(leases),
                Ok(leases) => self.deliver(route, leases),
                Err(ClaimError::Storage(error)) => {
                    if !error.is_closed() {
                        self.tally.error.lock().get_or_insert(error);
                    }
                    break;
                }
                // Checked when the relay was started.
                Err(ClaimError::BadName { .. } | ClaimError::BadCount { .. }) => break,
            }
        }
    }

    fn deliver(&self, route: &Route, leases: Vec<Lease>) {
        // Those that come too late to be started are dropped, which gives them back uncharged.
        let held = leases.into_iter();
        let held = held.filter_map(|lease| self.heart.add(&lease).map(|pulse| (lease, pulse)));
        let (in_doubt, held): (Vec<_>, Vec<_>) =
            held.partition(|(lease, _)| lease.is_reconciliation());
        for (lease, pulse) in in_doubt {
            let how = match self.may_go(lease.token(), &pulse) {
                true => self.reconcile(route, &lease),
                false => How::Release(Work::Unstarted),
            };
            self.settled(vec![self.ask(lease, how)]);
        }
        if !held.is_empty() {
            self.offer(route, held);
        }
    }

    fn offer(&self, route: &Route, held: Vec<(Lease, Arc<Pulse>)>) {
        let outgoing = |(lease, _): &(Lease, _)| Outgoing::new(lease, self.store);
        let batch: Vec<Outgoing> = held.iter().map(outgoing).collect();
        let (mut leases, pulses): (Vec<_>, Vec<_>) = held
            .into_iter()
            .map(|(lease, pulse)| {
                let token = lease.token();
                (Some(lease), (token, pulse))
            })
            .unzip();
        let may_go = |place: usize| {
            pulses.get(place).is_some_and(|(token, pulse)| self.may_go(*token, pulse))
        };
        let mut asked = Vec::new();
        let counted = errand::run(&*route.sink, route.batch_max, &batch, &may_go, &mut |fates| {
            // What was asked for after the call before has been answered while this one ran.
            self.settled(std::mem::take(&mut asked));
            // In the order of the batch: what failed is in its place before what comes back behind it.
            // All are asked for before one is waited for, so they share a commit.
            for (place, fate) in fates {
                if let Some(lease) = leases.get_mut(place).and_then(Option::take) {
                    asked.push(self.ask(lease, settlement(fate)));
                }
            }
        });
        self.settled(asked);
        self.tally.splits.fetch_add(counted.splits, Ordering::Relaxed);
        self.tally.panicked.fetch_add(counted.panics, Ordering::Relaxed);
    }

    /// Whether a message may be offered to the sink now; if so, it is from now on in hand.
    fn may_go(&self, token: Token, pulse: &Pulse) -> bool {
        let goes = !self.stop.is_set() && pulse.may_go_on();
        if goes {
            self.offered.lock().insert(token);
        }
        goes
    }

    /// Finds out what became of a delivery in doubt.
    fn reconcile(&self, route: &Route, lease: &Lease) -> How {
        let (Some(reconciler), Some(unknown)) = (&route.reconciler, lease.unknown()) else {
            // None is claimed without a reconciler.
            return How::Release(Work::Unstarted);
        };
        let message = Outgoing::new(lease, self.store);
        let found = catch_unwind(AssertUnwindSafe(|| reconciler(&message, unknown)));
        let found = found.unwrap_or_else(|panic| {
            self.tally.panicked.fetch_add(1, Ordering::Relaxed);
            Err(panicked(&*panic))
        });
        how(found.map(|found| found.prepare(self.jobs.payload_bytes_max())))
    }

    fn ask(&self, lease: Lease, how: How) -> Asked<'_> {
        let counter = match (&how, lease.is_reconciliation()) {
            (How::Complete { .. } | How::DidNotHappen, true) => Some(&self.tally.reconciled),
            (How::Complete { .. }, false) => Some(&self.tally.sent),
            (How::Fail(_), _) => Some(&self.tally.failed),
            (How::DidNotHappen | How::Release(_) | How::Snooze(_), _) => None,
        };
        let (token, class) = (lease.token(), lease.class());
        Asked { token, class, settling: lease.ask_to_settle(how), counter }
    }

    /// Waits for the answers.
    fn settled(&self, asked: Vec<Asked<'_>>) {
        for Asked { token, class, settling, counter } in asked {
            let mut settled = settling.settled();
            // A completion that was refused, the next reconciliation would ask for again.
            if let Some(failure) = settled.as_ref().err().and_then(refusal) {
                settled = self.jobs.settle(token, class, How::Fail(failure));
            }
            match (settled, counter) {
                (Ok(_), Some(counter)) => drop(counter.fetch_add(1, Ordering::Relaxed)),
                (Err(SettleError::StaleLease { .. }), Some(_)) => {
                    self.tally.stale.fetch_add(1, Ordering::Relaxed);
                }
                // The store's own trouble is met again, and told, by the next claim.
                (Ok(_) | Err(_), _) => {}
            }
            // Beats go on until then, because a slow disk must not cost the lease.
            self.offered.lock().remove(&token);
            self.heart.remove(token);
        }
    }

    /// Gives back what a sink still has in hand; returns how many messages that were.
    pub(crate) fn give_back(&self) -> usize {
        let held: Vec<(Token, Class)> = self.heart.give_back();
        let offered = self.offered.lock().clone();
        let give_back = |&&(token, class): &&(Token, Class)| {
            let work = if offered.contains(&token) { Work::Started } else { Work::Unstarted };
            self.jobs.give_back(token, class, work).is_ok()
        };
        // One that ends in this moment has settled its lease itself.
        held.iter().filter(give_back).count()
    }
}

/// What the store is asked for.
fn settlement(fate: Fate) -> How {
    match fate {
        Fate::Sent => How::Complete { result: None, effects: WriteSet::default() },
        Fate::Failed(failure) => How::Fail(failure),
        Fate::Unattempted => How::Release(Work::Unstarted),
    }
}
