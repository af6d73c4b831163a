//! Passing on what was done here to the world outside: loops that hand messages to sinks. Uses the public
//! handle, and the workers' heartbeats.

pub(crate) mod errand;
pub(crate) mod file;
#[cfg(feature = "http-sink")]
pub(crate) mod http;
pub(crate) mod outgoing;
#[expect(clippy::module_inception, reason = "the layer is named after what it offers")]
pub(crate) mod relay;
pub(crate) mod shared;
pub(crate) mod sink;
mod tail;
#[cfg(feature = "http-sink")]
pub(crate) mod webhook;
