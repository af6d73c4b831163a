//! Reads lines of any length in bounded memory.

use std::io::{self, BufRead, BufReader, Read};

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// Its bytes.
    Whole(Vec<u8>),
    /// It has more bytes than are allowed; they were passed over.
    TooLong {
        /// How many.
        bytes: u64,
    },
}

/// Reads lines. Holds one buffer and at most one line of the allowed length.
#[derive(Debug)]
pub(crate) struct Lines<R> {
    input: BufReader<R>,
    bytes_max: usize,
    /// Bytes taken from the input so far.
    pub(crate) bytes_read: u64,
}

impl<R: Read> Lines<R> {
    /// Bytes read from the input at once.
    const BUFFER: usize = 256 * 1024;

    pub(crate) fn new(input: R, bytes_max: usize) -> Self {
        Self { input: BufReader::with_capacity(Self::BUFFER, input), bytes_max, bytes_read: 0 }
    }

    /// Whether the next line may have to be waited for.
    pub(crate) fn may_wait(&self) -> bool {
        self.input.buffer().is_empty()
    }

    /// The next line; `None` at the end of the input.
    pub(crate) fn next(&mut self) -> io::Result<Option<Line>> {
        // Two more than allowed, to tell a line that is too long from one that ends in CR LF.
        let room = self.bytes_max.saturating_add(2);
        let mut line = Vec::new();
        let mut bytes: u64 = 0;
        let mut ended = false;
        while !ended {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            if chunk.is_empty() {
                if bytes == 0 {
                    return Ok(None);
                }
                break;
            }
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let (part, rest) = chunk.split_at(end.unwrap_or(chunk.len()));
            ended = !rest.is_empty();
            let kept = part.len().min(room.saturating_sub(line.len()));
            line.extend(part.iter().take(kept));
            let taken = part.len() + usize::from(ended);
            bytes += whole(taken);
            self.input.consume(taken);
        }
        self.bytes_read += bytes;
        let mut length = bytes - u64::from(ended);
        if ended && length == whole(line.len()) && line.last() == Some(&b'\r') {
            line.pop();
            length -= 1;
        }
        Ok(Some(if length > whole(self.bytes_max) {
            Line::TooLong { bytes: length }
        } else {
            Line::Whole(line)
        }))
    }
}

fn whole(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &[u8], bytes_max: usize) -> Vec<Line> {
        let mut lines = Lines::new(text, bytes_max);
        let mut found = Vec::new();
        while let Some(line) = lines.next().unwrap() {
            found.push(line);
        }
        assert_eq!(lines.bytes_read, whole(text.len()));
        found
    }

    fn line(text: &[u8]) -> Line {
        Line::Whole(text.to_vec())
    }

    #[test]
    fn line_ends_are_not_part_of_lines() {
        assert_eq!(all(b"", 9), []);
        assert_eq!(
            all(b"a\n\r\nb\r\n\xff\r", 9),
            [line(b"a"), line(b""), line(b"b"), line(b"\xff\r")]
        );
    }

    #[test]
    fn lines_over_the_limit_are_measured_and_passed_over() {
        assert_eq!(
            all(b"1234\n12345\n1234\r\n12345\r\n1234\r", 4),
            [
                line(b"1234"),
                Line::TooLong { bytes: 5 },
                line(b"1234"),
                Line::TooLong { bytes: 5 },
                Line::TooLong { bytes: 5 },
            ]
        );
    }

    #[test]
    fn a_line_longer_than_the_buffer_is_measured_in_bounded_memory() {
        let bytes = 3 * Lines::<&[u8]>::BUFFER + 17;
        let text = [vec![b'x'; bytes], b"\nnext".to_vec()].concat();
        let expected = Line::TooLong { bytes: whole(bytes) };
        assert_eq!(all(&text, 1_000), [expected, line(b"next")]);
    }
}
