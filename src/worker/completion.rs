//! What a handler hands over when the work is done.

use std::time::Duration;

use crate::domain::event::Work;
use crate::domain::time::whole_ms;

/// The work is done, and what is to be written together with the acknowledgement.
///
/// ```
/// use redrive::Completion;
///
/// let plain = Completion::new();
/// let with_result = Completion::new().result("receipt 7c1");
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Completion {
    pub(crate) result: Option<Vec<u8>>,
    pub(crate) instead: Option<Instead>,
}

/// What a handler asks for instead of a completion.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Instead {
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
    /// `snoozes_max`.
    pub fn snooze(delay: Duration) -> Self {
        Self { instead: Some(Instead::SnoozeMs(whole_ms(delay))), ..Self::default() }
    }

    /// The job's result, kept as long as its key or row is. At most 64 KiB: a larger one makes the
    /// job dead with code `result_too_large`, because the next delivery would produce it again.
    pub fn result(mut self, result: impl Into<Vec<u8>>) -> Self {
        self.result = Some(result.into());
        self
    }
}
