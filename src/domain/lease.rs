//! How long a lease lasts: what a heartbeat, a jump of the wall clock and the deadline do to it. Lease
//! time is monotonic time of the process that owns the file.

/// The time of one lease, in milliseconds of the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LeaseTime {
    granted_ms: u64,
    /// How long it lasts without a heartbeat.
    length_ms: u64,
    ends_ms: u64,
    /// The hard deadline of the delivery: nothing extends the lease past it.
    deadline_ms: Option<u64>,
}

impl LeaseTime {
    /// From `now_ms` on for `length_ms`, in a delivery that may take `allowed_ms` in all.
    pub(crate) fn new(now_ms: u64, length_ms: u64, allowed_ms: Option<u64>) -> Self {
        let deadline_ms = allowed_ms.map(|ms| now_ms.saturating_add(ms));
        let lease = Self { granted_ms: now_ms, length_ms, ends_ms: 0, deadline_ms };
        Self { ends_ms: lease.full_from(now_ms), ..lease }
    }

    pub(crate) const fn ends_ms(&self) -> u64 {
        self.ends_ms
    }

    pub(crate) const fn has_ended(&self, now_ms: u64) -> bool {
        self.ends_ms <= now_ms
    }

    pub(crate) fn deadline_passed(&self, now_ms: u64) -> bool {
        self.deadline_ms.is_some_and(|deadline_ms| deadline_ms <= now_ms)
    }

    /// A heartbeat: a full length from now, but not past the deadline, and never less than there was.
    pub(crate) fn extended(self, now_ms: u64) -> Self {
        Self { ends_ms: self.ends_ms.max(self.full_from(now_ms)), ..self }
    }

    /// It begins now, later than it was granted: what the commit took is not its own to lose.
    pub(crate) fn started(self, now_ms: u64) -> Self {
        let late_ms = now_ms.saturating_sub(self.granted_ms);
        let deadline_ms = self.deadline_ms.map(|ms| ms.saturating_add(late_ms));
        let lease = Self { granted_ms: now_ms, deadline_ms, ..self };
        Self { ends_ms: lease.full_from(now_ms), ..lease }
    }

    /// The wall clock ran ahead by `jump_ms`; the machine may have slept. What would have ended in that
    /// time gets half a length to show that its holder is alive.
    pub(crate) fn jumped(self, jump_ms: u64, now_ms: u64) -> Self {
        let grace_ms = self.ends_ms.min(now_ms.saturating_add(self.length_ms / 2));
        Self { ends_ms: self.ends_ms.saturating_sub(jump_ms).max(grace_ms), ..self }
    }

    fn full_from(&self, now_ms: u64) -> u64 {
        let ends_ms = now_ms.saturating_add(self.length_ms);
        self.deadline_ms.map_or(ends_ms, |deadline_ms| ends_ms.min(deadline_ms))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// P13, O-04: whatever beats and jumps come, a lease never lasts past its deadline, a beat never
        /// shortens it, and a jump leaves a living holder half a length.
        #[test]
        fn a_lease_keeps_its_bounds(
            length in 10..100_000u64,
            allowed in prop::option::of(1..1_000_000u64),
            moves in prop::collection::vec((any::<bool>(), 0..200_000u64), 0..20),
        ) {
            let mut lease = LeaseTime::new(0, length, allowed);
            let mut now = 0;
            for (beat, ms) in moves {
                let before = lease;
                if beat {
                    now += ms % length;
                    lease = lease.extended(now);
                    prop_assert!(lease.ends_ms() >= before.ends_ms());
                } else {
                    lease = lease.jumped(ms, now);
                    prop_assert!(lease.ends_ms() <= before.ends_ms());
                    prop_assert!(lease.ends_ms() >= before.ends_ms().min(now + length / 2));
                }
                prop_assert!(lease.ends_ms() <= now + length);
                prop_assert!(allowed.is_none_or(|allowed| lease.ends_ms() <= allowed));
            }
        }
    }
}
