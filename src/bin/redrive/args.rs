//! The command line.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args as Arguments, Parser, Subcommand, ValueEnum};
use redrive::{BadName, JobId, JobPolicy, OnDuplicate, OnUnknown, Schedule};

use crate::cohort::CohortCommand;
use crate::compact::CompactArgs;
use crate::dead::DeadCommand;
use crate::explain::ExplainArgs;
use crate::health::HealthArgs;
use crate::lineage::LineageArgs;
use crate::outbox::OutboxArgs;
use crate::pause::{PauseArgs, PausesArgs, ResumeArgs};
use crate::report::ReportArgs;

const EXIT_HELP: &str = "\
Exit status:
    0  all is well
    1  the command ran and has bad news: a job died in this run, waits for --reconcile, or is of a
       paused kind and left (work), a line was refused (enqueue), the books do not balance (verify,
       report)
    2  the command line cannot be used
    3  the file is open in another process
    4  there is no such file, queue, job or cohort
    5  the file is damaged, of a newer version, or not a store
    6  the system refused to read or write
   10  something is not well and can wait (health)
   11  something is not well and cannot (health)
  126  the job's command is not executable (work)
  127  the job's command was not found (work)
  130  a second signal came, and running jobs were given back (work)";

const WORK_HELP: &str = "\
Examples:
  find . -type f | redrive enqueue --queue sums --lines --key-line
  redrive work --queue sums --jobs 4 --until-empty -- sha256sum {}

  redrive work --queue urls --timeout 30s -- curl -fsS --retry 0 -o /dev/null {}
  redrive work --queue mail -- sendmail -t                # the payload on standard input

The command:
  `{}` anywhere inside an argument is replaced by the payload. Nothing is quoted: where `{}` lands
  inside `sh -c`, quoting is your business; rather pass it as an argument of its own,
  `sh -c 'gzip -k -- \"$1\"' sh {}`. Without `{}` the payload comes on standard input.

  Its environment: REDRIVE_JOB_ID, REDRIVE_QUEUE, REDRIVE_KIND, REDRIVE_KEY (if the job has one),
  REDRIVE_DELIVERY and REDRIVE_ATTEMPT (from 1), and REDRIVE_OUTCOME_UNKNOWN, which is 1 when an
  earlier delivery may have had its effect without anybody knowing, else 0.

  Its exit status: 0 done; 65 (--permanent-code) permanent, the job is dead at once;
  --throttled-code throttled; 75 or any other transient, retried within the job's budget. Death by a
  signal is transient. A --timeout leaves the outcome unknown, which is handled as the job's policy
  says (enqueue --on-unknown).

  Its standard output becomes the job's result (the first 64 KiB) and is passed on whole when the
  command ends, never mixed with that of another job; so is its standard error, the end of which
  becomes the message of a failure. What a delivery that is repeated has printed appears again. The
  job ends with the command: what processes it leaves behind print is read for one more second.

Unknown outcomes:
  A job that was enqueued with --on-unknown reconcile and whose outcome nobody knows (a timeout, a
  lease that ran out, a crash, a command that was given back) is not run again before --reconcile has
  found out. Its COMMAND is split at white space and runs as the other one does, `{}` and standard
  input included. Its exit status: 0 it happened, the job is done and its standard output is the
  result; 66 (--not-happened-code) it did not happen, the job is run again; any other, a signal, or
  the --timeout: still unknown, it is asked again later (10 times, 5 s to 15 min apart, then the job is
  dead). Its environment has REDRIVE_UNKNOWN_CODE, REDRIVE_UNKNOWN_DELIVERY and
  REDRIVE_UNKNOWN_SINCE (milliseconds since 1970) too. Without --reconcile such jobs wait.

Signals:
  The first SIGINT (Ctrl-C), SIGTERM or SIGHUP drains: nothing new is started, what runs may finish. The
  second gives back: commands get SIGTERM, two seconds later SIGKILL, and their jobs return to the
  queue uncharged. Commands run in process groups of their own, so a Ctrl-C reaches only redrive.
  Killed by SIGKILL and started again, it goes on where it was; a command that was running then may
  still run, and its job is delivered again with REDRIVE_OUTCOME_UNKNOWN=1.

Exit status: 0 drained, and nothing died in this run; 1 a job died in this run, or waits for a
--reconcile that was not given; others as in `redrive --help`.";

/// A durable xargs and a job queue's operator, on one crash-safe file.
#[derive(Debug, Parser)]
#[command(name = "redrive", version, after_help = EXIT_HELP)]
pub(crate) struct Args {
    /// The store.
    #[arg(
        short,
        long,
        global = true,
        env = "REDRIVE_FILE",
        default_value = "jobs.redb",
        value_name = "FILE"
    )]
    pub(crate) file: PathBuf,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Reads jobs from standard input, one per line.
    Enqueue(EnqueueArgs),
    /// Runs a command for each job of a queue.
    Work(WorkArgs),
    /// Counts jobs by state, in total and per queue.
    Stats(StatsArgs),
    /// Shows one job and what happened to it.
    Job(JobArgs),
    /// Shows everything under one key, and where repeated work comes from.
    Lineage(LineageArgs),
    /// Looks at dead jobs, amends and discards them.
    #[command(subcommand)]
    Dead(DeadCommand),
    /// Sends dead jobs back, with brakes.
    #[command(subcommand)]
    Cohort(CohortCommand),
    /// Pauses a queue, a kind of it, or redrive.
    Pause(PauseArgs),
    /// Lifts a pause or a hold.
    Resume(ResumeArgs),
    /// Lists what is paused or held, by whom and why.
    Pauses(PausesArgs),
    /// Shows how much is still to be sent, by destination.
    Outbox(OutboxArgs),
    /// Tells what has happened in a span of time, and what waits.
    Report(ReportArgs),
    /// Tells whether the store is well, for monitors.
    Health(HealthArgs),
    /// Tells why a job is not running.
    Explain(ExplainArgs),
    /// Reads everything and proves that the books balance.
    Verify(VerifyArgs),
    /// Makes the file smaller, where space is not used.
    Compact(CompactArgs),
}

/// Reads jobs from standard input, one per line, and adds them in batches. Each batch is on the disk
/// before the next one is read, so an interrupted run may simply be repeated when the jobs have keys.
/// A line that is refused is reported with its number and stops nothing. Blank lines are skipped;
/// a line's end (LF or CR LF) is not part of its payload.
#[derive(Debug, Arguments)]
#[command(group(ArgGroup::new("format").required(true)), group(ArgGroup::new("keys")))]
pub(crate) struct EnqueueArgs {
    /// The queue; it comes into being with its first job.
    #[arg(short, long, value_parser = queue_name)]
    pub(crate) queue: String,
    /// What the jobs are called, for those who look at them and for handlers in programs.
    #[arg(long, default_value = "line", value_parser = name)]
    pub(crate) kind: String,
    /// A line is a payload: any bytes.
    #[arg(long, group = "format")]
    pub(crate) lines: bool,
    /// A line is a JSON value, which is checked; its text is the payload.
    #[arg(long, group = "format")]
    pub(crate) jsonl: bool,
    /// The line is the idempotency key too: the same line again is a duplicate.
    #[arg(long, group = "keys", conflicts_with = "jsonl")]
    pub(crate) key_line: bool,
    /// These fields of the JSON object, joined by `:`, are the idempotency key. (A `:` or `\` in a
    /// value then gets a `\` before it, so that different fields never make the same key.) They must
    /// be texts, booleans or whole numbers of up to 64 bits.
    #[arg(
        long,
        group = "keys",
        value_delimiter = ',',
        value_name = "FIELD",
        conflicts_with = "lines"
    )]
    pub(crate) key_field: Vec<String>,
    /// When the key has a job already: tell of it, put this line in its place if it was never started, or
    /// add a new job if it is dead.
    #[arg(long, value_name = "CHOICE", value_enum, default_value_t = Duplicate::Return)]
    pub(crate) on_duplicate: Duplicate,
    /// The jobs start no sooner than this from now.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub(crate) delay: Option<Duration>,
    /// 0 to 255; higher goes first.
    #[arg(long, default_value_t = 100)]
    pub(crate) priority: u8,
    #[command(flatten)]
    pub(crate) policy: PolicyArgs,
    /// Prints the summary as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to do about a key that has a job.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Duplicate {
    Return,
    Replace,
    AfterDead,
}

impl From<Duplicate> for OnDuplicate {
    fn from(choice: Duplicate) -> Self {
        match choice {
            Duplicate::Return => Self::Return,
            Duplicate::Replace => Self::Replace,
            Duplicate::AfterDead => Self::AfterDead,
        }
    }
}

/// What is stored with each job and decides about its failures.
#[derive(Debug, Arguments)]
#[command(next_help_heading = "Policy, stored with each job")]
pub(crate) struct PolicyArgs {
    /// The most charged deliveries, whatever they fail of [default: 6 per class, 12 in all].
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    max_deliveries: Option<u32>,
    /// The wait before the first retry; each next one is twice as long.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
    retry_wait: Duration,
    /// The longest wait before a retry.
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = humantime::parse_duration)]
    retry_wait_max: Duration,
    /// After an outcome that nobody knows (timeout, crash): deliver again, lay aside as dead, or ask
    /// first what happened (work --reconcile).
    #[arg(long, value_name = "CHOICE", value_enum, default_value_t = Unknown::Retry)]
    on_unknown: Unknown,
    /// How long a worker that is not heard of keeps a job: 10ms to 7days.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = lease)]
    lease: Duration,
    /// How long a finished job and its key are remembered, so that `redrive job` shows its result
    /// and its line is a duplicate.
    #[arg(long, value_name = "TIME", default_value = "7days", value_parser = humantime::parse_duration)]
    keep: Duration,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Unknown {
    Retry,
    Quarantine,
    Reconcile,
}

impl PolicyArgs {
    pub(crate) fn policy(&self) -> JobPolicy {
        let policy = JobPolicy::new()
            .schedule(Schedule::exponential(self.retry_wait, self.retry_wait_max))
            .on_unknown(match self.on_unknown {
                Unknown::Retry => OnUnknown::Retry,
                Unknown::Quarantine => OnUnknown::Quarantine,
                Unknown::Reconcile => OnUnknown::Reconcile,
            })
            .lease(self.lease)
            .keep_finished(self.keep)
            .keep_key_after_done(self.keep)
            .keep_key_after_cancel(self.keep);
        match self.max_deliveries {
            Some(deliveries) => policy.max_deliveries(deliveries),
            None => policy,
        }
    }
}

/// Runs a command for each job of a queue, several at a time.
#[derive(Debug, Arguments)]
#[command(after_help = WORK_HELP)]
pub(crate) struct WorkArgs {
    /// The queue. One that never had a job is an error.
    #[arg(short, long, value_parser = queue_name)]
    pub(crate) queue: String,
    /// How many commands run at a time, 1 to 1,024.
    #[arg(short, long, default_value_t = 1, value_parser = threads)]
    pub(crate) jobs: usize,
    /// Ends when nothing is ready, running or waiting for a retry, and no cohort is going to release
    /// more into this queue. Jobs that were put off to a later
    /// time when they were enqueued do not hold it, nor do jobs of kinds that are paused. Without this
    /// it runs until a signal comes.
    #[arg(long)]
    pub(crate) until_empty: bool,
    /// Kills a command, with its process group, that runs longer. Whether it had its effect is then
    /// unknown.
    #[arg(long, value_name = "TIME", value_parser = timeout)]
    pub(crate) timeout: Option<Duration>,
    /// Asks this command what became of a job whose outcome is unknown, see below.
    #[arg(long, value_name = "COMMAND", value_parser = words)]
    pub(crate) reconcile: Option<Words>,
    /// The exit status by which --reconcile says that it did not happen.
    #[arg(
        long,
        value_name = "STATUS",
        default_value_t = 66,
        requires = "reconcile",
        value_parser = clap::value_parser!(i32).range(1..=255)
    )]
    pub(crate) not_happened_code: i32,
    /// Exit statuses that are permanent failures.
    #[arg(
        long,
        value_name = "STATUS",
        value_delimiter = ',',
        default_value = "65",
        value_parser = clap::value_parser!(i32).range(1..=255)
    )]
    pub(crate) permanent_code: Vec<i32>,
    /// Exit statuses that say the other side asks for less.
    #[arg(
        long,
        value_name = "STATUS",
        value_delimiter = ',',
        value_parser = clap::value_parser!(i32).range(1..=255)
    )]
    pub(crate) throttled_code: Vec<i32>,
    /// The command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Counts jobs by state. `done` and `cancelled` count over the life of the file.
#[derive(Debug, Arguments)]
pub(crate) struct StatsArgs {
    /// Prints JSON, with the flows and the counts of each kind too.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Shows one job and what happened to it.
#[derive(Debug, Arguments)]
pub(crate) struct JobArgs {
    /// The job's id.
    #[arg(value_parser = job_id)]
    pub(crate) id: JobId,
    /// Prints JSON. Times are milliseconds since 1970; bytes that are no text are in hexadecimal.
    #[arg(long, conflicts_with_all = ["payload", "result"])]
    pub(crate) json: bool,
    /// Prints the payload's bytes and nothing else. A finished job has none.
    #[arg(long, conflicts_with = "result")]
    pub(crate) payload: bool,
    /// Prints the result's bytes and nothing else.
    #[arg(long)]
    pub(crate) result: bool,
}

/// Reads everything and compares: checksums, indexes, keys, history and counters.
#[derive(Debug, Arguments)]
pub(crate) struct VerifyArgs {
    /// Prints JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Longest name of a queue or a kind in bytes, as the library has it.
const NAME_BYTES_MAX: usize = 128;

/// Refuses here what the library would refuse for each job.
/// A queue that jobs are put into or taken from; those of destinations are for messages and relays.
fn queue_name(text: &str) -> Result<String, String> {
    const PREFIX: &str = "outbox:";
    if text.starts_with(PREFIX) {
        return Err(BadName::Reserved { prefix: PREFIX }.to_string());
    }
    name(text)
}

pub(crate) fn name(text: &str) -> Result<String, String> {
    let bad = if text.is_empty() {
        BadName::Empty
    } else if text.len() > NAME_BYTES_MAX {
        BadName::TooLong { bytes: text.len(), bytes_max: NAME_BYTES_MAX }
    } else if text.chars().any(char::is_control) {
        BadName::ControlCharacter
    } else {
        return Ok(text.to_owned());
    };
    Err(bad.to_string())
}

/// A command as one text.
#[derive(Clone, Debug)]
pub(crate) struct Words(pub(crate) Vec<OsString>);

fn words(text: &str) -> Result<Words, String> {
    let words: Vec<OsString> = text.split_whitespace().map(OsString::from).collect();
    if words.is_empty() { Err("name a command".to_owned()) } else { Ok(Words(words)) }
}

fn threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=1_024) => Ok(threads),
        _ => Err("give a number from 1 to 1024".to_owned()),
    }
}

pub(crate) fn job_id(text: &str) -> Result<JobId, String> {
    let id = text.parse().map(JobId::new);
    id.map_err(|_| "a job's id is a whole number".to_owned())
}

fn lease(text: &str) -> Result<Duration, String> {
    let lease = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if (Duration::from_millis(10)..=Duration::from_secs(7 * 24 * 3_600)).contains(&lease) {
        Ok(lease)
    } else {
        Err("give a time from 10ms to 7days".to_owned())
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if timeout.is_zero() { Err("give a time above zero".to_owned()) } else { Ok(timeout) }
}
