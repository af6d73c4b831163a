//! Keys: fixed-width big-endian integers, so that byte order is number order; a trailing string
//! needs no terminator.

use crate::domain::id::{Class, CohortId, JobId, KindId, QueueId};
use crate::domain::job::{Job, Ready, State};
use crate::domain::order::{Standing, standing};
use crate::domain::pause::Stopped;
use crate::domain::time::Timestamp;
use crate::format::Damage;

/// Builds a key piece by piece.
#[derive(Default)]
struct Builder(Vec<u8>);

impl Builder {
    fn class(self, class: Class) -> Self {
        self.u32(class.queue.get()).u32(class.kind.get())
    }

    fn u32(mut self, number: u32) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn u64(mut self, number: u64) -> Self {
        self.0.extend_from_slice(&number.to_be_bytes());
        self
    }

    fn u8(mut self, number: u8) -> Self {
        self.0.push(number);
        self
    }
}

fn new() -> Builder {
    Builder(Vec::with_capacity(24))
}

/// `jobs`, `payloads`, `amendments`: id.
pub(crate) fn job(id: JobId) -> Vec<u8> {
    new().u64(id.get()).0
}

/// `ready`: queue, kind, lane, 255 - priority, sequence.
pub(crate) fn ready(class: Class, priority: u8, ready: Ready) -> Vec<u8> {
    new().class(class).u8(ready.lane.number()).u8(u8::MAX - priority).u64(ready.seq).0
}

/// The part of a `dead` key that names the queue.
pub(crate) fn dead_queue(queue: QueueId) -> Vec<u8> {
    new().u32(queue.get()).0
}

/// The part of a `ready` key that names the class and the lane.
pub(crate) fn ready_lane(class: Class, lane: u8) -> Vec<u8> {
    new().class(class).u8(lane).0
}

/// `delayed` and `leased`: time, id.
pub(crate) fn timed(at: Timestamp, id: JobId) -> Vec<u8> {
    new().u64(at.as_millis()).u64(id.get()).0
}

/// `dead`: queue, kind, time, id.
pub(crate) fn dead(class: Class, died_at: Timestamp, id: JobId) -> Vec<u8> {
    new().class(class).u64(died_at.as_millis()).u64(id.get()).0
}

/// `keys`: queue, then the key's own bytes.
pub(crate) fn key(queue: QueueId, key: &str) -> Vec<u8> {
    let mut builder = new().u32(queue.get());
    builder.0.extend_from_slice(key.as_bytes());
    builder.0
}

/// `order`: queue, ordering key, 0, standing, id. Ordering keys hold no control characters, so the 0
/// ends them.
pub(crate) fn order(queue: QueueId, name: &str, standing: Standing, id: JobId) -> Vec<u8> {
    let builder = Builder(order_standing(queue, name, standing));
    builder.u64(id.get()).0
}

/// The part of an `order` key that names queue and ordering key.
pub(crate) fn order_key(queue: QueueId, name: &str) -> Vec<u8> {
    let mut builder = new().u32(queue.get());
    builder.0.extend_from_slice(name.as_bytes());
    builder.u8(0).0
}

/// The part of an `order` key before the job.
pub(crate) fn order_standing(queue: QueueId, name: &str, standing: Standing) -> Vec<u8> {
    Builder(order_key(queue, name)).u8(standing.number()).0
}

/// `outbox`: queue, sequence.
pub(crate) fn outbox(queue: QueueId, sequence: u64) -> Vec<u8> {
    new().u32(queue.get()).u64(sequence).0
}

/// The `order` row of `job_row`, if it has one.
pub(crate) fn order_row(job_row: &Job) -> Option<Vec<u8>> {
    let (claim, standing) = standing(job_row)?;
    Some(order(job_row.class.queue, &claim.key, standing, job_row.id))
}

/// `history`: id, entry number.
pub(crate) fn history(id: JobId, entry: u32) -> Vec<u8> {
    new().u64(id.get()).u32(entry).0
}

/// `counters`: queue, kind.
pub(crate) fn class(class: Class) -> Vec<u8> {
    new().class(class).0
}

/// `windows`: queue, kind, minute.
pub(crate) fn window(class: Class, minute: u64) -> Vec<u8> {
    new().class(class).u64(minute).0
}

/// `queues`, `kinds`, `policies`: the number.
pub(crate) fn number(number: u32) -> Vec<u8> {
    new().u32(number).0
}

/// `pauses`: what, then queue and kind as far as it names them.
pub(crate) fn pause(stopped: Stopped) -> Vec<u8> {
    match stopped {
        Stopped::Queue(queue) => new().u8(0).u32(queue.get()).0,
        Stopped::Class(class) => new().u8(0).class(class).0,
        Stopped::Redrive => new().u8(1).0,
        Stopped::RedriveClass(class) => new().u8(1).class(class).0,
        Stopped::HeldQueue(queue) => new().u8(2).u32(queue.get()).0,
        Stopped::HeldClass(class) => new().u8(2).class(class).0,
    }
}

/// `damaged`: table number, then the damaged row's key.
pub(crate) fn damaged(table: u8, row: &[u8]) -> Vec<u8> {
    let mut builder = new().u8(table);
    builder.0.extend_from_slice(row);
    builder.0
}

/// `effect_rows`: table number, then the row's own key.
pub(crate) fn effect_row(table: u32, key: &[u8]) -> Vec<u8> {
    let mut builder = new().u32(table);
    builder.0.extend_from_slice(key);
    builder.0
}

/// `removals`: the number.
pub(crate) fn removal(number: u64) -> Vec<u8> {
    new().u64(number).0
}

/// `cohorts`: id, and which part of it.
pub(crate) fn cohort(id: CohortId, part: u8) -> Vec<u8> {
    new().u64(id.get()).u8(part).0
}

/// `cohort_members`: cohort, job; so that members stand in the order in which they were accepted.
pub(crate) fn member(cohort: CohortId, job: JobId) -> Vec<u8> {
    new().u64(cohort.get()).u64(job.get()).0
}

/// The part of a `cohort_members` key that names the cohort.
pub(crate) fn members(cohort: CohortId) -> Vec<u8> {
    new().u64(cohort.get()).0
}

/// The part of a `dead` key that names the class.
pub(crate) fn dead_class(class: Class) -> Vec<u8> {
    new().class(class).0
}

/// `effects`: id, then the step's name.
pub(crate) fn marker(id: JobId, name: &str) -> Vec<u8> {
    let mut builder = new().u64(id.get());
    builder.0.extend_from_slice(name.as_bytes());
    builder.0
}

/// The key of the state table's row for `job`, without saying which table that is.
pub(crate) fn state(job_row: &Job) -> Option<Vec<u8>> {
    match &job_row.state {
        State::Ready(state) => Some(ready(job_row.class, job_row.priority, *state)),
        State::Delayed(state) => Some(timed(state.due, job_row.id)),
        State::Leased(state) => Some(timed(state.deadline, job_row.id)),
        State::Dead(state) => Some(dead(job_row.class, state.died_at, job_row.id)),
        State::Blocked(_) => order_row(job_row),
        State::Done(_) | State::Cancelled(_) => None,
    }
}

/// Reads the id of a `jobs` row.
pub(crate) fn read_job(bytes: &[u8]) -> Result<JobId, Damage> {
    let (id, rest) = take_u64(bytes)?;
    end(rest)?;
    Ok(JobId::new(id))
}

/// Reads time and id of a `delayed`, `leased` or `tombstones` row.
pub(crate) fn read_timed(bytes: &[u8]) -> Result<(Timestamp, JobId), Damage> {
    let (at, rest) = take_u64(bytes)?;
    let (id, rest) = take_u64(rest)?;
    end(rest)?;
    Ok((Timestamp::from_millis(at), JobId::new(id)))
}

/// Reads class, time and id of a `dead` row.
pub(crate) fn read_dead(bytes: &[u8]) -> Result<(Class, Timestamp, JobId), Damage> {
    let (class, rest) = bytes.split_at_checked(8).ok_or(Damage("a key is too short"))?;
    let (died_at, id) = read_timed(rest)?;
    Ok((read_class(class)?, died_at, id))
}

/// Reads id and part of a `cohorts` row.
pub(crate) fn read_cohort(bytes: &[u8]) -> Result<(CohortId, u8), Damage> {
    let (id, rest) = take_u64(bytes)?;
    let Some((&part, rest)) = rest.split_first() else {
        return Err(Damage("a key is too short"));
    };
    end(rest)?;
    Ok((CohortId::new(id), part))
}

/// Reads cohort and job of a `cohort_members` row.
pub(crate) fn read_member(bytes: &[u8]) -> Result<(CohortId, JobId), Damage> {
    let (cohort, rest) = take_u64(bytes)?;
    let (id, rest) = take_u64(rest)?;
    end(rest)?;
    Ok((CohortId::new(cohort), JobId::new(id)))
}

/// Reads standing and id of an `order` row.
pub(crate) fn read_order(bytes: &[u8]) -> Result<(Standing, JobId), Damage> {
    let (prefix, id) = bytes.split_last_chunk().ok_or(Damage("a key is too short"))?;
    let id = JobId::new(u64::from_be_bytes(*id));
    match prefix {
        [_, _, _, _, .., 0, 0] => Ok((Standing::Holds, id)),
        [_, _, _, _, .., 0, 1] => Ok((Standing::Waits, id)),
        _ => Err(Damage("an order row's key makes no sense")),
    }
}

/// Reads queue and sequence of an `outbox` row.
pub(crate) fn read_outbox(bytes: &[u8]) -> Result<(QueueId, u64), Damage> {
    let (queue, rest) = take_u32(bytes)?;
    let (sequence, rest) = take_u64(rest)?;
    end(rest)?;
    Ok((QueueId::new(queue), sequence))
}

/// Reads queue and ordering key of an `order` row.
pub(crate) fn read_order_key(bytes: &[u8]) -> Result<(QueueId, &str), Damage> {
    let (queue, rest) = take_u32(bytes)?;
    let end = rest.len().checked_sub(10).ok_or(Damage("a key is too short"))?;
    let name = rest.get(..end).and_then(|name| std::str::from_utf8(name).ok());
    Ok((QueueId::new(queue), name.ok_or(Damage("an ordering key is not a text"))?))
}

/// Reads priority and sequence of a `ready` row.
pub(crate) fn read_ready_order(bytes: &[u8]) -> Result<(u8, u64), Damage> {
    let (_, rest) = take_u64(bytes)?;
    let Some((&[_lane, inverted], rest)) = rest.split_first_chunk() else {
        return Err(Damage("a key is too short"));
    };
    let (seq, rest) = take_u64(rest)?;
    end(rest)?;
    Ok((u8::MAX - inverted, seq))
}

/// Reads the class of a `counters` row.
pub(crate) fn read_class(bytes: &[u8]) -> Result<Class, Damage> {
    let (queue, rest) = take_u32(bytes)?;
    let (kind, rest) = take_u32(rest)?;
    end(rest)?;
    Ok(Class { queue: QueueId::new(queue), kind: KindId::new(kind) })
}

/// Reads class and minute of a `windows` row.
pub(crate) fn read_window(bytes: &[u8]) -> Result<(Class, u64), Damage> {
    let Some((class, rest)) = bytes.split_at_checked(8) else {
        return Err(Damage("a key is too short"));
    };
    let (minute, rest) = take_u64(rest)?;
    end(rest)?;
    Ok((read_class(class)?, minute))
}

/// Reads what a `pauses` row is of.
pub(crate) fn read_pause(bytes: &[u8]) -> Result<Stopped, Damage> {
    let Some((&[what], rest)) = bytes.split_first_chunk() else {
        return Err(Damage("a key is too short"));
    };
    let queue = || Ok(QueueId::new(read_number(rest)?));
    match (what, rest.len()) {
        (0, 4) => queue().map(Stopped::Queue),
        (0, _) => read_class(rest).map(Stopped::Class),
        (1, 0) => Ok(Stopped::Redrive),
        (1, _) => read_class(rest).map(Stopped::RedriveClass),
        (2, 4) => queue().map(Stopped::HeldQueue),
        (2, _) => read_class(rest).map(Stopped::HeldClass),
        _ => Err(Damage("a key has an unknown first byte")),
    }
}

/// Reads the number of a `queues`, `kinds` or `policies` row.
pub(crate) fn read_number(bytes: &[u8]) -> Result<u32, Damage> {
    let (number, rest) = take_u32(bytes)?;
    end(rest)?;
    Ok(number)
}

/// Reads id and step name of an `effects` row.
pub(crate) fn read_marker(bytes: &[u8]) -> Result<(JobId, &str), Damage> {
    let (id, name) = take_u64(bytes)?;
    let name = std::str::from_utf8(name).map_err(|_| Damage("a step's name is no text"))?;
    Ok((JobId::new(id), name))
}

/// Reads table number and own key of an `effect_rows` row.
pub(crate) fn read_effect_row(bytes: &[u8]) -> Result<(u32, &[u8]), Damage> {
    take_u32(bytes)
}

/// The smallest key after every key that begins with `prefix`.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Every byte was 0xff: nothing of ours begins so; an end past all keys of our widths.
    vec![u8::MAX; prefix.len() + 32]
}

fn take_u64(bytes: &[u8]) -> Result<(u64, &[u8]), Damage> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Damage("a key is too short"))?;
    Ok((u64::from_be_bytes(*number), rest))
}

fn take_u32(bytes: &[u8]) -> Result<(u32, &[u8]), Damage> {
    let (number, rest) = bytes.split_first_chunk().ok_or(Damage("a key is too short"))?;
    Ok((u32::from_be_bytes(*number), rest))
}

fn end(rest: &[u8]) -> Result<(), Damage> {
    if rest.is_empty() { Ok(()) } else { Err(Damage("a key is too long")) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::job::Lane;

    proptest! {
        /// O-19: byte order in `ready` is claim order, so that a claim is the first row of a range.
        #[test]
        fn ready_keys_sort_as_claims_do(a: (u8, u64), b: (u8, u64)) {
            let class = Class { queue: QueueId::new(1), kind: KindId::new(2) };
            let key = |(priority, seq)| {
                ready(class, priority, Ready { lane: Lane::Fresh, seq, since: Timestamp::MAX })
            };
            let order = |(priority, seq): (u8, u64)| (u8::MAX - priority, seq);
            prop_assert_eq!(key(a).cmp(&key(b)), order(a).cmp(&order(b)));
            prop_assert_eq!(read_ready_order(&key(a)), Ok(a));
        }

        /// O-26: the rows of one ordering key stand together, holders first, then by acceptance.
        #[test]
        fn order_rows_stand_by_key_then_standing_then_acceptance(
            a in ("[a-c]{0,3}", any::<bool>(), any::<u64>()),
            b in ("[a-c]{0,3}", any::<bool>(), any::<u64>()),
        ) {
            let queue = QueueId::new(7);
            let of = |waits| if waits { Standing::Waits } else { Standing::Holds };
            let key = |one: &(String, bool, u64)| {
                order(queue, &one.0, of(one.1), JobId::new(one.2))
            };
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
            prop_assert_eq!(read_order(&key(&a)), Ok((of(a.1), JobId::new(a.2))));
            let within = key(&b).starts_with(&order_key(queue, &a.0));
            prop_assert_eq!(within, a.0 == b.0);
        }

        #[test]
        fn timed_keys_sort_by_time(a: (u64, u64), b: (u64, u64)) {
            let key = |(at, id)| timed(Timestamp::from_millis(at), JobId::new(id));
            prop_assert_eq!(key(a).cmp(&key(b)), a.cmp(&b));
            prop_assert_eq!(read_timed(&key(a)), Ok((Timestamp::from_millis(a.0), JobId::new(a.1))));
        }

        #[test]
        fn a_prefix_ends_after_all_its_keys(prefix: Vec<u8>, rest: Vec<u8>) {
            prop_assume!(!prefix.iter().all(|&byte| byte == u8::MAX));
            let key: Vec<u8> = prefix.iter().chain(&rest).copied().collect();
            prop_assert!(key < after_prefix(&prefix));
        }

        #[test]
        fn arbitrary_key_bytes_never_panic(bytes: Vec<u8>) {
            let _ = (read_job(&bytes), read_timed(&bytes), read_ready_order(&bytes));
            let _ = (read_class(&bytes), read_number(&bytes), read_pause(&bytes));
            let _ = (read_outbox(&bytes), read_effect_row(&bytes), read_order(&bytes), read_order_key(&bytes));
            let _ = (read_dead(&bytes), read_cohort(&bytes), read_member(&bytes));
            let _ = (read_window(&bytes), read_marker(&bytes));
        }
    }
}
