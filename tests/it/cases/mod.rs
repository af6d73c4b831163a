//! Real failures of other queues, with the right result.

mod blame;
mod cancel;
mod cost;
mod keys;
mod kinds;
mod leases;
mod limits;
mod pause;
mod poison;
mod time;
mod user_code;
mod wake;
