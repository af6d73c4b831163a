//! Loops that run handlers. Uses the public handle, and of its private parts only what joins a
//! settle to the next claim.

pub(crate) mod delivery;
pub(crate) mod ending;
pub(crate) mod heart;
pub(crate) mod slot;
pub(crate) mod unknown;
pub(crate) mod workers;
