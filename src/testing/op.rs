//! What the model test and the fuzz targets do to a store: plain data, made from plain bytes.

use crate::domain::failure::FailureClass;

/// The queues in play.
pub(super) const QUEUES: [&str; 2] = ["alpha", "beta"];
/// The kinds in play.
pub(super) const KINDS: [&str; 3] = ["one", "two", "three"];

/// One step. Jobs and leases are named by a place, taken modulo how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls they stand for")]
#[non_exhaustive]
pub enum Op {
    Enqueue(Item),
    EnqueueMany {
        items: Vec<Item>,
        all_or_nothing: bool,
    },
    /// `kinds` is a set of bits; none set means any kind. `reconciles` is one too; none set means
    /// none.
    Claim {
        queue: usize,
        kinds: u8,
        reconciles: u8,
        jobs: usize,
        /// With those that wait behind one of the same ordering key.
        followers: bool,
    },
    /// Answers what became of a delivery in doubt, if a lease is one.
    Reconcile {
        lease: usize,
        answer: u8,
    },
    Heartbeat {
        lease: usize,
    },
    Complete {
        lease: usize,
        result: Option<u8>,
    },
    /// Complete, with rows and follow-up jobs in the same commit.
    CompleteWith {
        lease: usize,
        changes: Vec<Change>,
        follow_ups: Vec<Item>,
        fault: Fault,
    },
    /// A step, which runs unless an earlier delivery has committed one of its name.
    Step {
        lease: usize,
        name: u8,
        changes: Vec<Change>,
        follow_ups: Vec<Item>,
    },
    Fail {
        lease: usize,
        class: FailureClass,
        retry_after_ms: Option<u64>,
        text: u8,
    },
    Snooze {
        lease: usize,
        ms: u64,
    },
    Release {
        lease: usize,
    },
    /// Let go of a lease without settling it.
    Drop {
        lease: usize,
    },
    /// Complete, then present the same token again in another call.
    Twice {
        lease: usize,
        again: u8,
    },
    /// Claim one and give it back, several times: makes a long history.
    Churn {
        queue: usize,
        times: u8,
    },
    Cancel {
        job: usize,
    },
    Discard {
        job: usize,
    },
    /// Give a dead job another payload.
    Amend {
        job: usize,
        payload: u8,
    },
    SetQueue {
        queue: usize,
        rules: Option<usize>,
        retry_share_percent: Option<u8>,
        /// A dead job halts those behind it under its ordering key.
        halt: Option<bool>,
    },
    Advance {
        ms: u64,
    },
    JumpForward {
        ms: u64,
    },
    JumpBack {
        ms: u64,
    },
    Sweep,
    /// Of a queue, or of one kind of it, or of redrive.
    Pause {
        scope: Pausing,
    },
    Resume {
        scope: Pausing,
    },
    /// A throttled failure that holds back its class or its queue.
    Throttle {
        lease: usize,
        ms: u64,
        queue: bool,
    },
    /// Start a cohort of dead jobs.
    Redrive(Brakes),
    Cohort {
        cohort: usize,
        order: Order,
    },
    /// Give all leases back, close, open.
    Reopen,
    /// The process dies with its leases; open again.
    Kill,
}

/// How to redrive.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the methods of a plan")]
pub struct Brakes {
    pub queue: Option<usize>,
    pub code: Option<u8>,
    pub canary: u32,
    pub batch: u32,
    pub ramp_to: u32,
    pub every_ms: u64,
    pub in_flight_max: u32,
    pub limit: Option<u64>,
    pub reconciled: bool,
    pub dead_percent: Option<u32>,
    pub same_cause: Option<u32>,
    /// It has no reason, which is refused.
    pub bad: bool,
}

/// What to do to a cohort.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the calls they stand for")]
#[non_exhaustive]
pub enum Order {
    Pause,
    Resume,
    Abort,
}

/// What to pause or resume. The last of the kinds means the whole queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "as in `Scope`")]
pub struct Pausing {
    pub redrive: bool,
    pub queue: usize,
    pub kind: Option<usize>,
}

/// A put, or a delete, in one of the two tables of the user's in play.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the arguments of a put")]
pub struct Change {
    pub notes: bool,
    pub key: u8,
    pub value: Option<u8>,
}

/// What a completion is to be refused for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the errors")]
#[non_exhaustive]
pub enum Fault {
    None,
    OtherTypes,
    Reserved,
}

/// A job to enqueue.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the fields of a new job")]
pub struct Item {
    pub queue: usize,
    pub kind: usize,
    pub key: Option<u8>,
    pub payload: u8,
    pub priority: u8,
    pub when: When,
    pub rules: Option<usize>,
    pub order: Option<u8>,
    /// Its key is empty, which is refused.
    pub bad: bool,
}

/// When a job may first run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the builder's methods")]
#[non_exhaustive]
pub enum When {
    Now,
    After(u64),
    /// At an instant this far after 2026-01-01.
    At(u64),
}

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

struct Bytes<'a>(std::slice::Iter<'a, u8>);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::from(self.byte()) % limit
    }

    fn sometimes<T>(&mut self, one_in: usize, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        (self.below(one_in) == 0).then(|| make(self))
    }

    /// The lengths of time at which something changes in the policies in play, and around them.
    fn ms(&mut self) -> u64 {
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
        match code % 81 {
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
                queue: self.below(QUEUES.len()),
                kinds: self.byte() % 8,
                reconciles: match self.byte() {
                    byte if byte >= 128 => 7,
                    byte => byte % 8,
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
            50 => Op::SetQueue {
                queue: self.below(QUEUES.len()),
                rules: self.sometimes(2, |bytes| usize::from(bytes.byte())),
                retry_share_percent: self.sometimes(2, |bytes| bytes.byte() % 101),
                halt: self.sometimes(2, |bytes| bytes.byte().is_multiple_of(2)),
            },
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
            _ => Op::Kill,
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

    fn fail(&mut self) -> Op {
        let lease = usize::from(self.byte());
        let class = match self.byte() % 8 {
            0 => FailureClass::Permanent,
            1..=3 => FailureClass::Transient,
            4 | 5 => FailureClass::Throttled,
            _ => FailureClass::Ambiguous,
        };
        Op::Fail { lease, class, retry_after_ms: self.sometimes(3, Self::ms), text: self.byte() }
    }

    fn item(&mut self) -> Item {
        const DAYS_8_MS: u64 = 691_200_000;
        Item {
            queue: self.below(QUEUES.len()),
            // The third kind is rare.
            kind: self.below(7) / 3,
            key: self.sometimes(2, |bytes| bytes.byte() % 6),
            payload: self.byte() % 8,
            priority: match self.byte() % 4 {
                0 => 0,
                1 => 255,
                _ => 100,
            },
            when: match self.byte() % 8 {
                0..=4 => When::Now,
                5 | 6 => When::After(self.ms()),
                _ => When::At(self.ms() % DAYS_8_MS),
            },
            // Those under which outcomes are reconciled are the last two, and common.
            rules: self.sometimes(2, |bytes| match bytes.byte() {
                byte if byte >= 128 => 6 + usize::from(byte % 2),
                byte => usize::from(byte),
            }),
            order: self.sometimes(3, |bytes| bytes.byte() % 2),
            bad: self.below(24) == 23,
        }
    }
}
