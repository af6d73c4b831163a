//! I/O errors (P14): every caller is told, the handle latches, and what was acknowledged is there
//! when the store is opened again.

use std::io::ErrorKind;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redrive::testing::{CrashDisk, FaultBackend, FaultSwitch, Survival, Times};
use redrive::{
    BatchRule, ClaimError, ClaimRequest, Completion, EffectTable, EnqueueError, Enqueued, JobId,
    NewJob, Options, Redrive, SettleError, StorageError, TransactError,
};

use crate::support::check;

const KINDS: [ErrorKind; 3] = [ErrorKind::StorageFull, ErrorKind::TimedOut, ErrorKind::Other];

/// A small page cache, so that reads reach the backend too.
fn open(disk: &CrashDisk) -> (Redrive, FaultSwitch) {
    let (backend, switch) = FaultBackend::new(disk.backend());
    let options = Options::new().cache_bytes(1024 * 1024);
    (options.open_backend(backend).unwrap(), switch)
}

/// A row for every job that is done (P6).
const COUNT: EffectTable<JobId, u64> = EffectTable::new("count");

/// What was acknowledged in a life of a few jobs that a fault may end at any point.
#[derive(Default)]
struct Acked {
    enqueued: Vec<JobId>,
    done: Vec<JobId>,
}

/// Lives until the first error, which it returns.
fn live(jobs: &Redrive, acked: &mut Acked) -> Result<(), StorageError> {
    for round in 0..6 {
        for part in 0..3 {
            let payload = vec![part; if part == 2 { 3_000 } else { 10 }];
            let job = NewJob::new("q", "k").bytes(payload).key(format!("{round}-{part}"));
            match jobs.enqueue(job) {
                Ok(enqueued) => acked.enqueued.push(enqueued.job()),
                Err(EnqueueError::Storage(error)) => return Err(error),
                Err(other) => panic!("{other}"),
            }
        }
        let claimed = jobs.claim(ClaimRequest::new("q").up_to(2)).map_err(|error| match error {
            ClaimError::Storage(error) => error,
            other => panic!("{other}"),
        })?;
        for (place, lease) in claimed.into_iter().enumerate() {
            let id = lease.id();
            let done = match place {
                0 => lease.complete_with(Completion::new().put(COUNT, &id, &round)),
                _ => jobs
                    .transact(|tx| {
                        tx.put(COUNT, &id, &round)?;
                        tx.complete(&lease, Completion::new())
                    })
                    .map_err(|error| match error {
                        TransactError::Storage(error) => SettleError::Storage(error),
                        other => panic!("{other}"),
                    }),
            };
            match done {
                Ok(()) => acked.done.push(id),
                Err(SettleError::Storage(error)) => return Err(error),
                Err(other) => panic!("{other}"),
            }
        }
    }
    Ok(())
}

/// Everything acknowledged is there, whatever became of the writes that were not synced.
fn check_after(disk: &CrashDisk, acked: &Acked, what: &str) {
    for survival in [Survival::Everything, Survival::Nothing, Survival::Torn(1)] {
        let left = CrashDisk::from_image(disk.image(survival));
        let jobs = Options::new().open_backend(left.backend()).unwrap();
        check(&jobs);
        for id in &acked.enqueued {
            let found = jobs.job(*id).unwrap();
            assert!(found.is_some(), "{what}, {survival:?}: job {id} is lost");
            let done = found.unwrap().finished_at.is_some();
            // A completion that was not acknowledged may have happened.
            assert!(done || !acked.done.contains(id), "{what}, {survival:?}: job {id} is undone");
            let counted = jobs.read(|r| r.get(COUNT, id)).unwrap().is_some();
            assert_eq!(counted, done, "{what}, {survival:?}: job {id} and its effect differ");
        }
        // One more call was in flight at most.
        let enqueued = jobs.stats().unwrap().total.flow("enqueued");
        let known = u64::try_from(acked.enqueued.len()).unwrap();
        assert!((known..=known + 1).contains(&enqueued), "{what}, {survival:?}: {enqueued}");
    }
}

#[test]
fn any_failing_call_latches_and_loses_nothing() {
    let (jobs, switch) = open(&CrashDisk::new());
    let first = switch.calls();
    live(&jobs, &mut Acked::default()).unwrap();
    let calls = first..switch.calls();
    assert!(calls.end - calls.start > 100, "{calls:?}");
    for call in calls {
        for times in [Times::Once, Times::Forever] {
            let kind = KINDS[usize::try_from(call % 3).unwrap()];
            let what = format!("call {call} fails {times:?} with {kind:?}");
            let disk = CrashDisk::new();
            let (jobs, switch) = open(&disk);
            switch.fail(call, times, kind);
            let mut acked = Acked::default();
            let lived = live(&jobs, &mut acked);
            // The calls of two runs may differ by a few; the last ones are not always reached.
            if switch.struck() == 0 {
                continue;
            }
            let cause = lived.expect_err(&what);
            assert!(cause.is_io() && cause.is_poisoned(), "{what}: {cause:?}");
            latched(&jobs, &what);
            drop(jobs);
            check_after(&disk, &acked, &what);
        }
    }
}

/// Every writing call gets the first cause; reading goes on or says why not.
fn latched(jobs: &Redrive, what: &str) {
    let cause = jobs.poisoned().expect(what).to_string();
    let told = |error: StorageError| {
        assert!(error.is_poisoned(), "{what}: {error:?}");
        assert_eq!(error.to_string(), cause, "{what}");
    };
    match jobs.enqueue(NewJob::new("q", "k")) {
        Err(EnqueueError::Storage(error)) => told(error),
        other => panic!("{what}: {other:?}"),
    }
    match jobs.claim(ClaimRequest::new("q").wait(Duration::from_secs(3_600))) {
        Err(ClaimError::Storage(error)) => told(error),
        other => panic!("{what}: {other:?}"),
    }
    told(jobs.sweep().unwrap_err());
    if let Err(error) = jobs.stats() {
        assert!(error.is_io(), "{what}: {error:?}");
    }
    told(jobs.clone().close().unwrap_err());
}

/// Callers of every kind that wait for the same commit, and claims that wait for work, are all
/// answered with the cause.
#[test]
fn every_waiting_caller_is_told() {
    for round in 0..20 {
        let disk = CrashDisk::new();
        let (jobs, switch) = open(&disk);
        let acked = Mutex::new(Acked::default());
        let told = Mutex::new(Vec::new());
        let struck = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..12 {
                let (jobs, acked, told, struck) = (jobs.clone(), &acked, &told, &struck);
                scope.spawn(move || {
                    let error = loop {
                        match call(&jobs, thread, acked) {
                            Ok(()) if struck.load(Ordering::SeqCst) => continue,
                            Ok(()) => {}
                            Err(error) => break error,
                        }
                    };
                    told.lock().unwrap().push(error);
                });
            }
            for _ in 0..4 {
                let (jobs, told) = (jobs.clone(), &told);
                scope.spawn(move || {
                    let nothing = ClaimRequest::new("empty").wait(Duration::from_secs(3_600));
                    match jobs.claim(nothing).unwrap_err() {
                        ClaimError::Storage(error) => told.lock().unwrap().push(error),
                        other => panic!("{other}"),
                    }
                });
            }
            while acked.lock().unwrap().enqueued.len() < 50 {
                std::thread::yield_now();
            }
            switch.fail(switch.calls() + round, Times::Once, ErrorKind::StorageFull);
            struck.store(true, Ordering::SeqCst);
        });
        let told = told.into_inner().unwrap();
        assert_eq!(told.len(), 16);
        assert!(told.iter().all(|error| error.is_poisoned() && error.is_io()), "{told:?}");
        drop(jobs);
        let acked = acked.into_inner().unwrap();
        let left = CrashDisk::from_image(disk.image(Survival::Nothing));
        let jobs = Options::new().open_backend(left.backend()).unwrap();
        check(&jobs);
        let mut forgotten = 0;
        for id in &acked.enqueued {
            forgotten += u64::from(jobs.job(*id).unwrap().is_none());
        }
        // Jobs without a key are forgotten when they are done, and only then.
        let done = jobs.stats().unwrap().total.done;
        assert!(
            forgotten <= done,
            "{forgotten} of the acknowledged jobs are gone, {done} are done"
        );
        let done = jobs.stats().unwrap().total.done;
        assert!(done >= u64::try_from(acked.done.len()).unwrap());
    }
}

/// One call of the thread's own kind.
fn call(jobs: &Redrive, thread: u32, acked: &Mutex<Acked>) -> Result<(), StorageError> {
    let job = || NewJob::new("q", "k").bytes([0; 700]);
    match thread % 3 {
        0 => match jobs.enqueue(job()) {
            Ok(enqueued) => acked.lock().unwrap().enqueued.push(enqueued.job()),
            Err(EnqueueError::Storage(error)) => return Err(error),
            Err(other) => panic!("{other}"),
        },
        1 => {
            let answers = jobs.enqueue_many([job(), job()], BatchRule::AllOrNothing);
            let answers = answers.unwrap_or_else(|error| vec![Err(error)]);
            for answer in answers {
                match answer {
                    Ok(Enqueued::New(id)) => acked.lock().unwrap().enqueued.push(id),
                    Err(EnqueueError::Storage(error)) => return Err(error),
                    other => panic!("{other:?}"),
                }
            }
        }
        _ => {
            let claimed = match jobs.claim(ClaimRequest::new("q")) {
                Ok(claimed) => claimed,
                Err(ClaimError::Storage(error)) => return Err(error),
                Err(other) => panic!("{other}"),
            };
            for lease in claimed {
                let id = lease.id();
                match lease.complete() {
                    Ok(()) => acked.lock().unwrap().done.push(id),
                    Err(SettleError::Storage(error)) => return Err(error),
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    Ok(())
}

/// O-23: a full disk refuses writes, keeps what it took, and when there is room again a reopening
/// is all it needs.
#[test]
fn o_23_a_full_disk_is_told_and_mended_by_room_and_a_reopening() {
    let disk = CrashDisk::new();
    let (jobs, switch) = open(&disk);
    let len = u64::try_from(disk.image(Survival::Everything).len()).unwrap();
    switch.limit_len(Some(len + 300_000));
    let mut accepted = Vec::new();
    let cause = loop {
        match jobs.enqueue(NewJob::new("q", "k").bytes([7; 20_000])) {
            Ok(enqueued) => accepted.push(enqueued.job()),
            Err(EnqueueError::Storage(error)) => break error,
            Err(other) => panic!("{other}"),
        }
        assert!(accepted.len() < 10_000);
    };
    assert!(cause.is_io() && cause.is_poisoned() && !accepted.is_empty());
    assert_eq!(jobs.stats().unwrap().total.ready, u64::try_from(accepted.len()).unwrap());
    drop(jobs);

    let jobs = Options::new().open_backend(disk.backend()).unwrap();
    check(&jobs);
    let mut leases = jobs.claim(ClaimRequest::new("q").up_to(10_000)).unwrap();
    let found: Vec<JobId> = leases.iter().map(redrive::Lease::id).collect();
    assert_eq!(found, accepted);
    for lease in leases.drain(..) {
        lease.complete().unwrap();
    }
    check(&jobs);
}
