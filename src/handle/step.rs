//! Steps of a job: done once, over all of its deliveries.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::blob::Blob;
use crate::domain::failure::Failure;
use crate::domain::id::JobId;
use crate::domain::limits::{MESSAGE_BYTES_MAX, RESULT_BYTES_MAX, cut};
use crate::domain::mark::Marker;
use crate::domain::time::Timestamp;
use crate::error::{SettleError, StorageError};
use crate::handle::check_name;
use crate::handle::completion::refusal;
use crate::handle::effect::guarded;
use crate::handle::effects::Effects;
use crate::handle::lease::Lease;
use crate::store::mark as mark_store;
use crate::store::rows::Rows;
use crate::writer::command::{Command, Mark, Marking};

/// A step that a job has committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct StepInfo {
    /// Its name.
    pub name: String,
    /// When it was committed.
    pub at: Timestamp,
    /// By which delivery.
    pub delivery: u32,
    /// Its output as JSON, cut to 2,048 bytes.
    pub output: String,
    /// The length of the whole output in bytes.
    pub output_bytes: usize,
}

impl StepInfo {
    /// The steps of a job that can be read, oldest first.
    pub(crate) fn all(rows: &impl Rows, job: JobId) -> Result<Vec<Self>, StorageError> {
        let mut steps: Vec<Self> = mark_store::all(rows, job)?
            .into_iter()
            .map(|(name, marker)| Self {
                name,
                at: marker.at,
                delivery: marker.delivery,
                output_bytes: marker.output.0.len(),
                output: cut(
                    String::from_utf8_lossy(&marker.output.0).into_owned(),
                    MESSAGE_BYTES_MAX,
                ),
            })
            .collect();
        steps.sort_by_key(|step| step.at);
        Ok(steps)
    }
}

impl Lease {
    /// Runs `body` once over all deliveries of the job: commits what it collects in `fx` together with
    /// its output, under the lease's fence, and returns the output. On a later delivery the saved output
    /// comes back and the body does not run. Returns after the commit.
    ///
    /// What the body does outside this file is at-least-once as ever: the process can die after it and
    /// before the commit. What it puts into `fx` is there exactly when its marker is.
    ///
    /// The name is the step's identity (1 to 128 bytes; `format!("page {n}")` in a loop). **A step whose
    /// name was changed is a new step**: its body runs again for jobs that are under way. The output is
    /// kept as JSON, at most 64 KiB; add fields with `#[serde(default)]`. Markers live as long as the job
    /// and its key, also while it is dead; a job has at most 256. They are shown by
    /// [`Redrive::job`](crate::Redrive::job).
    ///
    /// # Errors
    ///
    /// What the body returns (nothing is written then, and the step can be tried again in the same
    /// delivery), or a [`Failure`] to be passed on with `?`:
    ///
    /// - permanent: `step_repeated` (the name was used before in this delivery), `step_name` (it cannot be
    ///   a name), `too_many_steps`, `step_too_large` (its output), `step_unencodable`, `step_undecodable`
    ///   (the saved output does not fit the type any more), and `unencodable`, `effect_refused`,
    ///   `follow_up_refused` as for a [`Completion`](crate::Completion);
    /// - transient: `stale_lease` (the lease has ended; nothing was written) and `storage`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{ClaimRequest, EffectTable, NewJob};
    ///
    /// const STOCK: EffectTable<str, u64> = EffectTable::new("reserved stock");
    ///
    /// # let other = |failure: redrive::Failure| failure.code().to_owned();
    /// jobs.enqueue(NewJob::new("orders", "place").bytes("O-194"))?;
    /// for delivery in 1..=2 {
    ///     let lease = jobs.claim(ClaimRequest::new("orders"))?.remove(0);
    ///     let reserved: u64 = lease.step("reserve stock", |fx| {
    ///         assert_eq!(delivery, 1, "runs once");
    ///         fx.put(STOCK, "O-194", &3);
    ///         Ok(3)
    ///     }).map_err(other)?;
    ///     assert_eq!(reserved, 3);
    ///     lease.release()?; // to be delivered again
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn step<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        body: impl FnOnce(&mut Effects) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        check_name(name).map_err(|why| {
            Failure::permanent("step_name").message(format!("the name of a step: {why}"))
        })?;
        if let Some(marker) = self.marker(name)? {
            return self.saved(name, &marker);
        }
        let mut effects = Effects::default();
        let output = body(&mut effects)?;
        let encoded = guarded(|| serde_json::to_vec(&output).map_err(|error| error.to_string()))
            .map_err(|message| Failure::permanent("step_unencodable").message(message))?;
        self.commit_step(name, encoded, effects).map_err(|error| failure(&error))?;
        Ok(output)
    }

    fn marker(&self, name: &str) -> Result<Option<Marker>, Failure> {
        let read = self.jobs().store().read(|rows| mark_store::get(rows, self.id(), name));
        read.map_err(|error| failure(&error.into()))
    }

    fn saved<T: DeserializeOwned>(&self, name: &str, marker: &Marker) -> Result<T, Failure> {
        if marker.delivery == self.delivery() {
            return Err(failure(&SettleError::StepRepeated { name: name.to_owned() }));
        }
        let decoded =
            guarded(|| serde_json::from_slice(&marker.output.0).map_err(|error| error.to_string()));
        decoded.map_err(|message| {
            let text = format!("the saved output of step {name:?}: {message}");
            Failure::permanent("step_undecodable").message(text)
        })
    }

    fn commit_step(
        &self,
        name: &str,
        output: Vec<u8>,
        effects: Effects,
    ) -> Result<(), SettleError> {
        if output.len() > RESULT_BYTES_MAX {
            let (bytes, bytes_max) = (output.len(), RESULT_BYTES_MAX);
            return Err(SettleError::StepTooLarge { bytes, bytes_max });
        }
        let marking = Marking {
            token: self.token(),
            class: self.class(),
            name: name.to_owned(),
            output: Blob(output),
            effects: effects.prepare(self.jobs().payload_bytes_max())?,
        };
        self.jobs().ask(|reply| Command::Mark(Box::new(Mark { marking, reply })))?
    }
}

fn failure(error: &SettleError) -> Failure {
    refusal(error).unwrap_or_else(|| {
        let code = match error {
            SettleError::StaleLease { .. } => "stale_lease",
            _ => "storage",
        };
        Failure::transient(code).message(error.to_string())
    })
}
