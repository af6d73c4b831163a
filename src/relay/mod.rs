//! Passing on what was done here to the world outside. Uses only the public handle.

#[cfg(feature = "http-sink")]
pub(crate) mod webhook;
