//! Every error a caller can see: one enum per operation, all `Clone`, because one failed commit
//! answers many callers.

use std::fmt;
use std::path::PathBuf;

use crate::domain::id::{JobId, Token};
use crate::domain::job::JobState;

macro_rules! errors {
    ($(
        $(#[$meta:meta])*
        $name:ident {
            $( $(#[$vmeta:meta])* $variant:ident $({ $( $(#[$fmeta:meta])* $field:ident : $ty:ty ),* $(,)? })?
                => $text:literal $(, $arg:expr)* ; )*
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum $name {
            $( $(#[$vmeta])* $variant $({ $( $(#[$fmeta])* $field: $ty ),* })?, )*
            /// The store could not read or write.
            Storage(StorageError),
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $( Self::$variant $({ $($field),* })? => write!(f, $text $(, $arg)*), )*
                    Self::Storage(error) => error.fmt(f),
                }
            }
        }

        impl std::error::Error for $name {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                if let Self::Storage(error) = self { Some(error) } else { None }
            }
        }

        impl From<StorageError> for $name {
            fn from(error: StorageError) -> Self {
                Self::Storage(error)
            }
        }
    )*};
}

mod cohort;
mod compact;
mod dead;
mod effect;
mod pause;
mod relay;
mod storage;
mod transact;
mod worker;

pub use cohort::{CohortError, RedriveError};
pub use compact::CompactError;
pub use dead::{AmendError, DeadError, ExportError, ImportError};
pub use effect::EffectError;
pub use pause::PauseError;
pub use relay::RelayError;
pub use storage::{BadName, StorageError};
pub use transact::TransactError;
pub use worker::WorkersError;

errors! {
    /// Opening failed. A file that is not ours, newer or damaged was not changed, also where the damage
    /// shows only while the store is taken over (one exception: after the first 1,000 leases of a process
    /// that died).
    OpenError {
        /// Another process, or another handle of this one, has it open.
        InUse {
            /// The file.
            path: PathBuf,
        } => "{} is open elsewhere: close the other process or handle first", path.display();
        /// The path is a directory.
        IsDirectory {
            /// The path.
            path: PathBuf,
        } => "{} is a directory: name a file in it", path.display();
        /// The file exists and has no bytes. It is not taken for a new store.
        Empty {
            /// The file.
            path: PathBuf,
        } => "{} exists but is empty: delete it to start a new store, or restore it from a backup", path.display();
        /// The file is something else.
        Foreign {
            /// The file.
            path: PathBuf,
            /// What it is, as far as can be told.
            why: String,
        } => "{} is not a redrive store ({why}): name another file", path.display();
        /// The file was written by a later version of this crate.
        Newer {
            /// The file.
            path: PathBuf,
            /// The version of its format.
            found: u32,
            /// The newest format version this build reads.
            supported: u32,
        } => "{} has format version {found}, this build reads up to {supported}: use a newer redrive", path.display();
        /// The file is a store, but its bytes are damaged.
        Damaged {
            /// The file.
            path: PathBuf,
            /// What was found.
            why: String,
        } => "{} is damaged ({why}): restore it from a backup", path.display();
        /// An option has a value that cannot be used.
        BadOption {
            /// Which one.
            option: &'static str,
            /// Why.
            why: String,
        } => "option {option}: {why}";
    }

    /// A job was not accepted. Nothing was written for it.
    EnqueueError {
        /// The queue, kind or key cannot be used.
        BadName {
            /// Which of them.
            what: &'static str,
            /// Why.
            why: BadName,
        } => "the {what} cannot be used: {why}";
        /// The payload is larger than the store's limit.
        PayloadTooLarge {
            /// Its length in bytes.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "the payload has {bytes} bytes, the limit is {bytes_max}: store it elsewhere and enqueue a reference, or raise Options::payload_bytes_max";
        /// A message's header cannot be used.
        BadHeader {
            /// Its name.
            name: String,
            /// Why.
            why: &'static str,
        } => "header {name:?} cannot be used: {why}";
        /// A message has too many headers, or too large ones.
        TooManyHeaders {
            /// How many.
            headers: usize,
            /// The limit.
            headers_max: usize,
            /// Their bytes.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "{headers} headers of {bytes} bytes, at most {headers_max} of {bytes_max} bytes are allowed: put the rest into the payload";
        /// The payload's serialiser failed or panicked.
        Encode {
            /// What it said.
            message: String,
        } => "the payload could not be encoded: {message}";
        /// The key belongs to a job with another request (P7).
        KeyConflict {
            /// The key.
            key: String,
            /// The job that owns it.
            owner: JobId,
            /// The state of that job.
            state: JobState,
        } => "key {key:?} belongs to job {owner} ({state}), whose kind or payload differs: use another key for another request";
        /// An earlier job of the same all-or-nothing call has the key, with another request.
        KeyConflictInCall {
            /// The key.
            key: String,
            /// The place of the earlier one in the call.
            earlier: usize,
        } => "key {key:?} is also that of item {earlier} of this call, whose kind or payload differs: use another key for another request";
        /// The file knows as many queues, kinds, policies or jobs as it may.
        TooMany {
            /// Of what.
            what: &'static str,
            /// The limit.
            count_max: usize,
        } => "there are already {count_max} {what}, the most one file may hold: put what varies into the payload";
        /// The queue has as many dead jobs as it may, and its rule is to accept nothing then
        /// ([`Overflow::Refuse`](crate::Overflow::Refuse)).
        QuarantineFull {
            /// The queue.
            queue: String,
            /// How many dead jobs it has.
            jobs: u64,
            /// How many bytes of payloads they have.
            bytes: u64,
        } => "queue {queue:?} accepts nothing while {jobs} dead jobs ({bytes} bytes) lie in its quarantine: redrive or discard some, or change its retention";
        /// More jobs in one call than allowed.
        BatchTooLarge {
            /// How many.
            jobs: usize,
            /// The limit.
            jobs_max: usize,
        } => "{jobs} jobs in one call, at most {jobs_max} are allowed: split the call";
        /// Another job of an all-or-nothing call was refused, so this one was not written either.
        Withheld {
            /// The place in the call of the first one that was refused.
            refused: usize,
        } => "not written, because item {refused} of the same all-or-nothing call was refused";
    }

    /// A claim was not possible. Nothing changed.
    ClaimError {
        /// The queue or a kind cannot be used.
        BadName {
            /// Which of them.
            what: &'static str,
            /// Why.
            why: BadName,
        } => "the {what} cannot be used: {why}";
        /// Zero jobs, or more than allowed, were asked for.
        BadCount {
            /// How many.
            jobs: usize,
            /// The limit.
            jobs_max: usize,
        } => "{jobs} jobs were asked for: ask for 1 to {jobs_max}";
    }

    /// A lease could not be settled or extended. Nothing changed.
    SettleError {
        /// The lease has ended: it expired, was settled, or the job was taken over (P5).
        StaleLease {
            /// The lease that was presented.
            presented: Token,
            /// The job's current lease, if it has one.
            current: Option<Token>,
        } => "the lease of {presented} has ended{}: drop this delivery's work, the job goes on without it", match current { Some(token) => format!(" (now {token})"), None => String::new() };
        /// The lease is an ordinary delivery: there is nothing to reconcile.
        NotAReconciliation {
            /// The lease that was presented.
            presented: Token,
        } => "{presented} is not a reconciliation: complete it or fail it";
        /// The result is larger than the limit.
        ResultTooLarge {
            /// Its length in bytes.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "the result has {bytes} bytes, the limit is {bytes_max}: store it elsewhere and keep a reference";
        /// What was to be written along in tables of the user's own cannot be written.
        Effect {
            /// Why.
            why: EffectError,
        } => "the effects were refused: {why}";
        /// The name of a step was used twice in one delivery.
        StepRepeated {
            /// The name.
            name: String,
        } => "step {name:?} was committed in this delivery already: give each step of a job a name of its own";
        /// The job has committed as many steps as it may.
        TooManySteps {
            /// The limit.
            steps_max: u32,
        } => "the job has committed {steps_max} steps, the most it may: split it into several jobs";
        /// The output of a step is larger than the limit.
        StepTooLarge {
            /// Its length in bytes, as JSON.
            bytes: usize,
            /// The limit in bytes.
            bytes_max: usize,
        } => "the step's output has {bytes} bytes, the limit is {bytes_max}: put it into a table and return its key";
        /// A follow-up job was refused, and with it the whole.
        FollowUp {
            /// Its place among the follow-up jobs.
            place: usize,
            /// Why.
            why: Box<EnqueueError>,
        } => "all of it was refused, because follow-up job {place} was: {why}";
    }

    /// A job could not be cancelled. Nothing changed.
    CancelError {
        /// There is no such job; finished jobs are forgotten after their stated time.
        NotFound {
            /// The id.
            job: JobId,
        } => "there is no job {job}: it never existed, or it finished and its row is gone";
        /// The job is in a state in which this cannot be done.
        WrongState {
            /// The id.
            job: JobId,
            /// Its state.
            state: JobState,
        } => "job {job} is {state}: only unfinished jobs can be cancelled";
    }

    /// A queue's settings were not changed.
    QueueError {
        /// The name cannot be used.
        BadName {
            /// Why.
            why: BadName,
        } => "the queue cannot be used: {why}";
        /// The file knows as many queues or policies as it may.
        TooMany {
            /// Of what.
            what: &'static str,
            /// The limit.
            count_max: usize,
        } => "there are already {count_max} {what}, the most one file may hold";
    }
}

impl From<EffectError> for SettleError {
    fn from(why: EffectError) -> Self {
        match why {
            EffectError::Storage(error) => Self::Storage(error),
            why => Self::Effect { why },
        }
    }
}
