//! What a handler hands over when the work is done.

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
}

impl Completion {
    /// Done, without a result.
    pub fn new() -> Self {
        Self::default()
    }

    /// The job's result, kept as long as its key or row is. At most 64 KiB: a larger one makes the
    /// job dead with code `result_too_large`, because the next delivery would produce it again.
    pub fn result(mut self, result: impl Into<Vec<u8>>) -> Self {
        self.result = Some(result.into());
        self
    }
}
