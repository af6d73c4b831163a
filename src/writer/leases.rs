//! The leases of this process, in memory: when each one ends, and who may extend it.
//!
//! One process owns the file, so a heartbeat is its own business and needs no commit; everything
//! else about a lease is in its job's row. Lease time is monotonic time. A wall clock that jumps
//! forward may mean that the machine slept: leases that would have ended meanwhile get half a lease
//! to show that their holder is alive, and end then.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;

use crate::domain::id::{JobId, Token};
use crate::domain::lease::LeaseTime;

#[derive(Default)]
pub(crate) struct Leases(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    by_job: HashMap<JobId, Lease>,
    /// One entry per lease, in the order of `queued_ms`. An extension does not move the entry; it is
    /// moved when it comes up.
    ends: BTreeSet<(u64, Token)>,
}

#[derive(Clone, Copy, Debug)]
struct Lease {
    delivery: u32,
    time: LeaseTime,
    /// Where it stands in `ends`; never after its end.
    queued_ms: u64,
    cancel_requested: bool,
}

/// The answer to a heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Beat {
    pub(crate) left_ms: u64,
    pub(crate) cancel_requested: bool,
    pub(crate) deadline_passed: bool,
}

/// A lease that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) token: Token,
    pub(crate) deadline_exceeded: bool,
}

impl Leases {
    /// A new lease of `lease_ms` from `now_ms`, whose delivery may take `deadline_ms` in all.
    pub(super) fn grant(&self, token: Token, now_ms: u64, lease_ms: u64, deadline_ms: Option<u64>) {
        let time = LeaseTime::new(now_ms, lease_ms, deadline_ms);
        let queued_ms = time.ends_ms();
        let lease = Lease { delivery: token.delivery, time, queued_ms, cancel_requested: false };
        let mut inner = self.0.lock();
        inner.ends.insert((queued_ms, token));
        inner.by_job.insert(token.job, lease);
    }

    /// Extends the lease to a full length from `now_ms`; `None` when the token is not current.
    pub(crate) fn heartbeat(&self, token: Token, now_ms: u64) -> Option<Beat> {
        let mut inner = self.0.lock();
        let lease = inner.by_job.get_mut(&token.job)?;
        if lease.delivery != token.delivery {
            return None;
        }
        lease.time = lease.time.extended(now_ms);
        Some(Beat {
            left_ms: lease.time.ends_ms().saturating_sub(now_ms),
            cancel_requested: lease.cancel_requested,
            deadline_passed: lease.time.deadline_passed(now_ms),
        })
    }

    /// Starts the time of leases that are handed out now: what the commit took is not theirs to lose.
    pub(super) fn start(&self, granted: &[Token], now_ms: u64) {
        let mut inner = self.0.lock();
        let Inner { by_job, ends } = &mut *inner;
        for &token in granted {
            let Some(lease) = by_job.get_mut(&token.job) else { continue };
            if lease.delivery != token.delivery {
                continue;
            }
            ends.remove(&(lease.queued_ms, token));
            lease.time = lease.time.started(now_ms);
            lease.queued_ms = lease.time.ends_ms();
            ends.insert((lease.queued_ms, token));
        }
    }

    pub(super) fn request_cancel(&self, job: JobId) {
        if let Some(lease) = self.0.lock().by_job.get_mut(&job) {
            lease.cancel_requested = true;
        }
    }

    pub(super) fn end(&self, token: Token) {
        let mut inner = self.0.lock();
        if let Some(lease) = inner.by_job.get(&token.job).copied()
            && lease.delivery == token.delivery
        {
            inner.by_job.remove(&token.job);
            inner.ends.remove(&(lease.queued_ms, token));
        }
    }

    /// Takes up to `count_max` leases that have ended; from here on nobody can extend them.
    pub(super) fn take_ended(&self, now_ms: u64, count_max: usize) -> Vec<Ended> {
        let mut inner = self.0.lock();
        let Inner { by_job, ends } = &mut *inner;
        let mut ended = Vec::new();
        while ended.len() < count_max
            && let Some(&(queued_ms, token)) = ends.first()
            && queued_ms <= now_ms
        {
            ends.pop_first();
            let Some(lease) = by_job.get_mut(&token.job) else { continue };
            if !lease.time.has_ended(now_ms) {
                lease.queued_ms = lease.time.ends_ms();
                ends.insert((lease.queued_ms, token));
                continue;
            }
            let deadline_exceeded = lease.time.deadline_passed(now_ms);
            by_job.remove(&token.job);
            ended.push(Ended { token, deadline_exceeded });
        }
        ended
    }

    /// The wall clock ran ahead by `jump_ms`: shortens what would have ended in that time.
    pub(super) fn jumped(&self, jump_ms: u64, now_ms: u64) {
        let mut inner = self.0.lock();
        let Inner { by_job, ends } = &mut *inner;
        ends.clear();
        for (&job, lease) in by_job {
            lease.time = lease.time.jumped(jump_ms, now_ms);
            lease.queued_ms = lease.time.ends_ms();
            ends.insert((lease.queued_ms, Token { job, delivery: lease.delivery }));
        }
    }

    /// When the earliest lease may end; it may turn out to have been extended.
    pub(super) fn next_end_ms(&self) -> Option<u64> {
        self.0.lock().ends.first().map(|&(queued_ms, _)| queued_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(job: u64, delivery: u32) -> Token {
        Token { job: JobId::new(job), delivery }
    }

    #[test]
    fn a_heartbeat_extends_and_only_the_current_token_may() {
        let leases = Leases::default();
        leases.grant(token(1, 1), 0, 100, None);
        assert_eq!(leases.heartbeat(token(1, 1), 90).unwrap().left_ms, 100);
        assert_eq!(leases.heartbeat(token(1, 2), 90), None);
        assert_eq!(leases.take_ended(189, 10), []);
        assert_eq!(leases.take_ended(190, 10).len(), 1);
        assert_eq!(leases.heartbeat(token(1, 1), 190), None);
    }

    /// P15: memory follows the leases in flight, not those that there have been.
    #[test]
    fn a_settled_lease_leaves_nothing_behind() {
        let leases = Leases::default();
        for job in 0..1_000 {
            leases.grant(token(job, 1), job, 1_000_000, None);
            leases.heartbeat(token(job, 1), job + 1);
            leases.end(token(job, 1));
        }
        assert_eq!(leases.next_end_ms(), None);
        assert!(leases.0.lock().by_job.is_empty());
    }

    /// P4: a commit that takes longer than the lease does not cost the lease.
    #[test]
    fn a_lease_begins_when_it_is_handed_out() {
        let leases = Leases::default();
        leases.grant(token(1, 1), 0, 100, Some(250));
        leases.start(&[token(1, 1), token(2, 1)], 1_000);
        assert_eq!(leases.take_ended(1_099, 10), []);
        assert_eq!(leases.heartbeat(token(1, 1), 1_099).unwrap().left_ms, 100);
        assert_eq!(
            leases.heartbeat(token(1, 1), 1_190).unwrap().left_ms,
            60,
            "the deadline moved, too"
        );
        assert_eq!(leases.take_ended(1_250, 10).len(), 1);
    }

    #[test]
    fn no_heartbeat_extends_past_the_deadline() {
        let leases = Leases::default();
        leases.grant(token(1, 1), 0, 100, Some(250));
        for now in [50, 100, 150, 200] {
            assert!(!leases.heartbeat(token(1, 1), now).unwrap().deadline_passed);
        }
        assert!(leases.heartbeat(token(1, 1), 250).unwrap().deadline_passed);
        assert!(leases.take_ended(250, 10)[0].deadline_exceeded);
    }

    #[test]
    fn a_jump_leaves_half_a_lease_to_show_life() {
        let leases = Leases::default();
        leases.grant(token(1, 1), 0, 100, None);
        leases.grant(token(2, 1), 0, 100, None);
        leases.jumped(1_000_000, 10);
        leases.heartbeat(token(2, 1), 40);
        assert_eq!(leases.take_ended(59, 10), []);
        let ended = leases.take_ended(60, 10);
        assert_eq!(ended, [Ended { token: token(1, 1), deadline_exceeded: false }]);
        assert_eq!(leases.take_ended(140, 10).len(), 1);
    }
}
