//! What the program says: results on standard output, everything about them on standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use redrive::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::exit::Trouble;

/// Writes a result to standard output.
pub(crate) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Trouble> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    write(&mut out).and_then(|()| out.flush()).map_err(|error| Trouble::output(&error))
}

/// Writes a result as one indented JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Trouble> {
    print(|out| {
        serde_json::to_writer_pretty(&mut *out, value)?;
        writeln!(out)
    })
}

/// Tells the person at the terminal. Where standard error is gone there is nobody to tell.
pub(crate) fn note(message: impl Display) {
    let _ = writeln!(io::stderr(), "{message}");
}

/// RFC 3339 with milliseconds, in UTC; past the year 9999, the number of milliseconds.
pub(crate) fn time(at: Timestamp) -> String {
    /// 9999-12-31T23:59:59.999Z, the last instant the format can write.
    const LAST_MS: u64 = 253_402_300_799_999;
    if at.as_millis() > LAST_MS {
        return at.to_string();
    }
    let since = Duration::from_millis(at.as_millis());
    humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + since).to_string()
}

/// A number that JSON readers with 53-bit integers would spoil, as text.
pub(crate) fn cause(cause: u64) -> String {
    format!("{cause:016x}")
}

/// Bytes as JSON: the text, or where they are none, an object with the bytes in hexadecimal.
pub(crate) fn bytes(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => {
            let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            json!({ "hex": hex })
        }
    }
}

/// Text from outside on one line of a table: control characters become spaces, the rest is cut.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    let clean = |letter: char| if letter.is_control() { ' ' } else { letter };
    let mut line: String = text.chars().take(chars_max).map(clean).collect();
    if text.chars().nth(chars_max).is_some() {
        line.push_str("...");
    }
    line
}

/// Text from outside over several lines: control characters other than line ends become spaces.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| one_line(line, usize::MAX))
}

/// Rows of cells, padded to columns.
pub(crate) fn table(out: &mut dyn Write, rows: &[Vec<String>]) -> io::Result<()> {
    let mut widths: Vec<usize> = Vec::new();
    for row in rows {
        widths.resize(widths.len().max(row.len()), 0);
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for row in rows {
        let mut line = String::new();
        for (&width, cell) in widths.iter().zip(row) {
            line.push_str(&format!("{cell:width$}  "));
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
