//! Which dead jobs are meant.

use std::time::{Duration, SystemTime};

use clap::{Args as Arguments, ValueEnum};
use redrive::{FailureClass, Filter, JobId};

use crate::args::{job_id, name};

/// Every criterion that is given must hold.
#[derive(Debug, Arguments)]
#[command(next_help_heading = "Which dead jobs")]
pub(crate) struct FilterArgs {
    /// Of this queue.
    #[arg(short, long, value_parser = name)]
    pub(crate) queue: Option<String>,
    /// Of this kind.
    #[arg(short, long, value_parser = name)]
    kind: Option<String>,
    /// Whose last failure was of this class.
    #[arg(long, value_enum)]
    class: Option<Class>,
    /// Whose last failure had this code.
    #[arg(long)]
    code: Option<String>,
    /// With this cause, as `dead list` and `dead causes` print it.
    #[arg(long, value_name = "HEX", value_parser = cause)]
    cause: Option<u64>,
    /// That died at this time or later, like 2026-11-30T18:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    since: Option<SystemTime>,
    /// That died before this time.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_rfc3339_weak)]
    before: Option<SystemTime>,
    /// Whose last handler had this version.
    #[arg(long, value_name = "VERSION")]
    handler_version: Option<String>,
    /// Whose key begins with this.
    #[arg(long, value_name = "PREFIX")]
    key_prefix: Option<String>,
    /// That have been dead for this long or longer, like 2h.
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    dead_for: Option<Duration>,
    /// That have been dead for this long or less.
    #[arg(long, value_name = "AGE", value_parser = humantime::parse_duration)]
    dead_within: Option<Duration>,
    /// That were redriven this often or more.
    #[arg(long, value_name = "TIMES")]
    redriven_at_least: Option<u32>,
    /// That were redriven this often or less.
    #[arg(long, value_name = "TIMES")]
    redriven_at_most: Option<u32>,
    /// Only these jobs.
    #[arg(long, value_name = "JOB", value_delimiter = ',', value_parser = job_id)]
    id: Vec<JobId>,
    /// All dead jobs: needed where no other criterion is given and something is going to be changed.
    #[arg(long)]
    all: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Class {
    Permanent,
    Transient,
    Throttled,
    Ambiguous,
    Crashed,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> Filter {
        let mut filter = Filter::new();
        if let Some(queue) = &self.queue {
            filter = filter.queue(queue);
        }
        if let Some(kind) = &self.kind {
            filter = filter.kind(kind);
        }
        if let Some(class) = self.class {
            filter = filter.class(match class {
                Class::Permanent => FailureClass::Permanent,
                Class::Transient => FailureClass::Transient,
                Class::Throttled => FailureClass::Throttled,
                Class::Ambiguous => FailureClass::Ambiguous,
                Class::Crashed => FailureClass::Crashed,
            });
        }
        if let Some(code) = &self.code {
            filter = filter.code(code);
        }
        if let Some(cause) = self.cause {
            filter = filter.cause(cause);
        }
        if let Some(since) = self.since {
            filter = filter.since(since);
        }
        if let Some(before) = self.before {
            filter = filter.before(before);
        }
        if let Some(version) = &self.handler_version {
            filter = filter.version(version);
        }
        if let Some(prefix) = &self.key_prefix {
            filter = filter.key_prefix(prefix);
        }
        if let Some(age) = self.dead_for {
            filter = filter.dead_for(age);
        }
        if let Some(age) = self.dead_within {
            filter = filter.dead_within(age);
        }
        if let Some(times) = self.redriven_at_least {
            filter = filter.redriven_at_least(times);
        }
        if let Some(times) = self.redriven_at_most {
            filter = filter.redriven_at_most(times);
        }
        if !self.id.is_empty() {
            filter = filter.ids(self.id.iter().copied());
        }
        if self.all { filter.everything() } else { filter }
    }
}

fn cause(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|_| "a cause is 16 hexadecimal digits".to_owned())
}
