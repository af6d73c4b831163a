//! One relay thread: claim a batch, offer it, settle all of it in one commit.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::domain::event::Work;
use crate::domain::id::{Class, Token};
use crate::error::{ClaimError, SettleError, StorageError};
use crate::handle::claim::ClaimRequest;
use crate::handle::lease::Lease;
use crate::handle::redrive::Redrive;
use crate::relay::errand::{self, Fate};
use crate::relay::outgoing::Outgoing;
use crate::relay::sink::Sink;
use crate::worker::delivery::Pulse;
use crate::worker::heart::Heart;
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
    /// The error that ended the threads, if one did.
    pub(crate) error: Mutex<Option<StorageError>>,
}

impl Shared {
    /// Serves one destination until told to stop.
    pub(crate) fn run(&self, sink: &dyn Sink, request: &ClaimRequest) {
        let request = request.clone().wait(CLAIM_WAIT).stop(self.stop.clone());
        while !self.stop.is_set() {
            match self.jobs.claim(request.clone()) {
                Ok(leases) if self.stop.is_set() => drop(leases),
                Ok(leases) => self.deliver(sink, leases),
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
        self.active.fetch_sub(1, Ordering::AcqRel);
        self.ended.raise();
    }

    fn deliver(&self, sink: &dyn Sink, leases: Vec<Lease>) {
        // Those that come too late to be started are dropped, which gives them back uncharged.
        let held: Vec<(Lease, Arc<Pulse>)> = leases
            .into_iter()
            .filter_map(|lease| self.heart.add(&lease).map(|pulse| (lease, pulse)))
            .collect();
        let batch: Vec<Outgoing> =
            held.iter().map(|(lease, _)| Outgoing::new(lease, self.store)).collect();
        let tokens: Vec<Token> = held.iter().map(|(lease, _)| lease.token()).collect();
        let may_go = |place: usize| {
            let Some((lease, pulse)) = held.get(place) else { return false };
            let goes = !self.stop.is_set() && pulse.may_go_on();
            if goes {
                self.offered.lock().insert(lease.token());
            }
            goes
        };
        let (fates, counted) = errand::run(sink, &batch, &may_go);
        self.tally.splits.fetch_add(counted.splits, Ordering::Relaxed);
        self.tally.panicked.fetch_add(counted.panics, Ordering::Relaxed);
        self.settle(held.into_iter().map(|(lease, _)| lease), fates);
        let mut offered = self.offered.lock();
        for token in tokens {
            offered.remove(&token);
            self.heart.remove(token);
        }
    }

    /// Settles in the order of the batch: what failed is in its place before what comes back behind
    /// it. All are asked for before one is waited for, so they share a commit.
    fn settle(&self, leases: impl Iterator<Item = Lease>, fates: Vec<Fate>) {
        let mut asked = Vec::with_capacity(fates.len());
        for (lease, fate) in leases.zip(fates) {
            let (how, counter) = match fate {
                Fate::Sent => {
                    let how = How::Complete { result: None, effects: WriteSet::default() };
                    (how, Some(&self.tally.sent))
                }
                Fate::Failed(failure) => (How::Fail(failure), Some(&self.tally.failed)),
                Fate::Unattempted => (How::Release(Work::Unstarted), None),
            };
            asked.push((lease.ask_to_settle(how), counter));
        }
        for (asked, counter) in asked {
            match (asked.settled(), counter) {
                (Ok(_), Some(counter)) => drop(counter.fetch_add(1, Ordering::Relaxed)),
                (Err(SettleError::StaleLease { .. }), Some(_)) => {
                    self.tally.stale.fetch_add(1, Ordering::Relaxed);
                }
                // The store's own trouble is met again, and told, by the next claim.
                (Ok(_) | Err(_), _) => {}
            }
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
