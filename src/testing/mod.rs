//! What tests of this crate, and of code built on it, need to make storage fail. Feature
//! `test-util`.
//!
//! A store is opened in a backend of this module with
//! [`Options::open_backend`](crate::Options::open_backend): [`CrashDisk`] loses power and yields the
//! images that a real disk could hold afterwards, [`FaultBackend`] answers calls with I/O errors.

mod blame;
mod cohort;
mod commands;
mod crash_backend;
mod decode;
mod effects;
mod expect;
mod fault_backend;
mod harness;
mod item;
mod key;
mod life;
mod model;
mod op;
mod order;
mod outbox;
mod pause;
mod quarantine;
mod reconcile;
mod redrive;
mod report;
mod rules;
mod steps;
mod transact;

pub use crash_backend::{CrashBackend, CrashDisk, Survival};
#[doc(hidden)]
pub use decode::ops_from_bytes;
pub use fault_backend::{FaultBackend, FaultSwitch, Times};
#[doc(hidden)]
pub use harness::{Ack, Harness, run_ops, run_ops_from_bytes};
#[doc(hidden)]
pub use model::Model;
#[doc(hidden)]
pub use op::{Brakes, Change, Fault, Item, Op, Order, Pausing, Retained, When};
