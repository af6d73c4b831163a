//! Refund, and find out before repeating.

use std::error::Error;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use redrive::{
    Completion, Delivery, EffectTable, Failure, JobPolicy, Json, NewJob, OnUnknown, OpenError,
    Reconciled, Redrive, Schedule, Unknown, Workers,
};
use serde::{Deserialize, Serialize};

use super::provider::{Found, Provider, Receipt, Repetition, Trouble, Weather};
use super::supervisor::crash_at;

const REFUNDS: EffectTable<str, Json<Receipt>> = EffectTable::new("refunds");

/// Shorter than what the provider takes for R-88.
const LEASE: Duration = Duration::from_millis(500);

#[derive(Clone, Serialize, Deserialize)]
struct Refund {
    id: String,
    cents: u64,
    weather: Vec<Weather>,
}

/// What there is when all has ended.
#[derive(Debug)]
pub(crate) struct Told {
    refunds: usize,
    /// Refunds that the provider paid, in the order in which it paid them.
    paid: Vec<Receipt>,
    /// Rows of the app's own table.
    rows: Vec<(String, Receipt)>,
    /// What reconcilers found.
    happened: u64,
    did_not_happen: u64,
    leases_expired: u64,
    /// Differences that `verify` found.
    differences: usize,
}

fn refunds() -> Vec<Refund> {
    let refund = |number: u32, weather: &[Weather]| Refund {
        id: format!("R-{number}"),
        cents: u64::from(number) * 100,
        weather: weather.to_vec(),
    };
    let mut refunds: Vec<Refund> = (60..80).map(|number| refund(number, &[])).collect();
    refunds.push(refund(85, &[Weather::Down]));
    refunds.push(refund(86, &[Weather::RequestLost]));
    refunds.push(refund(87, &[Weather::ResponseLost]));
    refunds.push(refund(88, &[Weather::Slow(1_200)]));
    refunds
}

/// Does all of it, or what an earlier life has left of it.
pub(crate) fn run(
    directory: &Path,
    open: impl FnOnce(&Path) -> Result<Redrive, OpenError>,
) -> Result<Told, Box<dyn Error>> {
    let provider = Arc::new(Provider::open(&directory.join("provider.log"), Repetition::IsDone)?);
    let jobs = open(&directory.join("jobs.redb"))?;

    let soon = Schedule::list([Duration::from_millis(20)]);
    let policy = JobPolicy::new()
        .lease(LEASE)
        .on_unknown(OnUnknown::Reconcile)
        .schedule(soon.clone())
        .reconcile_schedule(soon)
        .reconciles_max(1_000);
    for refund in refunds() {
        let job =
            NewJob::new("refunds", "refund").json(&refund)?.key(format!("refund:{}", refund.id));
        jobs.enqueue(job.policy(policy.clone()))?;
    }

    let (paying, finding) = (Arc::clone(&provider), Arc::clone(&provider));
    let workers = Workers::new(&jobs)
        .queue("refunds", 4)
        .handle("refund", move |job| refund(job, &paying))
        .reconcile("refund", move |unknown| find(unknown, &finding))
        .start()?;
    while unfinished(&jobs)? > 0 {
        std::thread::sleep(Duration::from_millis(10));
    }
    workers.shutdown(Duration::from_secs(10));
    let told = tell(&jobs, &provider)?;
    jobs.close()?;
    Ok(told)
}

fn refund(job: &Delivery, provider: &Provider) -> Result<Completion, Failure> {
    let refund: Refund = job.json()?;
    crash_at("before the refund");
    let paid = provider.request(job.key().unwrap_or_default(), refund.cents, &refund.weather);
    crash_at("refunded");
    match paid {
        Ok(receipt) => Ok(done(&refund, &receipt)),
        Err(Trouble::Declined) => Err(Failure::permanent("declined")),
        Err(Trouble::Busy(wait)) => Err(Failure::throttled("429").retry_after(wait)),
        Err(Trouble::Down) => Err(Failure::transient("503")),
        Err(Trouble::Lost(reference)) => {
            Err(Failure::ambiguous("response_lost").provider_ref(reference))
        }
    }
}

/// An earlier delivery may have paid, or be paying still: the provider's books say.
fn find(unknown: &Unknown, provider: &Provider) -> Result<Reconciled, Failure> {
    let refund: Refund = unknown.json()?;
    crash_at("reconciling");
    Ok(match provider.find(unknown.key().unwrap_or_default()) {
        Found::Done(receipt) => Reconciled::Happened(done(&refund, &receipt)),
        Found::Working => Reconciled::StillUnknown,
        Found::Nothing => Reconciled::DidNotHappen,
    })
}

/// The row and the acknowledgement, together.
fn done(refund: &Refund, receipt: &Receipt) -> Completion {
    Completion::new().put(REFUNDS, refund.id.as_str(), receipt)
}

fn unfinished(jobs: &Redrive) -> Result<u64, Box<dyn Error>> {
    let counts = jobs.stats()?.total;
    Ok(counts.ready + counts.delayed + counts.leased)
}

fn tell(jobs: &Redrive, provider: &Provider) -> Result<Told, Box<dyn Error>> {
    let stats = jobs.stats()?;
    let flow = |name| stats.total.flows.get(name).copied().unwrap_or_default();
    let rows = jobs.read(|reader| reader.range(REFUNDS, .., 1_000))?;
    Ok(Told {
        refunds: refunds().len(),
        paid: provider.all(),
        rows,
        happened: flow("reconciled_happened"),
        did_not_happen: flow("reconciled_did_not_happen"),
        leases_expired: flow("lease_expired"),
        differences: jobs.verify()?.problems.len(),
    })
}

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} refunds, {} paid, {} rows",
            self.refunds,
            self.paid.len(),
            self.rows.len()
        )?;
        writeln!(
            f,
            "  asked before repeating: {} had happened, {} had not",
            self.happened, self.did_not_happen
        )?;
        writeln!(f, "  leases that ran out: {}", self.leases_expired)?;
        write!(f, "  differences found by verify: {}", self.differences)
    }
}

impl Told {
    /// Whether every refund was paid once, and the rows say the same.
    pub(crate) fn check(&self) -> Result<(), Box<dyn Error>> {
        let mut keys: Vec<&str> = self.paid.iter().map(|receipt| receipt.key.as_str()).collect();
        keys.sort_unstable();
        keys.dedup();
        let paid_once = keys.len() == self.paid.len() && keys.len() == self.refunds;
        let same = |(id, row): &(String, Receipt)| {
            self.paid.iter().any(|paid| paid == row && paid.key == format!("refund:{id}"))
        };
        let rows_agree = self.rows.len() == self.refunds && self.rows.iter().all(same);
        if paid_once && rows_agree && self.differences == 0 {
            return Ok(());
        }
        Err(format!("not as promised: {self:?}").into())
    }
}
