//! One shipment event, 8,000 subscribers, over real HTTP on loopback.
//!
//! The event is one job; its completion enqueues a callback for each subscriber, all of them or none. Some
//! subscribers answer 503 or 429 at first, some do what they are asked and break the connection, and one
//! has an address with a misspelled scheme. In the middle the worker dies. In the end 7,999 subscribers
//! were told once, one job is dead with its evidence, and nothing was repeated.
//!
//! `cargo run --release --features http-sink --example shipments [DIRECTORY]`: kill it, and run it
//! again with the same directory.

#![expect(clippy::disallowed_methods, reason = "an example may sleep")]

#[expect(dead_code, reason = "the tests use all of it")]
#[path = "../support/http_server.rs"]
mod http_server;
mod story;
#[path = "../support/supervisor.rs"]
mod supervisor;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    supervisor::supervise("half of them told", |directory| {
        let told = story::run(&directory, 8_000, |path| redrive::Redrive::open(path))?;
        println!("{told}");
        told.check()
    })
}
