//! Steps out of plain bytes.

use crate::domain::failure::FailureClass;
use crate::testing::op::{Brakes, Change, Fault, KINDS, Op, Order, Pausing, QUEUES, Retained};

/// Any bytes are a sequence of steps; missing ones read as 0.
#[must_use]
pub fn ops_from_bytes(data: &[u8]) -> Vec<Op> {
    /// More makes an input slow without making it better.
    const OPS_MAX: usize = 400;
    let mut bytes = Bytes(data.iter());
    let mut ops = Vec::new();
    while ops.len() < OPS_MAX
        && let Some(code) = bytes.0.next().copied()
    {
        ops.push(bytes.op(code));
    }
    ops
}

pub(super) struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    pub(super) fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    pub(super) fn sometimes<T>(
        &mut self,
        one_in: usize,
        make: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        (self.below(one_in) == 0).then(|| make(self))
    }

    /// The lengths of time at which something changes in the policies in play, and around them.
    pub(super) fn ms(&mut self) -> u64 {
        const STEPS: [u64; 20] = [
            1,
            5,
            7,
            10,
            50,
            99,
            100,
            250,
            500,
            999,
            1_000,
            1_001,
            2_000,
            4_000,
            5_000,
            15_000,
            30_000,
            60_000,
            600_000,
            700_000_000,
        ];
        let step = self.below(STEPS.len());
        STEPS.get(step).copied().unwrap_or(1)
    }

    fn op(&mut self, code: u8) -> Op {
        let lease = |bytes: &mut Self| usize::from(bytes.byte());
        match code % 88 {
            0..=11 => Op::Enqueue(self.item()),
            14 | 15 => {
                let count = 1 + self.below(5);
                Op::EnqueueMany {
                    items: (0..count).map(|_| self.item()).collect(),
                    all_or_nothing: self.byte().is_multiple_of(2),
                }
            }
            12 | 24..=26 => Op::Reconcile { lease: lease(self), answer: self.byte() },
            16..=23 => Op::Claim {
                queue: self.queue(),
                kinds: self.byte() % 16,
                reconciles: match self.byte() {
                    byte if byte >= 128 => 15,
                    byte => byte % 16,
                },
                jobs: 1 + self.below(4),
                followers: self.byte().is_multiple_of(2),
            },
            27 | 28 => Op::Heartbeat { lease: lease(self) },
            29 => Op::Complete { lease: lease(self), result: self.sometimes(2, Self::byte) },
            30 | 31 => self.complete_with(),
            32..=39 => self.fail(),
            40 | 41 => Op::Snooze {
                lease: lease(self),
                ms: if self.byte().is_multiple_of(4) { 0 } else { self.ms() },
            },
            42 | 43 => Op::Release { lease: lease(self) },
            44 => Op::Drop { lease: lease(self) },
            45 => Op::Twice { lease: lease(self), again: self.byte() },
            46 => Op::Churn { queue: self.below(QUEUES.len()), times: 1 + self.byte() % 40 },
            47 | 48 => Op::Cancel { job: lease(self) },
            49 => Op::Discard { job: lease(self) },
            50 | 84 | 85 => self.set_queue(),
            51..=56 => Op::Advance { ms: self.ms() },
            13 | 57 => Op::JumpForward { ms: self.ms() },
            58 => Op::JumpBack { ms: self.ms() },
            59 => Op::Sweep,
            60 | 61 => Op::Reopen,
            64 => Op::Pause { scope: self.pausing() },
            65 | 66 => Op::Resume { scope: self.pausing() },
            67 | 68 => Op::Throttle {
                lease: lease(self),
                ms: self.ms(),
                queue: self.byte().is_multiple_of(2),
            },
            76 | 77 => Op::Amend { job: lease(self), payload: self.byte() },
            70..=73 => Op::Redrive(self.brakes()),
            74 | 75 => Op::Cohort {
                cohort: lease(self),
                order: match self.byte() % 6 {
                    0 | 1 => Order::Pause,
                    2..=4 => Order::Resume,
                    _ => Order::Abort,
                },
            },
            78..=80 => self.step(),
            81 => Op::Export { job: lease(self) },
            82 | 83 => Op::Import { export: lease(self) },
            86 | 87 => self.transact(),
            _ => Op::Kill,
        }
    }

    fn set_queue(&mut self) -> Op {
        Op::SetQueue {
            queue: self.below(QUEUES.len()),
            rules: self.sometimes(2, |bytes| usize::from(bytes.byte())),
            retry_share_percent: self.sometimes(2, |bytes| bytes.byte() % 101),
            halt: self.sometimes(2, |bytes| bytes.byte().is_multiple_of(2)),
            retention: self.sometimes(2, Self::retained),
            order: self.sometimes(2, |bytes| bytes.byte() % 3),
        }
    }

    fn brakes(&mut self) -> Brakes {
        let small = |bytes: &mut Self| u32::from(bytes.byte() % 4);
        let batch = 1 + small(self);
        let canary = small(self);
        Brakes {
            queue: self.sometimes(3, |bytes| bytes.below(QUEUES.len())),
            code: self.sometimes(4, |bytes| bytes.byte() % 3),
            canary,
            batch,
            ramp_to: self.sometimes(3, |bytes| batch + 2 * small(bytes)).unwrap_or(0),
            every_ms: 1 + self.ms() % 100_000,
            in_flight_max: self.sometimes(2, |bytes| batch + small(bytes)).unwrap_or(0),
            limit: self.sometimes(4, |bytes| u64::from(canary.max(1) + small(bytes) + 2)),
            reconciled: self.byte().is_multiple_of(2),
            dead_percent: self.sometimes(3, |bytes| 20 + 20 * small(bytes)),
            same_cause: self.sometimes(3, |bytes| 1 + small(bytes) % 3),
            bad: self.below(24) == 23,
        }
    }

    fn pausing(&mut self) -> Pausing {
        let redrive = self.below(4) == 0;
        let queue = self.below(QUEUES.len());
        let kind = self.below(KINDS.len() + 1);
        Pausing { redrive, queue, kind: (kind < KINDS.len()).then_some(kind) }
    }

    /// Often no bound at all, lest too few jobs die a natural death.
    fn retained(&mut self) -> Retained {
        if self.byte().is_multiple_of(2) {
            return Retained::default();
        }
        Retained {
            jobs: self.sometimes(2, |bytes| u64::from(bytes.byte() % 3)),
            bytes: self.sometimes(3, |bytes| 40 * u64::from(bytes.byte() % 32)),
            age_ms: self.sometimes(3, Self::ms),
        }
    }

    fn step(&mut self) -> Op {
        let lease = usize::from(self.byte());
        let (name, changes) = (self.byte() % 4, self.changes());
        Op::Step {
            lease,
            name,
            changes,
            follow_ups: (0..self.below(2)).map(|_| self.item()).collect(),
        }
    }

    fn changes(&mut self) -> Vec<Change> {
        (0..self.below(4))
            .map(|_| {
                let notes = self.byte().is_multiple_of(2);
                let (key, value) = (self.byte() % 12, self.sometimes(2, Self::byte));
                Change { notes, key, value }
            })
            .collect()
    }

    fn complete_with(&mut self) -> Op {
        let (lease, changes) = (usize::from(self.byte()), self.changes());
        let follow_ups = (0..self.below(3)).map(|_| self.item()).collect();
        let fault = match self.byte() % 16 {
            0 => Fault::OtherTypes,
            1 => Fault::Reserved,
            _ => Fault::None,
        };
        Op::CompleteWith { lease, changes, follow_ups, fault }
    }

    fn transact(&mut self) -> Op {
        let lease = self.sometimes(2, |bytes| usize::from(bytes.byte()));
        let items = (0..self.below(3)).map(|_| self.item()).collect();
        Op::Transact { lease, items, changes: self.changes(), gives_up: self.below(3) == 0 }
    }

    fn fail(&mut self) -> Op {
        let lease = usize::from(self.byte());
        let class = match self.byte() % 8 {
            0 | 1 => FailureClass::Permanent,
            2 | 3 => FailureClass::Transient,
            4 | 5 => FailureClass::Throttled,
            _ => FailureClass::Ambiguous,
        };
        Op::Fail { lease, class, retry_after_ms: self.sometimes(3, Self::ms), text: self.byte() }
    }
}
