//! What is to be written along with an acknowledgement, collected and encoded on the caller's thread.

use crate::domain::effect::Change;
use crate::domain::limits::{FOLLOW_UPS_MAX, WRITE_SET_BYTES_MAX};
use crate::error::{EffectError, SettleError};
use crate::handle::effect::{EffectKey, EffectTable, EffectValue};
use crate::handle::message::Message;
use crate::handle::new_job::NewJob;
use crate::writer::command::{Prepared, WriteSet};

/// Rows to put and delete in tables of the user's own, and follow-up jobs: written in one commit with
/// what they belong to, or not at all.
///
/// Encoders run when a row is given, on the caller's thread. What goes wrong then is kept and told when
/// the whole is handed over; nothing is written in that case.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    changes: Vec<Change>,
    follow_ups: Vec<NewJob>,
    /// Of the changes.
    bytes: usize,
    /// The first trouble; nothing is collected after it.
    trouble: Option<EffectError>,
}

impl Effects {
    /// Puts a row; one that is there under the key is replaced.
    pub fn put<K, V>(&mut self, table: EffectTable<K, V>, key: &K, value: &V::Given)
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        self.change(|| table.change(key, Some(value)));
    }

    /// Deletes the row under the key, if there is one.
    pub fn delete<K, V>(&mut self, table: EffectTable<K, V>, key: &K)
    where
        K: EffectKey + ?Sized,
        V: EffectValue + ?Sized,
    {
        self.change(|| table.change(key, None));
    }

    /// Adds a follow-up job. One that is a duplicate of an earlier request adds nothing; one that is
    /// refused (another request under its key, a bad name, a payload over the limit) refuses the whole.
    pub fn enqueue(&mut self, job: NewJob) {
        if self.follow_ups.len() < FOLLOW_UPS_MAX {
            self.follow_ups.push(job);
        } else {
            let too_many = EffectError::TooManyFollowUps { jobs_max: FOLLOW_UPS_MAX };
            self.trouble.get_or_insert(too_many);
        }
    }

    /// Emits a message. As with a follow-up job, a duplicate adds nothing, and one that is refused
    /// refuses the whole.
    pub fn emit(&mut self, message: Message) {
        self.enqueue(message.into_job());
    }

    fn change(&mut self, change: impl FnOnce() -> Result<Change, EffectError>) {
        if self.trouble.is_some() {
            return;
        }
        match change() {
            // Far too much is not kept in memory; the exact bound is the store's.
            Ok(change) if self.bytes <= WRITE_SET_BYTES_MAX.saturating_mul(16) => {
                self.bytes = self.bytes.saturating_add(change.bytes());
                self.changes.push(change);
            }
            Ok(change) => self.bytes = self.bytes.saturating_add(change.bytes()),
            Err(trouble) => self.trouble = Some(trouble),
        }
    }

    /// Checks everything that can be checked without the store.
    pub(crate) fn prepare(self, payload_bytes_max: usize) -> Result<WriteSet, SettleError> {
        if let Some(trouble) = self.trouble {
            return Err(trouble.into());
        }
        let mut bytes = self.bytes;
        let mut follow_ups: Vec<Prepared> = Vec::with_capacity(self.follow_ups.len());
        for (place, job) in self.follow_ups.into_iter().enumerate() {
            let refused = |why| SettleError::FollowUp { place, why: Box::new(why) };
            let job = job.prepare(payload_bytes_max).map_err(refused)?;
            bytes = bytes.saturating_add(job.payload.0.len());
            follow_ups.push(job);
        }
        let bytes_max = WRITE_SET_BYTES_MAX.max(payload_bytes_max);
        if bytes > bytes_max {
            return Err(EffectError::TooLarge { bytes, bytes_max }.into());
        }
        Ok(WriteSet { changes: self.changes, follow_ups })
    }
}
