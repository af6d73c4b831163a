//! Bytes as text: base64 with padding, <https://www.rfc-editor.org/rfc/rfc4648#section-4>.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |place: usize| u32::from(chunk.get(place).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4 {
            let sextet = usize::try_from(group >> (18 - 6 * place) & 63).unwrap_or(0);
            let letter = ALPHABET.get(sextet).copied().unwrap_or(b'A');
            let there = usize::try_from(place).unwrap_or(0) <= chunk.len();
            text.push(if there { char::from(letter) } else { '=' });
        }
    }
    text
}

/// `None` for anything that [`encode`] does not write.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let letters = text.as_bytes();
    if !letters.len().is_multiple_of(4) {
        return None;
    }
    let mut bytes = Vec::with_capacity(letters.len() / 4 * 3);
    for group in letters.chunks(4) {
        let mut number = 0;
        for &letter in group {
            let sextet = match letter {
                b'=' => 0,
                _ => ALPHABET.iter().position(|&known| known == letter)?,
            };
            number = number << 6 | u32::try_from(sextet).ok()?;
        }
        let padding = group.iter().rev().take_while(|&&letter| letter == b'=').count();
        let [_, three @ ..] = number.to_be_bytes();
        bytes.extend(three.iter().take(3_usize.checked_sub(padding)?));
    }
    // Padding within, and bits that stand for nothing, are refused.
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_examples_of_the_rfc() {
        for (plain, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(encode(plain.as_bytes()), text);
            assert_eq!(decode(text).as_deref(), Some(plain.as_bytes()));
        }
        for bad in ["Zg", "Zg=a", "Z===", "====", "Zh==", "Zm9v\n", "=AAA", "\u{e4}AA"] {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(bytes: Vec<u8>, text in "[A-Za-z0-9+/=]{0,12}") {
            let encoded = encode(&bytes);
            prop_assert_eq!(decode(&encoded), Some(bytes));
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
