//! The cause fingerprint: which dead jobs died of the same thing.

use crate::domain::failure::FailureClass;

/// A stable 64-bit fingerprint of (queue, kind, class, code, normalised message).
///
/// Numbers, hexadecimal runs and quoted text in the message do not count, so `row 17: bad "x"` and
/// `row 18: bad "y"` share a cause. Stable over releases: it is stored with dead jobs.
pub(crate) fn fingerprint(
    queue: &str,
    kind: &str,
    class: FailureClass,
    code: &str,
    message: &str,
) -> u64 {
    let mut hash = Fnv::default();
    for part in [queue, kind, class.name(), code, &normalise(message)] {
        hash.write(part.as_bytes());
        hash.write(&[0xff]);
    }
    hash.0
}

/// Lower-cases, folds white space, and replaces every word that holds a digit and every quoted run
/// by `#`.
fn normalise(message: &str) -> String {
    let mut folded = String::with_capacity(message.len());
    let mut quote = None;
    for letter in message.chars() {
        match quote {
            Some(open) if letter == open => {
                quote = None;
                folded.push('0');
            }
            Some(_) => {}
            None if letter == '"' || letter == '`' => quote = Some(letter),
            None => folded.extend(letter.to_lowercase()),
        }
    }
    let words = folded.split(|letter: char| !letter.is_alphanumeric()).filter(|w| !w.is_empty());
    let mut normal = String::with_capacity(folded.len());
    for word in words {
        let counts = !word.contains(|letter: char| letter.is_ascii_digit());
        normal.push_str(if counts { word } else { "#" });
        normal.push(' ');
    }
    normal
}

/// FNV-1a, 64 bits, with the constants of its authors (<http://www.isthe.com/chongo/tech/comp/fnv/>).
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// A fingerprint in JSON: 16 hexadecimal digits, because JSON readers spoil large numbers.
pub(crate) mod hex {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(cause: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            serializer.collect_str(&format_args!("{cause:016x}"))
        } else {
            cause.serialize(serializer)
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        if deserializer.is_human_readable() {
            let text = String::deserialize(deserializer)?;
            u64::from_str_radix(&text, 16).map_err(Error::custom)
        } else {
            u64::deserialize(deserializer)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(message: &str) -> u64 {
        fingerprint("q", "k", FailureClass::Permanent, "E1", message)
    }

    #[test]
    fn numbers_ids_and_quoted_text_do_not_split_a_cause() {
        assert_eq!(of("row 17: bad \"abc\""), of("Row 99:  bad \"zzzz yyy\""));
        assert_eq!(of("id 3fa9c1 not found"), of("id 77b2 not found"));
        assert_ne!(of("not found"), of("not allowed"));
    }

    #[test]
    fn the_fingerprint_never_changes() {
        assert_eq!(of("row 17"), 4_661_020_209_594_044_173);
    }
}
