//! The steps that start, pause, resume and abort cohorts.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::abort::Abort;
use crate::domain::cohort::CohortState;
use crate::domain::filter::Filter;
use crate::domain::id::CohortId;
use crate::domain::plan::RedrivePlan;
use crate::error::{CohortError, RedriveError};
use crate::testing::cohort::{Herd, REASON};
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::{Harness, text};
use crate::testing::op::{Brakes, Order, QUEUES};

impl Brakes {
    fn plan(&self) -> RedrivePlan {
        let mut filter = Filter::new().everything();
        if let Some(queue) = self.queue {
            filter = filter.queue(QUEUES.get(queue).copied().unwrap_or_default());
        }
        if let Some(code) = self.code {
            filter = filter.code(format!("E{code}"));
        }
        let mut plan = RedrivePlan::new(filter)
            .canary(self.canary)
            .batch(self.batch)
            .ramp_to(self.ramp_to)
            .every(Duration::from_millis(self.every_ms))
            .without_abort_rules();
        if !self.bad {
            plan = plan.reason(REASON);
        }
        if self.in_flight_max > 0 {
            plan = plan.in_flight_max(self.in_flight_max);
        }
        if let Some(limit) = self.limit {
            plan = plan.limit(limit);
        }
        if self.reconciled {
            plan = plan.reconciled("asked the other side");
        }
        if let Some(percent) = self.dead_percent {
            let (results_min, results_last) = (2, 5);
            plan = plan.abort_if(Abort::DeadShare { percent, results_min, results_last });
        }
        if let Some(times) = self.same_cause {
            plan = plan.abort_if(Abort::SameCause { times, results_last: 3 });
        }
        plan
    }
}

impl Harness {
    /// Lets the store and the model do what follows from what has happened.
    pub(super) fn quiet(&mut self) -> Verdict {
        if self.model.has_cohorts() || self.model.restless || self.model.retains() {
            return self.time_moved();
        }
        Ok(())
    }

    /// First what would happen, then what happens.
    pub(super) fn redrive(&mut self, brakes: &Brakes) -> Verdict {
        let plan = brakes.plan();
        if brakes.bad {
            let refused = self.jobs.redrive(plan);
            return match refused {
                Err(RedriveError::Plan { .. }) => Ok(()),
                other => Err(format!("a plan without a reason: {other:?}")),
            };
        }
        let mut preview = self.jobs.preview(&plan).map_err(text)?.counts;
        preview.skipped.retain(|_, count| *count > 0);
        let id = self.jobs.redrive(plan).map_err(text)?;
        let herd = self.model.round(|model| {
            let herd = Herd {
                id: model.next,
                brakes: brakes.clone(),
                state: CohortState::Selecting,
                paused: false,
                members: BTreeMap::new(),
                listed: false,
                batches: 0,
                next_release: 0,
                results: Vec::new(),
            };
            model.next += 1;
            model.wrote = true;
            model.restless = true;
            model.herds.push(herd.clone());
            herd
        });
        self.acked();
        same("the cohort's id", &id.get(), &herd.id)?;
        let mut listed = herd;
        let others: Vec<Herd> =
            self.model.herds.iter().filter(|herd| herd.listed).cloned().collect();
        self.model.list(&mut listed, &others);
        same("the preview", &preview, &listed.counts())
    }

    pub(super) fn order_cohort(&mut self, cohort: usize, order: Order) -> Verdict {
        let herds = &self.model.herds;
        let place = cohort.checked_rem(herds.len()).unwrap_or(0);
        let id = herds.get(place).map_or(999_999, |herd| herd.id);
        let answer = match order {
            Order::Pause => self.jobs.cohort_pause(CohortId::new(id)),
            Order::Resume => self.jobs.cohort_resume(CohortId::new(id)),
            Order::Abort => self.jobs.cohort_abort(CohortId::new(id), REASON),
        };
        let answer = match answer {
            Ok(()) => Ok(()),
            Err(CohortError::NotFound { .. }) => Err(None),
            Err(CohortError::WrongState { state, .. }) => Err(Some(state)),
            Err(error) => return Err(text(error)),
        };
        let expected = self.model.round(|model| {
            let herd = model.herds.get_mut(place).ok_or(None)?;
            let state = if herd.paused { CohortState::Paused } else { herd.state };
            if !herd.live() || herd.paused != (order == Order::Resume) && order != Order::Abort {
                return Err(Some(state));
            }
            herd.paused = order == Order::Pause;
            if order == Order::Abort {
                herd.state = CohortState::Aborted;
            }
            model.wrote = true;
            model.restless = true;
            Ok(())
        });
        self.acked();
        same("the answer to the order", &answer, &expected)
    }
}
