//! What the reference model says of a span of time: everything it has counted, by minute.

use std::collections::BTreeMap;

use crate::domain::count::Count;
use crate::domain::job::JobState;
use crate::domain::window::Window;
use crate::handle::redrive::Redrive;
use crate::handle::report::{Balance, Change, DelayedBacklog, Report};
use crate::testing::expect::{Verdict, same};
use crate::testing::harness::text;
use crate::testing::life::Place;
use crate::testing::model::{ClassKey, Model, state, time};
use crate::testing::op::{KINDS, QUEUES};

const MINUTE_MS: u64 = 60_000;

/// How often what happened to which class in which minute.
pub(super) type Log = BTreeMap<(u64, ClassKey, &'static str), u64>;

pub(super) const COMPLETED_AFTER: [&str; 6] = [
    "completed_after_1",
    "completed_after_2",
    "completed_after_3",
    "completed_after_4_to_6",
    "completed_after_7_to_12",
    "completed_after_more",
];
pub(super) const DIED_AFTER: [&str; 6] = [
    "died_after_1",
    "died_after_2",
    "died_after_3",
    "died_after_4_to_6",
    "died_after_7_to_12",
    "died_after_more",
];

/// The flow for a job that ended after so many attempts.
pub(super) fn attempts(after: [&'static str; 6], count: u32) -> &'static str {
    let [one, two, three, six, twelve, more] = after;
    match count {
        0 | 1 => one,
        2 => two,
        3 => three,
        4..=6 => six,
        7..=12 => twelve,
        _ => more,
    }
}

/// What enters and what leaves the jobs alive, and the dead.
const ENTERED: [&str; 2] = ["enqueued", "imported"];
const ENDED: [&str; 5] = ["completed", "done_as_duplicate", "cancelled", "discarded", "evicted"];
const DIED: [&str; 6] = [
    "died_permanent",
    "died_transient",
    "died_throttled",
    "died_ambiguous",
    "died_crashed",
    "imported",
];
const RISEN: [&str; 3] = ["discarded", "evicted", "redriven"];

impl Model {
    /// P11: the flows of any window are those that were counted in it, the change of what is alive and
    /// dead is what entered less what left, and nothing remains.
    pub(super) fn compare_reports(&self, jobs: &Redrive) -> Verdict {
        let now = self.latest().max(self.wall);
        let ago = |minutes: u64| time(now.saturating_sub(minutes * MINUTE_MS));
        let steps = u64::try_from(self.log.len()).unwrap_or(0);
        let (far, near) = (1 + steps * 7 % 12_000, steps * 3 % 5);
        for (window, first, last) in [
            (Window::ever(), None, 0),
            (Window::between(ago(far), ago(near)), Some(far), near),
            (Window::between(ago(near), ago(0)), Some(near), 0),
        ] {
            let report = jobs.report(window).map_err(text)?;
            let to = (now / MINUTE_MS).saturating_sub(last);
            let asked = first.map_or(0, |first| (now / MINUTE_MS).saturating_sub(first));
            let from = report.from.as_millis() / MINUTE_MS;
            // Never before what was asked for; after it only where that is not kept any longer.
            let kept = (now / MINUTE_MS).saturating_sub(7 * 24 * 60);
            if from < asked || (asked >= kept && from != asked && from <= to) {
                return Err(format!("the window begins at {from}, not at {asked}"));
            }
            self.compare_report(&report, from, to)?;
            self.compare_minutes(jobs, &report, window)?;
        }
        Ok(())
    }

    fn compare_report(&self, report: &Report, from: u64, to: u64) -> Verdict {
        let what = |of: &str| format!("{of} from minute {from} to {to}");
        self.compare_balance(&what("all"), &report.total, from, to, |_| true)?;
        for (queue, name) in QUEUES.iter().enumerate() {
            let Some(found) = report.queues.get(*name) else { continue };
            self.compare_balance(&what(name), &found.sum, from, to, |class| class.0 == queue)?;
            for (kind, name) in KINDS.iter().enumerate() {
                if let Some(found) = found.kinds.get(*name) {
                    let of = |class| class == (queue, kind);
                    self.compare_balance(&what(name), found, from, to, of)?;
                }
            }
        }
        same("the delayed", &report.delayed, &self.delayed())?;
        same("the pauses in the report", &report.pauses, &self.pauses())
    }

    fn compare_balance(
        &self,
        what: &str,
        found: &Balance,
        from: u64,
        to: u64,
        of: impl Fn(ClassKey) -> bool,
    ) -> Verdict {
        let logged = self.log.iter().filter(|&(&(_, class, _), _)| of(class));
        let mut flows: BTreeMap<&str, u64> = found.flows.keys().map(|&name| (name, 0)).collect();
        let (mut alive, mut dead) = (Change::default(), Change::default());
        for (&(minute, _, flow), &count) in logged.filter(|&(&(minute, ..), _)| minute <= to) {
            if minute >= from {
                *flows.entry(flow).or_default() += count;
            }
            let enters = |gauge: &mut u64, plus: bool, minus: bool| {
                // Within a minute the names of what happened are not in its order.
                *gauge = gauge.wrapping_add(if plus { count } else { 0 });
                *gauge = gauge.wrapping_sub(if minus { count } else { 0 });
            };
            let (accepted, ended) = (ENTERED.contains(&flow), ENDED.contains(&flow));
            let died = DIED.contains(&flow);
            let left = RISEN.contains(&flow);
            if minute < from {
                enters(&mut alive.before, accepted, ended);
                enters(&mut dead.before, died, left);
            }
            enters(&mut alive.after, accepted, ended);
            enters(&mut dead.after, died, left);
        }
        if from <= to {
            same(&format!("flows of {what}"), &found.flows, &flows)?;
            same(&format!("alive of {what}"), &found.alive, &alive)?;
            same(&format!("dead of {what}"), &found.dead, &dead)?;
        }
        same(&format!("residuals of {what}"), &(found.residual, found.dead_residual), &(0, 0))
    }

    /// The minutes of a window add up to it.
    fn compare_minutes(&self, jobs: &Redrive, report: &Report, window: Window) -> Verdict {
        if report.from.as_millis() == 0 {
            return Ok(());
        }
        for (queue, kinds) in &report.queues {
            for (kind, balance) in &kinds.kinds {
                let mut sums: BTreeMap<&str, u64> =
                    balance.flows.keys().map(|&name| (name, 0)).collect();
                for minute in jobs.minutes(queue, kind, window).map_err(text)? {
                    if minute.at >= report.from {
                        for (flow, count) in minute.flows {
                            *sums.entry(flow).or_default() += count;
                        }
                    }
                }
                same(&format!("minutes of {kind} in {queue}"), &sums, &balance.flows)?;
            }
        }
        Ok(())
    }

    fn delayed(&self) -> DelayedBacklog {
        let now = self.latest().max(self.wall);
        let mut backlog = DelayedBacklog::default();
        for job in self.jobs.values().filter(|job| state(job) == JobState::Delayed) {
            let Place::Delayed { due, .. } = job.place else { continue };
            let place: &mut Count = match due.saturating_sub(now) {
                0 => &mut backlog.overdue,
                1..MINUTE_MS => &mut backlog.minute,
                MINUTE_MS..3_600_000 => &mut backlog.hour,
                3_600_000..86_400_000 => &mut backlog.day,
                _ => &mut backlog.later,
            };
            place.count += 1;
        }
        backlog
    }
}
