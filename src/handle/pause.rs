//! Pausing and resuming.

use crate::domain::id::{Class, KindId, QueueId};
use crate::domain::limits::{MESSAGE_BYTES_MAX, WORKER_BYTES_MAX, cut};
use crate::domain::pause::{Paused, Scope, Stop, Stopped};
use crate::error::{PauseError, StorageError};
use crate::handle::check_name;
use crate::handle::redrive::Redrive;
use crate::store::rows::Rows;
use crate::store::{names, pause};
use crate::writer::command::{Command, Stopping};

/// Why something is to be paused, and who says so.
#[derive(Clone, Debug)]
pub struct Pause {
    reason: String,
    by: String,
}

impl Pause {
    /// A pause for `reason`, which must not be empty and is cut to 2,048 bytes.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self { reason: cut(reason.into(), MESSAGE_BYTES_MAX), by: String::new() }
    }

    /// Who pauses; cut to 64 bytes.
    #[must_use]
    pub fn by(mut self, who: impl Into<String>) -> Self {
        self.by = cut(who.into(), WORKER_BYTES_MAX);
        self
    }
}

impl Redrive {
    /// Pauses a queue, one kind of it, or the sending back of dead jobs. When this returns, nothing
    /// in `scope` is claimed any more, not by claims that were waiting either, until
    /// [`resume`](Self::resume), also after a restart. Deliveries that run finish normally; delayed
    /// jobs become ready when they are due, and stay so; new jobs are accepted. The jobs of a paused
    /// class cost claims nothing.
    ///
    /// A second pause of the same scope replaces the first, which is returned. A queue or kind that
    /// does not exist yet comes into being, so that it can be paused before its first job.
    ///
    /// # Errors
    ///
    /// [`PauseError`]: no reason, a bad name, too many names or pauses, or the store's own trouble.
    /// Nothing is paused then.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{ClaimRequest, NewJob, Pause, Scope};
    ///
    /// jobs.enqueue(NewJob::new("charges", "charge"))?;
    /// jobs.pause(Scope::queue("charges"), Pause::new("provider is down").by("ada"))?;
    /// assert!(jobs.claim(ClaimRequest::new("charges"))?.is_empty());
    /// assert_eq!(jobs.pauses()?[0].by, "ada");
    /// jobs.resume(Scope::queue("charges"))?;
    /// assert_eq!(jobs.claim(ClaimRequest::new("charges"))?.len(), 1);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self, scope: Scope, pause: Pause) -> Result<Option<Paused>, PauseError> {
        check(&scope)?;
        if pause.reason.trim().is_empty() {
            return Err(PauseError::NoReason);
        }
        let stopping = Stopping { scope: scope.clone(), reason: pause.reason, by: pause.by };
        let replaced = self.ask(|reply| Command::Pause { stopping, reply })??;
        Ok(replaced.map(|stop| Paused::new(scope, stop)))
    }

    /// Lifts the pause of exactly this scope, and the hold, if a throttled failure holds it back;
    /// returns what was lifted. Claims that wait are served in the same commit. Where nothing was
    /// paused, nothing is lifted and nothing is wrong. A kind stays paused while its queue is.
    ///
    /// # Errors
    ///
    /// [`PauseError`]: a bad name, or the store's own trouble.
    pub fn resume(&self, scope: Scope) -> Result<Vec<Paused>, PauseError> {
        check(&scope)?;
        let lifted = self.ask(|reply| Command::Resume { scope: scope.clone(), reply })??;
        Ok(lifted.into_iter().map(|stop| Paused::new(scope.clone(), stop)).collect())
    }

    /// Everything that is paused or held, as of the last commit: queues and kinds, then redrive, then
    /// holds.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the pauses cannot be read.
    pub fn pauses(&self) -> Result<Vec<Paused>, StorageError> {
        self.store().read(list)
    }

    /// What stops dead jobs of this class from being sent back, if anything does.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the pauses cannot be read.
    pub fn redrive_paused(&self, queue: &str, kind: &str) -> Result<Option<Paused>, StorageError> {
        self.store().read(|rows| {
            // Names that the file does not know are in no pause but the one of everything.
            let queue = number(&names::queues(rows)?, |known| known.name == queue);
            let kind = number(&names::kinds(rows)?, |known| known == kind);
            of_redrive(rows, Class { queue: QueueId::new(queue), kind: KindId::new(kind) })
        })
    }
}

/// What stops the redrive of a class.
pub(crate) fn of_redrive(rows: &impl Rows, class: Class) -> Result<Option<Paused>, StorageError> {
    let found = pause::of_redrive(rows, class)?;
    found.map(|(stopped, stop)| paused(rows, stopped, stop)).transpose()
}

pub(crate) fn list<R: Rows>(rows: &R) -> Result<Vec<Paused>, StorageError> {
    let stops = pause::all(rows)?;
    stops.into_iter().map(|(stopped, stop)| paused(rows, stopped, stop)).collect()
}

fn check(scope: &Scope) -> Result<(), PauseError> {
    let (queue, kind) = scope.names();
    for (what, name) in [("queue", queue), ("kind", kind)] {
        if let Some(name) = name {
            check_name(name).map_err(|why| PauseError::BadName { what, why })?;
        }
    }
    Ok(())
}

/// The number of a name; one that no name has, where it is not known.
fn number<T>(known: &[T], is_it: impl Fn(&T) -> bool) -> u32 {
    known.iter().position(is_it).and_then(|place| u32::try_from(place).ok()).unwrap_or(u32::MAX)
}

fn paused(rows: &impl Rows, stopped: Stopped, stop: Stop) -> Result<Paused, StorageError> {
    let queue =
        |id| Ok::<_, StorageError>(names::queue(rows, id)?.map_or(String::new(), |q| q.name));
    let kind = |id| Ok::<_, StorageError>(names::kind(rows, id)?.unwrap_or_default());
    let scope = stopped.scope(queue, kind)?;
    Ok(Paused::new(scope, stop))
}
