//! What the answers of a webhook mean, over real HTTP on loopback (P8).

#![expect(clippy::disallowed_methods, reason = "dates and waits of a server outside the store")]

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use redrive::{
    DestinationPolicy, Failure, FailureClass, HttpSink, JobPolicy, Message, Redrive, Relay,
    Schedule, Webhook,
};

#[path = "../../examples/support/http_server.rs"]
pub(crate) mod http_server;

use http_server::{Reply, Request, serve};

fn post(address: SocketAddr) -> Result<(), Failure> {
    let webhook = Webhook::new().timeout(Duration::from_millis(300)).header("X-Source", "shop");
    webhook.post(&format!("http://{address}/hook?x=1"), "key-1", "application/json", b"{\"a\":1}")
}

/// The failure of a post that meets this reply.
fn failure(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Failure {
    post(serve(move |_| reply()).unwrap()).expect_err("a failure")
}

fn status(status: u16, headers: &[(&'static str, &str)]) -> Failure {
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.to_string())).collect();
    failure(move || Reply::Status(status, headers.clone()))
}

#[test]
fn a_post_carries_its_key_its_type_its_headers_and_its_bytes() {
    let seen: Arc<Mutex<Option<Request>>> = Arc::default();
    let record = Arc::clone(&seen);
    let address = serve(move |request| {
        let copy = Request {
            path: request.path.clone(),
            headers: request.headers.clone(),
            body: request.body.clone(),
        };
        *record.lock().unwrap() = Some(copy);
        Reply::Status(204, Vec::new())
    });
    post(address.unwrap()).unwrap();
    let request = seen.lock().unwrap().take().unwrap();
    assert_eq!((request.path.as_str(), request.body.as_slice()), ("/hook?x=1", &b"{\"a\":1}"[..]));
    let header = |name| request.headers.get(name).map(String::as_str);
    assert_eq!(header("idempotency-key"), Some("key-1"));
    assert_eq!(header("content-type"), Some("application/json"));
    assert_eq!(header("x-source"), Some("shop"));
}

#[test]
fn p8_an_answer_is_sorted_by_its_status_and_what_it_asks_for() {
    let seen = |failure: &Failure| (failure.class(), failure.code().to_owned());
    assert_eq!(seen(&status(404, &[])), (FailureClass::Permanent, "404".into()));
    assert_eq!(seen(&status(503, &[])), (FailureClass::Transient, "503".into()));
    let elsewhere = status(302, &[("location", "http://127.0.0.1:1/")]);
    assert_eq!(seen(&elsewhere), (FailureClass::Permanent, "302".into()));
    let busy = status(429, &[("retry-after", "7")]);
    assert_eq!(seen(&busy), (FailureClass::Throttled, "429".into()));
    assert_eq!(busy.wait(), Some(Duration::from_secs(7)));
    let later = httpdate::fmt_http_date(SystemTime::now() + Duration::from_secs(100));
    let wait = status(503, &[("retry-after", &later)]).wait().unwrap();
    assert!(wait > Duration::from_secs(90) && wait <= Duration::from_secs(100), "{wait:?}");
}

/// What may have arrived is unknown; what cannot have arrived is not.
#[test]
fn p8_a_lost_answer_is_ambiguous_and_a_connection_that_never_was_is_not() {
    let lost = failure(|| Reply::Hangs);
    assert_eq!((lost.class(), lost.code()), (FailureClass::Ambiguous, "response_lost"));
    let late = failure(|| Reply::Late(Duration::from_secs(2), 200));
    assert_eq!((late.class(), late.code()), (FailureClass::Ambiguous, "response_lost"));

    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = post(closed).expect_err("nobody listens");
    assert_eq!((refused.class(), refused.code()), (FailureClass::Transient, "no_connection"));

    let bad = Webhook::new().post("htp://example.org/hook", "key", "text/plain", b"");
    let bad = bad.expect_err("no such scheme");
    assert_eq!((bad.class(), bad.code()), (FailureClass::Permanent, "bad_url"));
    let bad = Webhook::new().header("two words", "x").post("http://127.0.0.1:1/", "key", "a", b"");
    let bad = bad.expect_err("no such header");
    assert_eq!((bad.class(), bad.code()), (FailureClass::Permanent, "bad_header"));
}

/// The beginning of what a receiver says is kept, however much it says, and if it breaks off.
#[test]
fn the_first_512_bytes_of_an_answer_are_the_message_of_the_failure() {
    for (sent, announced, kept) in [(100, 100, 100), (2_000, 2_000, 512), (300, 2_000, 300)] {
        let reply = move || Reply::Body { status: 422, body: vec![b'x'; sent], announced };
        let failure = failure(reply);
        assert_eq!((failure.code(), failure.text()), ("422", "x".repeat(kept).as_str()));
    }
}

/// P6, P8: a message is posted with the same key, headers and bytes every time, and each answer is its
/// own: busy, broken, lost, taken.
#[test]
fn p_08_a_message_is_posted_with_the_same_key_and_bytes_until_it_is_taken() {
    type Seen = (String, BTreeMap<String, String>, Vec<u8>);
    let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
    let log = Arc::clone(&seen);
    let address = serve(move |request| {
        let mut log = log.lock().unwrap();
        log.push((
            request.path.clone(),
            request.headers.clone().into_iter().collect(),
            request.body.clone(),
        ));
        match log.len() {
            1 => Reply::Status(503, Vec::new()),
            2 => Reply::Status(429, vec![("retry-after", "0".to_owned())]),
            3 => Reply::Hangs,
            _ => Reply::Status(204, Vec::new()),
        }
    })
    .unwrap();
    let dir = tempfile::tempdir().unwrap();
    let jobs = Redrive::open(dir.path().join("jobs.redb")).unwrap();
    let schedule = Schedule::list([Duration::from_millis(1)]).jitter_percent(0);
    let policy = DestinationPolicy::new().messages(JobPolicy::new().schedule(schedule));
    jobs.set_destination("hook", policy).unwrap();
    let webhook = Webhook::new().timeout(Duration::from_millis(300)).header("X-Source", "shop");
    let sink = HttpSink::routed(move |message| match message.headers() {
        [(name, path), ..] if name == "X-Path" => Ok(format!("http://{address}{path}")),
        _ => Err(Failure::permanent("no_path")),
    });
    let relay = Relay::new(&jobs).sink("hook", sink.webhook(webhook)).start().unwrap();
    let message = Message::to("hook").key("order:7").header("X-Path", "/a").bytes([0, 255]);
    jobs.emit(message.header("Idempotency-Key", "another")).unwrap();
    jobs.emit(Message::to("hook").bytes("nowhere to go")).unwrap();
    let stats = || jobs.outbox().unwrap()["hook"].clone();
    while stats().unsent > 0 {
        std::thread::sleep(Duration::from_millis(2));
    }
    relay.shutdown(Duration::from_secs(10));
    assert_eq!((stats().sent, stats().dead), (1, 1));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|one| *one == seen[0]), "{seen:?}");
    let (path, headers, body) = &seen[0];
    assert_eq!((path.as_str(), body.as_slice()), ("/a", &[0, 255][..]));
    let header = |name: &str| headers.get(name).map(String::as_str);
    assert_eq!(header("idempotency-key"), Some("order:7"));
    assert_eq!(header("content-type"), Some("application/octet-stream"));
    assert_eq!((header("x-path"), header("x-source")), (Some("/a"), Some("shop")));
}
