//! What a transaction that was taken back leaves behind: nothing, in the file and in memory. And what may go
//! wrong inside one without a deadlock (P2, P6, O-22).

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;

use redrive::redb::{TableDefinition, TypeName, Value};
use redrive::{
    BatchRule, ClaimRequest, CohortState, Completion, DeadRetention, EffectError, EffectTable,
    EffectValue, EnqueueError, EventKind, Failure, Filter, JobPolicy, JobState, Message, NewJob,
    OnUnknown, Options, Pause, QueuePolicy, Reason, RedrivePlan, Scope, StorageError, SweepReport,
    TransactError, Workers,
};

use crate::support::{Bench, secs};

const ORDERS: TableDefinition<'_, &str, u64> = TableDefinition::new("orders");
const COUNT: EffectTable<str, u64> = EffectTable::new("count");

fn no() -> TransactError {
    TransactError::app("no")
}

/// A transaction that leaves traces in memory, and is taken back.
fn in_vain(bench: &Bench) {
    let taken_back = bench.jobs.transact(|tx| {
        tx.enqueue(NewJob::new("q", "a kind of its own").delay(secs(1)))?;
        tx.put(COUNT, "a", &1)?;
        Err::<(), _>(no())
    });
    assert!(taken_back.unwrap_err().app_error().is_some());
}

/// An event of a transaction that is taken back is told to nobody, neither then nor with the next commit.
#[test]
fn p_02_what_is_taken_back_is_not_told() {
    let bench = Bench::new();
    let policy = JobPolicy::new().on_unknown(OnUnknown::Quarantine);
    bench.add_with(NewJob::new("q", "k").policy(policy));
    let lease = bench.claim_one();
    let mut events = bench.jobs.events();
    for panics in [false, true] {
        let ended = catch_unwind(AssertUnwindSafe(|| {
            bench.jobs.transact(|tx| {
                // Its policy forbids repeating it, so it dies of that.
                tx.complete(&lease, Completion::give_back_started())?;
                assert!(!panics, "on purpose");
                Err::<(), _>(no())
            })
        }));
        assert_eq!(ended.is_err(), panics);
        bench.add("another commit");
        assert_eq!(events.try_recv(), None);
    }
    bench.jobs.transact(|tx| tx.complete(&lease, Completion::give_back_started())).unwrap();
    let told = events.try_recv().unwrap().what;
    assert!(matches!(told, EventKind::JobDied { job, .. } if job == lease.id()), "{told:?}");
    assert_eq!(events.try_recv(), None);
    bench.check();
}

/// A cohort hears nothing of a completion that is taken back, however often that is tried.
#[test]
fn p_10_a_cohort_does_not_count_what_is_taken_back() {
    let bench = Bench::new();
    let settle = || while bench.jobs.sweep().unwrap() != SweepReport::default() {};
    for _ in 0..2 {
        bench.add("x");
        bench.claim_one().fail(Failure::permanent("E")).unwrap();
    }
    let plan = RedrivePlan::new(Filter::new().queue("q")).reason("fixed").canary(0).batch(2);
    let cohort = bench.jobs.redrive(plan).unwrap();
    settle();
    let leases = bench.claim(2);
    assert_eq!(leases.len(), 2);
    let mut events = bench.jobs.events();
    for _ in 0..3 {
        let taken_back = bench.jobs.transact(|tx| {
            for lease in &leases {
                tx.complete(lease, Completion::new())?;
            }
            Err::<(), _>(no())
        });
        taken_back.unwrap_err();
        settle();
        let info = bench.jobs.cohort(cohort).unwrap().unwrap();
        assert_eq!((info.counts.in_flight, info.counts.completed), (2, 0), "{info:?}");
        assert_eq!(info.state, CohortState::Running);
    }
    bench.jobs.transact(|tx| tx.complete(&leases[0], Completion::new())).unwrap();
    settle();
    let info = bench.jobs.cohort(cohort).unwrap().unwrap();
    assert_eq!((info.counts.in_flight, info.counts.completed), (1, 1), "{info:?}");
    assert_eq!(events.try_recv(), None);
    bench.jobs.transact(|tx| tx.complete(&leases[1], Completion::new())).unwrap();
    settle();
    let info = bench.jobs.cohort(cohort).unwrap().unwrap();
    assert_eq!((info.state, info.counts.completed), (CohortState::Finished, 2), "{info:?}");
    let finished = |what| matches!(what, EventKind::Cohort { state: CohortState::Finished, .. });
    assert!(finished(events.try_recv().unwrap().what));
    bench.check();
}

/// The next job of an ordering key comes with the completion that is committed, not with one that is not.
#[test]
fn p_02_an_ordering_key_is_held_by_a_completion_that_is_taken_back() {
    let bench = Bench::new();
    let job = |text: &str| NewJob::new("q", "k").bytes(text).order_key("document 7");
    bench.add_with(job("1"));
    let second = bench.add_with(job("2"));
    let lease = bench.claim_one();
    let complete = |commits: bool| {
        bench.jobs.transact(|tx| {
            tx.complete(&lease, Completion::new())?;
            if commits { Ok(()) } else { Err(no()) }
        })
    };
    complete(false).unwrap_err();
    assert_eq!(bench.jobs.job(second).unwrap().unwrap().state, JobState::Blocked);
    assert!(bench.claim(1).is_empty());
    complete(true).unwrap();
    assert_eq!(bench.claim_one().id(), second);
    bench.check();
}

/// P6: a message takes its sequence with the commit, so that one that is taken back leaves no gap.
#[test]
fn p_06_a_message_that_is_taken_back_takes_no_sequence() {
    let mut bench = Bench::new();
    let emit = |bench: &Bench, text: &str, commits: bool| {
        bench.jobs.transact(|tx| {
            tx.put(COUNT, text, &1)?;
            tx.emit(Message::to("email").key(text).bytes(text))?;
            if commits { Ok(()) } else { Err(no()) }
        })
    };
    emit(&bench, "new destination", false).unwrap_err();
    assert!(bench.jobs.outbox().unwrap().is_empty());
    for text in ["1", "2"] {
        emit(&bench, text, false).unwrap_err();
        emit(&bench, text, true).unwrap();
        emit(&bench, text, true).unwrap();
    }
    for _ in 0..2 {
        let email = bench.jobs.outbox().unwrap()["email"].clone();
        assert_eq!((email.unsent, email.next_sequence), (2, 3), "{email:?}");
        assert_eq!(email.oldest.unwrap().sequence, 1);
        bench.check();
        bench.reopen();
    }
    let bad = bench.jobs.transact(|tx| tx.emit(Message::to("email").header("not a token", "x")));
    let bad_header = |why| matches!(why, EnqueueError::BadHeader { .. });
    assert!(matches!(bad, Err(TransactError::Enqueue { why }) if bad_header(why.clone())));
}

/// What dies in vain is evicted from nowhere, and evictions go on in the record they have begun.
#[test]
fn p_09_retention_does_not_count_what_is_taken_back() {
    let bench = Bench::new();
    let keep_one = QueuePolicy::new().dead(DeadRetention::new().jobs(1));
    bench.jobs.set_queue("q", keep_one).unwrap();
    let policy = || JobPolicy::new().on_unknown(OnUnknown::Quarantine);
    let die = |commits: bool| {
        bench.add_with(NewJob::new("q", "k").policy(policy()));
        let lease = bench.claim_one();
        let died = bench.jobs.transact(|tx| {
            tx.complete(&lease, Completion::give_back_started())?;
            if commits { Ok(()) } else { Err(no()) }
        });
        assert_eq!(died.is_ok(), commits);
        if !commits {
            lease.complete().unwrap();
        }
        while bench.jobs.sweep().unwrap() != SweepReport::default() {}
    };
    for commits in [true, false, true, false, true] {
        die(commits);
        let total = bench.jobs.stats().unwrap().total;
        assert_eq!(total.dead, 1, "after a death that was kept: {commits}");
    }
    assert_eq!(bench.jobs.stats().unwrap().total.flow("evicted"), 2);
    assert_eq!(bench.jobs.dead().removals().unwrap().len(), 1, "one record in a minute");
    bench.check();
}

/// What is paused, who has claimed, and the suspect in flight are known as before.
#[test]
fn what_the_writer_knows_otherwise_is_kept() {
    let mut bench = Bench::new();
    for number in 0..2 {
        bench.add(&number.to_string());
    }
    std::mem::forget(bench.claim(2));
    bench.reopen();
    let suspect = bench.claim_one();
    let waits = bench.add_with(NewJob::new("other", "k"));
    assert!(bench.jobs.claim(ClaimRequest::new("other").kinds(["x"])).unwrap().is_empty());
    bench.jobs.pause(Scope::queue("stopped"), Pause::new("why")).unwrap();
    bench.add_with(NewJob::new("stopped", "k"));
    in_vain(&bench);
    assert_eq!(bench.jobs.explain(waits).unwrap().reasons, [Reason::NoHandler]);
    assert!(bench.jobs.claim(ClaimRequest::new("stopped")).unwrap().is_empty());
    assert!(bench.claim(1).is_empty(), "one suspect at a time");
    suspect.complete().unwrap();
    assert_eq!(bench.claim(1).len(), 1);
    bench.check();
}

/// A claim that waits goes on waiting, is given nothing that was taken back, and gets the next job.
#[test]
fn a_claim_that_waits_is_not_touched_by_what_is_taken_back() {
    let bench = Bench::new();
    let jobs = bench.jobs.clone();
    let waiter = std::thread::spawn(move || {
        jobs.claim(ClaimRequest::new("q").wait(secs(3_600))).unwrap().remove(0).id()
    });
    while !is_waited_for(&bench) {
        std::thread::yield_now();
    }
    for _ in 0..5 {
        in_vain(&bench);
    }
    assert!(is_waited_for(&bench));
    let id = bench.add("for the waiter");
    assert_eq!(waiter.join().unwrap(), id);
    bench.check();
}

/// Whether a claim for queue `q` has come, asked with a job that is paused.
fn is_waited_for(bench: &Bench) -> bool {
    bench.jobs.pause(Scope::class("q", "asked"), Pause::new("to ask")).unwrap();
    let asked = bench.jobs.enqueue(NewJob::new("q", "asked").key("asked")).unwrap().job();
    let why = bench.jobs.explain(asked).unwrap();
    !why.reasons.contains(&Reason::NoWorker)
}

/// P11: what was counted in vain is in no window, also where a minute began with it.
#[test]
fn p_11_what_is_taken_back_is_in_no_window() {
    let bench = Bench::new();
    bench.add("1");
    for _ in 0..3 {
        bench.advance(60);
        in_vain(&bench);
        bench.add("kept");
        in_vain(&bench);
        bench.check();
    }
    let flow = |name| bench.jobs.stats().unwrap().total.flow(name);
    assert_eq!(flow("enqueued"), 4);
}

/// A lease that is completed in a transaction may be used up there: dropped in it, it is not given back.
#[test]
fn a_lease_that_is_used_up_in_the_transaction_is_not_given_back() {
    let bench = Bench::new();
    for commits in [true, false] {
        bench.add("x");
        let lease = bench.claim_one();
        let id = lease.id();
        let done = bench.jobs.transact(move |tx| {
            tx.complete(&lease, Completion::new())?;
            drop(lease);
            if commits { Ok(()) } else { Err(no()) }
        });
        assert_eq!(done.is_ok(), commits);
        // What is let go of is given back after the transaction.
        bench.jobs.sweep().unwrap();
        // One that is done, and has no key, is forgotten.
        let state = bench.jobs.job(id).unwrap().map(|job| job.state);
        assert_eq!(state, (!commits).then_some(JobState::Ready));
        assert_eq!(bench.jobs.stats().unwrap().total.flow("stale_calls_refused"), 0);
    }
    bench.check();
}

/// More leases than the writer's mailbox holds are let go of inside, where nobody empties it.
#[test]
fn letting_go_of_many_leases_inside_waits_for_nobody() {
    let bench = Bench::deferred();
    let many = 8_300;
    bench.jobs.enqueue_many(vec![NewJob::new("q", "k"); many], BatchRule::PerItem).unwrap();
    let leases = bench.claim(many);
    assert_eq!(leases.len(), many);
    bench
        .jobs
        .transact(move |tx| {
            drop(leases);
            tx.put(COUNT, "a", &1)
        })
        .unwrap();
    bench.jobs.sweep().unwrap();
    assert_eq!(bench.claim(many).len(), many);
}

/// A lease of another store could be the token of another job here.
#[test]
fn p_05_a_lease_of_another_store_completes_nothing() {
    let (mut bench, other) = (Bench::new(), Bench::new());
    bench.add("mine");
    other.add("theirs");
    let (mine, theirs) = (bench.claim_one(), other.claim_one());
    assert_eq!(mine.token(), theirs.token());
    let refused = bench.jobs.transact(|tx| tx.complete(&theirs, Completion::new()));
    assert!(matches!(refused, Err(TransactError::OtherStore { job }) if job == theirs.id()));
    assert!(mine.heartbeat().is_ok());
    bench.reopen();
    let refused = bench.jobs.transact(|tx| tx.complete(&mine, Completion::new()));
    assert!(matches!(refused, Err(TransactError::OtherStore { .. })));
    assert_eq!(bench.jobs.stats().unwrap().total.done, 0);
    theirs.complete().unwrap();
    bench.check();
}

fn is_nested<T: std::fmt::Debug>(outcome: Result<T, impl std::error::Error + 'static>) -> bool {
    let error = outcome.unwrap_err();
    let storage: &dyn std::error::Error = &error;
    let inner = storage.source().and_then(|source| source.downcast_ref::<StorageError>());
    storage.downcast_ref::<StorageError>().or(inner).is_some_and(StorageError::is_nested)
}

/// Whatever asks the writer, from whatever handle, is refused at once on the transaction's own thread.
#[test]
fn o_22_operators_calls_inside_a_transaction_are_refused() {
    let bench = Bench::new();
    let id = bench.add("1");
    let workers = Workers::new(&bench.jobs).queue("elsewhere", 2).handle_any(|_| Ok("".into()));
    let workers = workers.start().unwrap();
    let jobs = bench.jobs.clone();
    bench
        .jobs
        .transact(|tx| {
            tx.put(COUNT, "a", &1)?;
            assert!(is_nested(jobs.pause(Scope::queue("q"), Pause::new("why"))));
            assert!(is_nested(jobs.resume(Scope::queue("q"))));
            assert!(is_nested(jobs.set_queue("q", QueuePolicy::new())));
            assert!(is_nested(
                jobs.redrive(RedrivePlan::new(Filter::new().queue("q")).reason("r"))
            ));
            assert!(is_nested(jobs.enqueue_many([NewJob::new("q", "k")], BatchRule::AllOrNothing)));
            // These read, and do without what only the writer knows.
            assert!(jobs.health().is_ok() && jobs.verify().is_ok());
            assert_eq!(jobs.explain(id).unwrap().state, Some(JobState::Ready));
            // Their threads wait in the writer, which waits for this.
            workers.shutdown(secs(0));
            Ok(())
        })
        .unwrap();
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "a")).unwrap(), Some(1));
    bench.check();
}

/// A value of an effect table whose encoder panics.
#[derive(Debug)]
struct Panics;

impl EffectValue for Panics {
    const TYPE: &'static str = "panics";
    type Given = Self;
    type Read = Self;

    fn encode(_: &Self) -> Result<Vec<u8>, String> {
        panic!("on purpose")
    }

    fn decode(_: &[u8]) -> Result<Self, String> {
        panic!("on purpose")
    }
}

/// A value of the app's own redb tables whose encoder panics.
impl Value for Panics {
    type SelfType<'a> = Self;
    type AsBytes<'a> = [u8; 1];

    fn fixed_width() -> Option<usize> {
        None
    }

    fn from_bytes<'a>(_: &'a [u8]) -> Self
    where
        Self: 'a,
    {
        Self
    }

    fn as_bytes<'a, 'b: 'a>(_: &'a Self::SelfType<'b>) -> [u8; 1]
    where
        Self: 'b,
    {
        panic!("on purpose")
    }

    fn type_name() -> TypeName {
        TypeName::new("panics")
    }
}

/// An encoder that panics is an error (of an effect table), or the caller's own panic (of redb's), and the
/// file does not grow.
#[test]
fn o_22_an_encoder_that_panics_writes_nothing_and_the_file_does_not_grow() {
    const ROWS: EffectTable<str, Panics> = EffectTable::new("panics");
    const OWN: TableDefinition<'_, u64, Panics> = TableDefinition::new("own");
    let bench = Bench::new();
    let filler = vec![7; 20_000];
    let bytes = || std::fs::metadata(&bench.path).unwrap().len();
    let mut before = 0;
    for round in 0..200_u64 {
        if round == 10 {
            before = bytes();
        }
        let refused = bench.jobs.transact(|tx| {
            tx.enqueue(NewJob::new("q", "k").bytes(filler.clone()))?;
            tx.put(ROWS, "a", &Panics)
        });
        let why = match refused {
            Err(TransactError::Effect { why }) => why,
            other => panic!("{other:?}"),
        };
        assert!(matches!(why, EffectError::Unencodable { .. }));
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            bench.jobs.transact(|tx| {
                tx.enqueue(NewJob::new("q", "k").bytes(filler.clone()))?;
                let mut table = tx.open_table(OWN)?;
                table.insert(round, Panics)?;
                Ok(())
            })
        }));
        assert_eq!(panicked.unwrap_err().downcast_ref::<&str>(), Some(&"on purpose"));
    }
    assert_eq!(bytes(), before);
    assert_eq!(bench.jobs.stats().unwrap().total.flow("enqueued"), 0);
    assert!(bench.jobs.poisoned().is_none());
    bench.add("goes on");
    bench.check();
}

/// Opening a table with other types is told as that, of either sort, and the transaction may go on.
#[test]
fn a_table_of_other_types_is_told_by_name() {
    use redrive::redb::MultimapTableDefinition;
    let bench = Bench::new();
    let put = bench.jobs.transact(|tx| {
        tx.open_table(ORDERS)?.insert("a", 1)?;
        Ok(())
    });
    put.unwrap();
    bench
        .jobs
        .transact(|tx| {
            let key = TableDefinition::<u64, u64>::new("orders");
            let value = TableDefinition::<&str, &str>::new("orders");
            let multi = MultimapTableDefinition::<&str, u64>::new("orders");
            let found = [
                tx.open_table(key).err(),
                tx.open_table(value).err(),
                tx.open_multimap_table(multi).err(),
            ];
            for error in found {
                let named = |table: &str| table == "orders";
                let error = error.unwrap();
                assert!(
                    matches!(&error, TransactError::OtherTypes { table, .. } if named(table)),
                    "{error}"
                );
            }
            assert_eq!(tx.open_table(ORDERS)?.insert("a", 2)?.map(|old| old.value()), Some(1));
            Ok(())
        })
        .unwrap();
    bench.check();
}

thread_local! {
    static AT_THE_END: RefCell<Option<AtTheEnd>> = const { RefCell::new(None) };
}

/// Transacts while its thread ends.
struct AtTheEnd(redrive::Redrive, mpsc::Sender<Result<(), TransactError>>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let done = self.0.transact(|tx| tx.put(COUNT, "at the end", &1));
        self.1.send(done).unwrap();
    }
}

/// On a thread that ends, where it cannot be known any more what is nested, it is an error or a success, and
/// the state goes back to the writer.
#[test]
fn a_thread_that_ends_leaves_the_store_usable() {
    let bench = Bench::new();
    bench.add("1");
    let lease = bench.claim_one();
    let jobs = bench.jobs.clone();
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        AT_THE_END.set(Some(AtTheEnd(jobs.clone(), told)));
        jobs.transact(|tx| tx.put(COUNT, "before", &1)).unwrap();
    })
    .join()
    .unwrap();
    let done = heard.recv().unwrap().is_ok();
    let expected = done.then_some(1);
    assert_eq!(bench.jobs.read(|r| r.get(COUNT, "at the end")).unwrap(), expected);
    assert!(bench.jobs.poisoned().is_none());
    assert!(lease.heartbeat().is_ok());
    lease.complete().unwrap();
    bench.check();
}

/// A commit that cannot be tells nobody, and what it settled is not settled.
#[test]
fn p_14_what_was_not_committed_is_not_told() {
    let disk = redrive::testing::CrashDisk::new();
    let jobs = Options::new().open_backend(disk.backend()).unwrap();
    let policy = JobPolicy::new().on_unknown(OnUnknown::Quarantine);
    jobs.enqueue(NewJob::new("q", "k").policy(policy)).unwrap();
    let lease = jobs.claim(ClaimRequest::new("q")).unwrap().remove(0);
    let mut events = jobs.events();
    let failed = jobs.transact(|tx| {
        tx.complete(&lease, Completion::give_back_started())?;
        disk.cut_now();
        Ok(())
    });
    assert!(matches!(failed, Err(TransactError::Storage(error)) if error.is_poisoned()));
    let told = events.recv(secs(5)).unwrap().what;
    assert!(matches!(told, EventKind::Poisoned { .. }), "{told:?}");
}
