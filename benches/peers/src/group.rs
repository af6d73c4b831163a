//! The peers' group commit: one writer thread takes whatever arrived during the last commit, runs it
//! in one transaction, and answers after the commit. Claims that find nothing wait in the writer.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};

use crate::workload::{Contender, Held};

/// What a storage engine has to do, inside its own open transaction.
pub trait Engine: Send + 'static {
    fn begin(&mut self);
    fn enqueue(&mut self, key: &str);
    /// Counts the delivery and hands out the first ready job's number.
    fn claim(&mut self) -> Option<u64>;
    fn complete(&mut self, job: u64);
    /// Returns after the sync.
    fn commit(&mut self);
}

enum Command {
    Enqueue(Vec<String>),
    Complete(u64),
    Claim(Claim),
    CompleteThenClaim(u64, Claim),
}

struct Claim {
    count_max: usize,
    until: Instant,
}

type Reply = SyncSender<Vec<u64>>;

pub struct Grouped {
    settings: String,
    mailbox: Mutex<Sender<(Command, Reply)>>,
}

impl Grouped {
    pub fn start(engine: impl Engine, settings: String) -> Box<dyn Contender> {
        let (mailbox, commands) = channel();
        std::thread::spawn(move || serve(engine, &commands));
        Box::new(Self { settings, mailbox: Mutex::new(mailbox) })
    }

    fn ask(&self, command: Command) -> Vec<u64> {
        let (reply, answer) = sync_channel(1);
        self.mailbox.lock().unwrap().send((command, reply)).unwrap();
        answer.recv().unwrap()
    }
}

fn claim(count_max: usize) -> Claim {
    Claim { count_max, until: Instant::now() + Duration::from_millis(100) }
}

fn held(jobs: Vec<u64>) -> Vec<Held> {
    jobs.into_iter().map(|job| Box::new(job) as Held).collect()
}

fn number(held: Held) -> u64 {
    *held.downcast().unwrap()
}

impl Contender for Grouped {
    fn settings(&self) -> String {
        self.settings.clone()
    }

    fn enqueue(&self, keys: Vec<String>) {
        self.ask(Command::Enqueue(keys));
    }

    fn claim(&self, count_max: usize) -> Vec<Held> {
        held(self.ask(Command::Claim(claim(count_max))))
    }

    fn complete(&self, job: Held) {
        self.ask(Command::Complete(number(job)));
    }

    fn complete_then_claim(&self, job: Held) -> Vec<Held> {
        held(self.ask(Command::CompleteThenClaim(number(job), claim(1))))
    }
}

fn serve(mut engine: impl Engine, commands: &Receiver<(Command, Reply)>) {
    let mut waiting: VecDeque<(Claim, Reply)> = VecDeque::new();
    loop {
        let mut batch = Vec::new();
        match commands.recv_timeout(Duration::from_millis(20)) {
            Ok(first) => batch.push(first),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        batch.extend(commands.try_iter());
        let mut answers: Vec<(Reply, Vec<u64>)> = Vec::with_capacity(batch.len());
        let arrived = !batch.is_empty();
        if arrived {
            engine.begin();
        }
        for (command, reply) in batch {
            match command {
                Command::Enqueue(keys) => {
                    for key in &keys {
                        engine.enqueue(key);
                    }
                    answers.push((reply, Vec::new()));
                }
                Command::Complete(job) => {
                    engine.complete(job);
                    answers.push((reply, Vec::new()));
                }
                Command::Claim(claim) => waiting.push_back((claim, reply)),
                Command::CompleteThenClaim(job, claim) => {
                    engine.complete(job);
                    waiting.push_back((claim, reply));
                }
            }
        }
        while arrived && let Some((claim, reply)) = waiting.pop_front() {
            let mut jobs = Vec::new();
            while jobs.len() < claim.count_max
                && let Some(job) = engine.claim()
            {
                jobs.push(job);
            }
            if jobs.is_empty() {
                waiting.push_front((claim, reply));
                break;
            }
            answers.push((reply, jobs));
        }
        if arrived {
            engine.commit();
        }
        let now = Instant::now();
        waiting.retain(|(claim, reply)| {
            let waits = claim.until > now;
            if !waits {
                let _ = reply.send(Vec::new());
            }
            waits
        });
        for (reply, answer) in answers {
            let _ = reply.send(answer);
        }
    }
}
