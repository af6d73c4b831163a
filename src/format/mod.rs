//! Bytes: order-preserving keys and versioned records with a checksum. Described in
//! `docs/format.md`; knows nothing of tables or of redb.

pub(crate) mod key;
pub(crate) mod record;

use std::fmt::{self, Write};

/// Bytes that cannot be what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);

/// Damage, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DamagedRow {
    damage: Damage,
    table: &'static str,
    row: String,
}

impl Damage {
    pub(crate) fn in_row(self, table: &'static str, key: &[u8]) -> DamagedRow {
        DamagedRow { damage: self, table, row: hex(key) }
    }
}

impl fmt::Display for DamagedRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, row {}: {}", self.table, self.row, self.damage.0)
    }
}

/// A key as people read it.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
