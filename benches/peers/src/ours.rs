//! redrive through its public API.

use std::path::Path;
use std::time::Duration;

use redrive::{BatchRule, ClaimRequest, Lease, NewJob, Redrive};

use crate::workload::{Contender, Held, PAYLOAD};

pub fn open(directory: &Path) -> Box<dyn Contender> {
    Box::new(Ours(Redrive::open(directory.join("jobs.redb")).unwrap()))
}

struct Ours(Redrive);

fn request(count_max: usize) -> ClaimRequest {
    let wait = Duration::from_millis(100);
    ClaimRequest::new("queue").up_to(count_max).wait(wait)
}

fn held(leases: Vec<Lease>) -> Vec<Held> {
    leases.into_iter().map(|lease| Box::new(lease) as Held).collect()
}

fn lease(held: Held) -> Lease {
    *held.downcast().unwrap()
}

impl Contender for Ours {
    fn settings(&self) -> String {
        "default durability: one fdatasync per group commit, before the answers".into()
    }

    fn enqueue(&self, keys: Vec<String>) {
        let job = |key| NewJob::new("queue", "work").bytes(PAYLOAD).key(key);
        let jobs = keys.into_iter().map(job);
        let outcomes = self.0.enqueue_many(jobs, BatchRule::AllOrNothing).unwrap();
        assert!(outcomes.iter().all(Result::is_ok));
    }

    fn claim(&self, count_max: usize) -> Vec<Held> {
        held(self.0.claim(request(count_max)).unwrap())
    }

    fn complete(&self, held: Held) {
        lease(held).complete().unwrap();
    }

    fn complete_then_claim(&self, job: Held) -> Vec<Held> {
        let (completed, claimed) = lease(job).complete_then_claim(request(1));
        completed.unwrap();
        held(claimed.unwrap())
    }
}
