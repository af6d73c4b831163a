//! The end of a file of messages, read backwards: where its last whole line ends, and whose lines
//! the last ones are.

use std::io::{self, Read, Seek, SeekFrom};

/// What is read at a time, in bytes (64 KiB).
const CHUNK_BYTES: usize = 64 * 1024;
/// How a line begins that holds a message.
const LINE_START: &[u8] = b"{\"id\":\"";
/// Enough of a line to hold its id, in bytes.
const HEAD_BYTES: usize = 128;

/// Where the last whole line ends, and the ids of the last `ids_max` lines that hold one, latest
/// first.
pub(super) fn read<F: Read + Seek>(file: &mut F, ids_max: usize) -> io::Result<(u64, Vec<String>)> {
    let len = file.seek(SeekFrom::End(0))?;
    let mut scan = Scan { ids_max, ..Scan::default() };
    let mut from = len;
    while from > 0 && scan.ids.len() < ids_max {
        let count = usize::try_from(from).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        from -= u64::try_from(count).unwrap_or(from);
        let mut bytes = vec![0; count];
        file.seek(SeekFrom::Start(from))?;
        file.read_exact(&mut bytes)?;
        scan.chunk(from, bytes);
    }
    if from == 0 && scan.ids.len() < ids_max {
        scan.line_starts(0);
    }
    Ok((scan.whole.unwrap_or(0), scan.ids))
}

/// What is known of the bytes behind those that are read next.
#[derive(Default)]
struct Scan {
    ids_max: usize,
    ids: Vec<String>,
    /// Where the last whole line ends.
    whole: Option<u64>,
    /// The present chunk, and the first bytes of what stands behind it.
    bytes: Vec<u8>,
    line: Line,
}

/// The line whose beginning is looked for.
#[derive(Default)]
struct Line {
    /// It ends as a message does, and holds no byte that no JSON has: a page that a power cut has
    /// left unwritten in the middle of lines that were never acknowledged reads as zeros.
    fit: bool,
    /// Its last byte is still to come.
    empty: bool,
}

impl Scan {
    /// Takes the bytes in front of those taken before.
    fn chunk(&mut self, from: u64, mut bytes: Vec<u8>) {
        let count = bytes.len();
        bytes.extend(self.bytes.iter().take(HEAD_BYTES));
        self.bytes = bytes;
        for place in (0..count).rev() {
            match self.bytes.get(place) {
                Some(b'\n') => {
                    self.line_starts(place + 1);
                    if self.ids.len() >= self.ids_max {
                        return;
                    }
                    let after = from.saturating_add(u64::try_from(place).unwrap_or(u64::MAX));
                    self.whole.get_or_insert(after.saturating_add(1));
                    self.line = Line { fit: true, empty: true };
                }
                Some(&byte) => {
                    let last = std::mem::take(&mut self.line.empty);
                    self.line.fit &= byte >= b' ' && (!last || byte == b'}');
                }
                None => {}
            }
        }
    }

    /// The line that was being read begins here, counted in the present chunk.
    fn line_starts(&mut self, place: usize) {
        if !self.line.fit || self.line.empty {
            // Torn, or nobody's message.
            return;
        }
        let head = self.bytes.get(place..).unwrap_or_default();
        let Some(rest) = head.strip_prefix(LINE_START) else { return };
        let rest = rest.get(..rest.len().min(HEAD_BYTES - LINE_START.len())).unwrap_or_default();
        let Some(end) = rest.iter().position(|&byte| byte == b'"') else { return };
        let id = rest.get(..end).unwrap_or_default();
        if let Ok(id) = std::str::from_utf8(id) {
            self.ids.push(id.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn line(id: &str, bytes: usize) -> String {
        format!("{{\"id\":\"{id}\",\"payload\":\"{}\"}}\n", "x".repeat(bytes))
    }

    fn found(text: &str, ids_max: usize) -> (usize, Vec<String>) {
        let (whole, ids) = read(&mut Cursor::new(text), ids_max).expect("it is in memory");
        (usize::try_from(whole).expect("small"), ids)
    }

    #[test]
    fn ids_are_found_wherever_a_chunk_ends() {
        assert_eq!(found("", 9), (0, vec![]));
        assert_eq!(found("torn", 9), (0, vec![]));
        for bytes in (CHUNK_BYTES - 200..CHUNK_BYTES + 10).chain([0, 1, 5 * CHUNK_BYTES]) {
            let whole = line("a", 3) + &line("b", bytes) + &line("c", bytes) + &line("d", 3);
            assert_eq!(
                found(&whole, 9),
                (whole.len(), ["d", "c", "b", "a"].map(str::to_owned).into())
            );
            let torn = whole.clone() + &line("e", bytes);
            let torn = torn.trim_end();
            assert_eq!(found(torn, 2), (whole.len(), ["d", "c"].map(str::to_owned).into()));
        }
    }

    #[test]
    fn what_is_no_whole_message_is_nobodys() {
        let zeros = line("z", 9).replace("xxx", "\0\0\0");
        let long = line(&"l".repeat(HEAD_BYTES), 0);
        let torn = line("t", 9).replace("\"}", "");
        let text =
            line("a", 1) + "\n" + &zeros + &long + &torn + "{\"key\":\"id\"}\n" + &line("b", 1);
        assert_eq!(found(&text, 9), (text.len(), ["b", "a"].map(str::to_owned).into()));
    }

    #[test]
    fn no_more_is_read_than_there_are_ids_to_remember() {
        let mut text = Cursor::new(vec![0; 10 * CHUNK_BYTES]);
        text.get_mut()
            .extend_from_slice(("\n".to_owned() + &line("a", 1) + &line("b", 1)).as_bytes());
        let (whole, ids) = read(&mut text, 2).expect("it is in memory");
        assert_eq!((whole, ids.len()), (u64::try_from(text.get_ref().len()).expect("small"), 2));
        assert!(text.position() > 9 * u64::try_from(CHUNK_BYTES).expect("small"));
    }
}
