//! One job, one command: started, watched, and its end made an outcome.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::ProgressBar;
use parking_lot::Mutex;
use redrive::{Clock, Completion, Delivery, Failure, Token};

use crate::capture::{Capture, Captured};
use crate::children::Ended;
use crate::control::Control;
use crate::exit::{Status, Trouble};
use crate::output;
use crate::process::{self, Exit, Force};

/// The longest result of a job in bytes, as the library has it.
const RESULT_BYTES_MAX: usize = 64 * 1024;
/// How much of a failed command's standard error goes into the failure's message.
const MESSAGE_BYTES: usize = 1_900;
/// What processes that outlive the command print is read this much longer.
const PATIENCE: Duration = Duration::from_secs(1);
/// What the payload replaces.
const PLACE: &[u8] = b"{}";

/// Runs the commands of one `redrive work`.
#[derive(Debug)]
pub(crate) struct Runner {
    pub(crate) control: Arc<Control>,
    /// The program and its arguments.
    pub(crate) words: Vec<OsString>,
    /// What is asked about unknown outcomes.
    pub(crate) reconcile: Option<Vec<OsString>>,
    pub(crate) not_happened_code: i32,
    pub(crate) timeout: Option<Duration>,
    pub(crate) permanent_codes: Vec<i32>,
    pub(crate) throttled_codes: Vec<i32>,
    pub(crate) bar: ProgressBar,
    /// Held while the output of one job is passed on.
    pub(crate) passing: Mutex<()>,
}

/// What a command is run for.
#[derive(Debug)]
pub(crate) struct Task<'a> {
    pub(crate) token: Token,
    pub(crate) queue: &'a str,
    pub(crate) kind: &'a str,
    pub(crate) key: Option<&'a str>,
    pub(crate) payload: &'a [u8],
    /// More of its environment.
    pub(crate) more: Vec<(&'static str, String)>,
}

/// What a command left behind.
pub(crate) struct Remains {
    pub(crate) exit: Exit,
    pub(crate) ended: Option<Ended>,
    stdout: Option<Captured>,
    stderr: Option<Captured>,
}

impl Runner {
    /// Runs the command for a job, to its end.
    pub(crate) fn deliver(&self, job: &Delivery) -> Result<Completion, Failure> {
        let task = Task {
            token: job.token(),
            queue: job.queue(),
            kind: job.kind(),
            key: job.key(),
            payload: job.payload(),
            more: vec![
                ("REDRIVE_ATTEMPT", job.attempt().to_string()),
                ("REDRIVE_OUTCOME_UNKNOWN", u8::from(job.outcome_unknown()).to_string()),
            ],
        };
        let mut remains = match self.execute(&self.words, &task)? {
            Ok(remains) => remains,
            Err(given_back) => return Ok(given_back),
        };
        let message = remains.message();
        match (remains.exit, remains.ended) {
            (Exit::Status(0), _) => Ok(Completion::new().result(remains.result())),
            (_, Some(Ended::GivenBack)) => Ok(self.give_back(Completion::give_back_started())),
            (_, Some(Ended::Timeout)) => Err(Failure::ambiguous("timeout").message(message)),
            (_, Some(Ended::LeaseLost)) => Err(Failure::ambiguous("lease_lost").message(message)),
            (Exit::Status(status), None) => {
                let code = format!("exit_{status}");
                let failure = if self.permanent_codes.contains(&status) {
                    Failure::permanent(code)
                } else if self.throttled_codes.contains(&status) {
                    Failure::throttled(code)
                } else {
                    Failure::transient(code)
                };
                Err(failure.message(message))
            }
            (Exit::Signal(signal), None) => {
                Err(Failure::transient(format!("signal_{signal}")).message(message))
            }
        }
    }

    /// Runs a command and passes on what it prints; `Err` within when the job is to be given back.
    pub(crate) fn execute(
        &self,
        words: &[OsString],
        job: &Task<'_>,
    ) -> Result<Result<Remains, Completion>, Failure> {
        if self.control.is_over() {
            return Ok(Err(self.give_back(Completion::give_back_unstarted())));
        }
        let (mut command, payload_inside) = command(words, job)?;
        let child = loop {
            match command.spawn() {
                Ok(child) => break child,
                // Not the job's fault: it keeps its lease until others have ended.
                Err(error) if is_shortage(&error) => {
                    if self.control.wait_for_room() {
                        return Ok(Err(self.give_back(Completion::give_back_unstarted())));
                    }
                }
                Err(error) => return self.not_started(words, &error).map(Err),
            }
        };
        let input = if payload_inside { &[] } else { job.payload };
        let mut remains = self
            .attend(job, child, input)
            // It was running: it may have done its work.
            .map_err(|error| Failure::ambiguous("not_attended").message(error.to_string()))?;
        self.pass_on(job, &mut remains);
        Ok(Ok(remains))
    }

    /// The system started no process: is that this job's fault, everybody's, or nobody's?
    fn not_started(&self, words: &[OsString], error: &io::Error) -> Result<Completion, Failure> {
        /// `ENOEXEC`: the file is neither a program nor a script.
        const NO_EXEC: i32 = 8;
        let program = words.first().map(OsString::as_os_str);
        let program = program.unwrap_or_default();
        let kind = error.kind();
        let status = if matches!(kind, ErrorKind::NotFound | ErrorKind::NotADirectory) {
            Status::NotFound
        } else if kind == ErrorKind::PermissionDenied || error.raw_os_error() == Some(NO_EXEC) {
            Status::CannotRun
        } else if matches!(kind, ErrorKind::ArgumentListTooLong | ErrorKind::InvalidInput) {
            let message = format!("the payload cannot be an argument: {error}");
            return Err(Failure::permanent("bad_argument").message(message));
        } else {
            let message = format!("the command could not be started: {error}");
            return Err(Failure::transient("not_started").message(message));
        };
        if find(program.as_encoded_bytes()).is_some() {
            let message = format!("the command cannot be run: {error}");
            return Err(Failure::permanent("cannot_run").message(message));
        }
        let message =
            format!("cannot run {}: {error}; no job was charged for it", program.display());
        let _ = self.control.cannot_run.set(Trouble::new(status, message));
        Ok(self.give_back(Completion::give_back_unstarted()))
    }

    /// Feeds the child, collects what it prints, waits for its end.
    fn attend(&self, job: &Task<'_>, mut child: Child, input: &[u8]) -> io::Result<Remains> {
        let now_ms = self.control.clock.monotonic_ms();
        let deadline_ms = self.timeout.map(|timeout| now_ms.saturating_add(whole_ms(timeout)));
        let watch = self.control.children.add(job.token, &child, deadline_ms);
        if deadline_ms.is_some() {
            self.control.changed.raise();
        }
        let collected = collect(&mut child, input);
        if collected.is_err() {
            watch.end(Force::Kill);
        }
        let waited = watch.wait(&mut child);
        let ended = self.control.children.remove(job.token);
        let status = child.wait()?;
        waited?;
        let (stdout, stderr) = collected?;
        Ok(Remains {
            exit: process::exit_of(status),
            ended,
            stdout: stdout.finish(PATIENCE),
            stderr: stderr.finish(PATIENCE),
        })
    }

    /// Copies what the command printed to where it would have printed it without us.
    fn pass_on(&self, job: &Task<'_>, remains: &mut Remains) {
        let _one_at_a_time = self.passing.lock();
        self.bar.suspend(|| {
            if let Some(stderr) = &mut remains.stderr {
                // Where standard error is gone there is nobody to tell.
                let _ = stderr.pass_on(&mut io::stderr());
            }
            if let Some(stdout) = &mut remains.stdout
                && let Err(error) = stdout.pass_on(&mut io::stdout().lock())
            {
                if error.kind() != ErrorKind::BrokenPipe {
                    let message =
                        format!("cannot pass on the output of job {}: {error}", job.token.job);
                    let _ = self.control.cannot_run.set(Trouble::new(Status::Io, message));
                }
                self.control.output_gone.store(true, Ordering::Release);
                self.control.changed.raise();
            }
            let captured = [&remains.stdout, &remains.stderr].into_iter().flatten();
            for error in captured.filter_map(Captured::spool_error) {
                output::note(format_args!(
                    "redrive: the output of job {} is not whole: {error}",
                    job.token.job
                ));
            }
        });
    }

    /// Waits until nothing is claimed any more, so that what is given back stays there.
    pub(crate) fn give_back(&self, job: Completion) -> Completion {
        self.control.hold();
        job
    }
}

/// The command for a job, and whether the payload is in its arguments.
fn command(words: &[OsString], job: &Task<'_>) -> Result<(Command, bool), Failure> {
    let mut payload_inside = false;
    let mut filled_words = Vec::with_capacity(words.len());
    for word in words {
        let filled = fill(word, job.payload)
            .map_err(|why| Failure::permanent("bad_argument").message(why))?;
        payload_inside |= filled.is_some();
        filled_words.push(filled.unwrap_or_else(|| word.clone()));
    }
    let mut words = filled_words.into_iter();
    let mut command = Command::new(words.next().unwrap_or_default());
    command
        .args(words)
        .env("REDRIVE_JOB_ID", job.token.job.to_string())
        .env("REDRIVE_QUEUE", job.queue)
        .env("REDRIVE_KIND", job.kind)
        .env("REDRIVE_DELIVERY", job.token.delivery.to_string())
        .envs(job.more.iter().map(|(name, value)| (name, value)))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    match job.key {
        Some(key) => command.env("REDRIVE_KEY", key),
        // Not that of a job that started this program.
        None => command.env_remove("REDRIVE_KEY"),
    };
    command.stdin(if payload_inside { Stdio::null() } else { Stdio::piped() });
    process::isolate(&mut command);
    Ok((command, payload_inside))
}

/// The system is out of something that it will have again: open files (24, 23), processes (11), memory
/// (12).
fn is_shortage(error: &io::Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(11 | 12 | 23 | 24))
}

impl Remains {
    /// The beginning of standard output, with a note where it was cut.
    pub(crate) fn result(&self) -> Vec<u8> {
        let Some(stdout) = &self.stdout else {
            return Vec::new();
        };
        let mut result = stdout.head().to_vec();
        if stdout.bytes > u64::try_from(RESULT_BYTES_MAX).unwrap_or(u64::MAX) {
            let mark = format!("\n[cut by redrive: {} bytes in all]\n", stdout.bytes);
            result.truncate(RESULT_BYTES_MAX - mark.len());
            result.extend_from_slice(mark.as_bytes());
        }
        result
    }

    /// How it ended, and the end of standard error.
    pub(crate) fn message(&mut self) -> String {
        let mut message = match (self.ended, self.exit) {
            (Some(Ended::Timeout), _) => "killed at the timeout".to_owned(),
            (Some(Ended::LeaseLost), _) => "killed because its lease was over".to_owned(),
            (_, Exit::Status(status)) => format!("exit status {status}"),
            (_, Exit::Signal(signal)) => format!("died by signal {signal}"),
        };
        if let Some(stderr) = &mut self.stderr {
            let text = String::from_utf8_lossy(stderr.tail());
            let text = text.trim();
            if !text.is_empty() {
                message.push_str(": ");
                message.push_str(text);
            }
        }
        message
    }
}

/// Starts what feeds the child and what collects its output.
fn collect(child: &mut Child, input: &[u8]) -> io::Result<(Capture, Capture)> {
    let closed = || io::Error::other("a pipe to the command is missing");
    let stdout = child.stdout.take().ok_or_else(closed)?;
    let stderr = child.stderr.take().ok_or_else(closed)?;
    let captures =
        (Capture::start(stdout, RESULT_BYTES_MAX)?, Capture::start(stderr, MESSAGE_BYTES)?);
    if let Some(mut stdin) = child.stdin.take()
        && !input.is_empty()
    {
        let input = input.to_vec();
        let thread = std::thread::Builder::new().name("redrive-input".into());
        // A command need not read all of its input, or any.
        thread.spawn(move || drop(stdin.write_all(&input)))?;
    }
    Ok(captures)
}

/// The argument with every `{}` replaced; `None` if it has none.
fn fill(word: &OsStr, payload: &[u8]) -> Result<Option<OsString>, String> {
    let mut rest = word.as_encoded_bytes();
    let mut filled: Option<Vec<u8>> = None;
    while let Some(at) = find(rest) {
        let (before, after) = rest.split_at(at);
        let filled = filled.get_or_insert_default();
        filled.extend_from_slice(before);
        filled.extend_from_slice(payload);
        rest = after.get(PLACE.len()..).unwrap_or_default();
    }
    match filled {
        Some(mut filled) => {
            filled.extend_from_slice(rest);
            process::argument(filled).map(Some)
        }
        None => Ok(None),
    }
}

fn find(word: &[u8]) -> Option<usize> {
    word.windows(PLACE.len()).position(|part| part == PLACE)
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_in_an_argument_is_filled_once() {
        let filled = |word: &str| fill(OsStr::new(word), b"a{}b").unwrap();
        assert_eq!(filled("plain {"), None);
        assert_eq!(filled("{}").unwrap(), "a{}b");
        assert_eq!(filled("x{}{}y").unwrap(), "xa{}ba{}by");
    }
}
