//! The public API. Checks input and runs user code (serialisers, conversions) on the caller's thread,
//! then asks the writer.

pub(crate) mod arrivals;
pub(crate) mod claim;
pub(crate) mod cohort;
pub(crate) mod compact;
pub(crate) mod completion;
pub(crate) mod dead;
pub(crate) mod effect;
pub(crate) mod effects;
pub(crate) mod explain;
pub(crate) mod export;
pub(crate) mod health;
pub(crate) mod import;
pub(crate) mod job;
pub(crate) mod key;
pub(crate) mod lease;
pub(crate) mod lineage;
pub(crate) mod list;
pub(crate) mod message;
pub(crate) mod minutes;
pub(crate) mod new_job;
pub(crate) mod options;
pub(crate) mod outbox;
pub(crate) mod pause;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod reconcile;
pub(crate) mod redrive;
pub(crate) mod report;
pub(crate) mod settling;
pub(crate) mod stats;
pub(crate) mod step;
pub(crate) mod transact;

use crate::domain::limits::NAME_BYTES_MAX;
use crate::domain::outbox::QUEUE_PREFIX;
use crate::error::BadName;

/// Longest name of a destination in bytes: that of its queue has the prefix before it.
const DESTINATION_BYTES_MAX: usize = NAME_BYTES_MAX - QUEUE_PREFIX.len();

/// Checks a queue's, a kind's or a key's text.
pub(crate) fn check_text(text: &str, bytes_max: usize) -> Result<(), BadName> {
    if text.is_empty() {
        Err(BadName::Empty)
    } else if text.len() > bytes_max {
        Err(BadName::TooLong { bytes: text.len(), bytes_max })
    } else if text.chars().any(char::is_control) {
        Err(BadName::ControlCharacter)
    } else {
        Ok(())
    }
}

/// Checks a queue's or a kind's name.
pub(crate) fn check_name(name: &str) -> Result<(), BadName> {
    check_text(name, NAME_BYTES_MAX)
}

/// Checks the name of a queue that jobs are put into or taken from by their users. Those of
/// destinations are not among them.
pub(crate) fn check_queue(name: &str) -> Result<(), BadName> {
    check_name(name)?;
    if name.starts_with(QUEUE_PREFIX) {
        return Err(BadName::Reserved { prefix: QUEUE_PREFIX });
    }
    Ok(())
}

/// Checks the name of a destination.
pub(crate) fn check_destination(name: &str) -> Result<(), BadName> {
    check_text(name, DESTINATION_BYTES_MAX)
}
