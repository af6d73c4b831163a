//! Where messages go.

use std::sync::Arc;

use crate::domain::failure::Failure;
use crate::relay::outgoing::Outgoing;

/// Delivers the messages of a destination: a web hook, a broker, a file. Called on a thread of the
/// relay, with no lock held and no transaction open, one call at a time per thread.
///
/// ```
/// use redrive::{Failure, Outgoing, Sink};
///
/// struct Mailer;
///
/// impl Sink for Mailer {
///     fn deliver(&self, batch: &[Outgoing]) -> Vec<Result<(), Failure>> {
///         let send = |message: &Outgoing| match message.payload() {
///             [] => Err(Failure::permanent("empty")),
///             _ => Ok(()), // sent under message.idempotency_key()
///         };
///         batch.iter().map(send).collect()
///     }
/// }
/// ```
pub trait Sink: Send + Sync {
    /// Delivers `batch`, which holds at least one message, in the order of their sequences. One result
    /// per message, in the same order: each is that message's own, with the failure classes, budgets
    /// and quarantine of a job.
    ///
    /// *One* error for a batch of several says that the batch was refused as a whole and nothing
    /// of it was taken: it is split in halves and offered again until the culprit stands alone,
    /// and only that one is charged. If it is [ambiguous](Failure::ambiguous), it says that any of
    /// them may have been taken: then nothing is offered again at once, and it is the failure of
    /// each of them.
    ///
    /// After a panic, and when the number of results is wrong, nobody knows what was taken. A
    /// batch is split all the same where the messages may be sent again, that is, under
    /// [`OnUnknown::Retry`](crate::OnUnknown::Retry). Under any other policy it is an ambiguous
    /// failure of each, with the code `panicked` or `wrong_result_count`.
    ///
    /// A message that was delivered may be offered again (its acknowledgement was lost): it carries the
    /// same [`id`](Outgoing::id), key and bytes.
    ///
    /// The relay offers nothing behind a message that failed in its order. A sink that sends one by one
    /// leaves that to it by taking one message at a time, see [`batch_max`](Self::batch_max).
    fn deliver(&self, batch: &[Outgoing]) -> Vec<Result<(), Failure>>;

    /// The most messages that one call may have (default: as many as the relay claims at once).
    /// Asked once, when the relay starts.
    fn batch_max(&self) -> usize {
        usize::MAX
    }
}

impl<S: Sink + ?Sized> Sink for Arc<S> {
    fn deliver(&self, batch: &[Outgoing]) -> Vec<Result<(), Failure>> {
        (**self).deliver(batch)
    }

    fn batch_max(&self) -> usize {
        (**self).batch_max()
    }
}
