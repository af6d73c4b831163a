//! Charge under one key, and say so once.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Completion, Delivery, EffectTable, Enqueued, Failure, FileSink, JobPolicy, JobState, Json,
    Message, NewJob, OpenError, Outgoing, Redrive, Relay, Schedule, Sink, Workers,
};
use serde::{Deserialize, Serialize};

use super::provider::{Provider, Receipt, Repetition, Trouble, Weather};
use super::supervisor::crash_at;

const CHARGES: EffectTable<str, Json<Receipt>> = EffectTable::new("charges");

#[derive(Clone, Serialize, Deserialize)]
struct Order {
    id: String,
    cents: u64,
    weather: Vec<Weather>,
}

/// The mail service: a file to which receipts are appended.
struct Mail(FileSink);

impl Sink for Mail {
    fn deliver(&self, batch: &[Outgoing]) -> Vec<Result<(), Failure>> {
        let results = self.0.deliver(batch);
        crash_at("the receipt is sent");
        results
    }
}

/// What there is when all has ended.
#[derive(Debug)]
pub(crate) struct Told {
    /// Orders whose card is good.
    good: Vec<String>,
    /// What the provider charged, in the order in which it did.
    charged: Vec<Receipt>,
    /// Rows of the app's own table.
    rows: Vec<(String, Receipt)>,
    /// The lines in the mail service's file: sequence and order.
    receipts: Vec<(u64, String)>,
    /// Orders that are dead, and what they died of.
    dead: Vec<String>,
    /// What the queue says of each good order when it is asked for again.
    done: usize,
    /// Differences that `verify` found.
    differences: usize,
}

fn orders() -> Vec<Order> {
    let order = |number: u32, weather: &[Weather]| Order {
        id: format!("O-{number}"),
        cents: u64::from(number) * 25,
        weather: weather.to_vec(),
    };
    let mut orders: Vec<Order> = (170..190).map(|number| order(number, &[])).collect();
    orders.push(order(190, &[Weather::Down]));
    orders.push(order(191, &[Weather::Busy(30)]));
    orders.push(order(192, &[Weather::Declined]));
    orders.push(order(193, &[Weather::RequestLost]));
    orders.push(order(194, &[Weather::ResponseLost, Weather::ResponseLost]));
    orders
}

fn charge_order(order: &Order) -> Result<NewJob, Box<dyn Error>> {
    let soon = Schedule::list([Duration::from_millis(20)]);
    let policy = JobPolicy::new().schedule(soon);
    let job = NewJob::new("orders", "charge_order").json(order)?;
    Ok(job.key(format!("charge:{}", order.id)).policy(policy))
}

/// Does all of it, or what an earlier life has left of it.
pub(crate) fn run(
    directory: &Path,
    open: impl FnOnce(&Path) -> Result<Redrive, OpenError>,
) -> Result<Told, Box<dyn Error>> {
    let provider =
        Arc::new(Provider::open(&directory.join("provider.log"), Repetition::IsAnswered)?);
    let jobs = open(&directory.join("jobs.redb"))?;
    for order in orders() {
        // The checkout may ask as often as it likes: one key, one job.
        jobs.enqueue(charge_order(&order)?)?;
    }
    let charging = Arc::clone(&provider);
    let workers = Workers::new(&jobs)
        .queue("orders", 4)
        .handle("charge_order", move |job| charge(job, &charging))
        .start()?;
    let mail = Mail(FileSink::open(directory.join("receipts.jsonl"))?);
    let relay = Relay::new(&jobs).sink("receipts", mail).start()?;
    while unfinished(&jobs)? > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    workers.shutdown(Duration::from_secs(10));
    relay.shutdown(Duration::from_secs(10));
    let told = tell(&jobs, &provider, directory)?;
    jobs.close()?;
    Ok(told)
}

fn charge(job: &Delivery, provider: &Provider) -> Result<Completion, Failure> {
    let order: Order = job.json()?;
    crash_at("before the charge");
    let charged = provider.request(job.key().unwrap_or_default(), order.cents, &order.weather);
    crash_at("charged");
    let receipt = match charged {
        Ok(receipt) => receipt,
        Err(Trouble::Declined) => return Err(Failure::permanent("card_declined")),
        Err(Trouble::Busy(wait)) => return Err(Failure::throttled("429").retry_after(wait)),
        Err(Trouble::Down) => return Err(Failure::transient("503")),
        // Not a failure that is known to be one: it may have charged.
        Err(Trouble::Lost(reference)) => {
            return Err(Failure::ambiguous("response_lost").provider_ref(reference));
        }
    };
    let mail = Message::to("receipts").key(format!("receipt:{}", order.id));
    // The row, the receipt's message and the acknowledgement: all of them, or none.
    let mail = mail.bytes(order.id.as_bytes());
    Ok(Completion::new().put(CHARGES, order.id.as_str(), &receipt).emit(mail))
}

fn unfinished(jobs: &Redrive) -> Result<u64, Box<dyn Error>> {
    let counts = jobs.stats()?.total;
    Ok(counts.ready + counts.delayed + counts.leased + counts.blocked)
}

fn tell(jobs: &Redrive, provider: &Provider, directory: &Path) -> Result<Told, Box<dyn Error>> {
    #[derive(Deserialize)]
    struct Line {
        sequence: u64,
        payload: String,
    }
    let good: Vec<Order> = orders().into_iter().filter(|order| order.id != "O-192").collect();
    let mut done = 0;
    for order in &good {
        let again = jobs.enqueue(charge_order(order)?)?;
        done += usize::from(matches!(again, Enqueued::Duplicate { state: JobState::Done, .. }));
    }
    let lines = std::fs::read_to_string(directory.join("receipts.jsonl"))?;
    let line = |line| {
        let line: Line = serde_json::from_str(line)?;
        Ok::<_, Box<dyn Error>>((line.sequence, line.payload))
    };
    let dead = jobs.dead().list(&redrive::Filter::new().everything(), None, 100)?.jobs;
    Ok(Told {
        good: good.into_iter().map(|order| order.id).collect(),
        charged: provider.all(),
        rows: jobs.read(|reader| reader.range(CHARGES, .., 1_000))?,
        receipts: lines.lines().map(line).collect::<Result<_, _>>()?,
        dead: dead.into_iter().filter_map(|job| Some(job.dead?.code)).collect(),
        done,
        differences: jobs.verify()?.problems.len(),
    })
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (good, charged, rows) = (self.good.len(), self.charged.len(), self.rows.len());
        writeln!(f, "{good} orders with a good card: {charged} charged, {rows} rows")?;
        writeln!(f, "  receipts sent: {}", self.receipts.len())?;
        writeln!(f, "  dead: {}", self.dead.join(", "))?;
        write!(f, "  differences found by verify: {}", self.differences)
    }
}

impl Told {
    /// Whether every order was charged once, has its receipt once, and the books agree.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let sorted = |mut names: Vec<String>| {
            names.sort_unstable();
            names
        };
        let charged = self.charged.iter().map(|receipt| receipt.key.replace("charge:", ""));
        let charged_once = sorted(charged.collect()) == self.good;
        let same = |(order, row): &(String, Receipt)| {
            self.charged.iter().any(|done| done == row && done.key == format!("charge:{order}"))
        };
        let rows_agree = self.rows.len() == self.good.len() && self.rows.iter().all(same);
        let sent = self.receipts.iter().map(|(_, order)| order.clone());
        let sent_once = sorted(sent.collect()) == self.good;
        let numbered = self.receipts.iter().zip(1..).all(|((found, _), due)| *found == due);
        let books = self.done == self.good.len() && self.differences == 0;
        if charged_once
            && rows_agree
            && sent_once
            && numbered
            && books
            && self.dead == ["card_declined"]
        {
            return Ok(());
        }
        Err(format!("not as promised: {self:?}").into())
    }
}
