//! Posting to a webhook, and what its answer means for the job.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ureq::http::Uri;
use ureq::{Agent, Body, Error, Timeout};

use crate::clock::{Clock, SystemClock};
use crate::domain::failure::Failure;
use crate::domain::time::Timestamp;

/// Of an answer's body, so many of its first bytes are kept as the message of the failure.
const EXCERPT_BYTES_MAX: u64 = 512;

/// Posts bodies over HTTP and HTTPS, each with an `Idempotency-Key`, and sorts the answers into failure
/// classes.
///
/// | what came back | class | code |
/// |---|---|---|
/// | 2xx | none: delivered | |
/// | 429 | throttled, waits for `Retry-After` | `429` |
/// | 408, 425, 5xx | transient, waits for `Retry-After` | the status |
/// | 3xx (redirects are not followed), other 4xx | permanent | the status |
/// | an address that is none, or not `http` or `https` | permanent | `bad_url` |
/// | a header that cannot be sent | permanent | `bad_header` |
/// | no such host, no connection | transient | `no_connection` |
/// | no answer in time, or a connection that broke | ambiguous: it may have arrived | `response_lost` |
///
/// The statuses and `Retry-After`, in seconds or as a date, are those of RFC 9110, 6585 and 8470;
/// `Idempotency-Key` is that of the IETF draft of that name. The receiver has to honour the key: what
/// was lost on the way back is posted again with the same one. Without the key, or with a receiver that
/// does not know it, use a policy that reconciles or quarantines unknown outcomes.
///
/// ```no_run
/// use std::time::Duration;
/// use redrive::{Completion, Redrive, Webhook, Workers};
///
/// let jobs = Redrive::open("jobs.redb")?;
/// let webhook = Webhook::new().timeout(Duration::from_secs(20)).header("X-Source", "shop");
/// let workers = Workers::new(&jobs).queue("callbacks", 8).handle("callback", move |job| {
///     let key = job.key().unwrap_or_default();
///     webhook.post("https://example.org/hook", key, "application/json", job.payload())?;
///     Ok(Completion::new())
/// });
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct Webhook {
    agent: Agent,
    headers: Vec<(String, String)>,
    clock: Arc<dyn Clock>,
}

impl Default for Webhook {
    fn default() -> Self {
        Self::new()
    }
}

impl Webhook {
    /// With a limit of 10 s for the connection and 30 s for all of it.
    pub fn new() -> Self {
        let agent = agent(Duration::from_secs(30));
        Self { agent, headers: Vec::new(), clock: Arc::new(SystemClock::new()) }
    }

    /// How long one post may take, from the name of the host to the last byte of the answer (default
    /// 30 s). Set it below the lease, or the deadline, of the jobs that post. At least 1 ms.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.agent = agent(limit.max(Duration::from_millis(1)));
        self
    }

    /// A header of every post, such as an authorization.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// What a `Retry-After` that is a date is compared with (default: the system's clock).
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Posts `body` to `url`. Returns when the answer has come.
    ///
    /// # Errors
    ///
    /// A [`Failure`] of the class that the table above gives; pass it on with `?`.
    pub fn post(
        &self,
        url: &str,
        idempotency_key: &str,
        content_type: &str,
        body: &[u8],
    ) -> Result<(), Failure> {
        self.post_with(url, idempotency_key, &[("Content-Type", content_type)], body)
    }

    /// With these headers in front of those of every post.
    pub(crate) fn post_with(
        &self,
        url: &str,
        idempotency_key: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<(), Failure> {
        let url = address(url)?;
        let mut request = self.agent.post(&url);
        if !idempotency_key.is_empty() {
            request = request.header("Idempotency-Key", idempotency_key);
        }
        let own = self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        for (name, value) in headers.iter().copied().chain(own) {
            request = request.header(name, value);
        }
        let mut response = request.send(body).map_err(|error| unanswered(&error))?;
        let status = response.status().as_u16();
        if (200..300).contains(&status) {
            return Ok(());
        }
        let header = |name| response.headers().get(name)?.to_str().ok().map(str::to_owned);
        let reference = header("x-request-id").or_else(|| header("request-id"));
        let wait = header("retry-after").and_then(|text| retry_after(&text, self.clock.wall()));
        let failure = answered(status, wait).message(excerpt(response.body_mut()));
        Err(match reference {
            Some(reference) => failure.provider_ref(reference),
            None => failure,
        })
    }
}

/// The beginning of an answer's body; of one that breaks off, what came before that.
fn excerpt(body: &mut Body) -> String {
    let mut bytes = Vec::new();
    // The status has said what the answer means, whether or not the rest of it comes.
    let _ = body.as_reader().take(EXCERPT_BYTES_MAX).read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn agent(limit: Duration) -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(Duration::from_secs(10).min(limit)))
        .timeout_global(Some(limit))
        .user_agent(concat!("redrive/", env!("CARGO_PKG_VERSION")))
        .build()
        .new_agent()
}

fn address(url: &str) -> Result<Uri, Failure> {
    let bad = |why: String| Failure::permanent("bad_url").message(format!("{url}: {why}"));
    let address: Uri = url.parse().map_err(|error| bad(format!("{error}")))?;
    match (address.scheme_str(), address.host()) {
        (Some("http" | "https"), Some(host)) if !host.is_empty() => Ok(address),
        (Some("http" | "https"), _) => Err(bad("it names no host".into())),
        _ => Err(bad("it begins with neither http:// nor https://".into())),
    }
}

/// What a status other than 2xx means.
fn answered(status: u16, wait: Option<Duration>) -> Failure {
    let failure = match status {
        429 => Failure::throttled(status.to_string()),
        408 | 425 | 500.. => Failure::transient(status.to_string()),
        _ => return Failure::permanent(status.to_string()),
    };
    match wait {
        Some(wait) => failure.retry_after(wait),
        None => failure,
    }
}

/// What it means that no answer came. Only what is known to have come before the first byte was sent is
/// not ambiguous.
fn unanswered(error: &Error) -> Failure {
    use std::io::ErrorKind;
    let failure = match error {
        Error::BadUri(_) => Failure::permanent("bad_url"),
        Error::Http(_) => Failure::permanent("bad_header"),
        Error::HostNotFound
        | Error::ConnectionFailed
        | Error::ConnectProxyFailed(_)
        | Error::InvalidProxyUrl
        | Error::Timeout(Timeout::Resolve | Timeout::Connect) => {
            Failure::transient("no_connection")
        }
        Error::Io(error)
            if matches!(
                error.kind(),
                ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::AddrNotAvailable
            ) =>
        {
            Failure::transient("no_connection")
        }
        _ => Failure::ambiguous("response_lost"),
    };
    failure.message(error.to_string())
}

/// Both forms of `Retry-After`: seconds, or a date, which is 0 when it is past.
fn retry_after(text: &str, now: Timestamp) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let at = httpdate::parse_http_date(text).ok()?.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    Some(at.saturating_sub(Duration::from_millis(now.as_millis())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::failure::FailureClass;

    #[test]
    fn statuses_are_sorted_into_classes() {
        let class = |status| answered(status, None).class();
        for status in [408, 425, 500, 502, 503, 504, 599] {
            assert_eq!(class(status), FailureClass::Transient, "{status}");
        }
        for status in [301, 302, 304, 400, 401, 403, 404, 409, 410, 413, 422] {
            assert_eq!(class(status), FailureClass::Permanent, "{status}");
        }
        assert_eq!(class(429), FailureClass::Throttled);
        let waits = |status| answered(status, Some(Duration::from_secs(7))).retry_after_ms();
        assert_eq!((waits(429), waits(503), waits(404)), (Some(7_000), Some(7_000), None));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = Timestamp::from_millis(784_111_777_000);
        let wait = |text| retry_after(text, now);
        assert_eq!(wait("120"), Some(Duration::from_secs(120)));
        assert_eq!(wait(" 0 "), Some(Duration::ZERO));
        assert_eq!(wait("Sun, 06 Nov 1994 08:51:37 GMT"), Some(Duration::from_secs(120)));
        assert_eq!(wait("Sun, 06 Nov 1994 08:00:00 GMT"), Some(Duration::ZERO));
        for nonsense in ["", "-1", "soon", "1.5", "99999999999999999999"] {
            assert_eq!(wait(nonsense), None, "{nonsense}");
        }
    }

    #[test]
    fn an_address_that_cannot_be_posted_to_is_a_permanent_failure() {
        for bad in ["", "example.org/x", "htp://example.org", "http://", "http:///x", "http://a b"]
        {
            let failure = address(bad).expect_err(bad);
            assert_eq!((failure.class(), failure.code()), (FailureClass::Permanent, "bad_url"));
        }
        assert!(address("http://127.0.0.1:8080/hook?x=1").is_ok());
    }
}
