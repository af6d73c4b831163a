//! What the fuzz targets need from the inside, and nothing more. Not part of the API.

use std::fmt::Debug;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::blob::Blob;
use crate::domain::cohort::{Cohort, Member};
use crate::domain::counter::{Counters, Flows};
use crate::domain::filter::DeadFacts;
use crate::domain::history::HistoryEntry;
use crate::domain::id::{Class, Instance, JobId};
use crate::domain::job::{Job, Lane, Ready};
use crate::domain::pause::Stop;
use crate::domain::plan::RedrivePlan;
use crate::domain::policy::JobPolicy;
use crate::domain::queue::Queue;
use crate::domain::removal::Removal;
use crate::domain::time::Timestamp;
use crate::format::{key, record};
use crate::store::amendment::Original;
use crate::store::meta::Meta;

/// Reads `bytes` as every kind of record and key: as they are, and as the body of a record whose
/// version and checksum are right, which chance would never find.
///
/// # Panics
///
/// When something is read that is not written again as it was read.
pub fn decode(bytes: &[u8]) {
    keys(bytes);
    records(bytes);
    records(&record::seal(bytes));
}

fn records(bytes: &[u8]) {
    one::<Blob>(bytes);
    one::<Cohort>(bytes);
    one::<Counters>(bytes);
    one::<DeadFacts>(bytes);
    one::<Flows>(bytes);
    one::<HistoryEntry>(bytes);
    one::<Job>(bytes);
    one::<JobId>(bytes);
    one::<JobPolicy>(bytes);
    one::<Member>(bytes);
    one::<Meta>(bytes);
    one::<Original>(bytes);
    one::<Queue>(bytes);
    one::<Stop>(bytes);
    one::<String>(bytes);
    one::<Vec<JobId>>(bytes);
    one::<(JobId, Timestamp)>(bytes);
    one::<(Class, Lane)>(bytes);
    one::<(Class, Lane, Instance)>(bytes);
    one::<RedrivePlan>(bytes);
    one::<Removal>(bytes);
    one::<(String, Timestamp)>(bytes);
}

/// What decodes is encoded to the same bytes. There is one exception, which no writer of ours makes:
/// an integer may be spelled with more bytes than it needs. Then the encoding is shorter, and stays.
#[expect(clippy::expect_used, reason = "a fuzz target reports by panicking")]
fn one<T: Serialize + DeserializeOwned + Debug + PartialEq>(bytes: &[u8]) {
    let Ok(value) = record::decode::<T>(bytes) else {
        return;
    };
    let encoded = record::encode(&value).expect("what was decoded can be encoded");
    if encoded.len() < bytes.len() {
        assert_eq!(record::decode(&encoded), Ok(value));
    } else {
        assert_eq!(encoded, bytes, "{value:?}");
    }
}

fn keys(bytes: &[u8]) {
    if let Ok(id) = key::read_job(bytes) {
        assert_eq!(key::job(id), bytes);
    }
    if let Ok((at, id)) = key::read_timed(bytes) {
        assert_eq!(key::timed(at, id), bytes);
    }
    if let Ok(class) = key::read_class(bytes) {
        assert_eq!(key::class(class), bytes);
    }
    if let Ok((class, minute)) = key::read_window(bytes) {
        assert_eq!(key::window(class, minute), bytes);
    }
    if let Ok(stopped) = key::read_pause(bytes) {
        assert_eq!(key::pause(stopped), bytes);
    }
    if let Ok(number) = key::read_number(bytes) {
        assert_eq!(key::number(number), bytes);
    }
    if let Ok((priority, seq)) = key::read_ready_order(bytes)
        && let Some((class, rest)) = bytes.split_at_checked(8)
        && let Ok(class) = key::read_class(class)
    {
        let lane = Lane::ALL.into_iter().find(|lane| rest.first() == Some(&lane.number()));
        let since = Timestamp::default();
        if let Some(lane) = lane {
            assert_eq!(key::ready(class, priority, Ready { lane, seq, since }), bytes);
        }
    }
}
