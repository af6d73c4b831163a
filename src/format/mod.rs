//! Bytes: order-preserving keys and versioned records with a checksum. Described in
//! `docs/format.md`; knows nothing of tables or of redb.

pub(crate) mod key;
pub(crate) mod record;

/// Bytes that cannot be what they should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage(pub(crate) &'static str);
