//! The stories that the examples tell, killed at named places and at random moments, and told to the end
//! (P6, P7, P8).

#![expect(
    clippy::disallowed_methods,
    reason = "the stories, their servers and their killers sleep"
)]

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redb::StorageBackend;
use redb::backends::FileBackend;
use redrive::{OpenError, Options, Redrive};

use crate::support::{Random, child, child_argument, full, seed};
use crate::webhook::http_server;

#[path = "../../examples/charge_order/story.rs"]
mod charge_order;
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
        "charge_order" => charge_order::run(&directory, open).and_then(|told| told.check()),
        "refund" => refund::run(&directory, open).and_then(|told| told.check()),
        _ => shipments::run(&directory, SUBSCRIBERS, open).and_then(|told| told.check()),
    };
    told.unwrap();
    if let Some(path) = std::env::var_os("SYNCS_TO") {
        std::fs::write(path, SYNCS.load(Ordering::SeqCst).to_string()).unwrap();
    }
}

/// Syncs of the file since it was opened.
static SYNCS: AtomicU64 = AtomicU64::new(0);

/// The process dies at a sync, if one was chosen: just before an even one, just after an odd one.
#[derive(Debug)]
struct Mortal {
    file: FileBackend,
    dies_at: u64,
}

impl StorageBackend for Mortal {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.file.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        let dies = SYNCS.fetch_add(1, Ordering::SeqCst) == self.dies_at;
        if dies && self.dies_at.is_multiple_of(2) {
            std::process::abort();
        }
        self.file.sync_data()?;
        if dies {
            std::process::abort();
        }
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

fn open(path: &Path) -> Result<Redrive, OpenError> {
    let jobs = Redrive::open(path)?;
    let Ok(dies_at) = std::env::var("DIES_AT_SYNC") else { return Ok(jobs) };
    jobs.close().unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let file = FileBackend::new(file).unwrap();
    Options::new().open_backend(Mortal { file, dies_at: dies_at.parse().unwrap() })
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

/// Dies at every commit, and tells it to the end after each; in the normal run at a few of them.
fn dies_at_commits(story: &str) {
    let directory = tempfile::tempdir().unwrap();
    let count = directory.path().join("syncs");
    let told = teller(story, directory.path())
        .env("DIES_AT_SYNC", u64::MAX.to_string())
        .env("SYNCS_TO", &count)
        .output()
        .unwrap();
    assert!(told.status.success(), "{story}: {}", String::from_utf8_lossy(&told.stderr));
    let syncs: u64 = std::fs::read_to_string(count).unwrap().parse().unwrap();
    assert!(syncs > 20, "{syncs}");
    let seed = seed("REDRIVE_KILL_SEED");
    println!("{syncs} syncs, REDRIVE_KILL_SEED={seed}");
    let step = if full() { 1 } else { syncs / 4 };
    let mut random = Random(seed);
    for from in (0..syncs).step_by(usize::try_from(step).unwrap()) {
        let directory = tempfile::tempdir().unwrap();
        let dies_at = (from + random.below(step)).min(syncs - 1).to_string();
        let life = teller(story, directory.path()).env("DIES_AT_SYNC", dies_at).output().unwrap();
        // How many commits there are depends on how many callers share one, so it may have lived.
        drop(life);
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
fn p8_an_order_is_charged_once_and_its_receipt_sent_once_wherever_the_process_dies() {
    dies_at("charge_order", &["before the charge", "charged", "the receipt is sent"]);
}

/// The worker died between the answer that the card is bad and its own commit of it.
#[test]
fn p8_a_bad_card_stays_one_when_the_worker_dies_before_it_is_known() {
    let directory = tempfile::tempdir().unwrap();
    let asked = "{\"Asked\":\"charge:O-192\"}\n";
    std::fs::write(directory.path().join("provider.log"), asked).unwrap();
    to_the_end("charge_order", directory.path());
}

#[test]
fn p8_an_order_is_charged_once_and_its_receipt_sent_once_whenever_the_process_is_killed() {
    dies_anywhere("charge_order");
}

#[test]
fn p6_stories_end_as_promised_whichever_commit_the_process_dies_at() {
    for story in ["charge_order", "refund", "shipment"] {
        dies_at_commits(story);
    }
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
