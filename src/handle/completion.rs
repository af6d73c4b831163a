//! What is handed over when the work is done.

use std::time::Duration;

use crate::domain::arrival::Start;
use crate::domain::blob::Blob;
use crate::domain::event::Work;
use crate::domain::failure::Failure;
use crate::domain::limits::RESULT_BYTES_MAX;
use crate::domain::time::whole_ms;
use crate::error::{EffectError, SettleError};
use crate::handle::effect::{EffectKey, EffectTable, EffectValue};
use crate::handle::effects::Effects;
use crate::handle::message::Message;
use crate::handle::new_job::NewJob;
use crate::writer::command::How;

/// The work is done, and what is to be written in the same commit as the acknowledgement (P6): a
/// result, rows in tables of the user's own, follow-up jobs. All of it or nothing: a completion whose
/// lease has ended writes nothing.
///
/// What cannot be written refuses the whole: a worker's job is then dead, with code `unencodable` (a
/// value's encoder failed or panicked), `effect_refused` (a reserved name, other types, over a limit) or
/// `follow_up_refused` (a key that belongs to another request, a bad name, over a limit), because the
/// next delivery would meet the same. Rows and payloads of follow-up jobs together have at most 16 MiB,
/// or the store's payload limit where that is larger; follow-up jobs are at most 10,000.
///
/// ```
/// use redrive::{Completion, EffectTable, NewJob};
///
/// const RECEIPTS: EffectTable<str, str> = EffectTable::new("receipts");
/// const OPEN: EffectTable<str, [u8]> = EffectTable::new("open orders");
///
/// let plain = Completion::new();
/// let whole = Completion::new()
///     .put(RECEIPTS, "O-194", "receipt 7c1")
///     .delete(OPEN, "O-194")
///     .enqueue(NewJob::new("ledger", "post").bytes("O-194").key("post:O-194"))
///     .result("receipt 7c1");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Completion {
    result: Option<Vec<u8>>,
    effects: Effects,
    instead: Option<Instead>,
}

/// What a handler asks for instead of a completion.
#[derive(Clone, Copy, Debug)]
enum Instead {
    GiveBack(Work),
    SnoozeMs(u64),
}

impl Completion {
    /// Done, without a result.
    pub fn new() -> Self {
        Self::default()
    }

    /// Not done after all: the job goes back to its old place in line, uncharged, and nothing was
    /// started. Its worker thread takes no further job from the same commit.
    pub fn give_back_unstarted() -> Self {
        Self { instead: Some(Instead::GiveBack(Work::Unstarted)), ..Self::default() }
    }

    /// Not done after all: the job goes back uncharged, but what was started may have had its effect.
    /// Its outcome is marked as unknown; where the job's policy forbids repeating that, it is dead.
    pub fn give_back_started() -> Self {
        Self { instead: Some(Instead::GiveBack(Work::Started)), ..Self::default() }
    }

    /// Not now: the job becomes ready again after `delay`, uncharged. Bounded by the policy's
    /// `snoozes_max`. Result and effects given with it are not written.
    pub fn snooze(delay: Duration) -> Self {
        Self { instead: Some(Instead::SnoozeMs(whole_ms(delay))), ..Self::default() }
    }

    /// The job's result, kept as long as its key or row is. At most 64 KiB: a larger one makes the
    /// job dead with code `result_too_large`, because the next delivery would produce it again.
    pub fn result(mut self, result: impl Into<Vec<u8>>) -> Self {
        self.result = Some(result.into());
        self
    }

    /// Puts a row into a table of the user's own; one that is there under the key is replaced. The
    /// encoder runs here, on the caller's thread; should it fail or panic, that is told when the job is
    /// settled.
    pub fn put<K, V>(mut self, table: EffectTable<K, V>, key: &K, value: &V::Given) -> Self
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        self.effects.put(table, key, value);
        self
    }

    /// Deletes a row of a table of the user's own, if there is one under the key.
    pub fn delete<K, V>(mut self, table: EffectTable<K, V>, key: &K) -> Self
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        self.effects.delete(table, key);
        self
    }

    /// Adds a follow-up job. A duplicate of an earlier request adds nothing and is fine; a job that is
    /// refused refuses the whole completion. The job being completed still owns its own key at that
    /// moment.
    pub fn enqueue(mut self, job: NewJob) -> Self {
        self.effects.enqueue(job);
        self
    }

    /// Emits a message: it is there exactly when this job is done (P6). A duplicate of an earlier one
    /// adds nothing and is fine; a message that is refused refuses the whole completion.
    pub fn emit(mut self, message: Message) -> Self {
        self.effects.emit(message);
        self
    }

    /// What to ask the store for.
    pub(crate) fn prepare(self, payload_bytes_max: usize) -> Result<How, SettleError> {
        match (self.instead, self.result) {
            (Some(Instead::GiveBack(work)), _) => Ok(How::Release(work)),
            (Some(Instead::SnoozeMs(ms)), _) => Ok(How::Snooze(Start::AfterMs(ms))),
            (None, Some(result)) if result.len() > RESULT_BYTES_MAX => {
                let (bytes, bytes_max) = (result.len(), RESULT_BYTES_MAX);
                Err(SettleError::ResultTooLarge { bytes, bytes_max })
            }
            (None, result) => {
                let effects = self.effects.prepare(payload_bytes_max)?;
                Ok(How::Complete { result: result.map(Blob), effects })
            }
        }
    }
}

/// A result alone.
impl<R: Into<Vec<u8>>> From<R> for Completion {
    fn from(result: R) -> Self {
        Self::new().result(result)
    }
}

/// What a refused completion or step is to a job: the next delivery would meet the same. `None` where the
/// refusal is not the completion's fault.
pub(crate) fn refusal(error: &SettleError) -> Option<Failure> {
    let code = match error {
        SettleError::ResultTooLarge { .. } => "result_too_large",
        SettleError::Effect { why: EffectError::Unencodable { .. } } => "unencodable",
        SettleError::Effect { .. } => "effect_refused",
        SettleError::FollowUp { .. } => "follow_up_refused",
        SettleError::StepRepeated { .. } => "step_repeated",
        SettleError::TooManySteps { .. } => "too_many_steps",
        SettleError::StepTooLarge { .. } => "step_too_large",
        SettleError::StaleLease { .. }
        | SettleError::NotAReconciliation { .. }
        | SettleError::Storage(_) => return None,
    };
    Some(Failure::permanent(code).message(error.to_string()))
}
