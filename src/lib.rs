#![doc = include_str!("../README.md")]

#[cfg(any(fuzzing, feature = "test-util"))]
#[doc(hidden)]
pub mod __fuzz;
mod clock;
mod domain;
mod error;
mod format;
mod handle;
mod relay;
mod store;
#[cfg(feature = "test-util")]
pub mod testing;
mod worker;
mod writer;

#[cfg(feature = "test-util")]
pub use clock::ManualClock;
pub use clock::{Clock, Signal, SystemClock};
pub use domain::abort::{Abort, AbortReason};
pub use domain::cohort::{CohortCounts, CohortState, MemberOutcome, SkipReason};
pub use domain::count::Count;
pub use domain::explain::{Explanation, Reason};
pub use domain::failure::{Failure, FailureClass};
pub use domain::filter::{BadFilter, Filter};
pub use domain::health::{Check, Health, HealthLimits, Level, Limit};
pub use domain::history::{Death, DeliveryEnd, Finding, HistoryEntry, HistoryEvent};
pub use domain::id::{CohortId, JobId, Token};
pub use domain::job::{DeathReason, JobState, Lane};
pub use domain::key::{Asked, OnDuplicate};
pub use domain::order::OnDead;
pub use domain::outbox::MessageOrder;
pub use domain::pause::{Hold, Paused, Scope};
pub use domain::plan::{PlanError, RedrivePlan};
pub use domain::policy::{DeadKey, JobPolicy, OnUnknown};
pub use domain::removal::{Removal, RemovalReason, RemovedCause};
pub use domain::retention::{DeadRetention, Overflow, RetentionBound};
pub use domain::schedule::Schedule;
pub use domain::time::Timestamp;
pub use domain::unknown::UnknownOutcome;
pub use domain::window::Window;
pub use error::{
    AmendError, BadName, CancelError, ClaimError, CohortError, CompactError, DeadError,
    EffectError, EnqueueError, ExportError, ImportError, OpenError, PauseError, QueueError,
    RedriveError, RelayError, SettleError, StorageError, TransactError, WorkersError,
};
pub use handle::arrivals::{CauseArrivals, QuarantineArrivals};
pub use handle::claim::ClaimRequest;
pub use handle::cohort::{CohortInfo, CohortMember, Preview};
pub use handle::compact::Compacted;
pub use handle::completion::Completion;
pub use handle::dead::{Cause, Causes, DeadCursor, DeadJob, DeadPage, Discarded, Quarantine};
pub use handle::effect::{EffectKey, EffectTable, EffectValue, Json};
pub use handle::effects::Effects;
pub use handle::export::Exported;
pub use handle::import::{ImportRefusal, ImportReport};
pub use handle::job::{DeadInfo, JobInfo, LeaseInfo, MessageInfo};
pub use handle::key::{KeyInfo, KeyState};
pub use handle::lease::{Heartbeat, Lease};
pub use handle::lineage::{Lineage, Repeats};
pub use handle::list::{JobPage, OnTheirWay};
pub use handle::message::Message;
pub use handle::minutes::Minute;
pub use handle::new_job::NewJob;
pub use handle::options::Options;
pub use handle::outbox::{DestinationPolicy, OldestUnsent, OutboxStats};
pub use handle::pause::Pause;
pub use handle::queue::QueuePolicy;
pub use handle::read::{EffectRow, Reader};
pub use handle::reconcile::Reconciled;
pub use handle::redrive::Redrive;
pub use handle::report::{
    Attempts, Balance, Change, DelayedBacklog, OldestReady, QueueBalance, Report,
};
pub use handle::stats::{Counts, QueueStats, Stats};
pub use handle::step::StepInfo;
pub use redb;
pub use relay::file::FileSink;
#[cfg(feature = "http-sink")]
pub use relay::http::HttpSink;
pub use relay::outgoing::Outgoing;
pub use relay::relay::{Relay, RelayReport, RunningRelay};
pub use relay::sink::Sink;
#[cfg(feature = "http-sink")]
pub use relay::webhook::Webhook;
pub use store::verify::{Problem, VerifyReport};
pub use worker::delivery::{Delivery, StopReason};
pub use worker::unknown::Unknown;
pub use worker::workers::{RunningWorkers, Shutdown, Workers, WorkersReport};
pub use writer::Durability;
pub use writer::command::{BatchRule, Cancelled, Enqueued, SweepReport};
pub use writer::events::{Event, EventKind, Events};
pub use writer::transact::Tx;
