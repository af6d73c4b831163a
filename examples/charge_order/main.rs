//! An order is charged once, and its receipt is sent once.
//!
//! The provider charges, the response is lost, and the worker crashes before it can write anything down.
//! What is known then is not that the charge failed, but that nobody knows: the delivery is retried under
//! the same key, which this provider honours. The charge's row, the done marker and the receipt's message
//! commit together; a relay writes the receipt to a file, where each line comes once.
//!
//! `cargo run --release --example charge_order [DIRECTORY]`: kill it, and run it again with the same
//! directory.

#![expect(clippy::disallowed_methods, reason = "an example may sleep")]

#[expect(dead_code, reason = "nobody has to ask a provider that honours keys")]
#[path = "../support/provider.rs"]
mod provider;
mod story;
#[path = "../support/supervisor.rs"]
mod supervisor;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    supervisor::supervise("charged", |directory| {
        let told = story::run(&directory, |path| redrive::Redrive::open(path))?;
        println!("{told}");
        told.check()
    })
}
