//! `redrive work`: runs a command for each job of a queue, until told to stop or out of work.

use std::collections::BTreeSet;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;
use redrive::{Clock, Counts, Options, QueueStats, Redrive, RunningWorkers, Workers};

use crate::args::WorkArgs;
use crate::cohort;
use crate::command::Runner;
use crate::control::Control;
use crate::exit::{Status, Trouble};
use crate::process::Force;
use crate::{output, pause, process, store};

/// How often to look whether the queue is empty.
const LOOK_MS: u64 = 20;
/// How often to look after leases that were lost, and at the bar.
const TICK_MS: u64 = 500;
/// From asking commands to end to making them.
const GRACE_MS: u64 = 2_000;
/// How long the threads that give a job back may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) fn run(file: &Path, args: WorkArgs) -> Result<Status, Trouble> {
    let jobs = store::open_existing(file, Options::new())?;
    let before = store::known_queue(&jobs, &args.queue)?;
    let paused = pause::paused_kinds(&jobs, &args.queue)?;
    let died_before = died(&jobs.stats()?.total).saturating_sub(jobs.recovered().died);
    let set_aside_before = jobs.stats()?.set_aside.saturating_sub(jobs.recovered().set_aside);
    let control = Arc::new(Control::new());
    listen(&control)?;
    let bar = bar(left(&before.counts, args.reconcile.is_some()));
    let program = args.command.first().map(PathBuf::from).unwrap_or_default();
    let runner = Arc::new(Runner {
        control: Arc::clone(&control),
        words: args.command,
        reconcile: args.reconcile.map(|words| words.0),
        not_happened_code: args.not_happened_code,
        timeout: args.timeout,
        permanent_codes: args.permanent_code,
        throttled_codes: args.throttled_code,
        bar: bar.clone(),
        passing: Mutex::new(()),
    });
    let asks = runner.reconcile.is_some();
    let asking = Arc::clone(&runner);
    let mut workers = Workers::new(&jobs)
        .queue(&args.queue, args.jobs)
        .version(program.display().to_string())
        .handle_any(move |job| runner.deliver(job));
    if asks {
        workers = workers.reconcile_any(move |unknown| asking.reconcile(unknown));
    }
    let running = workers.start()?;
    let shift = Shift {
        jobs: &jobs,
        queue: &args.queue,
        asks,
        control: &control,
        running: &running,
        before: &before,
        paused: &paused,
        bar: &bar,
    };
    let watched = shift.watch(args.until_empty);
    let error = running.report().error;
    // Nothing is claimed any more: those that hold a job may give it back.
    running.drain();
    control.release_held();
    running.shutdown(PATIENCE);
    bar.finish_and_clear();
    if let Some(error) = error {
        return Err(error.into());
    }
    watched?;
    let stats = jobs.stats()?;
    let died = died(&stats.total).saturating_sub(died_before);
    let set_aside = stats.set_aside.saturating_sub(set_aside_before);
    let after = store::known_queue(&jobs, &args.queue)?;
    summarise(&before, &after, died);
    let unasked = if asks { 0 } else { after.counts.unreconciled() };
    let held_up = held_up(&after, &paused, asks);
    jobs.close()?;
    let left_over = if args.until_empty { held_up } else { 0 };
    outcome(&control, &News { died, unasked, held_up, left_over, set_aside })
}

/// What is wrong when all have stopped.
struct News {
    died: u64,
    /// Jobs that wait until it is found out whether they happened, and nobody was here to ask.
    unasked: u64,
    /// Jobs of paused kinds, and how many of them should have been worked.
    held_up: u64,
    left_over: u64,
    set_aside: u64,
}

fn outcome(control: &Control, news: &News) -> Result<Status, Trouble> {
    let News { died, unasked, held_up, left_over, set_aside } = *news;
    if unasked > 0 {
        output::note(format_args!(
            "redrive: {unasked} wait until --reconcile has found out whether they happened"
        ));
    }
    if held_up > 0 {
        output::note(format_args!("redrive: {held_up} jobs of paused kinds are left"));
    }
    if set_aside > 0 {
        output::note(format_args!(
            "redrive: {set_aside} damaged rows were set aside; see `redrive verify`"
        ));
    }
    if let Some(trouble) = control.cannot_run.get() {
        return Err(trouble.clone());
    }
    Ok(if control.is_giving_back() {
        Status::GivenBack
    } else if died + unasked + left_over + set_aside > 0 {
        Status::BadNews
    } else {
        Status::Done
    })
}

fn listen(control: &Arc<Control>) -> Result<(), Trouble> {
    let control = Arc::clone(control);
    let on_signal = move || {
        let earlier = control.signals.fetch_add(1, Ordering::AcqRel);
        output::note(match earlier {
            0 => "redrive: draining; once more gives running jobs back",
            _ => "redrive: giving running jobs back",
        });
        control.changed.raise();
    };
    process::listen(on_signal)
        .map_err(|error| Trouble::new(Status::Io, format_args!("cannot hear signals: {error}")))
}

/// What the thread that watches the others looks at.
struct Shift<'a> {
    jobs: &'a Redrive,
    queue: &'a str,
    /// There is somebody to ask about unknown outcomes.
    asks: bool,
    control: &'a Control,
    running: &'a RunningWorkers,
    before: &'a QueueStats,
    /// Kinds that nothing is claimed of.
    paused: &'a BTreeSet<String>,
    bar: &'a ProgressBar,
}

impl Shift<'_> {
    /// Until the workers have ended, or all that still run hold a job that is to be given back.
    fn watch(&self, until_empty: bool) -> Result<(), Trouble> {
        let control = self.control;
        let mut draining = false;
        let mut asked_at_ms = None;
        while self.running.active() > control.holding.load(Ordering::Acquire) {
            let now_ms = control.clock.monotonic_ms();
            control.children.enforce(now_ms);
            for token in self.running.report().stuck {
                control.children.lease_lost(token);
            }
            if control.is_giving_back() {
                let asked_at_ms = *asked_at_ms.get_or_insert(now_ms);
                control.children.end_all(if now_ms < asked_at_ms + GRACE_MS {
                    Force::Ask
                } else {
                    Force::Kill
                });
            }
            let look = until_empty && !draining;
            if look || !self.bar.is_hidden() {
                let queue = store::known_queue(self.jobs, self.queue)?;
                self.show(&queue.counts);
                let stands = held_up(&queue, self.paused, self.asks);
                let empty = left(&queue.counts, self.asks) == stands;
                if look && empty && !cohort::will_release(self.jobs, self.queue)? {
                    self.running.drain();
                    draining = true;
                }
            }
            if control.is_draining() && !draining {
                self.running.drain();
                draining = true;
            }
            let wait_ms = if until_empty || draining { LOOK_MS } else { TICK_MS };
            let tick_ms = now_ms.saturating_add(wait_ms);
            let deadline_ms = control.children.next_deadline_ms();
            let until_ms = deadline_ms.map_or(tick_ms, |deadline_ms| deadline_ms.min(tick_ms));
            control.clock.wait(&control.changed, Some(until_ms));
        }
        Ok(())
    }

    fn show(&self, now: &Counts) {
        let before = &self.before.counts;
        let finished = ended(now).saturating_sub(ended(before));
        let left = left(now, self.asks);
        self.bar.set_length(finished + left);
        self.bar.set_position(finished);
        self.bar.set_message(format!(
            "{} running, {} waiting for a retry, {} dead",
            now.leased, now.delayed_retry, now.dead
        ));
    }
}

/// How many jobs there are to do now or after a retry's wait.
fn left(counts: &Counts, asks: bool) -> u64 {
    let left = counts.ready + counts.leased + counts.delayed_retry;
    // Those that nobody here can ask about do not hold the others.
    if asks { left + counts.delayed_reconcile } else { left.saturating_sub(counts.ready_reconcile) }
}

fn bar(left: u64) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::with_draw_target(Some(left), ProgressDrawTarget::stderr());
    match ProgressStyle::with_template("{bar:30} {pos}/{len} {msg} {eta}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// How many jobs would be worked if their kinds were not paused.
fn held_up(queue: &QueueStats, paused: &BTreeSet<String>, asks: bool) -> u64 {
    let counts = paused.iter().filter_map(|kind| queue.kinds.get(kind));
    counts.map(|counts| left(counts, asks).saturating_sub(counts.leased)).sum()
}

/// How many jobs have died, ever.
fn died(counts: &Counts) -> u64 {
    let deaths = counts
        .flows
        .iter()
        .filter(|(flow, _)| flow.starts_with("died_") && !flow.starts_with("died_after"));
    deaths.map(|(_, count)| count).sum()
}

/// How many jobs have ended, ever.
fn ended(counts: &Counts) -> u64 {
    counts.done + counts.cancelled + died(counts)
}

fn summarise(before: &QueueStats, after: &QueueStats, died: u64) {
    let (before, after) = (&before.counts, &after.counts);
    let retried: u64 = after
        .flows
        .iter()
        .filter(|(flow, _)| flow.starts_with("retried_"))
        .map(|(flow, count)| count.saturating_sub(before.flow(flow)))
        .sum();
    let left = after.ready + after.delayed + after.blocked + after.leased;
    output::note(format_args!(
        "redrive: {} done, {retried} retries, {died} died; {left} left, {} dead in all",
        after.done.saturating_sub(before.done),
        after.dead,
    ));
}
