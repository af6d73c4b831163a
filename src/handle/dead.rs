//! Looking at the quarantine.

use crate::domain::filter::Filter;
use crate::domain::id::JobId;
use crate::error::StorageError;
use crate::handle::job::JobInfo;
use crate::handle::redrive::Redrive;
use crate::store::dead::{self, DeadRow, Scope};
use crate::store::names::Known;

/// A page of dead jobs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DeadPage {
    /// The jobs, by queue, kind and time of death.
    pub jobs: Vec<JobInfo>,
    /// Jobs whose rows cannot be read, and why.
    pub unreadable: Vec<(JobId, StorageError)>,
    /// Where the page ends, if there may be more.
    end: Option<Vec<u8>>,
}

impl Redrive {
    /// Up to `limit` dead jobs with their evidence: the first ones, or those that follow the page
    /// `after`; of one queue, or of all. `None` when there are no more.
    ///
    /// Each page is read as of the last commit at that moment: a job that dies or leaves the
    /// quarantine between two pages may be missing, but none is told twice.
    ///
    /// # Errors
    ///
    /// [`StorageError`] when the quarantine cannot be read.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
    /// let mut page = jobs.dead_page(None, None, 100)?;
    /// while let Some(dead) = page {
    ///     for job in &dead.jobs {
    ///         println!("{} {:?}", job.id, job.dead);
    ///     }
    ///     page = jobs.dead_page(None, Some(&dead), 100)?;
    /// }
    /// # Ok::<_, Box<dyn std::error::Error>>(())
    /// ```
    pub fn dead_page(
        &self,
        queue: Option<&str>,
        after: Option<&DeadPage>,
        limit: usize,
    ) -> Result<Option<DeadPage>, StorageError> {
        self.store().read(|rows| {
            let filter = queue.map_or(Filter::new(), |queue| Filter::new().queue(queue));
            let scope = Scope::of(&filter, &Known::read(rows)?);
            let after = after.and_then(|page| page.end.as_deref());
            let mut page = DeadPage::default();
            for DeadRow { name, id, .. } in dead::scan(rows, &scope, after, limit)?.found {
                match JobInfo::read(rows, id) {
                    Ok(Some(job)) => page.jobs.push(job),
                    Ok(None) => {
                        let why = StorageError::corrupt("the job's row is missing");
                        page.unreadable.push((id, why));
                    }
                    Err(why) if why.is_corrupt() => page.unreadable.push((id, why)),
                    Err(why) => return Err(why),
                }
                page.end = Some(name);
            }
            Ok(page.end.is_some().then_some(page))
        })
    }
}
