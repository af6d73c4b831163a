//! One group commit in the making. Each command is planned (read and decided, which may refuse)
//! before its first write, then applied by code that cannot refuse; the next one sees it. A storage
//! error ends the whole batch.

use std::collections::BTreeMap;

use crate::domain::counter::{Flow, Gauge};
use crate::domain::effort::effort;
use crate::domain::event::Event;
use crate::domain::id::{Class, JobId, Token};
use crate::domain::job::{Job, State};
use crate::domain::key::holds_key;
use crate::domain::order::holds;
use crate::domain::policy::JobPolicy;
use crate::domain::schedule::mix;
use crate::domain::time::Timestamp;
use crate::domain::transition::{Context, Refused, Step, forgettable, step};
use crate::error::StorageError;
use crate::format::{key, record};
use crate::store::alone;
use crate::store::job::Held;
use crate::store::rows::WriteRows;
use crate::store::tables::TableId;
use crate::store::{history, job as job_store, meta, tombstone};
use crate::writer::core::{Core, SUSPECTS_IN_FLIGHT};
use crate::writer::reply::Reply;
use crate::writer::sweep::SLICE;
use crate::writer::timeline::Reading;

/// Tells one caller how its command ended; given the cause if the commit failed.
pub(super) type Answer = Box<dyn FnOnce(Option<&StorageError>) + Send>;

pub(super) struct Batch<'b, 't> {
    pub(super) core: &'b mut Core,
    pub(super) rows: &'b mut WriteRows<'t>,
    pub(super) time: Reading,
    pub(super) answers: &'b mut Vec<Answer>,
    /// Jobs that finished in this batch, by when they may be forgotten.
    tombstones: BTreeMap<Timestamp, Vec<JobId>>,
    /// Leases that are over once it is certain that the batch will be committed; `None` ends them at once.
    lease_ends: Option<Vec<Token>>,
}

impl<'b, 't> Batch<'b, 't> {
    pub(super) fn new(
        core: &'b mut Core,
        rows: &'b mut WriteRows<'t>,
        time: Reading,
        answers: &'b mut Vec<Answer>,
    ) -> Self {
        core.books.open_minute(time.now.minute());
        Self { core, rows, time, answers, tombstones: BTreeMap::new(), lease_ends: None }
    }

    /// Keeps the leases that are settled until [`Self::end_leases`]: the batch may be taken back.
    pub(super) fn deferring_lease_ends(self) -> Self {
        Self { lease_ends: Some(Vec::new()), ..self }
    }

    /// The batch will not be taken back: the leases settled so far are over, later ones end at once.
    pub(super) fn end_leases(&mut self) {
        for token in self.lease_ends.take().into_iter().flatten() {
            self.core.leases.end(token);
        }
    }

    /// Whether something was decided that the file does not say.
    pub(super) fn is_dirty(&self) -> bool {
        self.rows.writes() > 0 || self.core.books.is_dirty()
    }

    /// Answers after the commit: with what `answer` says, or with the cause of its failure.
    pub(super) fn answer(&mut self, answer: impl FnOnce(Option<&StorageError>) + Send + 'static) {
        self.answers.push(Box::new(answer));
    }

    /// Answers `reply` with `outcome` after the commit.
    pub(super) fn answer_with<T, E>(&mut self, reply: Reply<Result<T, E>>, outcome: Result<T, E>)
    where
        T: Send + 'static,
        E: From<StorageError> + Send + 'static,
    {
        self.answer(move |failed| {
            reply.send(match failed {
                None => outcome,
                Some(cause) => Err(cause.clone().into()),
            });
        });
    }

    /// Decides what `event` does to `job`. Writes nothing.
    pub(super) fn plan(
        &self,
        job: &Job,
        event: Event,
    ) -> Result<Result<Step, Refused>, StorageError> {
        let registry = &self.core.registry;
        let policy = registry.policy(job.policy)?;
        let context = Context {
            policy,
            now: self.time.now,
            seed: mix(self.core.meta.seed ^ mix(job.id.get()) ^ u64::from(job.deliveries)),
            seq: self.core.meta.next,
            queue: &registry.queue(job.class.queue)?.1,
            kind: registry.kind(job.class.kind)?,
        };
        match step(job, event, &context) {
            Ok(decided) => self.in_turn(Some(job), decided).map(Ok),
            refused => Ok(refused),
        }
    }

    /// Writes what was decided about `before`.
    pub(super) fn apply(&mut self, before: &Job, decided: Step) -> Result<(), StorageError> {
        let Step { job: after, flows, history: entry } = decided;
        let now = self.time.now;
        let policy = std::sync::Arc::clone(self.core.registry.policy(before.policy)?);
        let forgotten = forgettable(&after, now);
        if let Some(entry) = entry
            && !forgotten
        {
            history::append(self.rows, before, &entry)?;
        }
        let held = |job| Held { job, holds_key: holds_key(job, &policy, now) };
        let kept = (!forgotten).then(|| held(&after));
        job_store::replace(self.rows, Some(held(before)), kept)?;
        self.settle_lease(before, &after);
        self.tell_cohort(before, &after)?;
        let left = if forgotten { 0 } else { after.dead_bytes() };
        self.core.books.weigh(before.class, before.dead_bytes(), left);
        self.moved(before.class, Some(Gauge::of(before)), (!forgotten).then(|| Gauge::of(&after)));
        self.tell_of_job(before, &after, &flows);
        for (flow, count) in effort(before, &after, &flows, &policy, now) {
            self.core.books.add(before.class, flow, count);
        }
        for flow in flows {
            self.core.books.count(before.class, flow);
        }
        if !forgotten {
            self.note(&after);
        }
        if holds(before) && !holds(&after) {
            self.next_in_order(before)?;
        }
        Ok(())
    }

    /// Writes a job that did not exist before.
    pub(super) fn insert(&mut self, arrived: Step, policy: &JobPolicy) -> Result<(), StorageError> {
        let Step { job, flows, history: _ } = self.in_turn(None, arrived)?;
        let held = Held { job: &job, holds_key: holds_key(&job, policy, self.time.now) };
        job_store::replace(self.rows, None, Some(held))?;
        self.moved(job.class, None, Some(Gauge::of(&job)));
        self.core.books.weigh(job.class, 0, job.dead_bytes());
        for flow in flows {
            self.core.books.count(job.class, flow);
        }
        self.core.registry.note_class(job.class);
        self.note(&job);
        Ok(())
    }

    /// Removes a job, its history, its payload, and its key if it still owns that.
    pub(super) fn remove(&mut self, job: &Job) -> Result<(), StorageError> {
        job_store::replace(self.rows, Some(Held { job, holds_key: false }), None)?;
        self.moved(job.class, Some(Gauge::of(job)), None);
        self.core.books.weigh(job.class, job.dead_bytes(), 0);
        if holds(job) { self.next_in_order(job) } else { Ok(()) }
    }

    /// Takes an index row whose job cannot be used out of the way (P14), so that it holds up nobody.
    /// The job's row stays as it is. `counted` is where the job was counted, if that can be told.
    pub(super) fn set_aside(
        &mut self,
        table: TableId,
        name: &[u8],
        job: JobId,
        counted: Option<(Class, Gauge)>,
        why: &StorageError,
    ) -> Result<(), StorageError> {
        let elsewhere =
            self.read_job(job)?.is_ok_and(|job| key::state(&job).as_deref() != Some(name));
        if elsewhere {
            // The job is counted where its own row says it is.
            return self.set_row_aside(table, name, table, name, why);
        }
        self.set_row_aside(table, name, TableId::Jobs, &key::job(job), why)?;
        self.tell_cohorts_of_loss(job)?;
        if let Some((class, gauge)) = counted {
            self.moved(class, Some(gauge), None);
            self.core.books.count(class, Flow::Damaged);
        }
        // A waiting job's own row held up nobody.
        if table != TableId::Order {
            self.free_order(job)?;
        }
        self.free_outbox(job)
    }

    /// Removes a row, and notes which row of which table was damaged.
    pub(super) fn set_row_aside(
        &mut self,
        table: TableId,
        name: &[u8],
        damaged: TableId,
        row: &[u8],
        why: &StorageError,
    ) -> Result<(), StorageError> {
        self.rows.write(table, name, None)?;
        let note = record::encode(&(why.to_string(), self.time.now))?;
        self.rows.write(TableId::Damaged, &key::damaged(damaged.number(), row), Some(&note))
    }

    /// A job's row, or why it cannot be used.
    pub(super) fn read_job(&self, id: JobId) -> Result<Result<Job, StorageError>, StorageError> {
        let missing = || StorageError::corrupt(format!("job {id} has no row"));
        Ok(alone(job_store::read(&*self.rows, id))?.and_then(|job| job.ok_or_else(missing)))
    }

    /// Writes what is written once per commit. Returns whether there is anything to commit.
    pub(super) fn finish(&mut self) -> Result<bool, StorageError> {
        for (until, jobs) in std::mem::take(&mut self.tombstones) {
            tombstone::put(self.rows, until, &jobs)?;
            earlier(&mut self.core.next_tombstone, until);
        }
        self.flush_cohorts()?;
        if self.rows.writes() == 0 && !self.core.books.is_dirty() {
            return Ok(false);
        }
        self.core.registry.flush(self.rows)?;
        // Old windows go along with a commit; they are not worth one of their own.
        let oldest = self.time.now.minute().saturating_sub(self.core.window_minutes);
        self.core.books.prune(self.rows, oldest, SLICE)?;
        self.core.books.flush(self.rows)?;
        self.core.meta.latest = self.core.meta.latest.max(self.time.now);
        self.core.meta.wall = self.time.wall;
        meta::write(self.rows, &self.core.meta)?;
        Ok(true)
    }

    /// As `finish`, for an opening: the new instance number is written whatever else there is.
    pub(super) fn take_over(&mut self) -> Result<(), StorageError> {
        if !self.finish()? {
            self.core.meta.latest = self.core.meta.latest.max(self.time.now);
            self.core.meta.wall = self.time.wall;
            meta::write(self.rows, &self.core.meta)?;
        }
        Ok(())
    }

    fn moved(&mut self, class: Class, from: Option<Gauge>, to: Option<Gauge>) {
        let suspect =
            |gauge: Option<Gauge>| gauge.is_some_and(|gauge| SUSPECTS_IN_FLIGHT.contains(&gauge));
        if from != to && suspect(from) {
            self.core.suspects = self.core.suspects.saturating_sub(1);
        }
        if from != to && suspect(to) {
            self.core.suspects += 1;
        }
        self.core.books.shift(class, from, to);
    }

    /// A lease that is over can no longer be extended.
    fn settle_lease(&mut self, before: &Job, after: &Job) {
        if let Some(token) = before.token()
            && after.token() != Some(token)
        {
            match &mut self.lease_ends {
                Some(ends) => ends.push(token),
                None => self.core.leases.end(token),
            }
        }
    }

    /// Remembers when the job will need attention, and that its place in line is taken.
    fn note(&mut self, job: &Job) {
        match &job.state {
            State::Ready(ready) => {
                self.core.meta.next = self.core.meta.next.max(ready.seq.saturating_add(1));
            }
            State::Delayed(delayed) => earlier(&mut self.core.next_due, delayed.due),
            State::Done(_) | State::Cancelled(_) => {
                if let Some(tombstone) = job.state.tombstone() {
                    self.tombstones.entry(tombstone.row_until).or_default().push(job.id);
                }
            }
            State::Dead(_) => self.note_death(job),
            State::Leased(_) | State::Blocked(_) => {}
        }
    }
}

fn earlier(known: &mut Option<Timestamp>, at: Timestamp) {
    *known = Some(known.map_or(at, |known| known.min(at)));
}
