//! Handing out jobs. A claim is a short range read on an index keyed in claim order, so its cost
//! does not grow with the backlog (P15); lanes without ready jobs are known from the gauges and cost
//! nothing.

use std::collections::BTreeSet;

use crate::domain::counter::Gauge;
use crate::domain::event::{Claimant, Event};
use crate::domain::id::{Class, QueueId};
use crate::domain::job::{Job, Lane, State};
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::alone;
use crate::store::job::{self as job_store, Held};
use crate::store::rows::Rows;
use crate::store::tables::TableId;
use crate::writer::batch::Batch;
use crate::writer::command::{Claim, Claimed, Request};
use crate::writer::heads::{Head, Heads, Taken};

/// A claim ends early when it has this many bytes of payloads in hand.
const CLAIM_BYTES_MAX: usize = 16 * 1024 * 1024;

impl Batch<'_, '_> {
    /// Takes a new claim: behind those that already wait, if there are any.
    pub(super) fn claim_in_turn(&mut self, claim: Claim) -> Result<(), StorageError> {
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
        let mut claimed = Vec::new();
        let Some(queue) = self.core.registry.queue_id(&request.queue) else {
            return Ok(claimed);
        };
        let mut heads = Heads::new(self, self.classes(queue, request), request.jobs_max);
        let (mut bytes, mut mended) = (0, false);
        while claimed.len() < request.jobs_max && bytes < CLAIM_BYTES_MAX {
            let Some(head) = self.best(queue, &mut heads)? else { break };
            let head = match head {
                Ok(head) => head,
                Err((row, why)) => {
                    mended |= self.find_again(&row, &why)?;
                    continue;
                }
            };
            if let Some(job) = self.lease(&head, request)? {
                bytes += job.payload.len();
                claimed.push(job);
            }
        }
        if claimed.is_empty() && mended {
            // What was mended stands in line now.
            return self.take(request);
        }
        Ok(claimed)
    }

    /// The classes to choose from, each once, however often its kind was named.
    fn classes(&self, queue: QueueId, request: &Request) -> BTreeSet<Class> {
        let registry = &self.core.registry;
        match &request.kinds {
            None => registry.classes(queue).collect(),
            Some(kinds) => kinds
                .iter()
                .filter_map(|kind| registry.kind_id(kind))
                .map(|kind| Class { queue, kind })
                .collect(),
        }
    }

    /// The job to go next: highest priority, then longest in line, among the heads of all lanes;
    /// a retry only within its share, a suspect only when no other is in flight (P12).
    fn best(&self, queue: QueueId, heads: &mut Heads) -> Result<Option<Taken>, StorageError> {
        let fresh = heads.peek(self, Lane::Fresh)?;
        let mut retry = heads.peek(self, Lane::Retry)?;
        let suspect = if self.core.suspects == 0 { heads.peek(self, Lane::Suspect)? } else { None };
        if fresh.is_some() && retry.is_some() && !self.retry_allowed(queue)? {
            retry = None;
        }
        let best = [suspect, retry, fresh].into_iter().flatten().min();
        Ok(best.and_then(|place| heads.take(place)))
    }

    fn retry_allowed(&self, queue: QueueId) -> Result<bool, StorageError> {
        let registry = &self.core.registry;
        let leased = |lane| -> u64 {
            let gauge = Gauge::leased(lane);
            registry.classes(queue).map(|class| self.core.books.gauge(class, gauge)).sum()
        };
        let retries = leased(Lane::Retry);
        let leases = retries + leased(Lane::Fresh) + leased(Lane::Suspect);
        Ok(registry.queue(queue)?.0.retry_allowed(retries, leases))
    }

    /// Leases one job; `None` when it cannot be: then it no longer stands here.
    fn lease(&mut self, head: &Head, request: &Request) -> Result<Option<Claimed>, StorageError> {
        let job = match self.read_job(head.id)? {
            Ok(job) => job,
            Err(why) => {
                let counted = Some((head.class, Gauge::ready(head.lane)));
                self.set_aside(TableId::Ready, &head.row, head.id, counted, &why)?;
                return Ok(None);
            }
        };
        if key::state(&job).as_ref() != Some(&head.row) {
            let why = StorageError::corrupt(format!("job {} does not stand here", job.id));
            self.set_aside(TableId::Ready, &head.row, head.id, None, &why)?;
            return Ok(None);
        }
        let claimant = Claimant {
            instance: self.core.meta.instance,
            worker: request.worker.clone(),
            version: request.version.clone(),
        };
        let (payload, event) = match self.claim_payload(&job)? {
            Ok(payload) => (payload, Event::Claim(claimant)),
            Err(why) => (Vec::new(), Event::Spoil { why: why.to_string() }),
        };
        let step = match alone(self.plan(&job, event))? {
            Ok(Ok(step)) => step,
            unusable => {
                let unfit = || StorageError::corrupt("a ready job that cannot be claimed");
                let why = unusable.err().unwrap_or_else(unfit);
                let counted = Some((head.class, Gauge::ready(head.lane)));
                self.set_aside(TableId::Ready, &head.row, head.id, counted, &why)?;
                return Ok(None);
            }
        };
        if step.job.token().is_none() {
            self.apply(&job, step)?;
            return Ok(None);
        }
        let claimed = self.claimed(&job, &step.job, payload, head.lane)?;
        let (lease_ms, deadline_ms) = (claimed.lease_ms, claimed.deadline_ms);
        self.apply(&job, step)?;
        let now_ms = self.time.monotonic_ms;
        self.core.leases.grant(claimed.token, now_ms, lease_ms, deadline_ms);
        self.core.granted.push(claimed.token);
        Ok(Some(claimed))
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
            unknown: before.unknown,
        })
    }
}
