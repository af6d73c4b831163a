//! How the program ends: one number per cause, as `--help` lists them.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use redrive::{
    AmendError, CohortError, CompactError, DeadError, EnqueueError, ExportError, ImportError,
    OpenError, RedriveError, StorageError, WorkersError,
};

use crate::output;

/// The exit status. The numbers are part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Status {
    /// All is well.
    Done = 0,
    /// The command ran, and has bad news: something died, was refused, or does not agree.
    BadNews = 1,
    /// The command line cannot be used.
    Usage = 2,
    /// The file is open elsewhere.
    InUse = 3,
    /// There is no such file, queue or job.
    Missing = 4,
    /// The file is damaged, of a newer version, or something else.
    NotAStore = 5,
    /// The operating system refused to read or write.
    Io = 6,
    /// Something is not well and can wait (health).
    Warning = 10,
    /// Something is not well and cannot (health).
    Critical = 11,
    /// The job's command is not executable.
    CannotRun = 126,
    /// The job's command was not found.
    NotFound = 127,
    /// A second signal came, and running jobs were given back.
    GivenBack = 130,
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        Self::from(status as u8)
    }
}

/// Why the program ends early.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) status: Status,
    /// Empty where nobody is left to read it.
    message: String,
}

impl Trouble {
    pub(crate) fn new(status: Status, message: impl Display) -> Self {
        Self { status, message: message.to_string() }
    }

    /// The program's own output could not be written. A reader that has gone has seen enough.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(Status::Done, "");
        }
        Self::new(Status::Io, format_args!("cannot write the output: {error}"))
    }

    pub(crate) fn report(&self) -> ExitCode {
        if !self.message.is_empty() {
            output::note(format_args!("redrive: {}", self.message));
        }
        self.status.into()
    }
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        let status = if error.is_corrupt() { Status::NotAStore } else { Status::Io };
        Self::new(status, error)
    }
}

impl From<OpenError> for Trouble {
    fn from(error: OpenError) -> Self {
        let status = match &error {
            OpenError::Storage(error) => return error.clone().into(),
            OpenError::InUse { .. } => Status::InUse,
            OpenError::BadOption { .. } => Status::Usage,
            OpenError::IsDirectory { .. }
            | OpenError::Empty { .. }
            | OpenError::Foreign { .. }
            | OpenError::Newer { .. }
            | OpenError::Damaged { .. } => Status::NotAStore,
            _ => Status::Io,
        };
        Self::new(status, error)
    }
}

impl From<EnqueueError> for Trouble {
    fn from(error: EnqueueError) -> Self {
        match error {
            EnqueueError::Storage(error) => error.into(),
            other => Self::new(Status::Usage, other),
        }
    }
}

impl From<RedriveError> for Trouble {
    fn from(error: RedriveError) -> Self {
        match error {
            RedriveError::Storage(error) => error.into(),
            RedriveError::TooManyCohorts { .. } => Self::new(Status::BadNews, error),
            other => Self::new(Status::Usage, other),
        }
    }
}

impl From<DeadError> for Trouble {
    fn from(error: DeadError) -> Self {
        match error {
            DeadError::Storage(error) => error.into(),
            other => Self::new(Status::Usage, other),
        }
    }
}

impl From<CompactError> for Trouble {
    fn from(error: CompactError) -> Self {
        match error {
            CompactError::Storage(error) => error.into(),
            other => Self::new(Status::BadNews, other),
        }
    }
}

impl From<ExportError> for Trouble {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Storage(error) => error.into(),
            ExportError::Output { .. } => Self::new(Status::Io, error),
            other => Self::new(Status::Usage, other),
        }
    }
}

impl From<ImportError> for Trouble {
    fn from(error: ImportError) -> Self {
        match error {
            ImportError::Storage(error) => error.into(),
            other => Self::new(Status::Io, other),
        }
    }
}

impl From<AmendError> for Trouble {
    fn from(error: AmendError) -> Self {
        match error {
            AmendError::Storage(error) => error.into(),
            AmendError::NotFound { .. } => Self::new(Status::Missing, error),
            AmendError::WrongState { .. } => Self::new(Status::BadNews, error),
            other => Self::new(Status::Usage, other),
        }
    }
}

impl From<CohortError> for Trouble {
    fn from(error: CohortError) -> Self {
        match error {
            CohortError::Storage(error) => error.into(),
            CohortError::NotFound { .. } => Self::new(Status::Missing, error),
            CohortError::WrongState { .. } => Self::new(Status::BadNews, error),
            other => Self::new(Status::Usage, other),
        }
    }
}

impl From<WorkersError> for Trouble {
    fn from(error: WorkersError) -> Self {
        match error {
            WorkersError::Storage(error) => error.into(),
            other => Self::new(Status::Usage, other),
        }
    }
}
