//! Looking at jobs that are on their way.

use crate::domain::id::{Class, Instance, JobId, QueueId};
use crate::domain::job::Lane;
use crate::domain::time::Timestamp;
use crate::error::StorageError;
use crate::format::{key, record};
use crate::handle::job::JobInfo;
use crate::handle::redrive::Redrive;
use crate::store::names;
use crate::store::rows::{Row, Rows};
use crate::store::tables::TableId;

/// Rows read at a time, and the most that one page looks through.
const SLICE: usize = 1_000;
const LOOK_MAX: usize = 10_000;

/// Which jobs to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnTheirWay {
    /// By queue, kind, lane and place in line.
    Ready,
    /// By due time.
    Delayed,
    /// By the time at which the lease was to end when it was granted.
    Leased,
}

/// A page of jobs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JobPage {
    /// The jobs. May be empty although more follow, where many others had to be looked through.
    pub jobs: Vec<JobInfo>,
    /// Jobs whose rows cannot be read, and why.
    pub unreadable: Vec<(JobId, StorageError)>,
    /// Where the page ends, if there may be more.
    end: Option<Vec<u8>>,
}

impl Redrive {
    /// Up to `limit` jobs that are ready, delayed or leased: the first ones, or those that follow the
    /// page `after`; of one queue, or of all. `None` when there are no more. One page looks through
    /// 10,000 rows at the most.
    ///
    /// Each page is read as of the last commit at that moment: a job that moves between two pages may
    /// be missing or told twice.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the jobs cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// use redrive::OnTheirWay;
    ///
    /// let mut page = jobs.list(OnTheirWay::Delayed, Some("mail"), None, 100)?;
    /// while let Some(delayed) = page {
    ///     for job in &delayed.jobs {
    ///         println!("{} {:?}", job.id, job.due);
    ///     }
    ///     page = jobs.list(OnTheirWay::Delayed, Some("mail"), Some(&delayed), 100)?;
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn list(
        &self,
        which: OnTheirWay,
        queue: Option<&str>,
        after: Option<&JobPage>,
        limit: usize,
    ) -> Result<Option<JobPage>, StorageError> {
        let mut from = match after {
            // The smallest key after the last one that was looked at.
            Some(JobPage { end: Some(end), .. }) => [end.as_slice(), &[0]].concat(),
            Some(JobPage { end: None, .. }) => return Ok(None),
            None => Vec::new(),
        };
        let table = match which {
            OnTheirWay::Ready => TableId::Ready,
            OnTheirWay::Delayed => TableId::Delayed,
            OnTheirWay::Leased => TableId::Leased,
        };
        self.store().read(|rows| {
            let mut page = JobPage::default();
            let mut to = vec![u8::MAX; 19];
            let mut number = None;
            if let Some(queue) = queue {
                let known = names::queues(rows)?.iter().position(|known| known.name == queue);
                number = known.and_then(|place| u32::try_from(place).ok());
                let Some(number) = number else { return Ok(None) };
                if table == TableId::Ready {
                    let prefix = key::number(number);
                    from = from.clone().max(prefix.clone());
                    to = key::after_prefix(&prefix);
                }
            }
            let number = number.map(QueueId::new);
            let mut looked = 0;
            while page.jobs.len() < limit && looked < LOOK_MAX {
                let count = SLICE.min(LOOK_MAX - looked);
                let found = rows.range(table, &from, &to, count)?;
                let more = found.len() == count;
                for row in found {
                    if page.jobs.len() == limit {
                        break;
                    }
                    looked += 1;
                    page.look(rows, which, number, &row)?;
                    from = [row.0.as_slice(), &[0]].concat();
                    page.end = Some(row.0);
                }
                if !more {
                    break;
                }
            }
            Ok(page.end.is_some().then_some(page))
        })
    }
}

impl JobPage {
    fn look(
        &mut self,
        rows: &impl Rows,
        which: OnTheirWay,
        queue: Option<QueueId>,
        (name, value): &Row,
    ) -> Result<(), StorageError> {
        let timed = |class: Class| key::read_timed(name).map(|(_, id)| (class.queue, id));
        let found = match which {
            OnTheirWay::Ready => {
                key::read_class(name.get(..8).unwrap_or_default()).and_then(|class| {
                    record::decode::<(JobId, Timestamp)>(value).map(|(id, _)| (class.queue, id))
                })
            }
            OnTheirWay::Delayed => {
                record::decode::<(Class, Lane)>(value).and_then(|(class, _)| timed(class))
            }
            OnTheirWay::Leased => record::decode::<(Class, Lane, Instance)>(value)
                .and_then(|(class, ..)| timed(class)),
        };
        // A damaged index row is met, and mended or set aside, by whoever works on it.
        let Ok((of, id)) = found else { return Ok(()) };
        if queue.is_some_and(|queue| queue != of) {
            return Ok(());
        }
        match JobInfo::read(rows, id) {
            Ok(Some(job)) => self.jobs.push(job),
            Ok(None) => {}
            Err(why) if why.is_corrupt() => self.unreadable.push((id, why)),
            Err(why) => return Err(why),
        }
        Ok(())
    }
}
