//! A queue's settings.

use crate::domain::order::OnDead;
use crate::domain::policy::JobPolicy;
use crate::domain::retention::DeadRetention;
use crate::error::QueueError;
use crate::handle::check_name;
use crate::handle::redrive::Redrive;
use crate::writer::command::{Command, QueueSettings};

/// A queue's own settings, stored in the file. What is not set stays as it was.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use redrive::{JobPolicy, QueuePolicy};
///
/// let policy = QueuePolicy::new().jobs(JobPolicy::new().max_deliveries(4)).retry_share(0.25);
/// jobs.set_queue("charges", policy)?;
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct QueuePolicy {
    jobs: Option<JobPolicy>,
    retry_share_percent: Option<u32>,
    on_dead: Option<OnDead>,
    retention: Option<DeadRetention>,
}

impl QueuePolicy {
    /// No changes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The policy of jobs that are enqueued without one from now on.
    #[must_use]
    pub fn jobs(mut self, policy: JobPolicy) -> Self {
        self.jobs = Some(policy);
        self
    }

    /// What a job that dies means for those behind it under the same
    /// [ordering key](crate::NewJob::order_key) (default [`OnDead::Skip`]). Stored with each job that
    /// is enqueued from now on.
    #[must_use]
    pub fn on_dead(mut self, rule: OnDead) -> Self {
        self.on_dead = Some(rule);
        self
    }

    /// How much of the queue's quarantine is kept (default: everything). Replaces what was set before.
    #[must_use]
    pub fn dead(mut self, retention: DeadRetention) -> Self {
        self.retention = Some(retention);
        self
    }

    /// The share of the queue's leases that retries may hold while fresh work waits: 0.0 to 1.0
    /// (default 0.5), in whole per cent; other values are taken as the nearer bound. Unless the
    /// share is 0, one retry may always run.
    #[must_use]
    pub fn retry_share(mut self, share: f64) -> Self {
        let percent = (share.clamp(0.0, 1.0) * 100.0).round();
        // NaN compares with nothing and becomes 0.
        self.retry_share_percent =
            (0..=100).rev().find(|&whole| f64::from(whole) <= percent).or(Some(0));
        self
    }
}

impl Redrive {
    /// Changes a queue's settings; a queue that does not exist yet comes into being.
    ///
    /// # Errors
    ///
    /// [`QueueError`]: a bad name, too many queues or policies, or the store's own trouble.
    pub fn set_queue(&self, name: &str, policy: QueuePolicy) -> Result<(), QueueError> {
        check_name(name).map_err(|why| QueueError::BadName { why })?;
        let settings = QueueSettings {
            name: name.to_owned(),
            policy: policy.jobs,
            retry_share_percent: policy.retry_share_percent,
            on_dead: policy.on_dead,
            retention: policy.retention,
            message_order: None,
        };
        self.ask(|reply| Command::SetQueue { settings, reply })?
    }
}
