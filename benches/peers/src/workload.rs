//! The workloads, in terms of what every contender can do.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

pub const PAYLOAD: [u8; 100] = [b'x'; 100];
const PRODUCERS: usize = 64;
const BATCH: usize = 1_000;

/// A job in somebody's hands. Which contender it belongs to is known from where it came from.
pub type Held = Box<dyn std::any::Any + Send>;

pub trait Contender: Send + Sync {
    /// The settings that decide about durability, read back.
    fn settings(&self) -> String;
    /// Returns after the sync.
    fn enqueue(&self, keys: Vec<String>);
    /// Up to `count_max` jobs; waits a little for the first one.
    fn claim(&self, count_max: usize) -> Vec<Held>;
    fn complete(&self, held: Held);
    fn complete_then_claim(&self, held: Held) -> Vec<Held>;
}

pub const NAMES: [&str; 6] = [
    "lone: enqueues",
    "lone: lives",
    "crowd: 64 and 16 workers",
    "crowd: 64 and 64 workers",
    "crowd: 64 and 256 workers",
    "batch: 1,000, 64 settlers",
];
/// Per second, in the order of [`NAMES`].
pub type Figures = [f64; 6];

pub fn measure(contender: &dyn Contender) -> Figures {
    [
        enqueues(contender),
        rate(1_000, || {
            for _ in 0..1_000 {
                contender.enqueue(vec![key()]);
                contender.complete(contender.claim(1).pop().unwrap());
            }
        }),
        crowd(contender, 16),
        crowd(contender, 64),
        crowd(contender, 256),
        batch(contender),
    ]
}

fn enqueues(contender: &dyn Contender) -> f64 {
    let rate = rate(2_000, || {
        for _ in 0..2_000 {
            contender.enqueue(vec![key()]);
        }
    });
    // So that the next workload begins with an empty queue.
    drain(contender, 2_000);
    rate
}

pub fn median(mut runs: Vec<Figures>) -> Figures {
    std::array::from_fn(|place| {
        runs.sort_by(|a, b| a[place].total_cmp(&b[place]));
        runs[runs.len() / 2][place]
    })
}

fn key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("order:{:012}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn rate(count: usize, work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    count as f64 / start.elapsed().as_secs_f64()
}

fn crowd(contender: &dyn Contender, workers: usize) -> f64 {
    const LIVES: usize = 12_800;
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let ended = Mutex::new(None);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..PRODUCERS {
            scope.spawn(|| {
                while next.fetch_add(1, Ordering::Relaxed) < LIVES {
                    contender.enqueue(vec![key()]);
                }
            });
        }
        for _ in 0..workers {
            scope.spawn(|| {
                let mut held = Vec::new();
                while done.load(Ordering::Relaxed) < LIVES {
                    held = match held.pop() {
                        None => contender.claim(1),
                        Some(job) => {
                            let next = contender.complete_then_claim(job);
                            if done.fetch_add(1, Ordering::Relaxed) + 1 == LIVES {
                                *ended.lock().unwrap() = Some(start.elapsed());
                            }
                            next
                        }
                    };
                }
            });
        }
    });
    let took: Duration = ended.into_inner().unwrap().unwrap();
    LIVES as f64 / took.as_secs_f64()
}

fn batch(contender: &dyn Contender) -> f64 {
    const BATCHES: usize = 20;
    rate(BATCHES * BATCH, || {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..BATCHES {
                    contender.enqueue((0..BATCH).map(|_| key()).collect());
                }
            });
            drain(contender, BATCHES * BATCH);
        });
    })
}

/// Claims up to 1,000 at a time and completes from 64 threads, one job per call.
fn drain(contender: &dyn Contender, count: usize) {
    let (hand_out, jobs) = sync_channel::<Held>(2 * BATCH);
    let jobs = Mutex::new(jobs);
    std::thread::scope(|scope| {
        for _ in 0..64 {
            scope.spawn(|| complete_all(contender, &jobs));
        }
        let mut claimed = 0;
        while claimed < count {
            for job in contender.claim(BATCH) {
                claimed += 1;
                hand_out.send(job).unwrap();
            }
        }
        drop(hand_out);
    });
}

fn complete_all(contender: &dyn Contender, jobs: &Mutex<Receiver<Held>>) {
    loop {
        // The lock is given back before the job is completed.
        let next = jobs.lock().unwrap().recv();
        let Ok(job) = next else { return };
        contender.complete(job);
    }
}
