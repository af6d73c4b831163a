//! What every operation can meet: the store's own trouble, and names that cannot be used.

use std::fmt;
use std::sync::Arc;

/// The store could not read or write. Shared by all operations.
///
/// After a failed commit the store is *poisoned*: this and every later writing call gets the first
/// cause until the file is closed and opened again. Reading goes on as long as the file allows.
#[derive(Clone)]
pub struct StorageError(Arc<Inner>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Closed,
    Corrupt,
    Io,
    Internal,
    Nested,
}

#[derive(Clone)]
struct Inner {
    kind: Kind,
    poisoned: bool,
    message: String,
}

impl StorageError {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, poisoned: false, message: message.into() }))
    }

    pub(crate) fn closed() -> Self {
        Self::new(Kind::Closed, "the store was closed; open it again")
    }

    pub(crate) fn corrupt(message: impl Into<String>) -> Self {
        Self::new(Kind::Corrupt, message)
    }

    pub(crate) fn io(message: impl Into<String>) -> Self {
        Self::new(Kind::Io, message)
    }

    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    pub(crate) fn nested() -> Self {
        let message = "called inside a transaction of the same store on the same thread, which it would wait for: use the methods of the Tx, or call it after the transaction";
        Self::new(Kind::Nested, message)
    }

    /// The same cause, marked as the one that stopped the store.
    pub(crate) fn into_poison(self) -> Self {
        let inner = Arc::unwrap_or_clone(self.0);
        Self(Arc::new(Inner { poisoned: true, ..inner }))
    }

    /// The file's bytes do not make sense: a bad checksum, an impossible record.
    #[must_use]
    pub fn is_corrupt(&self) -> bool {
        self.0.kind == Kind::Corrupt
    }

    /// The operating system refused: disk full, I/O error, file taken away.
    #[must_use]
    pub fn is_io(&self) -> bool {
        self.0.kind == Kind::Io
    }

    /// The handle was closed before or during the call.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.kind == Kind::Closed
    }

    /// The call would have waited for the transaction that this very thread is in (see
    /// [`Redrive::transact`](crate::Redrive::transact)). Nothing was done.
    #[must_use]
    pub fn is_nested(&self) -> bool {
        self.0.kind == Kind::Nested
    }

    /// The store has stopped writing until it is opened again.
    #[must_use]
    pub fn is_poisoned(&self) -> bool {
        self.0.poisoned
    }
}

impl fmt::Display for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        if self.0.poisoned {
            f.write_str(
                " (the store accepts no more writes: close it, mend the cause, open it again)",
            )?;
        }
        Ok(())
    }
}

impl fmt::Debug for StorageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StorageError({:?}, {self})", self.0.kind)
    }
}

impl std::error::Error for StorageError {}

/// Why a name or a key was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum BadName {
    /// It has no bytes.
    Empty,
    /// It is longer than the limit.
    TooLong {
        /// Its length in bytes.
        bytes: usize,
        /// The limit in bytes.
        bytes_max: usize,
    },
    /// It holds a control character.
    ControlCharacter,
    /// It begins as the names of the queues of destinations do.
    Reserved {
        /// The beginning.
        prefix: &'static str,
    },
}

impl fmt::Display for BadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("it is empty; give it at least one character"),
            Self::TooLong { bytes, bytes_max } => {
                write!(f, "it has {bytes} bytes; at most {bytes_max} are allowed")
            }
            Self::Reserved { prefix } => write!(
                f,
                "names that begin with {prefix:?} belong to destinations: emit messages to them, and relay them"
            ),
            Self::ControlCharacter => f.write_str("it holds a control character; remove it"),
        }
    }
}
