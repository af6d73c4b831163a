//! Tables of the user's own in this file: how they are named and typed, and what is written to them.

/// Names that begin so are ours.
const RESERVED: &str = "redrive/";

/// A table of the user's own: its name, and what its keys and values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableSpec {
    pub(crate) name: &'static str,
    pub(crate) key: &'static str,
    pub(crate) value: &'static str,
}

/// One put, or one delete, in a table of the user's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) table: TableSpec,
    pub(crate) key: Vec<u8>,
    /// `None` deletes.
    pub(crate) value: Option<Vec<u8>>,
}

impl Change {
    /// How much it counts against the bound of a write set.
    pub(crate) fn bytes(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Vec::len)
    }
}

/// Whether a user may not use this name.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}
