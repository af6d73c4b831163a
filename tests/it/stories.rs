//! The stories that the examples tell, killed at named places and at random moments, and told to the end
//! (P6, P7, P8).

#![expect(
    clippy::disallowed_methods,
    reason = "the stories, their servers and their killers sleep"
)]

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Random, child, child_argument, seed};
use crate::webhook::http_server;

#[path = "../../examples/support/provider.rs"]
mod provider;
#[path = "../../examples/refund/story.rs"]
mod refund;
#[path = "../../examples/shipments/story.rs"]
mod shipments;
#[expect(dead_code, reason = "the test itself starts the processes again")]
#[path = "../../examples/support/supervisor.rs"]
mod supervisor;

/// Fewer than in the example, with every kind of trouble among them.
const SUBSCRIBERS: usize = 240;

/// The role of the child; in the normal run it does nothing.
#[test]
fn child_tells_a_story() {
    let Some(directory) = child_argument() else { return };
    let told = match std::env::var("STORY").unwrap().as_str() {
        "refund" => refund::run(&directory).and_then(|told| told.check()),
        _ => shipments::run(&directory, SUBSCRIBERS).and_then(|told| told.check()),
    };
    told.unwrap();
}

fn teller(story: &str, directory: &Path) -> std::process::Command {
    let mut teller = child("stories::child_tells_a_story", directory);
    teller.env("STORY", story).stdout(Stdio::null()).stderr(Stdio::piped());
    teller
}

/// Tells it to the end, which has to be as promised.
fn to_the_end(story: &str, directory: &Path) {
    let told = teller(story, directory).output().unwrap();
    assert!(told.status.success(), "{story}: {}", String::from_utf8_lossy(&told.stderr));
}

fn dies_at(story: &str, places: &[&str]) {
    for place in places {
        let directory = tempfile::tempdir().unwrap();
        let died = teller(story, directory.path()).env("CRASH_AT", place).output().unwrap();
        assert!(!died.status.success(), "{story} did not come to: {place}");
        to_the_end(story, directory.path());
    }
}

fn dies_anywhere(story: &str) {
    let seed = seed("REDRIVE_KILL_SEED");
    println!("REDRIVE_KILL_SEED={seed}");
    let mut random = Random(seed);
    for _ in 0..3 {
        let directory = tempfile::tempdir().unwrap();
        for _ in 0..2 {
            let mut life = teller(story, directory.path()).stderr(Stdio::null()).spawn().unwrap();
            wait(random.below(600));
            life.kill().unwrap();
            life.wait().unwrap();
        }
        to_the_end(story, directory.path());
    }
}

fn wait(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[test]
fn p8_a_refund_is_paid_once_wherever_the_process_dies() {
    dies_at("refund", &["before the refund", "refunded", "reconciling"]);
}

#[test]
fn p8_a_refund_is_paid_once_whenever_the_process_is_killed() {
    dies_anywhere("refund");
}

#[test]
fn p6_every_subscriber_is_told_once_wherever_the_process_dies() {
    dies_at("shipment", &["before the fan-out", "posted", "half of them told"]);
}

#[test]
fn p6_every_subscriber_is_told_once_whenever_the_process_is_killed() {
    dies_anywhere("shipment");
}
