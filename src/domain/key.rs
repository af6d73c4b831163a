//! The idempotency key: the stable business identity of a job (P7).

use serde::{Deserialize, Serialize};

/// The first 16 bytes of a SHA-256 over queue, kind and payload: what makes two requests the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct RequestHash(pub(crate) [u8; 16]);

/// What a job row holds about its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyClaim {
    pub(crate) key: String,
    pub(crate) hash: RequestHash,
}
