//! An HTTP server for one process on one machine: enough to be posted to.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A request with its body.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) path: String,
    /// By lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

/// What the server does.
#[derive(Debug)]
pub(crate) enum Reply {
    Status(u16, Vec<(&'static str, String)>),
    /// With a body; the connection ends behind it, even if more was announced.
    Body {
        status: u16,
        body: Vec<u8>,
        announced: usize,
    },
    /// The connection breaks after the request has arrived.
    Hangs,
    /// As `Status`, after a while.
    Late(Duration, u16),
}

type Rule = dyn Fn(&Request) -> Reply + Send + Sync;

/// Serves until the process ends. Returns where.
pub(crate) fn serve(
    rule: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let rule: Arc<Rule> = Arc::new(rule);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let rule = Arc::clone(&rule);
            // A connection that breaks is the client's to notice.
            std::thread::spawn(move || drop(converse(&stream, &*rule)));
        }
    });
    Ok(address)
}

fn converse(stream: &TcpStream, rule: &Rule) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = read(&mut reader)? {
        let mut content = (Vec::new(), 0);
        let (status, headers) = match rule(&request) {
            Reply::Status(status, headers) => (status, headers),
            Reply::Body { status, body, announced } => {
                content = (body, announced);
                (status, Vec::new())
            }
            Reply::Hangs => return stream.shutdown(std::net::Shutdown::Both),
            Reply::Late(wait, status) => {
                std::thread::sleep(wait);
                (status, Vec::new())
            }
        };
        let (body, announced) = content;
        let mut answer = format!("HTTP/1.1 {status} x\r\ncontent-length: {announced}\r\n");
        for (name, value) in headers {
            answer += &format!("{name}: {value}\r\n");
        }
        let mut stream = stream;
        stream.write_all((answer + "\r\n").as_bytes())?;
        stream.write_all(&body)?;
        if announced > 0 {
            return stream.shutdown(std::net::Shutdown::Write);
        }
    }
    Ok(())
}

fn read(reader: &mut impl BufRead) -> std::io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|length| length.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Some(Request { path, headers, body }))
}
