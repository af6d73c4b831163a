//! The outbox (P6, O-25): messages that are emitted with the work, sequenced inside the commit, and
//! relayed in order, each with its own attempts.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redrive::{
    BadName, BatchRule, ClaimError, ClaimRequest, Clock, Completion, DeathReason,
    DestinationPolicy, EnqueueError, Enqueued, Failure, FailureClass, FileSink, Filter, JobId,
    JobPolicy, JobState, Message, MessageOrder, NewJob, OnDead, OnUnknown, Outgoing, Reconciled,
    Redrive, Relay, RelayError, Schedule, Scope, Signal, Sink, SystemClock, UnknownOutcome,
    WorkersError,
};

use crate::support::{Bench, check, secs};

fn quick() -> JobPolicy {
    let schedule = Schedule::list([Duration::from_millis(1)]).jitter_percent(0);
    JobPolicy::new().max_deliveries(5).schedule(schedule)
}

/// A sink that is a function, and remembers every call.
struct Recorder<F> {
    calls: Mutex<Vec<Vec<u64>>>,
    batch_max: usize,
    deliver: F,
}

type Results = Vec<Result<(), Failure>>;
/// How a sink says that a batch has a row that it does not take.
type Refuse = fn(&[Outgoing], Failure) -> Results;
/// How a sink answers whatever it is offered.
type Answer = fn() -> Results;
/// Sequence and provider reference that a reconciler was given.
type Asked = (u64, Option<String>);
/// Sequence, id and payload.
type Seen = (u64, String, Vec<u8>);

impl<F: Fn(&[Outgoing]) -> Results + Send + Sync> Recorder<F> {
    fn new(deliver: F) -> Arc<Self> {
        Self::with_max(usize::MAX, deliver)
    }

    fn with_max(batch_max: usize, deliver: F) -> Arc<Self> {
        Arc::new(Self { calls: Mutex::default(), batch_max, deliver })
    }

    fn calls(&self) -> Vec<Vec<u64>> {
        self.calls.lock().clone()
    }
}

impl<F: Fn(&[Outgoing]) -> Results + Send + Sync> Sink for Recorder<F> {
    fn deliver(&self, batch: &[Outgoing]) -> Results {
        self.calls.lock().push(batch.iter().map(Outgoing::sequence).collect());
        (self.deliver)(batch)
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }
}

fn wait_until(what: &str, done: impl Fn() -> bool) {
    let (clock, signal) = (SystemClock::new(), Signal::new());
    while !done() {
        assert!(clock.monotonic_ms() < 60_000, "{what} did not happen in a minute");
        clock.wait(&signal, Some(clock.monotonic_ms() + 2));
    }
}

fn open() -> (tempfile::TempDir, Redrive) {
    let dir = tempfile::tempdir().unwrap();
    let jobs = Redrive::open(dir.path().join("jobs.redb")).unwrap();
    (dir, jobs)
}

fn emit(jobs: &Redrive, rows: u64) -> Vec<JobId> {
    let messages = (1..=rows).map(|row| Message::to("email").bytes(format!("row {row}")));
    let emitted = jobs.emit_many(messages, BatchRule::AllOrNothing).unwrap();
    emitted.into_iter().map(|outcome| outcome.unwrap().job()).collect()
}

fn unsent(jobs: &Redrive) -> u64 {
    jobs.outbox().unwrap()["email"].unsent
}

/// O-25: 100 rows, batches of 20, row 37 always refused; whichever way the sink says so.
#[test]
fn o_25_one_bad_row_costs_itself_and_nobody_else() {
    let refusal = || Failure::transient("422").message("malformed row");
    let ways: [(&str, Refuse); 4] = [
        ("the whole batch", |_, failure| vec![Err(failure)]),
        ("by a panic", |_, _| panic!("row 37")),
        ("by nonsense", |batch, _| vec![Ok(()); batch.len() + 1]),
        ("item by item", |batch, failure| {
            let bad = |one: &Outgoing| one.sequence() == 37;
            batch.iter().map(|one| if bad(one) { Err(failure.clone()) } else { Ok(()) }).collect()
        }),
    ];
    for (name, refuse) in ways {
        for rule in [OnDead::Skip, OnDead::Halt] {
            let (_dir, jobs) = open();
            let policy = DestinationPolicy::new().messages(quick()).on_dead(rule);
            jobs.set_destination("email", policy).unwrap();
            let ids = emit(&jobs, 100);
            let sent: Arc<Mutex<Vec<u64>>> = Arc::default();
            let log = Arc::clone(&sent);
            let sink = Recorder::new(move |batch: &[Outgoing]| {
                let bad = batch.iter().any(|one| one.sequence() == 37);
                let results =
                    if bad { refuse(batch, refusal()) } else { vec![Ok(()); batch.len()] };
                if results.len() == batch.len() {
                    let good = batch.iter().zip(&results).filter(|(_, result)| result.is_ok());
                    log.lock().extend(good.map(|(one, _)| one.sequence()));
                }
                results
            });
            let relay =
                Relay::new(&jobs).sink("email", Arc::clone(&sink)).batch(20).start().unwrap();
            let dead = || jobs.outbox().unwrap()["email"].dead == 1;
            wait_until("the death of row 37", dead);
            if rule == OnDead::Halt {
                // Nobody passes it until somebody has dealt with it.
                relay.shutdown(secs(10));
                assert_eq!(
                    sent.lock().iter().max(),
                    Some(if name == "item by item" { &40 } else { &36 })
                );
                let info = jobs.job(ids[36]).unwrap().unwrap();
                assert_eq!((info.state, info.attempts), (JobState::Dead, 5));
                jobs.dead().discard(&Filter::new().ids([ids[36]]), "malformed").unwrap();
                let relay =
                    Relay::new(&jobs).sink("email", Arc::clone(&sink)).batch(20).start().unwrap();
                wait_until("the rest", || unsent(&jobs) == 0);
                relay.shutdown(secs(10));
            } else {
                wait_until("the rest", || unsent(&jobs) == 0);
                relay.drain();
                wait_until("the end", || relay.active() == 0);
                let report = relay.report();
                relay.shutdown(secs(10));
                assert_eq!((report.sent, report.failed), (99, 5), "{name}");
                let info = jobs.job(ids[36]).unwrap().unwrap();
                assert_eq!((info.state, info.attempts), (JobState::Dead, 5), "{name}");
                assert_eq!(info.dead.unwrap().reason, DeathReason::ClassBudget);
            }
            // Published once each, in order.
            let expected: Vec<u64> = (1..=100).filter(|&sequence| sequence != 37).collect();
            assert_eq!(*sent.lock(), expected, "{name}, {rule:?}");
            assert!(sink.calls().iter().all(|call| call.len() <= 20));
            let stats = &jobs.outbox().unwrap()["email"];
            assert_eq!((stats.sent, stats.unsent, stats.oldest_unsent_age_ms()), (99, 0, 0));
            check(&jobs);
        }
    }
}

/// A receiver that is away costs the head its attempts, one by one, and nobody else.
#[test]
fn a_receiver_that_is_away_is_asked_by_one_message_at_a_time() {
    let (_dir, jobs) = open();
    let patient = quick().budget(FailureClass::Transient, 100_000);
    let policy = DestinationPolicy::new().messages(patient);
    jobs.set_destination("email", policy).unwrap();
    let ids = emit(&jobs, 50);
    let sink = Recorder::new(|_: &[Outgoing]| vec![Err(Failure::transient("away"))]);
    let relay = Relay::new(&jobs).sink("email", Arc::clone(&sink)).start().unwrap();
    wait_until("some attempts", || sink.calls().len() > 20);
    relay.shutdown(secs(10));
    let calls = sink.calls();
    // Only the first batch was one.
    assert!(calls.iter().skip(10).all(|call| *call == [1]), "{calls:?}");
    for (place, &id) in ids.iter().enumerate() {
        let info = jobs.job(id).unwrap().unwrap();
        assert_eq!(info.attempts > 0, place == 0, "{info:?}");
    }
    check(&jobs);
}

/// Within `Key`, a failing message holds up its key alone; without order, nobody.
#[test]
fn order_is_kept_as_far_as_the_destination_says() {
    for order in [MessageOrder::Key, MessageOrder::None] {
        let (_dir, jobs) = open();
        let policy = DestinationPolicy::new().order(order).messages(quick());
        jobs.set_destination("email", policy).unwrap();
        for row in 1..=30 {
            let key = if row % 3 == 0 { "a" } else { "b" };
            jobs.emit(Message::to("email").order_key(key).bytes(format!("{row}"))).unwrap();
        }
        let sent: Arc<Mutex<Vec<u64>>> = Arc::default();
        let log = Arc::clone(&sent);
        let sink = Recorder::with_max(1, move |batch: &[Outgoing]| {
            let [one] = batch else { panic!("one at a time was asked for") };
            if one.sequence() == 3 && one.attempt() < 4 {
                return vec![Err(Failure::transient("busy"))];
            }
            log.lock().push(one.sequence());
            vec![Ok(())]
        });
        let relay = Relay::new(&jobs).sink("email", sink).threads(3).start().unwrap();
        wait_until("all", || unsent(&jobs) == 0);
        relay.shutdown(secs(10));
        let sent = sent.lock().clone();
        assert_eq!(sent.iter().collect::<BTreeSet<_>>().len(), 30);
        for rest in [0, 1] {
            let of_key = |one: &&u64| one.is_multiple_of(3) == (rest == 0);
            let of_key: Vec<u64> = sent.iter().filter(of_key).copied().collect();
            let ordered = of_key.is_sorted();
            assert!(ordered || order == MessageOrder::None, "{of_key:?}");
        }
        check(&jobs);
    }
}

/// P6: a message is there exactly when its job is done.
#[test]
fn p_06_a_message_is_emitted_with_the_completion_or_not_at_all() {
    let bench = Bench::new();
    let receipt = |n: u32| Message::to("email").key(format!("receipt:{n}")).bytes(format!("{n}"));
    for n in 1..=4 {
        bench.add(&n.to_string());
    }
    let lease = bench.claim_one();
    let twin = lease.twin();
    lease.complete_with(Completion::new().emit(receipt(1))).unwrap();
    // A stale lease emits nothing and takes no sequence.
    twin.complete_with(Completion::new().emit(receipt(9))).unwrap_err();
    // Nor does a completion that is refused for something else.
    let conflict = Message::to("email").key("receipt:1").bytes("another");
    let refused = Completion::new().emit(receipt(2)).emit(conflict);
    bench.claim_one().complete_with(refused).unwrap_err();
    let stats = &bench.jobs.outbox().unwrap()["email"];
    assert_eq!((stats.unsent, stats.next_sequence), (1, 2));
    for n in 2..=3 {
        // The first message again is a duplicate, and fine.
        let completion = Completion::new().emit(receipt(n)).emit(receipt(1));
        bench.claim_one().complete_with(completion).unwrap();
    }
    let stats = &bench.jobs.outbox().unwrap()["email"];
    assert_eq!((stats.unsent, stats.blocked, stats.next_sequence), (3, 2, 4));
    bench.check();
}

/// Sequences are dense, whatever was refused in between, and are never given out again.
#[test]
fn sequences_are_dense_and_survive_everything() {
    let mut bench = Bench::new();
    let message = |text: &str| Message::to("email").bytes(text).key(format!("key {text}"));
    let sequence =
        |bench: &Bench, id: JobId| bench.jobs.job(id).unwrap().unwrap().message.unwrap().sequence;
    let first = bench.jobs.emit(message("a")).unwrap().job();
    let mixed = [
        message("b"),
        message("a"),
        Message::to("email").key("key a").bytes("other"),
        Message::to("email").header("bad name", "x"),
        message("c"),
    ];
    let outcomes = bench.jobs.emit_many(mixed, BatchRule::PerItem).unwrap();
    let [Ok(b), Ok(Enqueued::Duplicate { of, .. }), Err(conflict), Err(header), Ok(c)] =
        outcomes.as_slice()
    else {
        panic!("{outcomes:?}");
    };
    assert_eq!(*of, first);
    assert!(matches!(conflict, EnqueueError::KeyConflict { .. }));
    assert!(matches!(header, EnqueueError::BadHeader { .. }));
    assert_eq!([first, b.job(), c.job()].map(|id| sequence(&bench, id)), [1, 2, 3]);
    // All or nothing: nothing.
    let refused = [message("d"), Message::to("email").key("key a").bytes("other")];
    bench.jobs.emit_many(refused, BatchRule::AllOrNothing).unwrap();
    bench.jobs.cancel(first).unwrap();
    bench.jobs.cancel(b.job()).unwrap();
    bench.jobs.cancel(c.job()).unwrap();
    bench.reopen();
    let d = bench.jobs.emit(message("d")).unwrap().job();
    assert_eq!(sequence(&bench, d), 4);
    let stats = &bench.jobs.outbox().unwrap()["email"];
    assert_eq!((stats.next_sequence, stats.given_up, stats.unsent), (5, 3, 1));
    assert_eq!(stats.oldest.unwrap().sequence, 4);
    bench.check();
}

/// Bad input: a destination that nobody serves. Its messages wait, visibly, with their age.
#[test]
fn messages_to_an_unknown_destination_wait_and_are_shown() {
    let mut bench = Bench::new();
    bench.jobs.emit(Message::to("nowhere").bytes("1")).unwrap();
    bench.advance(60);
    bench.jobs.emit(Message::to("nowhere").bytes("2")).unwrap();
    let relay = Relay::new(&bench.jobs)
        .sink("elsewhere", Recorder::new(|batch: &[Outgoing]| vec![Ok(()); batch.len()]))
        .start()
        .unwrap();
    bench.advance(60);
    relay.shutdown(secs(1));
    bench.reopen();
    let outbox = bench.jobs.outbox().unwrap();
    let stats = &outbox["nowhere"];
    assert_eq!((stats.unsent, stats.blocked, stats.oldest_unsent_age_ms()), (2, 1, 120_000));
    assert_eq!(bench.jobs.stats().unwrap().queues["outbox:nowhere"].counts.ready, 1);
    // Whenever a sink comes, they go out.
    let sink = Recorder::new(|batch: &[Outgoing]| vec![Ok(()); batch.len()]);
    let relay = Relay::new(&bench.jobs).sink("nowhere", Arc::clone(&sink)).start().unwrap();
    wait_until("both", || bench.jobs.outbox().unwrap()["nowhere"].unsent == 0);
    relay.shutdown(secs(10));
    assert_eq!(sink.calls(), [[1, 2]]);
    bench.check();
}

/// Bad input: limits and names.
#[test]
fn bad_messages_and_reserved_names_are_refused() {
    let bench = Bench::new();
    let jobs = &bench.jobs;
    let refused = |message: Message| jobs.emit(message).unwrap_err();
    let large = Message::to("email").bytes(vec![0; 1024 * 1024 + 1]);
    assert!(matches!(refused(large), EnqueueError::PayloadTooLarge { .. }));
    for (name, why) in [
        (String::new(), BadName::Empty),
        ("x".repeat(122), BadName::TooLong { bytes: 122, bytes_max: 121 }),
        ("a\nb".into(), BadName::ControlCharacter),
    ] {
        match refused(Message::to(&name)) {
            EnqueueError::BadName { what: "destination", why: found } => assert_eq!(found, why),
            other => panic!("{other:?}"),
        }
        assert!(jobs.set_destination(&name, DestinationPolicy::new()).is_err());
    }
    jobs.emit(Message::to("x".repeat(121))).unwrap();
    for (name, value) in
        [("", "x"), ("a b", "x"), ("a", "\r\nX-Evil: 1"), ("a", " x"), ("\u{e9}", "x")]
    {
        let message = Message::to("email").header(name, value);
        assert!(matches!(refused(message), EnqueueError::BadHeader { .. }), "{name:?} {value:?}");
    }
    let many = (0..33).fold(Message::to("email"), |message, n| message.header(format!("h{n}"), ""));
    assert!(matches!(refused(many), EnqueueError::TooManyHeaders { headers: 33, .. }));
    let wide = Message::to("email").header("h", "x".repeat(4_096));
    assert!(matches!(refused(wide), EnqueueError::TooManyHeaders { bytes: 4_097, .. }));
    // The queues of destinations are not for jobs, claims or workers.
    let reserved = BadName::Reserved { prefix: "outbox:" };
    match jobs.enqueue(NewJob::new("outbox:email", "k")) {
        Err(EnqueueError::BadName { what: "queue", why }) => assert_eq!(why, reserved),
        other => panic!("{other:?}"),
    }
    match jobs.claim(ClaimRequest::new("outbox:email")) {
        Err(ClaimError::BadName { what: "queue", why }) => assert_eq!(why, reserved),
        other => panic!("{other:?}"),
    }
    let workers = redrive::Workers::new(jobs).queue("outbox:email", 1);
    let workers = workers.handle_any(|_| Ok(Completion::new())).start();
    assert!(matches!(workers, Err(WorkersError::BadName { .. })));
    let sink = || Recorder::new(|batch: &[Outgoing]| vec![Ok(()); batch.len()]);
    assert!(matches!(Relay::new(jobs).start(), Err(RelayError::NoSink)));
    assert!(matches!(Relay::new(jobs).sink("", sink()).start(), Err(RelayError::BadName { .. })));
    let zero = Relay::new(jobs).sink("email", sink()).batch(0).start();
    assert!(matches!(zero, Err(RelayError::OutOfRange { what: "batch", .. })));
    let zero = Relay::new(jobs).sink("email", sink()).threads(0).start();
    assert!(matches!(zero, Err(RelayError::OutOfRange { what: "threads", .. })));
    bench.check();
}

/// P9, P10: dead messages are redriven and paused like jobs, and keep sequence, id and bytes.
#[test]
fn a_dead_message_is_redriven_with_its_sequence() {
    let (_dir, jobs) = open();
    jobs.set_destination("email", DestinationPolicy::new().messages(quick())).unwrap();
    let ids = emit(&jobs, 3);
    let broken = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let (flag, log) = (Arc::clone(&broken), Arc::clone(&seen));
    let sink = Recorder::with_max(1, move |batch: &[Outgoing]| {
        let one = &batch[0];
        log.lock().push((one.sequence(), one.id().to_owned(), one.payload().to_vec()));
        if one.sequence() == 2 && flag.load(std::sync::atomic::Ordering::SeqCst) {
            return vec![Err(Failure::permanent("E_ADDRESS"))];
        }
        vec![Ok(())]
    });
    let relay = Relay::new(&jobs).sink("email", sink).start().unwrap();
    wait_until("the others", || unsent(&jobs) == 0);
    broken.store(false, std::sync::atomic::Ordering::SeqCst);
    jobs.pause(Scope::destination("email"), redrive::Pause::new("maintenance")).unwrap();
    let plan = redrive::RedrivePlan::new(Filter::new().destination("email")).reason("corrected");
    jobs.redrive(plan).unwrap();
    wait_until("the redrive", || unsent(&jobs) == 1);
    let stats = jobs.outbox().unwrap()["email"].clone();
    assert_eq!((stats.oldest.unwrap().sequence, stats.dead), (2, 0));
    assert_eq!(jobs.job(ids[1]).unwrap().unwrap().state, JobState::Ready);
    jobs.resume(Scope::destination("email")).unwrap();
    wait_until("the redriven one", || unsent(&jobs) == 0);
    relay.shutdown(secs(10));
    let seen = seen.lock().clone();
    assert_eq!(seen.iter().map(|one| one.0).collect::<Vec<_>>(), [1, 2, 3, 2]);
    assert_eq!(seen[1], seen[3], "the same id and bytes on every delivery");
    assert_eq!(seen.iter().map(|one| &one.1).collect::<BTreeSet<_>>().len(), 3);
    check(&jobs);
}

/// O-04: a sink that takes longer than the lease keeps it.
#[test]
fn a_slow_sink_keeps_its_messages() {
    let (_dir, jobs) = open();
    let policy = quick().lease(Duration::from_millis(100));
    jobs.set_destination("email", DestinationPolicy::new().messages(policy)).unwrap();
    emit(&jobs, 5);
    let sink = Recorder::new(|batch: &[Outgoing]| {
        let (clock, signal) = (SystemClock::new(), Signal::new());
        clock.wait(&signal, Some(500));
        vec![Ok(()); batch.len()]
    });
    let relay = Relay::new(&jobs).sink("email", Arc::clone(&sink)).start().unwrap();
    wait_until("all", || unsent(&jobs) == 0);
    relay.drain();
    wait_until("the end", || relay.active() == 0);
    let report = relay.report();
    relay.shutdown(secs(10));
    assert_eq!((report.sent, report.stale, sink.calls().len()), (5, 0, 1));
    check(&jobs);
}

/// A shutdown gives back what is not sent: unstarted where the sink never saw it, with an unknown outcome
/// where it has it in hand.
#[test]
fn a_shutdown_gives_back_what_is_not_sent() {
    let (_dir, jobs) = open();
    jobs.set_destination("email", DestinationPolicy::new().messages(quick())).unwrap();
    let ids = emit(&jobs, 3);
    let (entered, leave) = (Signal::new(), Signal::new());
    let (inside, gate) = (Arc::clone(&entered), Arc::clone(&leave));
    let sink = Recorder::with_max(1, move |batch: &[Outgoing]| {
        inside.raise();
        SystemClock::new().wait(&gate, None);
        vec![Ok(()); batch.len()]
    });
    let relay = Relay::new(&jobs).sink("email", Arc::clone(&sink)).start().unwrap();
    SystemClock::new().wait(&entered, None);
    assert_eq!(relay.shutdown(Duration::from_millis(20)).given_back, 3);
    let unknown = |id: JobId| jobs.job(id).unwrap().unwrap().outcome_unknown;
    assert_eq!(ids.iter().map(|&id| unknown(id)).collect::<Vec<_>>(), [true, false, false]);
    assert_eq!(jobs.outbox().unwrap()["email"].leased, 0);
    leave.raise();
    // What it says now comes too late, and the next one is not offered to it.
    wait_until("the end of the sink", || Arc::strong_count(&sink) == 1);
    assert_eq!(sink.calls(), [[1]]);
    check(&jobs);
}

/// What a sink has said of one call is settled before the next call but one, so that a crash repeats two
/// messages at most and not a batch.
#[test]
fn p_06_what_was_delivered_is_acknowledged_before_the_rest_of_its_batch() {
    let (_dir, jobs) = open();
    emit(&jobs, 10);
    let seen = jobs.clone();
    let sent: Arc<Mutex<Vec<u64>>> = Arc::default();
    let log = Arc::clone(&sent);
    let sink = Recorder::with_max(1, move |_: &[Outgoing]| {
        log.lock().push(seen.outbox().unwrap()["email"].sent);
        vec![Ok(())]
    });
    let relay = Relay::new(&jobs).sink("email", sink).start().unwrap();
    wait_until("all", || unsent(&jobs) == 0);
    relay.shutdown(secs(10));
    for (before, sent) in sent.lock().iter().enumerate() {
        assert!(*sent + 1 >= u64::try_from(before).unwrap(), "{sent} of {before}");
    }
    check(&jobs);
}

/// P8: where the policy says so, a message whose delivery was lost is asked about before anything else
/// happens, and those behind it wait.
#[test]
fn p_08_a_lost_delivery_is_reconciled_before_it_is_repeated() {
    let (_dir, jobs) = open();
    let policy = quick().on_unknown(OnUnknown::Reconcile);
    jobs.set_destination("email", DestinationPolicy::new().messages(policy)).unwrap();
    let ids = emit(&jobs, 3);
    // The first one arrives and nobody learns of it, the second one does not arrive.
    let mailbox: Arc<Mutex<Vec<u64>>> = Arc::default();
    let sink = |mailbox: &Arc<Mutex<Vec<u64>>>| {
        let inbox = Arc::clone(mailbox);
        Recorder::with_max(1, move |batch: &[Outgoing]| {
            let one = &batch[0];
            if one.sequence() == 2 && one.attempt() == 1 {
                return vec![Err(Failure::ambiguous("lost").provider_ref("req-2"))];
            }
            inbox.lock().push(one.sequence());
            vec![if one.sequence() == 1 { Err(Failure::ambiguous("lost")) } else { Ok(()) }]
        })
    };
    let relay = Relay::new(&jobs).sink("email", sink(&mailbox)).start().unwrap();
    wait_until("the first loss", || jobs.job(ids[0]).unwrap().unwrap().outcome_unknown);
    relay.shutdown(secs(10));
    let stats = jobs.outbox().unwrap()["email"].clone();
    assert_eq!(
        (stats.unsent, stats.blocked, stats.sent),
        (3, 2, 0),
        "without a reconciler they wait"
    );
    assert!(jobs.explain(ids[0]).unwrap().to_string().contains("reconcile"), "visibly");

    let inbox = Arc::clone(&mailbox);
    let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
    let log = Arc::clone(&asked);
    let reconciler = move |message: &Outgoing, unknown: &UnknownOutcome| {
        let asked_before = log.lock().iter().any(|(sequence, _)| *sequence == message.sequence());
        log.lock().push((message.sequence(), unknown.provider_ref.clone()));
        match inbox.lock().contains(&message.sequence()) {
            _ if !asked_before && message.sequence() == 2 => {
                panic!("the reconciler has a bug, too")
            }
            true => Ok(Reconciled::Happened(Completion::new())),
            false => Ok(Reconciled::DidNotHappen),
        }
    };
    let relay = Relay::new(&jobs)
        .sink("email", sink(&mailbox))
        .reconcile("email", reconciler)
        .start()
        .unwrap();
    wait_until("all", || unsent(&jobs) == 0);
    let report = relay.report();
    relay.shutdown(secs(10));
    assert_eq!(*mailbox.lock(), [1, 2, 3], "each of them once, in order");
    let reference = || Some("req-2".to_owned());
    assert_eq!(*asked.lock(), [(1, None), (2, reference()), (2, reference())]);
    assert_eq!((report.sent, report.reconciled, report.panicked), (2, 2, 1), "{report:?}");
    let bad = Relay::new(&jobs)
        .sink("a", sink(&mailbox))
        .reconcile("b", |_, _| Ok(Reconciled::DidNotHappen));
    assert!(
        matches!(bad.start(), Err(RelayError::NoSinkFor { destination }) if destination == "b")
    );
    check(&jobs);
}

/// P8: one ambiguous answer for a whole batch is each message's own: nothing of it is offered
/// again at once, because any of it may have been taken.
#[test]
fn p_08_a_batch_whose_answer_is_lost_is_neither_split_nor_repeated_at_once() {
    let (_dir, jobs) = open();
    jobs.set_destination("email", DestinationPolicy::new().messages(quick())).unwrap();
    emit(&jobs, 4);
    let sink = Recorder::new(|batch: &[Outgoing]| match batch {
        [one] => vec![if one.attempt() > 1 { Ok(()) } else { Err(Failure::transient("early")) }],
        _ => vec![Err(Failure::ambiguous("response_lost"))],
    });
    let relay = Relay::new(&jobs).sink("email", Arc::clone(&sink)).start().unwrap();
    wait_until("all", || unsent(&jobs) == 0);
    relay.drain();
    wait_until("the end", || relay.active() == 0);
    let report = relay.report();
    relay.shutdown(secs(10));
    assert_eq!(sink.calls(), [&[1, 2, 3, 4][..], &[1], &[2], &[3], &[4]]);
    assert_eq!((report.sent, report.failed, report.splits), (4, 4, 0), "{report:?}");
    assert_eq!(jobs.stats().unwrap().total.flow("retried_ambiguous"), 4);
    check(&jobs);
}

/// P8: where nothing may be sent again blindly, no answer that says what was taken is an ambiguous
/// one.
#[test]
fn p_08_a_panic_is_no_proof_that_nothing_was_taken() {
    let lost: [(&str, Answer); 3] = [
        ("response_lost", || vec![Err(Failure::ambiguous("response_lost"))]),
        ("panicked", || panic!("after the message was sent")),
        ("wrong_result_count", Vec::new),
    ];
    for (code, answer) in lost {
        let (_dir, jobs) = open();
        let policy = DestinationPolicy::new().messages(quick().on_unknown(OnUnknown::Quarantine));
        jobs.set_destination("email", policy).unwrap();
        let ids = emit(&jobs, 4);
        let sink = Recorder::new(move |_: &[Outgoing]| answer());
        let relay = Relay::new(&jobs).sink("email", Arc::clone(&sink)).start().unwrap();
        wait_until("the end of all", || unsent(&jobs) == 0);
        relay.shutdown(secs(10));
        assert_eq!(sink.calls(), [[1], [2], [3], [4]], "{code}");
        for id in ids {
            let info = jobs.job(id).unwrap().unwrap();
            let dead = info.dead.unwrap();
            assert_eq!((dead.class, dead.code.as_str()), (FailureClass::Ambiguous, code));
            assert_eq!(dead.reason, DeathReason::UnknownRefused);
        }
        check(&jobs);
    }
}

/// P8: a message is not convicted of what happened to another one: neither by its deadline, nor by
/// a crash, before it was offered.
#[test]
fn p_08_what_was_never_offered_is_not_in_doubt() {
    let bench = Bench::new();
    let policy = quick().on_unknown(OnUnknown::Quarantine).deadline(secs(10));
    bench.jobs.set_destination("email", DestinationPolicy::new().messages(policy)).unwrap();
    let ids = emit(&bench.jobs, 3);
    let (clock, jobs, first) = (bench.clock.clone(), bench.jobs.clone(), ids[0]);
    let dead = move |jobs: &Redrive| jobs.job(first).unwrap().unwrap().state == JobState::Dead;
    let sink = Recorder::with_max(1, move |batch: &[Outgoing]| {
        if batch[0].sequence() == 1 {
            clock.advance(secs(20));
            wait_until("the end of the deadline", || dead(&jobs));
        }
        vec![Ok(())]
    });
    let relay = Relay::new(&bench.jobs).sink("email", Arc::clone(&sink)).start().unwrap();
    wait_until("the others", || unsent(&bench.jobs) == 0);
    relay.shutdown(secs(1));
    let stats = &bench.jobs.outbox().unwrap()["email"];
    assert_eq!((stats.sent, stats.dead), (2, 1));
    assert_eq!(sink.calls(), [[1], [2], [3]]);
    bench.check();

    for order in [MessageOrder::Destination, MessageOrder::None] {
        let (dir, jobs) = open();
        let policy = DestinationPolicy::new().order(order);
        let policy = policy.messages(quick().on_unknown(OnUnknown::Quarantine));
        jobs.set_destination("email", policy).unwrap();
        emit(&jobs, 20);
        let (entered, leave) = (Signal::new(), Signal::new());
        let (inside, gate) = (Arc::clone(&entered), Arc::clone(&leave));
        let sink = Recorder::new(move |batch: &[Outgoing]| {
            if batch[0].sequence() == 1 {
                inside.raise();
                SystemClock::new().wait(&gate, None);
            }
            vec![Ok(()); batch.len()]
        });
        let relay = Relay::new(&jobs).sink("email", sink).start().unwrap();
        SystemClock::new().wait(&entered, None);
        let crashed = dir.path().join("crashed.redb");
        std::fs::copy(dir.path().join("jobs.redb"), &crashed).unwrap();
        leave.raise();
        wait_until("all", || unsent(&jobs) == 0);
        relay.shutdown(secs(10));
        let after = Redrive::open(&crashed).unwrap();
        let stats = &after.outbox().unwrap()["email"];
        assert_eq!((stats.dead, stats.unsent), (1, 19), "{order:?}");
        check(&after);
    }
}

/// Something that panics when it is dropped.
struct Spiteful;

impl Drop for Spiteful {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

/// P14: a thread that a panic ends is not counted as one that runs, and leaves an error.
#[test]
fn p_14_a_thread_that_a_panic_ends_is_told() {
    let (_dir, jobs) = open();
    emit(&jobs, 1);
    let sink = Recorder::new(|_: &[Outgoing]| std::panic::panic_any(Spiteful));
    let relay = Relay::new(&jobs).sink("email", sink).start().unwrap();
    wait_until("the end of the thread", || relay.active() == 0);
    let error = relay.report().error.unwrap().to_string();
    assert!(error.contains("a panic ended the thread redrive-relay"), "{error}");
    relay.shutdown(secs(10));

    jobs.enqueue(NewJob::new("q", "k")).unwrap();
    let workers = redrive::Workers::new(&jobs).queue("q", 1);
    let workers = workers.handle("k", |_| std::panic::panic_any(Spiteful)).start().unwrap();
    wait_until("the end of the thread", || workers.active() == 0);
    let error = workers.report().error.unwrap().to_string();
    assert!(error.contains("a panic ended the thread redrive-worker"), "{error}");
    workers.shutdown(secs(10));
    check(&jobs);
}

/// P14: a sink that panics when it is asked for its limit is refused where somebody sees it.
#[test]
fn p_14_a_sink_is_asked_for_its_limit_before_anything_runs() {
    struct Bad;
    impl Sink for Bad {
        fn deliver(&self, batch: &[Outgoing]) -> Results {
            vec![Ok(()); batch.len()]
        }
        fn batch_max(&self) -> usize {
            panic!("no such setting")
        }
    }
    let (_dir, jobs) = open();
    match Relay::new(&jobs).sink("email", Bad).start() {
        Err(RelayError::SinkPanicked { destination, message }) => {
            assert_eq!((destination.as_str(), message.as_str()), ("email", "no such setting"));
        }
        other => panic!("{other:?}"),
    }
}

/// P9: a dead message comes back from an export with its headers, and with a sequence of its own.
#[test]
fn p_09_dead_messages_are_exported_and_imported() {
    let (_dir, jobs) = open();
    let none = JobPolicy::new().max_deliveries(1);
    jobs.set_destination("email", DestinationPolicy::new().messages(none)).unwrap();
    jobs.emit(Message::to("email").key("receipt").header("X-A", "b").bytes("r")).unwrap();
    let sink = Recorder::new(|batch: &[Outgoing]| vec![Err(Failure::permanent("E")); batch.len()]);
    let relay = Relay::new(&jobs).sink("email", sink).start().unwrap();
    wait_until("its death", || jobs.outbox().unwrap()["email"].dead == 1);
    relay.shutdown(secs(10));
    let mut lines = Vec::new();
    jobs.dead().export(&Filter::new().destination("email"), &mut lines).unwrap();
    jobs.dead().discard(&Filter::new().destination("email"), "moved").unwrap();
    assert_eq!(jobs.dead().import(&mut lines.as_slice()).unwrap().imported, 1);
    let page = jobs.dead().list(&Filter::new().destination("email"), None, 10).unwrap();
    let message = page.jobs[0].message.clone().unwrap();
    assert_eq!((message.sequence, message.headers), (2, vec![("X-A".into(), "b".into())]));
    // It is the same request still.
    let again = Message::to("email").key("receipt").header("X-A", "b").bytes("r");
    assert!(
        matches!(jobs.emit(again).unwrap(), Enqueued::Duplicate { of, .. } if of == page.jobs[0].id)
    );
    // A line that claims to be an ordinary job of a destination's queue is not taken.
    let forged = String::from_utf8(lines).unwrap().replace("\"headers\":[[\"X-A\",\"b\"]],", "");
    assert_eq!(jobs.dead().import(&mut forged.as_bytes()).unwrap().refused_count, 1);
    check(&jobs);
}

fn lines(path: &std::path::Path) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn relay_to_file(jobs: &Redrive, path: &std::path::Path) {
    let sink = FileSink::open(path).unwrap();
    let relay = Relay::new(jobs).sink("email", sink).start().unwrap();
    wait_until("all", || unsent(jobs) == 0);
    relay.shutdown(secs(10));
}

#[test]
fn the_file_sink_writes_one_line_per_message_and_mends_a_torn_one() {
    let (dir, jobs) = open();
    let path = dir.path().join("out.jsonl");
    let message = Message::to("email").key("receipt:1").header("Content-Type", "text/plain");
    jobs.emit(message.bytes("line\none")).unwrap();
    jobs.emit(Message::to("email").bytes(vec![0xff, 0x00])).unwrap();
    relay_to_file(&jobs, &path);
    let written = lines(&path);
    assert_eq!(written.len(), 2);
    assert_eq!(
        (&written[0]["payload"], &written[0]["key"]),
        (&"line\none".into(), &"receipt:1".into())
    );
    assert_eq!(written[0]["headers"][0][0], "Content-Type");
    assert_eq!((&written[1]["payload_hex"], &written[1]["sequence"]), (&"ff00".into(), &2.into()));
    // A crash in the middle of a write.
    let mut bytes = std::fs::read(&path).unwrap();
    bytes.extend_from_slice(b"{\"id\":\"half a li");
    std::fs::write(&path, bytes).unwrap();
    jobs.emit(Message::to("email").bytes("3")).unwrap();
    relay_to_file(&jobs, &path);
    assert_eq!(
        lines(&path).iter().map(|l| l["sequence"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1, 2, 3]
    );
}

/// A crash between the sync of the file and the acknowledgement repeats no line.
#[test]
fn the_file_sink_recognises_what_it_has_written() {
    let (dir, jobs) = open();
    let path = dir.path().join("out.jsonl");
    jobs.set_destination("email", DestinationPolicy::new().messages(quick())).unwrap();
    emit(&jobs, 4);
    let file = FileSink::open(&path).unwrap();
    // Written, and then said to have failed: what a lost acknowledgement looks like from outside.
    let sink = Recorder::new(move |batch: &[Outgoing]| {
        let written = file.deliver(batch);
        assert!(written.iter().all(Result::is_ok));
        batch.iter().map(|_| Err(Failure::ambiguous("lost"))).collect()
    });
    let relay = Relay::new(&jobs).sink("email", sink).start().unwrap();
    wait_until("the loss", || jobs.stats().unwrap().total.flow("retried_ambiguous") >= 4);
    relay.shutdown(secs(10));
    relay_to_file(&jobs, &path);
    assert_eq!(lines(&path).len(), 4);
    check(&jobs);
}

/// P6: however many bytes its lines have.
#[test]
fn p_06_the_file_sink_recognises_lines_behind_many_bytes() {
    let (dir, jobs) = open();
    let (path, out) = (dir.path().join("jobs.redb"), dir.path().join("out.jsonl"));
    for row in 0..5 {
        // Binary, so that a line is twice as long.
        let mut bytes = vec![0xff; 1_000_000];
        bytes[0] = row;
        jobs.emit(Message::to("email").bytes(bytes)).unwrap();
    }
    jobs.close().unwrap();
    let before = dir.path().join("before.redb");
    std::fs::copy(&path, &before).unwrap();
    // In the second store nothing was acknowledged.
    for path in [path, before] {
        let jobs = Redrive::open(path).unwrap();
        relay_to_file(&jobs, &out);
        check(&jobs);
    }
    assert_eq!(lines(&out).len(), 5);
}

/// How many jobs the process that is killed has to do, each of which emits one message.
const KILLED_JOBS: u64 = 200;

fn work_and_relay(
    jobs: &Redrive,
    out: &std::path::Path,
) -> (redrive::RunningWorkers, redrive::RunningRelay) {
    let workers = redrive::Workers::new(jobs)
        .queue("q", 4)
        .handle("k", |job| {
            let text = String::from_utf8(job.payload().to_vec())?;
            Ok(Completion::new().emit(Message::to("email").bytes(format!("receipt {text}"))))
        })
        .start()
        .unwrap();
    let file = FileSink::open(out).unwrap();
    let sink = Recorder::new(move |batch: &[Outgoing]| {
        let results = file.deliver(batch);
        // The parent kills between the sync of the file and the acknowledgement, often enough.
        println!("\n= {}", batch.len());
        results
    });
    let relay = Relay::new(jobs).sink("email", sink).batch(10).start().unwrap();
    (workers, relay)
}

/// The role of the child; in the normal run it does nothing.
#[test]
fn child_emits_and_relays_until_it_is_killed() {
    let Some(path) = crate::support::child_argument() else { return };
    let jobs = Redrive::open(&path).unwrap();
    let _running = work_and_relay(&jobs, &path.with_extension("jsonl"));
    SystemClock::new().wait(&Signal::new(), None);
}

/// P6: a process that is killed again and again emits one message per job, in dense sequences, and its file
/// sink has each of them once, in order.
#[test]
fn p_06_a_killed_process_neither_loses_nor_renumbers_nor_repeats() {
    use std::io::{BufRead, BufReader};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("jobs.redb");
    let jobs = Redrive::open(&path).unwrap();
    let policy = JobPolicy::new()
        .budget(FailureClass::Crashed, 1_000)
        .max_deliveries(1_000)
        .schedule(Schedule::list([Duration::from_millis(1)]));
    jobs.set_destination("email", DestinationPolicy::new().messages(policy.clone())).unwrap();
    let new = (1..=KILLED_JOBS).map(|n| NewJob::new("q", "k").bytes(n.to_string()));
    let new: Vec<NewJob> = new.map(|job| job.policy(policy.clone())).collect();
    jobs.enqueue_many(new, BatchRule::AllOrNothing).unwrap();
    jobs.close().unwrap();
    let mut random = crate::support::Random(crate::support::seed("REDRIVE_KILL_SEED"));
    println!("REDRIVE_KILL_SEED={}", random.0);
    for round in 0..crate::support::number("REDRIVE_OUTBOX_KILL_ROUNDS", 12) {
        let mut command =
            crate::support::child("outbox::child_emits_and_relays_until_it_is_killed", &path);
        let mut process = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(process.stdout.take().unwrap()).lines();
        let calls = output.map_while(Result::ok).filter(|line| line.starts_with("= "));
        // Late in the test there may be less left to do than it would wait for.
        let wanted = if round < 8 { 1 + random.below(4) } else { 0 };
        calls.take(usize::try_from(wanted).unwrap()).for_each(drop);
        process.kill().unwrap();
        process.wait().unwrap();
        let jobs = Redrive::open(&path).unwrap();
        check(&jobs);
        jobs.close().unwrap();
    }
    let jobs = Redrive::open(&path).unwrap();
    let out = path.with_extension("jsonl");
    let (workers, relay) = work_and_relay(&jobs, &out);
    wait_until("all", || {
        let stats = jobs.stats().unwrap();
        stats.queues["q"].counts.done == KILLED_JOBS && unsent(&jobs) == 0
    });
    workers.shutdown(secs(10));
    relay.shutdown(secs(10));
    let stats = &jobs.outbox().unwrap()["email"];
    assert_eq!((stats.sent, stats.next_sequence), (KILLED_JOBS, KILLED_JOBS + 1));
    let written = lines(&out);
    let sequences: Vec<u64> = written.iter().map(|l| l["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (1..=KILLED_JOBS).collect::<Vec<_>>());
    let texts: BTreeSet<&str> = written.iter().map(|l| l["payload"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), written.len());
    check(&jobs);
}
