//! The fast integration tests, in one binary. Named after the promise (P4) or the case (O-01) they
//! hold to.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test says what went wrong by panicking"
)]

mod cases;
#[cfg(unix)]
mod cli;
mod cohort;
mod compact;
mod corpus;
mod damage;
mod dead;
mod effects;
mod events;
mod explain;
mod export;
mod faults;
mod format;
mod health;
mod kill;
mod ledger;
mod list;
mod model;
mod once;
mod order;
mod outbox;
mod pause;
mod power_cut;
mod report;
mod retention;
mod runbook;
mod steps;
mod stories;
mod support;
mod taken_back;
mod tidy;
mod transact;
mod unknown;
mod verify;
mod webhook;
