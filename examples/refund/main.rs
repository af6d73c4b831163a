//! A refund that is never blindly repeated.
//!
//! The provider takes longer than the lease (heartbeats keep it), and this one cannot drop repetitions:
//! a refund sent twice is paid twice. So the policy says `Reconcile`: after a delivery whose outcome is
//! unknown (a lost response, a crash), the provider is asked what became of it before anything is
//! repeated.
//!
//! `cargo run --release --example refund [DIRECTORY]`: kill it, and run it again with the same directory.

#![expect(clippy::disallowed_methods, reason = "an example may sleep")]

#[expect(dead_code, reason = "this provider does not honour keys")]
#[path = "../support/provider.rs"]
mod provider;
mod story;
#[path = "../support/supervisor.rs"]
mod supervisor;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    supervisor::supervise("refunded", |directory| {
        let told = story::run(&directory, |path| redrive::Redrive::open(path))?;
        println!("{told}");
        told.check()
    })
}
