//! What a job is and how it may change. Pure: no I/O, no clock, no threads, no randomness.
//!
//! Time, sequence numbers and seeds come in as values. Storage code does not decide anything; it
//! calls [`transition::step`] and writes down what that returns.

#![deny(clippy::wildcard_enum_match_arm)]

pub(crate) mod abort;
pub(crate) mod arrival;
pub(crate) mod blob;
pub(crate) mod cause;
pub(crate) mod cohort;
pub(crate) mod count;
pub(crate) mod counter;
pub(crate) mod effect;
pub(crate) mod effort;
pub(crate) mod event;
pub(crate) mod explain;
pub(crate) mod failure;
pub(crate) mod filter;
pub(crate) mod health;
pub(crate) mod history;
pub(crate) mod id;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod limits;
pub(crate) mod mark;
pub(crate) mod order;
pub(crate) mod outbox;
pub(crate) mod pause;
pub(crate) mod plan;
pub(crate) mod policy;
pub(crate) mod queue;
pub(crate) mod removal;
pub(crate) mod retention;
pub(crate) mod schedule;
pub(crate) mod time;
pub(crate) mod transition;
pub(crate) mod unknown;
pub(crate) mod window;
