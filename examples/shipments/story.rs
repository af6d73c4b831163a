//! Fan out, call back, count.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redrive::{
    Completion, Delivery, Failure, Filter, JobPolicy, NewJob, OpenError, Redrive, Schedule,
    Webhook, Workers,
};
use serde::{Deserialize, Serialize};

use super::http_server::{Reply, Request, serve};
use super::supervisor::crash_at;

const EVENT: &str = "ship_18472";

#[derive(Serialize, Deserialize)]
struct Event {
    id: String,
    /// Where to call each subscriber.
    callbacks: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct Callback {
    url: String,
    event: String,
}

/// The other side: every subscriber's own memory of what it was told, in a file that outlives us.
pub(crate) struct Subscribers(Mutex<Memory>);

struct Memory {
    file: File,
    /// Requests by idempotency key, and how many of them had an effect.
    requests: HashMap<String, (usize, usize)>,
}

impl Subscribers {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut requests: HashMap<String, (usize, usize)> = HashMap::new();
        for line in BufReader::new(&file).lines() {
            let line = line?;
            let Some((key, what)) = line.split_once(' ') else { continue };
            let (asked, told) = requests.entry(key.to_owned()).or_default();
            match what {
                "asked" => *asked += 1,
                "told" => *told += 1,
                _ => {}
            }
        }
        Ok(Self(Mutex::new(Memory { file, requests })))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers one callback. A key that is known has its effect behind it.
    fn answer(&self, request: &Request) -> Reply {
        let number: usize = request.path.trim_start_matches('/').parse().unwrap_or_default();
        let Some(key) = request.headers.get("idempotency-key") else {
            return Reply::Status(400, Vec::new());
        };
        let mut memory = self.memory();
        let first = memory.note(key, "asked").0 == 1;
        match number % 100 {
            17 if first => return Reply::Status(503, Vec::new()),
            37 if first => return Reply::Status(429, vec![("retry-after", "1".to_owned())]),
            _ => {}
        }
        if memory.requests.get(key).is_none_or(|(_, told)| *told == 0) {
            memory.note(key, "told");
        }
        if number % 100 == 57 && first {
            // It has been told; its answer is lost.
            return Reply::Hangs;
        }
        Reply::Status(204, Vec::new())
    }
}

impl Memory {
    fn note(&mut self, key: &str, what: &str) -> (usize, usize) {
        // In one write: a line is whole or not there when this process is killed.
        let written = self.file.write_all(format!("{key} {what}\n").as_bytes());
        if let Err(error) = written {
            eprintln!("the subscribers' memory: {error}");
            std::process::abort();
        }
        let counts = self.requests.entry(key.to_owned()).or_default();
        match what {
            "asked" => counts.0 += 1,
            _ => counts.1 += 1,
        }
        *counts
    }
}

/// What there is when all has ended.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) subscribers: usize,
    /// Subscribers that were told exactly once.
    pub(crate) once: usize,
    /// Subscribers that were told more than once.
    pub(crate) more: usize,
    /// Posts that arrived, repetitions under the same key among them.
    pub(crate) posts: usize,
    /// Dead jobs: key and code.
    pub(crate) dead: Vec<(String, String)>,
    /// Differences that `verify` found.
    pub(crate) differences: usize,
}

/// Does all of it, or what an earlier life has left of it.
pub(crate) fn run(
    directory: &Path,
    count: usize,
    open: impl FnOnce(&Path) -> Result<Redrive, OpenError>,
) -> Result<Told, Box<dyn Error>> {
    let subscribers = Arc::new(Subscribers::open(&directory.join("subscribers.log"))?);
    let answering = Arc::clone(&subscribers);
    let address = serve(move |request| answering.answer(request))?;
    let jobs = open(&directory.join("jobs.redb"))?;

    // Somebody has misspelled one.
    let scheme = |number| if number == count / 3 { "htp" } else { "http" };
    let callback = |number| format!("{}://SUBSCRIBERS/{number}", scheme(number));
    let callbacks = (0..count).map(callback).collect();
    let event = Event { id: EVENT.to_owned(), callbacks };
    jobs.enqueue(NewJob::new("events", "shipment").json(&event)?.key(EVENT))?;

    let webhook = Webhook::new().timeout(Duration::from_secs(5));
    let told = AtomicUsize::new(0);
    let workers = Workers::new(&jobs)
        .queue("events", 1)
        .queue("callbacks", 16)
        .handle("shipment", fan_out)
        .handle("callback", move |job| {
            let done = call_back(job, &webhook, &address.to_string())?;
            if told.fetch_add(1, Ordering::Relaxed) == count / 2 {
                crash_at("half of them told");
            }
            Ok(done)
        })
        .start()?;
    while unfinished(&jobs)? > 0 {
        std::thread::sleep(Duration::from_millis(20));
    }
    workers.shutdown(Duration::from_secs(10));
    let told = tell(&jobs, &subscribers, count)?;
    jobs.close()?;
    Ok(told)
}

/// A callback for each subscriber: all of them in one commit with the event's acknowledgement.
fn fan_out(job: &Delivery) -> Result<Completion, Failure> {
    let event: Event = job.json()?;
    let policy = JobPolicy::new()
        .schedule(Schedule::list([Duration::from_millis(50)]))
        .keep_finished(Duration::from_secs(3_600));
    let mut done = Completion::new();
    for (number, url) in event.callbacks.into_iter().enumerate() {
        let callback = Callback { url, event: event.id.clone() };
        let key = format!("{}:{number}", event.id);
        let job = NewJob::new("callbacks", "callback").json(&callback)?.key(key);
        done = done.enqueue(job.policy(policy.clone()));
    }
    crash_at("before the fan-out");
    Ok(done)
}

fn call_back(job: &Delivery, webhook: &Webhook, address: &str) -> Result<Completion, Failure> {
    let callback: Callback = job.json()?;
    // The subscribers of this example listen wherever this process was given a port.
    let url = callback.url.replace("SUBSCRIBERS", address);
    webhook.post(&url, job.key().unwrap_or_default(), "application/json", job.payload())?;
    crash_at("posted");
    Ok(Completion::new())
}

fn unfinished(jobs: &Redrive) -> Result<u64, Box<dyn Error>> {
    let counts = jobs.stats()?.total;
    Ok(counts.ready + counts.delayed + counts.leased)
}

fn tell(jobs: &Redrive, subscribers: &Subscribers, count: usize) -> Result<Told, Box<dyn Error>> {
    let memory = subscribers.memory();
    let effects = |wanted: fn(usize) -> bool| {
        memory.requests.values().filter(|(_, told)| wanted(*told)).count()
    };
    let page = jobs.dead().list(&Filter::new().everything(), None, 100)?;
    let dead = page.jobs.into_iter().map(|job| {
        let code = job.dead.map_or_else(String::new, |dead| dead.code);
        (job.key.unwrap_or_default(), code)
    });
    Ok(Told {
        subscribers: count,
        once: effects(|told| told == 1),
        more: effects(|told| told > 1),
        posts: memory.requests.values().map(|(asked, _)| asked).sum(),
        dead: dead.collect(),
        differences: jobs.verify()?.problems.len(),
    })
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} subscribers of {EVENT}", self.subscribers)?;
        writeln!(f, "  told once: {}, more than once: {}", self.once, self.more)?;
        writeln!(f, "  posts that arrived: {}", self.posts)?;
        for (key, code) in &self.dead {
            writeln!(f, "  dead: {key} ({code})")?;
        }
        write!(f, "  differences found by verify: {}", self.differences)
    }
}

impl Told {
    /// Whether it is as it has to be.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let one_dead = matches!(self.dead.as_slice(), [(_, code)] if code == "bad_url");
        if self.once + 1 == self.subscribers && self.more == 0 && one_dead && self.differences == 0
        {
            return Ok(());
        }
        Err(format!("not as promised: {self:?}").into())
    }
}
