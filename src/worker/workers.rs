//! A set of worker threads.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::clock::Signal;
use crate::domain::event::Work;
use crate::domain::failure::Failure;
use crate::domain::id::{Class, Token};
use crate::domain::time::whole_ms;
use crate::error::{StorageError, WorkersError};
use crate::handle::claim::ClaimRequest;
use crate::handle::completion::Completion;
use crate::handle::reconcile::Reconciled;
use crate::handle::redrive::Redrive;
use crate::handle::stats::Counts;
use crate::handle::{check_name, check_queue};
use crate::worker::delivery::Delivery;
use crate::worker::heart::{BeatFilter, Heart};
use crate::worker::slot::{Handler, Reconciler, Shared, Tally};
use crate::worker::unknown::Unknown;
use crate::writer::command::{Command, StopFlag};

/// Most threads for one queue.
const THREADS_MAX: usize = 1_024;

/// Worker threads that run handlers: n per queue, a handler per kind.
///
/// A handler that returns an error or panics fails the delivery; leases are kept alive while
/// handlers run. Kinds without a handler stay ready, are charged nothing and are shown by
/// [`RunningWorkers::unknown_kinds`].
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use std::time::Duration;
/// use redrive::{Completion, Failure, NewJob, Workers};
///
/// jobs.enqueue(NewJob::new("mail", "welcome").bytes("ada@example.org"))?;
/// let workers = Workers::new(&jobs)
///     .queue("mail", 4)
///     .handle("welcome", |job| {
///         // An error passed on with `?` is transient; this one will not go away.
///         let address = std::str::from_utf8(job.payload())
///             .map_err(|error| Failure::permanent("E_UTF8").message(error.to_string()))?;
///         Ok(Completion::new().result(format!("sent to {address}")))
///     })
///     .start()?;
/// workers.shutdown(Duration::from_secs(10));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct Workers {
    jobs: Redrive,
    queues: Vec<(String, usize)>,
    handlers: BTreeMap<String, Handler>,
    any: Option<Handler>,
    reconcilers: BTreeMap<String, Reconciler>,
    any_reconciler: Option<Reconciler>,
    version: String,
    filter: Option<BeatFilter>,
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.handlers.keys().collect();
        f.debug_struct("Workers")
            .field("queues", &self.queues)
            .field("kinds", &kinds)
            .finish_non_exhaustive()
    }
}

impl Workers {
    /// No threads and no handlers yet.
    pub fn new(jobs: &Redrive) -> Self {
        Self {
            jobs: jobs.clone(),
            queues: Vec::new(),
            handlers: BTreeMap::new(),
            any: None,
            reconcilers: BTreeMap::new(),
            any_reconciler: None,
            version: String::new(),
            filter: None,
        }
    }

    /// Serves `queue` with this many threads, 1 to 1,024.
    pub fn queue(mut self, queue: impl Into<String>, threads: usize) -> Self {
        self.queues.push((queue.into(), threads));
        self
    }

    /// Runs jobs of `kind`, in whichever of the queues they are.
    pub fn handle(
        mut self,
        kind: impl Into<String>,
        handler: impl Fn(&Delivery) -> Result<Completion, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.handlers.insert(kind.into(), Arc::new(handler));
        self
    }

    /// Runs jobs of every kind that has no handler of its own.
    pub fn handle_any(
        mut self,
        handler: impl Fn(&Delivery) -> Result<Completion, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.any = Some(Arc::new(handler));
        self
    }

    /// Asks this what became of a delivery of `kind` whose outcome is unknown, for jobs whose policy is
    /// [`OnUnknown::Reconcile`](crate::OnUnknown::Reconcile). An error or a panic means that it is
    /// still unknown. A kind that has none here leaves such jobs waiting, see
    /// [`RunningWorkers::unreconciled`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{Completion, Failure, Reconciled, Workers};
    /// # fn charge(_: Option<&str>) -> Result<String, &'static str> { Ok(String::new()) }
    /// # fn look_up(_: Option<&str>) -> Result<Option<String>, std::io::Error> { Ok(None) }
    ///
    /// let workers = Workers::new(&jobs)
    ///     .queue("charges", 8)
    ///     .handle("charge", |job| match charge(job.key()) {
    ///         Ok(receipt) => Ok(Completion::new().result(receipt)),
    ///         Err(lost) => Err(Failure::ambiguous(lost)),
    ///     })
    ///     .reconcile("charge", |unknown| {
    ///         Ok(match look_up(unknown.key())? {
    ///             Some(receipt) => Reconciled::happened(receipt),
    ///             None => Reconciled::DidNotHappen,
    ///         })
    ///     });
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn reconcile(
        mut self,
        kind: impl Into<String>,
        reconciler: impl Fn(&Unknown) -> Result<Reconciled, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.reconcilers.insert(kind.into(), Arc::new(reconciler));
        self
    }

    /// Asks this for every kind that has no reconciler of its own.
    pub fn reconcile_any(
        mut self,
        reconciler: impl Fn(&Unknown) -> Result<Reconciled, Failure> + Send + Sync + 'static,
    ) -> Self {
        self.any_reconciler = Some(Arc::new(reconciler));
        self
    }

    /// The version of the handlers; kept with jobs that die under them. Cut to 64 bytes.
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Lets only the heartbeats through for whose number (from 0) `filter` says so; the others
    /// count as failed. Feature `test-util`.
    #[cfg(feature = "test-util")]
    pub fn filter_heartbeats(
        mut self,
        filter: impl Fn(u64) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.filter = Some(Arc::new(filter));
        self
    }

    /// Starts the threads.
    ///
    /// # Errors
    ///
    /// [`WorkersError`]: no queue, neither handler nor reconciler, a bad name, zero or too many threads, or the system
    /// gives no thread. Nothing runs then.
    pub fn start(self) -> Result<RunningWorkers, WorkersError> {
        self.check()?;
        let kinds: Vec<String> = self.handlers.keys().cloned().collect();
        let reconciled: Vec<String> = self.reconcilers.keys().cloned().collect();
        let (every_kind, every_unknown) = (self.any.is_some(), self.any_reconciler.is_some());
        let threads: usize = self.queues.iter().map(|(_, threads)| threads).sum();
        let shared = Arc::new(Shared {
            heart: Heart::new(self.jobs.clone(), self.filter),
            jobs: self.jobs,
            handlers: self.handlers,
            any: self.any,
            reconcilers: self.reconcilers,
            any_reconciler: self.any_reconciler,
            stop: StopFlag::default(),
            active: AtomicU64::new(u64::try_from(threads).unwrap_or(u64::MAX)),
            ended: Signal::new(),
            tally: Tally::default(),
        });
        let mut running = RunningWorkers {
            shared: Arc::clone(&shared),
            queues: self.queues.iter().map(|(queue, _)| queue.clone()).collect(),
            heart: None,
            slots: Vec::new(),
        };
        let heart = Arc::clone(&shared);
        running.heart = Some(spawn("redrive-heart", move || heart.heart.run())?);
        for (queue, threads) in self.queues {
            for number in 0..threads {
                let mut request = ClaimRequest::new(&queue)
                    .worker(format!("{queue}-{number}"))
                    .version(&self.version);
                if !every_kind {
                    request = request.kinds(&kinds);
                }
                request = if every_unknown {
                    request.reconciles_any()
                } else {
                    request.reconciles(&reconciled)
                };
                let slot = Arc::clone(&shared);
                // On a failure `running` is dropped, which stops those that have started.
                running.slots.push(spawn("redrive-worker", move || slot.run(&request))?);
            }
        }
        Ok(running)
    }

    fn check(&self) -> Result<(), WorkersError> {
        let bad = |what| move |why| WorkersError::BadName { what, why };
        if self.queues.is_empty() {
            return Err(WorkersError::NoQueue);
        }
        let handles = !self.handlers.is_empty() || self.any.is_some();
        let reconciles = !self.reconcilers.is_empty() || self.any_reconciler.is_some();
        if !handles && !reconciles {
            return Err(WorkersError::NoHandler);
        }
        for kind in self.handlers.keys().chain(self.reconcilers.keys()) {
            check_name(kind).map_err(bad("kind"))?;
        }
        for (queue, threads) in &self.queues {
            check_queue(queue).map_err(bad("queue"))?;
            if *threads == 0 || *threads > THREADS_MAX {
                return Err(WorkersError::BadThreads {
                    queue: queue.clone(),
                    threads: *threads,
                    threads_max: THREADS_MAX,
                });
            }
        }
        Ok(())
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, WorkersError> {
    let spawned = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    spawned.map_err(|error| StorageError::io(format!("no thread for a worker: {error}")).into())
}

/// Worker threads that run. Dropping this stops them and gives unfinished work back.
#[must_use]
pub struct RunningWorkers {
    shared: Arc<Shared>,
    queues: Vec<String>,
    heart: Option<JoinHandle<()>>,
    slots: Vec<JoinHandle<()>>,
}

impl fmt::Debug for RunningWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningWorkers")
            .field("queues", &self.queues)
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}

/// What a set of workers has done since it was started.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkersReport {
    /// Deliveries that completed their job.
    pub completed: u64,
    /// Deliveries that failed.
    pub failed: u64,
    /// Handlers and reconcilers that panicked.
    pub panicked: u64,
    /// Reconciliations that found out what had happened.
    pub reconciled: u64,
    /// Reconciliations that did not.
    pub still_unknown: u64,
    /// Deliveries whose outcome was refused because their lease had ended.
    pub stale: u64,
    /// Heartbeats that failed and were tried again.
    pub heartbeat_errors: u64,
    /// Handlers that run on although their lease is lost or their deadline has passed.
    pub stuck: Vec<Token>,
    /// What ended threads before their time, if something did: an error of the store, or a panic
    /// outside of handlers and reconcilers. The rest of them goes on after a panic; see
    /// [`RunningWorkers::active`].
    pub error: Option<StorageError>,
}

/// How a shutdown went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Shutdown {
    /// Handlers that were still running; their jobs were given back uncharged.
    pub given_back: usize,
}

impl RunningWorkers {
    /// What has been done so far.
    #[must_use]
    pub fn report(&self) -> WorkersReport {
        let tally = &self.shared.tally;
        WorkersReport {
            completed: tally.completed.load(Ordering::Relaxed),
            failed: tally.failed.load(Ordering::Relaxed),
            panicked: tally.panicked.load(Ordering::Relaxed),
            reconciled: tally.reconciled.load(Ordering::Relaxed),
            still_unknown: tally.still_unknown.load(Ordering::Relaxed),
            stale: tally.stale.load(Ordering::Relaxed),
            heartbeat_errors: self.shared.heart.errors(),
            stuck: self.shared.heart.stuck(),
            error: tally.error.lock().clone(),
        }
    }

    /// Jobs that stand in the served queues and have no handler here, by kind (O-15).
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the counters cannot be read.
    pub fn unknown_kinds(&self) -> Result<BTreeMap<String, u64>, StorageError> {
        let shared = &self.shared;
        self.waiting(|kind, counts| {
            let handled = shared.any.is_some() || shared.handlers.contains_key(kind);
            let waiting = counts.ready + counts.delayed;
            if handled { 0 } else { waiting.saturating_sub(counts.unreconciled()) }
        })
    }

    /// Jobs that wait in the served queues for a reconciler that is not here, by kind: the outcome of a
    /// delivery is unknown, their policy says to ask first, and there is nobody to ask (P8).
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the counters cannot be read.
    pub fn unreconciled(&self) -> Result<BTreeMap<String, u64>, StorageError> {
        let shared = &self.shared;
        self.waiting(|kind, counts| {
            let known = shared.any_reconciler.is_some() || shared.reconcilers.contains_key(kind);
            if known { 0 } else { counts.unreconciled() }
        })
    }

    /// What `count` finds in the served queues, by kind.
    fn waiting(
        &self,
        count: impl Fn(&str, &Counts) -> u64,
    ) -> Result<BTreeMap<String, u64>, StorageError> {
        let mut found = BTreeMap::new();
        let stats = self.shared.jobs.stats()?;
        for queue in &self.queues {
            let kinds = stats.queues.get(queue).map(|queue| &queue.kinds);
            for (kind, counts) in kinds.into_iter().flatten() {
                let waiting = count(kind, counts);
                if waiting > 0 {
                    *found.entry(kind.clone()).or_default() += waiting;
                }
            }
        }
        Ok(found)
    }

    /// Stops claiming. Handlers that run go on; [`shutdown`](Self::shutdown) waits for them.
    pub fn drain(&self) {
        self.shared.stop.set();
        // Wakes the claims that wait. A store that no longer answers has ended them already.
        let _ = self.shared.jobs.writer().tell(Command::Look);
    }

    /// Worker threads that have not ended. Before a [`drain`](Self::drain) that is all of them,
    /// unless the [report](Self::report) has an error.
    #[must_use]
    pub fn active(&self) -> u64 {
        self.shared.active.load(Ordering::Acquire)
    }

    /// Stops claiming, waits up to `timeout` for the handlers that run, and gives what is not
    /// finished then back to its queue: uncharged, but with its outcome marked as unknown (a job whose
    /// policy is [`OnUnknown::Quarantine`](crate::OnUnknown::Quarantine) is dead then). A handler that
    /// returns later finds its lease gone.
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
        let unfinished = self.shared.heart.give_back();
        let give_back = |&(token, class): &(Token, Class)| {
            self.shared.jobs.give_back(token, class, Work::Started).is_ok()
        };
        // One that ends in this moment has settled its lease itself.
        let given_back = unfinished.iter().filter(|one| give_back(one)).count();
        self.shared.heart.stop();
        // It catches nothing and holds nothing; a panic in it would have been reported already.
        let _ = heart.join();
        let all_ended = self.active() == 0;
        for slot in self.slots.drain(..) {
            // One whose handler still runs ends when that returns; the others end now, and with them
            // their hold on the store.
            let own = slot.thread().id() == std::thread::current().id();
            if !own && (all_ended || slot.is_finished()) {
                let _ = slot.join();
            }
        }
        Shutdown { given_back }
    }
}

impl Drop for RunningWorkers {
    fn drop(&mut self) {
        self.end(Duration::ZERO);
    }
}
