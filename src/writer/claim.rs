//! Handing out jobs. A claim is a short range read on an index keyed in claim order, so its cost
//! does not grow with the backlog (P15); lanes without ready jobs are known from the gauges and cost
//! nothing.

use std::collections::BTreeSet;

use crate::domain::counter::Gauge;
use crate::domain::event::{Claimant, Event};
use crate::domain::id::{Class, JobId, QueueId};
use crate::domain::job::{Job, Lane, State};
use crate::domain::order::goes_alone;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::alone;
use crate::store::job::{self as job_store, Held};
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;
use crate::writer::command::{Along, Claim, Claimed, Reconciles, Request};
use crate::writer::heads::{Heads, Taken};

/// Where a job stands that is to be leased.
pub(super) struct Stand<'h> {
    pub(super) table: TableId,
    pub(super) row: &'h [u8],
    pub(super) id: JobId,
    /// Where it is counted.
    pub(super) counted: (Class, Gauge),
}

/// What a claim has in hand.
#[derive(Default)]
pub(super) struct Haul {
    jobs: Vec<Claimed>,
    bytes: usize,
}

impl Haul {
    pub(super) fn add(&mut self, claimed: Claimed) {
        self.bytes = self.bytes.saturating_add(claimed.payload.len());
        self.jobs.push(claimed);
    }

    pub(super) fn has_room(&self, request: &Request) -> bool {
        self.room(request) > 0
    }

    /// How many more jobs may be added.
    pub(super) fn room(&self, request: &Request) -> usize {
        if self.bytes >= request.bytes_max { 0 } else { request.jobs_max - self.jobs.len() }
    }
}

impl Batch<'_, '_> {
    /// Takes a new claim: behind those that already wait, if there are any.
    pub(super) fn claim_in_turn(&mut self, claim: Claim) -> Result<(), StorageError> {
        self.note_claim(&claim.request);
        if self.core.waiting.is_empty() {
            return self.claim(claim);
        }
        self.core.waiting.push_back(claim);
        Ok(())
    }

    /// Answers the claim with what there is, or lets it wait.
    fn claim(&mut self, claim: Claim) -> Result<(), StorageError> {
        let claimed = self.take(&claim.request)?;
        let request = &claim.request;
        let waits = request.until_ms.is_some_and(|until_ms| until_ms > self.time.monotonic_ms)
            && !request.stop.as_ref().is_some_and(|stop| stop.is_set());
        if claimed.is_empty() && waits {
            self.core.waiting.push_back(claim);
        } else {
            self.answer_with(claim.reply, Ok(claimed));
        }
        Ok(())
    }

    /// Serves claims that waited, in the order in which they came, and ends those whose time is up.
    pub(super) fn serve_waiting(&mut self) -> Result<(), StorageError> {
        for _ in 0..self.core.waiting.len() {
            if let Some(claim) = self.core.waiting.pop_front() {
                self.claim(claim)?;
            }
        }
        Ok(())
    }

    /// Leases up to as many jobs as asked for.
    fn take(&mut self, request: &Request) -> Result<Vec<Claimed>, StorageError> {
        let Some(queue) = self.core.registry.queue_id(&request.queue) else {
            return Ok(Vec::new());
        };
        let mut haul = Haul::default();
        let mut heads = Heads::new(self.lanes(queue, request), request.jobs_max);
        let mut mended = false;
        while haul.has_room(request) {
            let Some(head) = self.best(queue, &mut heads)? else { break };
            let head = match head {
                Ok(head) => head,
                Err((row, why)) => {
                    mended |= self.find_again(&row, &why)?;
                    continue;
                }
            };
            let job = self.read_job(head.id)?;
            let takes_batches = request.along == Along::Followers;
            let alone = takes_batches && job.as_ref().is_ok_and(|job| self.goes_alone(job));
            if alone && !haul.jobs.is_empty() {
                // The next claim begins with it.
                break;
            }
            let Some(claimed) = self.lease(&head.stand(), job, request)? else {
                // Those behind it under its ordering key may have moved up.
                mended = true;
                continue;
            };
            haul.add(claimed);
            if alone {
                break;
            }
            if takes_batches {
                self.lease_followers(&head, request, &mut haul)?;
            }
        }
        if haul.jobs.is_empty() && mended {
            // What was mended stands in line now.
            return self.take(request);
        }
        Ok(haul.jobs)
    }

    /// Whether a claim that takes batches takes the job by itself.
    pub(super) fn goes_alone(&self, job: &Job) -> bool {
        self.core.registry.policy(job.policy).is_ok_and(|policy| goes_alone(policy))
    }

    /// The lanes to choose from, each once, however often its kind was named: those of handlers for
    /// the kinds asked for, those of reconcilers for the kinds that can be reconciled. Lanes whose gauge
    /// is 0 are not among them, nor are classes that are paused or held, so that a claim costs nothing
    /// for kinds that have nothing for it.
    fn lanes(&self, queue: QueueId, request: &Request) -> BTreeSet<(Class, Lane)> {
        let registry = &self.core.registry;
        let named = |kinds: &[String]| -> BTreeSet<Class> {
            let ids = kinds.iter().filter_map(|kind| registry.kind_id(kind));
            ids.map(|kind| Class { queue, kind }).collect()
        };
        let handled = match &request.kinds {
            None => registry.classes(queue).collect(),
            Some(kinds) => named(kinds),
        };
        let reconciled = match &request.reconciles {
            Reconciles::Any => registry.classes(queue).collect(),
            Reconciles::Kinds(kinds) => named(kinds),
        };
        let waiting = |class, lane| {
            self.core.books.gauge(class, Gauge::ready(lane)) > 0 && !self.core.pauses.stop(class)
        };
        let mut lanes = BTreeSet::new();
        for lane in Lane::ALL {
            let classes = if lane.is_reconcile() { &reconciled } else { &handled };
            let classes = classes.iter().filter(|&&class| waiting(class, lane));
            lanes.extend(classes.map(|&class| (class, lane)));
        }
        lanes
    }

    /// The job to go next: highest priority, then longest in line, among the heads of all lanes;
    /// a retry or a reconciliation only within its share, a suspect only when no other is in flight
    /// (P12).
    fn best(&self, queue: QueueId, heads: &mut Heads) -> Result<Option<Taken>, StorageError> {
        let fresh = heads.peek(self, Lane::Fresh)?;
        let mut again = [heads.peek(self, Lane::Retry)?, heads.peek(self, Lane::Reconcile)?];
        let mut suspects = [None, None];
        if self.core.suspects == 0 {
            suspects =
                [heads.peek(self, Lane::Suspect)?, heads.peek(self, Lane::SuspectReconcile)?];
        }
        if fresh.is_some() && again != [None, None] && !self.retry_allowed(queue)? {
            again = [None, None];
        }
        let best = [fresh].into_iter().chain(again).chain(suspects).flatten().min();
        Ok(best.and_then(|place| heads.take(place)))
    }

    fn retry_allowed(&self, queue: QueueId) -> Result<bool, StorageError> {
        let registry = &self.core.registry;
        let leased = |lanes: &[Lane]| -> u64 {
            let gauges = || lanes.iter().map(|&lane| Gauge::leased(lane));
            let books = &self.core.books;
            let held = |class| gauges().map(move |gauge| books.gauge(class, gauge));
            registry.classes(queue).flat_map(held).sum()
        };
        let retries = leased(&[Lane::Retry, Lane::Reconcile]);
        let leases = leased(&Lane::ALL);
        Ok(registry.queue(queue)?.0.retry_allowed(retries, leases))
    }

    /// Leases the job that stands there; `None` when it cannot be: then it no longer stands there.
    pub(super) fn lease(
        &mut self,
        at: &Stand<'_>,
        job: Result<Job, StorageError>,
        request: &Request,
    ) -> Result<Option<Claimed>, StorageError> {
        let job = match job {
            Ok(job) => job,
            Err(why) => return self.cannot_lease(at, Some(at.counted), &why),
        };
        if key::state(&job).as_deref() != Some(at.row) {
            let why = StorageError::corrupt(format!("job {} does not stand here", job.id));
            return self.cannot_lease(at, None, &why);
        }
        let (payload, event) = match self.misplaced(&job)? {
            Some(why) => (Vec::new(), Event::Misplaced(why)),
            None => self.claim_event(&job, request)?,
        };
        let step = match alone(self.plan(&job, event))? {
            Ok(Ok(step)) => step,
            unusable => {
                let unfit = || StorageError::corrupt("a ready job that cannot be claimed");
                let why = unusable.err().unwrap_or_else(unfit);
                return self.cannot_lease(at, Some(at.counted), &why);
            }
        };
        let Some(lease) = step.job.lease() else {
            self.apply(&job, step)?;
            return Ok(None);
        };
        let claimed = self.claimed(&job, &step.job, payload, lease.from.lane)?;
        let (lease_ms, deadline_ms) = (claimed.lease_ms, claimed.deadline_ms);
        self.apply(&job, step)?;
        let now_ms = self.time.monotonic_ms;
        self.core.leases.grant(claimed.token, now_ms, lease_ms, deadline_ms);
        self.core.granted.push(claimed.token);
        Ok(Some(claimed))
    }

    fn cannot_lease(
        &mut self,
        at: &Stand<'_>,
        counted: Option<(Class, Gauge)>,
        why: &StorageError,
    ) -> Result<Option<Claimed>, StorageError> {
        self.set_aside(at.table, at.row, at.id, counted, why)?;
        Ok(None)
    }

    /// A damaged `ready` row no longer says whose it is. Its key does, by way of the jobs: the one that
    /// stands at this place gets its row anew; returns whether there is one. A look at all jobs, for a case that should never be.
    fn find_again(&mut self, row: &[u8], why: &StorageError) -> Result<bool, StorageError> {
        self.set_row_aside(TableId::Ready, row, TableId::Ready, row, why)?;
        let mut from = Vec::new();
        loop {
            let page = self.rows.range(TableId::Jobs, &from, &[u8::MAX; 9], 1_000)?;
            for (_, value) in &page {
                let Ok(job) = record::decode::<Job>(value) else { continue };
                if matches!(job.state, State::Ready(_)) && key::state(&job).as_deref() == Some(row)
                {
                    let held = Held { job: &job, holds_key: true };
                    let value = job_store::state_value(held)?;
                    self.rows.write(TableId::Ready, row, value.as_deref())?;
                    return Ok(true);
                }
            }
            match page.last() {
                Some((last, _)) if page.len() == 1_000 => {
                    from.clone_from(last);
                    from.push(0);
                }
                _ => return Ok(false),
            }
        }
    }

    /// What a claim does to the job, and the payload it hands out.
    fn claim_event(&self, job: &Job, request: &Request) -> Result<(Vec<u8>, Event), StorageError> {
        let claimant = Claimant {
            instance: self.core.meta.instance,
            worker: request.worker.clone(),
            version: request.version.clone(),
        };
        Ok(match self.claim_payload(job)? {
            Ok(payload) => (payload, Event::Claim(claimant)),
            Err(why) => (Vec::new(), Event::Spoil { why: why.to_string() }),
        })
    }

    fn claim_payload(&self, job: &Job) -> Result<Result<Vec<u8>, StorageError>, StorageError> {
        let missing = || StorageError::corrupt("a ready job without a payload");
        let read = alone(job_store::payload(&*self.rows, job))?;
        Ok(read.and_then(|payload| payload.ok_or_else(missing)))
    }

    fn claimed(
        &self,
        before: &Job,
        after: &Job,
        payload: Vec<u8>,
        lane: Lane,
    ) -> Result<Claimed, StorageError> {
        let registry = &self.core.registry;
        let policy = registry.policy(before.policy)?;
        let token = after.token().ok_or_else(|| StorageError::internal("a claim gave no lease"))?;
        Ok(Claimed {
            token,
            class: before.class,
            queue: registry.queue(before.class.queue)?.1.clone(),
            kind: registry.kind(before.class.kind)?.clone(),
            key: before.key.as_ref().map(|claim| claim.key.clone()),
            payload,
            attempt: before.cycle.attempts.saturating_add(1),
            lane,
            enqueued_at: before.enqueued_at,
            lease_ms: policy.lease_ms,
            deadline_ms: policy.deadline_ms,
            on_unknown: policy.on_unknown,
            unknown: before.unknown.clone(),
            reconciles: before.cycle.reconciles,
            order: before.order.as_ref().map(|order| order.key.clone()),
            post: before.post.clone(),
        })
    }
}
