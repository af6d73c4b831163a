//! Every bound that is part of the contract, in one place.

/// Queue, kind: longest name in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 128;
/// Longest idempotency key in bytes.
pub(crate) const KEY_BYTES_MAX: usize = 512;
/// Default payload limit in bytes (1 MiB).
pub(crate) const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// The payload limit cannot be set above this (256 MiB): a payload is held in memory whole.
pub(crate) const PAYLOAD_BYTES_CEILING: usize = 256 * 1024 * 1024;
/// Payloads up to this many bytes live in the job's row; larger ones in a table of their own.
pub(crate) const PAYLOAD_INLINE_BYTES_MAX: usize = 512;
/// Longest stored result of a completed job in bytes.
pub(crate) const RESULT_BYTES_MAX: usize = 64 * 1024;
/// Error codes are cut to this many bytes.
pub(crate) const CODE_BYTES_MAX: usize = 64;
/// Error messages are cut to this many bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 2048;
/// Provider references are cut to this many bytes.
pub(crate) const PROVIDER_REF_BYTES_MAX: usize = 256;
/// Worker names and handler versions are cut to this many bytes.
pub(crate) const WORKER_BYTES_MAX: usize = 64;
/// History: this many first entries of a job are kept for good.
pub(crate) const HISTORY_FIRST: u32 = 4;
/// History: this many latest entries of a job are kept.
pub(crate) const HISTORY_LATEST: u32 = 28;
/// Most queues, and most kinds, that one file may know.
pub(crate) const NAMES_MAX: usize = 10_000;
/// Most distinct policies that one file may store.
pub(crate) const POLICIES_MAX: usize = 10_000;
/// Most jobs in one `enqueue_many` or one claim.
pub(crate) const BATCH_MAX: usize = 100_000;
/// Most tables of the user's own in one file.
pub(crate) const EFFECT_TABLES_MAX: usize = 1_000;
/// Longest key in a table of the user's own, in bytes.
pub(crate) const EFFECT_KEY_BYTES_MAX: usize = 1_024;
/// Most bytes that one completion or step writes along (16 MiB): keys, values and the payloads of
/// follow-up jobs. A transaction of the caller's has no such bound: what it writes stays in memory until
/// it commits. Where the store's payload limit is larger, that is the bound.
pub(crate) const WRITE_SET_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most follow-up jobs of one completion or step.
pub(crate) const FOLLOW_UPS_MAX: usize = 10_000;
/// A claim ends early when it has this many bytes of payloads in hand.
pub(crate) const CLAIM_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most steps that one job may have committed.
pub(crate) const STEPS_MAX: u32 = 256;
/// Most headers of one message.
pub(crate) const HEADERS_MAX: usize = 32;
/// Most bytes of names and values of one message's headers.
pub(crate) const HEADERS_BYTES_MAX: usize = 4_096;
/// Shortest lease in milliseconds.
pub(crate) const LEASE_MS_MIN: u64 = 10;
/// Longest lease in milliseconds (7 days).
pub(crate) const LEASE_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// Most pauses that one file may hold; they are kept in memory.
pub(crate) const PAUSES_MAX: usize = 10_000;
/// Longest hold that a throttled failure can ask for, in milliseconds (1 h).
pub(crate) const HOLD_MS_MAX: u64 = 3_600_000;
/// Longest wait that a failure can ask for, in milliseconds (24 h).
pub(crate) const RETRY_AFTER_MS_MAX: u64 = 86_400_000;

/// Most jobs that one filter may name.
pub(crate) const FILTER_IDS_MAX: usize = 10_000;
/// Reasons and notes of operators are cut to this many bytes.
pub(crate) const REASON_BYTES_MAX: usize = 256;
/// Most jobs a cohort releases at once.
pub(crate) const COHORT_BATCH_MAX: u32 = 1_000;
/// Longest time between two batches of a cohort in milliseconds (7 days).
pub(crate) const COHORT_INTERVAL_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// Records of removed dead jobs are kept up to this many, the latest ones.
pub(crate) const REMOVALS_MAX: u64 = 1_000;
/// Causes that one such record names.
pub(crate) const REMOVAL_CAUSES_MAX: usize = 16;
/// Most cohorts that have not ended.
pub(crate) const COHORTS_LIVE_MAX: usize = 100;
/// Ended cohorts are kept up to this many, the latest ones, with their members.
pub(crate) const COHORTS_ENDED_MAX: usize = 1_000;
/// Results that abort rules look at.
pub(crate) const RESULTS_MAX: u32 = 100;
/// Largest count in an abort rule.
pub(crate) const ABORT_COUNT_MAX: u64 = 1_000_000_000;
/// Longest time in an abort rule in milliseconds (7 days).
pub(crate) const ABORT_MS_MAX: u64 = 7 * 24 * 3_600_000;
/// Most redrives that a policy may allow.
pub(crate) const REDRIVES_MAX: u32 = 100;

/// Cuts `text` to at most `bytes_max` bytes, at a character boundary.
pub(crate) fn cut(mut text: String, bytes_max: usize) -> String {
    let mut end = bytes_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}
