//! Where the app's own redb tables meet the store: what of redb the upper layers may name.

pub(crate) use redb::{
    Database, Key, MultimapTable, MultimapTableDefinition, MultimapTableHandle, Table,
    TableDefinition, TableError, TableHandle, Value,
};

use crate::error::TransactError;
use crate::store::rows::storage;

/// Why the app's table of this name could not be opened.
pub(crate) fn not_opened(table: &str, error: TableError) -> TransactError {
    let message = error.to_string();
    match error {
        TableError::TableTypeMismatch { .. }
        | TableError::TableIsMultimap(_)
        | TableError::TableIsNotMultimap(_)
        | TableError::TypeDefinitionChanged { .. } => {
            TransactError::OtherTypes { table: table.to_owned(), message }
        }
        TableError::Storage(error) => error.into(),
        _ => TransactError::Table { message },
    }
}

impl From<TableError> for TransactError {
    fn from(error: TableError) -> Self {
        match error {
            TableError::Storage(error) => error.into(),
            error => Self::Table { message: error.to_string() },
        }
    }
}

impl From<redb::StorageError> for TransactError {
    fn from(error: redb::StorageError) -> Self {
        match error {
            // What was asked for cannot be; the store is none the worse for it.
            redb::StorageError::ValueTooLarge(_) => Self::Table { message: error.to_string() },
            error => Self::Storage(storage(error)),
        }
    }
}
