//! Why a transaction was taken back.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::{EffectError, EnqueueError, SettleError, StorageError};
use crate::domain::id::JobId;

errors! {
    /// A transaction was taken back: nothing of it was written, and the store goes on (but for
    /// [`Storage`](Self::Storage), as everywhere).
    TransactError {
        /// The table's name begins with `redrive/`, as those of the store itself do.
        ReservedTable {
            /// The name.
            table: String,
        } => "the table name {table:?} is reserved: names that begin with \"redrive/\" are the store's own";
        /// One of the app's own tables was made with other types.
        OtherTypes {
            /// The table.
            table: String,
            /// What redb said: the types that it was made with.
            message: String,
        } => "the app's table {table:?} was made with other types: {message}";
        /// One of the app's own tables could not be opened, read or written for another reason.
        Table {
            /// What redb said.
            message: String,
        } => "a table of the app's own: {message}";
        /// A job was refused.
        Enqueue {
            /// Why.
            why: EnqueueError,
        } => "{why}";
        /// A completion was refused.
        Settle {
            /// Why.
            why: SettleError,
        } => "{why}";
        /// The lease that was to be completed is of another store, or from before this one was opened.
        OtherStore {
            /// The job, in that store.
            job: JobId,
        } => "the lease of job {job} is not of this store: complete it through the handle it came from";
        /// A row of an effect table was refused, or could not be read.
        Effect {
            /// Why.
            why: EffectError,
        } => "{why}";
        /// The app's own reason; see [`TransactError::app`].
        App {
            /// The reason.
            error: Arc<dyn Error + Send + Sync>,
        } => "{error}";
    }
}

impl TransactError {
    /// The app's own reason to take the transaction back: an error of its own, or a text.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::{NewJob, TransactError};
    ///
    /// let taken_back = jobs.transact(|tx| {
    ///     tx.enqueue(NewJob::new("orders", "place"))?;
    ///     Err::<(), _>(TransactError::app("out of stock"))
    /// });
    /// assert_eq!(taken_back.unwrap_err().app_error().unwrap().to_string(), "out of stock");
    /// assert_eq!(jobs.stats()?.total.ready, 0);
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn app(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::App { error: Arc::from(error.into()) }
    }

    /// The app's own reason, if it was that; to be downcast.
    #[must_use]
    pub fn app_error(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        match self {
            Self::App { error } => Some(&**error),
            _ => None,
        }
    }
}

impl From<EnqueueError> for TransactError {
    fn from(why: EnqueueError) -> Self {
        match why {
            EnqueueError::Storage(error) => Self::Storage(error),
            why => Self::Enqueue { why },
        }
    }
}

impl From<SettleError> for TransactError {
    fn from(why: SettleError) -> Self {
        match why {
            SettleError::Storage(error) => Self::Storage(error),
            SettleError::Effect { why } => Self::Effect { why },
            why => Self::Settle { why },
        }
    }
}

impl From<EffectError> for TransactError {
    fn from(why: EffectError) -> Self {
        match why {
            EffectError::Storage(error) => Self::Storage(error),
            why => Self::Effect { why },
        }
    }
}
