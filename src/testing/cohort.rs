//! Cohorts of the reference model.

use std::collections::BTreeMap;

use crate::domain::cohort::{CohortCounts, CohortState, MemberOutcome, SkipReason};
use crate::domain::failure::FailureClass;
use crate::domain::history::{Death, HistoryEntry, HistoryEvent};
use crate::domain::id::{CohortId, JobId};
use crate::domain::job::Lane;
use crate::domain::policy::OnUnknown;
use crate::handle::redrive::Redrive;
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{VERSION, text};
use crate::testing::life::{Corpse, Life, Place, Spot};
use crate::testing::model::{Model, time};
use crate::testing::op::Brakes;

pub(super) const REASON: &str = "the model says so";

/// A cohort as the model has it.
#[derive(Clone, Debug)]
pub(super) struct Herd {
    pub(super) id: u64,
    pub(super) brakes: Brakes,
    pub(super) state: CohortState,
    pub(super) paused: bool,
    /// Each with what it lay dead of.
    pub(super) members: BTreeMap<JobId, (MemberOutcome, Option<Corpse>)>,
    pub(super) listed: bool,
    pub(super) batches: u32,
    pub(super) next_release: u64,
    /// The latest last: whether it died again, and of the same cause.
    pub(super) results: Vec<(bool, bool)>,
}

impl Herd {
    fn count(&self, outcome: MemberOutcome) -> u64 {
        self.members.values().filter(|(found, _)| *found == outcome).map(|_| 1).sum()
    }

    pub(super) fn counts(&self) -> CohortCounts {
        let mut counts = CohortCounts {
            selected: self.members.len().try_into().unwrap_or(u64::MAX),
            held: self.count(MemberOutcome::Held),
            in_flight: self.count(MemberOutcome::InFlight),
            completed: self.count(MemberOutcome::Completed),
            died_again: self.count(MemberOutcome::DiedAgain),
            suppressed: self.count(MemberOutcome::Suppressed),
            cancelled: self.count(MemberOutcome::Cancelled),
            ..CohortCounts::default()
        };
        for (outcome, _) in self.members.values() {
            if let MemberOutcome::Skipped(reason) = outcome {
                *counts.skipped.entry(*reason).or_default() += 1;
            }
        }
        counts
    }

    pub(super) fn live(&self) -> bool {
        !matches!(self.state, CohortState::Aborted | CohortState::Finished)
    }

    /// Whether one of its rules stops it.
    fn stops(&self) -> bool {
        let latest = |count: usize| self.results.iter().rev().take(count);
        let share = self.brakes.dead_percent.is_some_and(|percent| {
            let results = latest(5).count();
            let died = latest(5).filter(|(died, _)| *died).count();
            let percent = usize::try_from(percent).unwrap_or(usize::MAX);
            results >= 2 && died * 100 >= percent * results
        });
        let same = self.brakes.same_cause.is_some_and(|times| {
            let count = latest(3).filter(|(_, same)| *same).count();
            count >= usize::try_from(times).unwrap_or(usize::MAX)
        });
        share || same
    }

    fn due(&self, now: u64) -> u64 {
        let out = self.count(MemberOutcome::InFlight);
        if self.paused || !self.listed {
            return 0;
        }
        match self.state {
            CohortState::Canary => {
                let done = self.count(MemberOutcome::Completed);
                u64::from(self.brakes.canary).saturating_sub(done + out)
            }
            CohortState::Running if self.next_release <= now => {
                let mut size = u64::from(self.brakes.batch);
                for _ in 0..self.batches {
                    size = (size * 2).min(u64::from(self.brakes.ramp_to)).max(size);
                }
                match u64::from(self.brakes.in_flight_max) {
                    0 if out > 0 => 0,
                    0 => size,
                    most => size.min(most.saturating_sub(out)),
                }
            }
            _ => 0,
        }
    }
}

impl Model {
    /// A round, and as many more as there is something to do in for cohorts.
    pub(super) fn settle_all(&mut self) {
        self.round(|_| ());
        while self.restless {
            self.round(|_| ());
        }
    }

    pub(super) fn has_cohorts(&self) -> bool {
        self.herds.iter().any(|herd| herd.live() || herd.count(MemberOutcome::InFlight) > 0)
    }

    /// One pass over the cohorts.
    pub(super) fn pass(&mut self) {
        self.restless = false;
        let mut herds = std::mem::take(&mut self.herds);
        let listed: Vec<bool> = herds.iter().map(|herd| herd.listed).collect();
        for now_listed in [true, false] {
            for place in 0..herds.len() {
                if listed.get(place) != Some(&now_listed) {
                    continue;
                }
                let others: Vec<Herd> = herds.clone();
                if let Some(herd) = herds.get_mut(place).filter(|herd| herd.live()) {
                    self.one(herd, &others);
                }
            }
        }
        self.herds = herds;
    }

    fn one(&mut self, herd: &mut Herd, others: &[Herd]) {
        if !herd.listed {
            self.list(herd, others);
            self.wrote = true;
            self.restless = true;
        }
        let (held, out) = (herd.count(MemberOutcome::Held), herd.count(MemberOutcome::InFlight));
        let before = herd.state;
        if herd.state == CohortState::Canary && herd.count(MemberOutcome::DiedAgain) > 0 {
            herd.state = CohortState::Aborted;
        } else if held + out == 0 {
            herd.state = CohortState::Finished;
        } else if herd.stops() {
            herd.state = CohortState::Aborted;
        } else if herd.state == CohortState::Canary
            && herd.count(MemberOutcome::Completed) >= u64::from(herd.brakes.canary)
        {
            herd.state = CohortState::Running;
            herd.next_release = self.now;
        }
        if !herd.live() {
            herd.paused = false;
        }
        self.wrote |= before != herd.state;
        self.let_go(herd);
    }

    pub(super) fn list(&self, herd: &mut Herd, others: &[Herd]) {
        let mut members = self.members(&herd.brakes, herd.id, others);
        let limit = herd.brakes.limit.unwrap_or(u64::MAX);
        let mut kept = 0;
        members.retain(|_, (outcome, _)| {
            let held = *outcome == MemberOutcome::Held;
            kept += u64::from(held);
            !held || kept <= limit
        });
        herd.members = members;
        herd.listed = true;
        herd.next_release = self.now;
        herd.state =
            if herd.brakes.canary == 0 { CohortState::Running } else { CohortState::Canary };
    }

    /// Whom a plan would select, and what it would do with each.
    fn members(
        &self,
        brakes: &Brakes,
        id: u64,
        others: &[Herd],
    ) -> BTreeMap<JobId, (MemberOutcome, Option<Corpse>)> {
        let mut members = BTreeMap::new();
        for job in self.jobs.values() {
            let Place::Dead(corpse) = &job.place else { continue };
            let code = brakes.code.map(|code| format!("E{code}"));
            if corpse.seq > id
                || brakes.queue.is_some_and(|queue| queue != job.queue)
                || code.is_some_and(|code| code != corpse.what.code)
            {
                continue;
            }
            let held = |herd: &Herd| {
                let member = herd.members.get(&job.id);
                herd.live() && member.is_some_and(|(found, _)| *found == MemberOutcome::Held)
            };
            let outcome = if others.iter().any(held) {
                MemberOutcome::Skipped(SkipReason::InCohort)
            } else {
                self.judge(job, corpse, brakes)
            };
            members.insert(job.id, (outcome, Some(corpse.clone())));
        }
        members
    }

    fn judge(&self, job: &Life, corpse: &Corpse, brakes: &Brakes) -> MemberOutcome {
        let unknown = matches!(corpse.what.class, FailureClass::Ambiguous | FailureClass::Crashed);
        if job.redrives >= job.rules.redrives {
            return MemberOutcome::Skipped(SkipReason::Budget);
        }
        if unknown && !brakes.reconciled {
            return MemberOutcome::Skipped(SkipReason::UnknownOutcome);
        }
        match self.owner(job.queue, job.key.as_ref()) {
            Some(owner) if owner.id != job.id => {
                let same = owner.kind == job.kind && owner.payload == job.payload;
                if same && matches!(owner.place, Place::Done { .. }) {
                    MemberOutcome::Suppressed
                } else {
                    MemberOutcome::Skipped(SkipReason::KeyTaken)
                }
            }
            _ => MemberOutcome::Held,
        }
    }

    fn let_go(&mut self, herd: &mut Herd) {
        let due = herd.due(self.now);
        let held = herd.members.iter().filter(|(_, (found, _))| *found == MemberOutcome::Held);
        let held: Vec<JobId> = held.map(|(&id, _)| id).collect();
        if due == 0 || held.is_empty() {
            return;
        }
        let (mut released, mut passed) = (0, false);
        for id in held {
            if released == due {
                break;
            }
            let outcome = match self.jobs.get(&id) {
                Some(job) => match &job.place {
                    Place::Dead(_) if self.redrive_stopped((job.queue, job.kind)) => break,
                    Place::Dead(corpse) => self.judge(job, corpse, &herd.brakes),
                    _ => MemberOutcome::Skipped(SkipReason::Gone),
                },
                None => MemberOutcome::Skipped(SkipReason::Gone),
            };
            let outcome = match outcome {
                MemberOutcome::Held => {
                    self.redrive(id, herd.id);
                    released += 1;
                    MemberOutcome::InFlight
                }
                other => {
                    passed = true;
                    other
                }
            };
            if let Some(member) = herd.members.get_mut(&id) {
                member.0 = outcome;
            }
        }
        self.wrote |= released > 0 || passed;
        self.restless |= released > 0 || passed;
        if herd.state == CohortState::Running && (released > 0 || !passed) {
            herd.batches += u32::from(released > 0);
            herd.next_release = self.now + herd.brakes.every_ms;
            self.wrote = true;
        }
    }

    /// A fresh budget, and nothing forgotten.
    fn redrive(&mut self, id: JobId, cohort: u64) {
        let (now, seq) = (self.now, self.next);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Place::Dead(corpse) = &job.place else { return };
        let held = job.halts;
        let crashed = corpse.what.class == FailureClass::Crashed;
        let death = Death {
            at: time(corpse.at),
            reason: corpse.reason,
            class: corpse.what.class,
            code: corpse.what.code.clone(),
            message: corpse.what.message.clone(),
            provider_ref: corpse.what.provider_ref.clone(),
            worker: corpse.worker.clone(),
            version: VERSION.to_owned(),
            cause: 0,
            attempts: job.attempts,
        };
        let event = HistoryEvent::Redriven {
            cohort: CohortId::new(cohort),
            reason: REASON.to_owned(),
            death: Box::new(death),
        };
        job.history.push(HistoryEntry { at: time(now), event });
        job.redrives += 1;
        job.cohort = Some(cohort);
        (job.attempts, job.transient, job.throttled, job.ambiguous) = (0, 0, 0, 0);
        (job.crashes, job.snoozes, job.releases, job.reconciles) = (0, 0, 0, 0);
        let asks = job.rules.on_unknown == OnUnknown::Reconcile && job.unknown.is_some();
        let lane = match (crashed, asks) {
            (true, true) => Lane::SuspectReconcile,
            (true, false) => Lane::Suspect,
            (false, true) => Lane::Reconcile,
            (false, false) => Lane::Retry,
        };
        job.place = Place::Ready(Spot { lane, seq });
        job.previous = job.previous.or(job.taken_by.take());
        let class = (job.queue, job.kind);
        self.own_again(id);
        self.arrange(id, held);
        if let Some(Place::Ready(spot)) = self.jobs.get(&id).map(|job| &job.place) {
            self.next = self.next.max(spot.seq + 1);
        }
        self.count(class, vec!["redriven"]);
    }

    /// Tells the cohort of a job how it ended, if it did.
    pub(super) fn owed(&mut self, id: JobId) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let Some(cohort) = job.cohort else { return };
        let (outcome, corpse) = match &job.place {
            Place::Done { .. } => (MemberOutcome::Completed, None),
            Place::Cancelled { .. } => (MemberOutcome::Cancelled, None),
            Place::Dead(corpse) => (MemberOutcome::DiedAgain, Some(corpse.clone())),
            Place::Ready(_) | Place::Delayed { .. } | Place::Leased(_) | Place::Blocked { .. } => {
                return;
            }
        };
        job.cohort = None;
        if let Some(herd) = self.herds.iter_mut().find(|herd| herd.id == cohort)
            && let Some(member) = herd.members.get_mut(&id)
        {
            member.0 = outcome;
            let cause = |corpse: &Corpse| {
                let what = corpse.what.clone();
                (what.class, what.code, what.message)
            };
            let same =
                corpse.is_some() && corpse.as_ref().map(cause) == member.1.as_ref().map(cause);
            herd.results.push((outcome == MemberOutcome::DiedAgain, same));
            self.restless = true;
        }
    }

    pub(super) fn compare_cohorts(&self, jobs: &Redrive) -> Verdict {
        for herd in &self.herds {
            let id = CohortId::new(herd.id);
            let found = jobs.cohort(id).map_err(text)?.ok_or("a cohort is missing")?;
            let state = if herd.paused { CohortState::Paused } else { herd.state };
            let what = format!("cohort {id}");
            if !found.counts.balances() {
                return Err(format!("{what} does not add up: {:?}", found.counts));
            }
            let mut counts = found.counts;
            counts.skipped.retain(|_, count| *count > 0);
            let next_release = found.next_release.map(|at| at.as_millis());
            let waits = state == CohortState::Running && counts.held > 0;
            same(
                &what,
                &(found.state, counts, found.batches, next_release),
                &(state, herd.counts(), herd.batches, waits.then_some(herd.next_release)),
            )?;
            let members = jobs.cohort_members(id, None, usize::MAX).map_err(text)?;
            let members: Vec<_> = members.iter().map(|m| (m.job, m.outcome)).collect();
            let expected: Vec<_> = herd.members.iter().map(|(&id, m)| (id, m.0)).collect();
            same(&format!("the members of cohort {id}"), &members, &expected)?;
        }
        Ok(())
    }
}
