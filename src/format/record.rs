//! Values: `version u8 | body (postcard) | crc32 of both, little-endian`.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::format::Damage;

/// The version of every record written today.
pub(crate) const VERSION: u8 = 1;

const CRC_BYTES: usize = 4;

/// Appends the record of `body` to `buffer`, which is cleared first.
pub(crate) fn encode_into(buffer: &mut Vec<u8>, body: &impl Serialize) -> Result<(), Damage> {
    buffer.clear();
    buffer.push(VERSION);
    let written = postcard::to_extend(body, std::mem::take(buffer));
    *buffer = written.map_err(|_| Damage("a record could not be encoded"))?;
    let crc = crc32fast::hash(buffer);
    buffer.extend_from_slice(&crc.to_le_bytes());
    Ok(())
}

/// The record of `body`.
pub(crate) fn encode(body: &impl Serialize) -> Result<Vec<u8>, Damage> {
    let mut buffer = Vec::with_capacity(64);
    encode_into(&mut buffer, body)?;
    Ok(buffer)
}

/// `body` as a record, whatever it says.
#[cfg(any(fuzzing, feature = "test-util"))]
pub(crate) fn seal(body: &[u8]) -> Vec<u8> {
    let mut buffer = vec![VERSION];
    buffer.extend_from_slice(body);
    let crc = crc32fast::hash(&buffer);
    buffer.extend_from_slice(&crc.to_le_bytes());
    buffer
}

/// Reads a record back; anything but the exact bytes of a known version is damage.
pub(crate) fn decode<T: DeserializeOwned>(record: &[u8]) -> Result<T, Damage> {
    let body_end = record.len().checked_sub(CRC_BYTES).ok_or(Damage("a record is too short"))?;
    let (checked, crc) = record.split_at(body_end);
    if crc32fast::hash(checked).to_le_bytes() != crc {
        return Err(Damage("a record's checksum does not match"));
    }
    match checked.split_first() {
        Some((&VERSION, body)) => {
            let (value, rest) = postcard::take_from_bytes(body)
                .map_err(|_| Damage("a record does not have the fields of its version"))?;
            if rest.is_empty() { Ok(value) } else { Err(Damage("a record is too long")) }
        }
        Some(_) => Err(Damage("a record has an unknown version")),
        None => Err(Damage("a record is too short")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::blob::Blob;

    proptest! {
        #[test]
        fn what_is_written_is_read(text in ".*", bytes: Vec<u8>, number: u64) {
            let record = encode(&(&text, Blob(bytes.clone()), number)).unwrap();
            prop_assert_eq!(decode(&record), Ok((text, Blob(bytes), number)));
        }

        /// P14: a record with any one byte changed, or cut short, is damage, never another value.
        #[test]
        fn damage_is_found(bytes: Vec<u8>, at: prop::sample::Index, flip in 1..=255u8) {
            let mut record = encode(&Blob(bytes)).unwrap();
            let at = at.index(record.len());
            prop_assert!(decode::<Blob>(&record[..at]).is_err());
            record[at] ^= flip;
            prop_assert!(decode::<Blob>(&record).is_err());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let _: Result<crate::domain::job::Job, Damage> = decode(&bytes);
        }
    }
}
