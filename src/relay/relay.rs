//! A set of relay threads.

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Signal;
use crate::domain::failure::Failure;
use crate::domain::limits::{BATCH_MAX, CLAIM_BYTES_MAX};
use crate::domain::time::whole_ms;
use crate::domain::unknown::UnknownOutcome;
use crate::error::{RelayError, StorageError};
use crate::handle::check_destination;
use crate::handle::claim::ClaimRequest;
use crate::handle::reconcile::Reconciled;
use crate::handle::redrive::Redrive;
use crate::relay::outgoing::Outgoing;
use crate::relay::shared::{MessageReconciler, Route, Shared, Tally};
use crate::relay::sink::Sink;
use crate::worker::heart::Heart;
use crate::worker::slot::panic_text;
use crate::worker::workers::Shutdown;
use crate::writer::command::{Command, StopFlag};

/// Most threads for one destination.
const THREADS_MAX: usize = 1_024;

/// Threads that hand the messages of destinations to their sinks.
///
/// Messages are jobs: claimed in batches under leases that are kept alive while a sink runs, with the
/// failure classes, budgets, waits and quarantine of their destination's policy. A message that fails
/// holds up those behind it in its order and nobody else; it is tried again alone. Messages of
/// destinations without a sink wait, and are shown by [`Redrive::outbox`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use std::time::Duration;
/// use redrive::{FileSink, Message, Relay};
///
/// jobs.emit(Message::to("audit").bytes("order O-194 charged"))?;
/// let relay = Relay::new(&jobs).sink("audit", FileSink::open(dir.path().join("audit.jsonl"))?).start()?;
/// while jobs.outbox()?["audit"].unsent > 0 {
///     std::thread::yield_now();
/// }
/// relay.shutdown(Duration::from_secs(10));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Relay {
    jobs: Redrive,
    sinks: BTreeMap<String, Arc<dyn Sink>>,
    reconcilers: BTreeMap<String, Arc<MessageReconciler>>,
    batch: usize,
    batch_bytes: usize,
    threads: usize,
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("destinations", &self.sinks.keys())
            .field("batch", &self.batch)
            .finish_non_exhaustive()
    }
}

impl Relay {
    /// No sinks yet.
    pub fn new(jobs: &Redrive) -> Self {
        Self {
            jobs: jobs.clone(),
            sinks: BTreeMap::new(),
            reconcilers: BTreeMap::new(),
            batch: 100,
            batch_bytes: 4 * 1024 * 1024,
            threads: 1,
        }
    }

    /// Hands the messages of `destination` to `sink`. The last sink given for a destination counts.
    pub fn sink(mut self, destination: impl Into<String>, sink: impl Sink + 'static) -> Self {
        self.sinks.insert(destination.into(), Arc::new(sink));
        self
    }

    /// Asks this what became of a message of `destination` whose delivery was lost, where the messages'
    /// policy is [`OnUnknown::Reconcile`](crate::OnUnknown::Reconcile); an error means that it could not
    /// be found out. Without it such messages wait, visibly, and with an order those behind them; under
    /// the other policies it is never asked. The destination needs a sink, too.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// # struct Mailer;
    /// # impl Mailer { fn has_sent(&self, _: &str) -> Result<bool, redrive::Failure> { Ok(true) } }
    /// # impl redrive::Sink for Mailer {
    /// #     fn deliver(&self, batch: &[redrive::Outgoing]) -> Vec<Result<(), redrive::Failure>> {
    /// #         batch.iter().map(|_| Ok(())).collect()
    /// #     }
    /// # }
    /// use std::sync::Arc;
    /// use redrive::{Completion, Reconciled, Relay};
    ///
    /// let mailer = Arc::new(Mailer);
    /// let asked = Arc::clone(&mailer);
    /// let relay = Relay::new(&jobs).sink("email", mailer).reconcile("email", move |message, _| {
    ///     Ok(match asked.has_sent(message.idempotency_key())? {
    ///         true => Reconciled::Happened(Completion::new()),
    ///         false => Reconciled::DidNotHappen,
    ///     })
    /// });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reconcile(
        mut self,
        destination: impl Into<String>,
        reconciler: impl Fn(&Outgoing, &UnknownOutcome) -> Result<Reconciled, Failure>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        self.reconcilers.insert(destination.into(), Arc::new(reconciler));
        self
    }

    /// The most messages claimed at once, 1 to 100,000 (default 100). Those that have a deadline, or
    /// a policy other than [`OnUnknown::Retry`](crate::OnUnknown::Retry), go one by one.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// No more messages are claimed at once when their payloads have reached this many bytes (default
    /// 4 MiB, at least 1, at most 16 MiB). A single larger message is claimed alone.
    pub fn batch_bytes(mut self, bytes: usize) -> Self {
        self.batch_bytes = bytes;
        self
    }

    /// Threads for each destination, 1 to 1,024 (default 1). More of them help only where there is no
    /// order over the whole destination.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`RelayError`]: no sink, a bad name, a number out of its range, a sink whose
    /// [`batch_max`](Sink::batch_max) panics, or the system gives no thread. Nothing runs then.
    pub fn start(self) -> Result<RunningRelay, RelayError> {
        self.check()?;
        let routes = self.routes()?;
        let threads = self.sinks.len().saturating_mul(self.threads);
        let shared = Arc::new(Shared {
            store: self.jobs.store_number()?,
            heart: Heart::new(self.jobs.clone(), None),
            jobs: self.jobs,
            stop: StopFlag::default(),
            active: AtomicU64::new(u64::try_from(threads).unwrap_or(u64::MAX)),
            ended: Signal::new(),
            offered: Mutex::new(HashSet::new()),
            tally: Tally::default(),
        });
        let mut running =
            RunningRelay { shared: Arc::clone(&shared), heart: None, threads: Vec::new() };
        let heart = Arc::clone(&shared);
        running.heart = Some(spawn("redrive-heart", move || heart.heart.run())?);
        for (destination, route) in routes {
            for number in 0..self.threads {
                let request = ClaimRequest::of_destination(&destination)
                    .with_followers()
                    .up_to(self.batch)
                    .bytes_max(self.batch_bytes)
                    .worker(format!("relay-{number}"));
                let request = match route.reconciler {
                    Some(_) => request.reconciles_any(),
                    None => request,
                };
                let (shared, route) = (Arc::clone(&shared), Arc::clone(&route));
                // On a failure `running` is dropped, which stops those that have started.
                let run = move || shared.run(&route, &request);
                running.threads.push(spawn("redrive-relay", run)?);
            }
        }
        Ok(running)
    }

    /// Where messages go. What a sink says of itself it is asked here: a panic on a relay's thread
    /// could only end that.
    fn routes(&self) -> Result<Vec<(String, Arc<Route>)>, RelayError> {
        let route = |(destination, sink): (&String, &Arc<dyn Sink>)| {
            let asked = catch_unwind(AssertUnwindSafe(|| sink.batch_max()));
            let batch_max = asked.map_err(|panic| RelayError::SinkPanicked {
                destination: destination.clone(),
                message: panic_text(&*panic),
            })?;
            let reconciler = self.reconcilers.get(destination).map(Arc::clone);
            let route = Route { sink: Arc::clone(sink), batch_max, reconciler };
            Ok((destination.clone(), Arc::new(route)))
        };
        self.sinks.iter().map(route).collect()
    }

    fn check(&self) -> Result<(), RelayError> {
        if self.sinks.is_empty() {
            return Err(RelayError::NoSink);
        }
        if let Some(destination) =
            self.reconcilers.keys().find(|&name| !self.sinks.contains_key(name))
        {
            return Err(RelayError::NoSinkFor { destination: destination.clone() });
        }
        for destination in self.sinks.keys() {
            check_destination(destination).map_err(|why| RelayError::BadName { why })?;
        }
        for (what, value, value_max) in [
            ("batch", self.batch, BATCH_MAX),
            ("batch_bytes", self.batch_bytes, CLAIM_BYTES_MAX),
            ("threads", self.threads, THREADS_MAX),
        ] {
            if value == 0 || value > value_max {
                return Err(RelayError::OutOfRange { what, value, value_max });
            }
        }
        Ok(())
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, RelayError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|error| StorageError::io(format!("no thread for a relay: {error}")).into())
}

/// Relay threads that run. Dropping this stops them and gives unfinished messages back.
#[must_use]
pub struct RunningRelay {
    shared: Arc<Shared>,
    heart: Option<JoinHandle<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl fmt::Debug for RunningRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningRelay").field("report", &self.report()).finish_non_exhaustive()
    }
}

/// What a relay has done since it was started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RelayReport {
    /// Messages that were delivered.
    pub sent: u64,
    /// Deliveries and reconciliations that failed.
    pub failed: u64,
    /// Lost deliveries of which a reconciler found out whether they happened.
    pub reconciled: u64,
    /// Calls of sinks and reconcilers that panicked.
    pub panicked: u64,
    /// Batches that were refused as a whole, or answered without sense, and were split.
    pub splits: u64,
    /// Deliveries whose outcome was refused because their lease had ended.
    pub stale: u64,
    /// Heartbeats that failed and were tried again.
    pub heartbeat_errors: u64,
    /// What ended threads before their time, if something did: an error of the store, or a panic
    /// outside of sinks and reconcilers. The rest of them goes on after a panic; see
    /// [`RunningRelay::active`].
    pub error: Option<StorageError>,
}

impl RunningRelay {
    /// What has been done so far.
    #[must_use]
    pub fn report(&self) -> RelayReport {
        let tally = &self.shared.tally;
        RelayReport {
            sent: tally.sent.load(Ordering::Relaxed),
            failed: tally.failed.load(Ordering::Relaxed),
            reconciled: tally.reconciled.load(Ordering::Relaxed),
            panicked: tally.panicked.load(Ordering::Relaxed),
            splits: tally.splits.load(Ordering::Relaxed),
            stale: tally.stale.load(Ordering::Relaxed),
            heartbeat_errors: self.shared.heart.errors(),
            error: tally.error.lock().clone(),
        }
    }

    /// Stops claiming. What a sink has in hand goes on; what was not offered to it yet goes back.
    /// [`shutdown`](Self::shutdown) waits for it.
    pub fn drain(&self) {
        self.shared.stop.set();
        // Wakes the claims that wait. A store that no longer answers has ended them already.
        let _ = self.shared.jobs.writer().tell(Command::Look);
    }

    /// Relay threads that have not ended. Before a [`drain`](Self::drain) that is all of them,
    /// unless the [report](Self::report) has an error.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.shared.active.load(Ordering::Acquire)
    }

    /// Stops claiming, waits up to `timeout` for the sinks that run, and gives what they still have in
    /// hand back: uncharged, but with its outcome marked as unknown.
    pub fn shutdown(mut self, timeout: Duration) -> Shutdown {
        self.end(timeout)
    }

    fn end(&mut self, timeout: Duration) -> Shutdown {
        let Some(heart) = self.heart.take() else {
            return Shutdown::default();
        };
        self.drain();
        let clock = Arc::clone(self.shared.jobs.clock());
        let until_ms = clock.monotonic_ms().saturating_add(whole_ms(timeout));
        while self.active() > 0 && clock.monotonic_ms() < until_ms {
            clock.wait(&self.shared.ended, Some(until_ms));
        }
        let given_back = self.shared.give_back();
        self.shared.heart.stop();
        // It catches nothing and holds nothing; a panic in it would have been reported already.
        let _ = heart.join();
        let all_ended = self.active() == 0;
        for thread in self.threads.drain(..) {
            // One whose sink still runs ends when that returns.
            let own = thread.thread().id() == std::thread::current().id();
            if !own && (all_ended || thread.is_finished()) {
                let _ = thread.join();
            }
        }
        Shutdown { given_back }
    }
}

impl Drop for RunningRelay {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
