//! Tables of the user's own: their names and types.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::domain::effect::{Change, TableSpec, is_reserved};
use crate::domain::id::JobId;
use crate::domain::limits::EFFECT_KEY_BYTES_MAX;
use crate::error::EffectError;
use crate::handle::check_name;

/// A table of the user's own, in the queue's file: what handlers write to it commits together with the
/// acknowledgement of their job (P6). It comes into being with its first row.
///
/// The name has 1 to 128 bytes and does not begin with `redrive/`. Key and value types are stored with
/// the table; using it with others is an error. Up to 1,000 tables fit into a file; put what varies
/// into the key.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// # let jobs = redrive::Redrive::open(dir.path().join("jobs.redb"))?;
/// use redrive::{ClaimRequest, Completion, EffectTable, Json, NewJob};
///
/// #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
/// struct Receipt {
///     cents: u64,
/// }
/// const RECEIPTS: EffectTable<str, Json<Receipt>> = EffectTable::new("receipts");
///
/// jobs.enqueue(NewJob::new("charges", "charge").bytes("O-194"))?;
/// let lease = jobs.claim(ClaimRequest::new("charges"))?.remove(0);
/// lease.complete_with(Completion::new().put(RECEIPTS, "O-194", &Receipt { cents: 4_900 }))?;
///
/// let receipt = jobs.read(|r| r.get(RECEIPTS, "O-194"))?;
/// assert_eq!(receipt, Some(Receipt { cents: 4_900 }));
/// # Ok::<_, Box<dyn std::error::Error>>(())
/// ```
pub struct EffectTable<K: ?Sized, V: ?Sized> {
    name: &'static str,
    types: PhantomData<fn(&K, &V)>,
}

impl<K: ?Sized, V: ?Sized> EffectTable<K, V> {
    /// The table of this name. The name is checked where the table is used.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, types: PhantomData }
    }

    /// The table's name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<K: ?Sized, V: ?Sized> Clone for EffectTable<K, V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<K: ?Sized, V: ?Sized> Copy for EffectTable<K, V> {}

impl<K: ?Sized, V: ?Sized> fmt::Debug for EffectTable<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EffectTable").field(&self.name).finish()
    }
}

/// What can be a key in an [`EffectTable`]: `str`, `[u8]`, `u32`, `u64`, `i64`, [`JobId`], and what
/// implements this.
///
/// Rows are ordered by their encoded keys, so an encoding should keep the order of the values. Encoders
/// run on the caller's thread.
///
/// ```
/// use std::borrow::Cow;
/// use redrive::EffectKey;
///
/// struct Line {
///     order: u64,
///     line: u32,
/// }
///
/// impl EffectKey for Line {
///     const TYPE: &'static str = "order u64, line u32";
///     type Read = Line;
///     fn encode(&self) -> Cow<'_, [u8]> {
///         Cow::Owned([&self.order.to_be_bytes()[..], &self.line.to_be_bytes()].concat())
///     }
///     fn decode(bytes: &[u8]) -> Option<Line> {
///         let (order, line) = bytes.split_at_checked(8)?;
///         let order = u64::from_be_bytes(order.try_into().ok()?);
///         Some(Line { order, line: u32::from_be_bytes(line.try_into().ok()?) })
///     }
/// }
/// ```
pub trait EffectKey {
    /// Names the encoding; stored with the table.
    const TYPE: &'static str;
    /// What a stored key is read as.
    type Read;
    /// The key's bytes, at most 1,024 of them.
    fn encode(&self) -> Cow<'_, [u8]>;
    /// The key that has these bytes; `None` when there is none.
    fn decode(bytes: &[u8]) -> Option<Self::Read>;
}

/// What can be a value in an [`EffectTable`]: `str`, `[u8]`, `u64`, `i64`, [`Json`], and what
/// implements this. Encoders and decoders run on the caller's thread.
pub trait EffectValue {
    /// Names the encoding; stored with the table.
    const TYPE: &'static str;
    /// What is given to be put.
    type Given: ?Sized;
    /// What a stored value is read as.
    type Read;
    /// The value's bytes.
    ///
    /// # Errors
    ///
    /// Why it cannot be encoded, as a text.
    fn encode(value: &Self::Given) -> Result<Vec<u8>, String>;
    /// The value that has these bytes.
    ///
    /// # Errors
    ///
    /// Why they make no value, as a text.
    fn decode(bytes: &[u8]) -> Result<Self::Read, String>;
}

/// A value kept as JSON: readable by people, and tolerant of fields that are added later (mark those
/// with `#[serde(default)]`).
pub struct Json<T>(PhantomData<fn(&T)>);

impl<T> fmt::Debug for Json<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

impl<T: Serialize + DeserializeOwned> EffectValue for Json<T> {
    const TYPE: &'static str = "json";
    type Given = T;
    type Read = T;

    fn encode(value: &T) -> Result<Vec<u8>, String> {
        serde_json::to_vec(value).map_err(|error| error.to_string())
    }

    fn decode(bytes: &[u8]) -> Result<T, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

#[expect(clippy::use_self, reason = "the type of a text happens to be the implementor")]
impl EffectKey for str {
    const TYPE: &'static str = "str";
    type Read = String;

    fn encode(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self.as_bytes())
    }

    fn decode(bytes: &[u8]) -> Option<String> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl EffectKey for [u8] {
    const TYPE: &'static str = "bytes";
    type Read = Vec<u8>;

    fn encode(&self) -> Cow<'_, [u8]> {
        Cow::Borrowed(self)
    }

    fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
        Some(bytes.to_vec())
    }
}

impl EffectKey for JobId {
    const TYPE: &'static str = "job";
    type Read = Self;

    fn encode(&self) -> Cow<'_, [u8]> {
        Cow::Owned(self.get().to_be_bytes().to_vec())
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(|bytes| Self::new(u64::from_be_bytes(bytes)))
    }
}

/// Big-endian, with the sign turned over, so that byte order is number order.
macro_rules! number_key {
    ($($number:ident $flip:expr;)*) => {$(
        impl EffectKey for $number {
            const TYPE: &'static str = stringify!($number);
            type Read = Self;

            fn encode(&self) -> Cow<'_, [u8]> {
                Cow::Owned((*self ^ $flip).to_be_bytes().to_vec())
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(|bytes| Self::from_be_bytes(bytes) ^ $flip)
            }
        }
    )*};
}

number_key! {
    u32 0;
    u64 0;
    i64 i64::MIN;
}

macro_rules! number_value {
    ($($number:ident)*) => {$(
        impl EffectValue for $number {
            const TYPE: &'static str = stringify!($number);
            type Given = Self;
            type Read = Self;

            fn encode(value: &Self) -> Result<Vec<u8>, String> {
                Ok(value.to_be_bytes().to_vec())
            }

            fn decode(bytes: &[u8]) -> Result<Self, String> {
                let bytes = bytes.try_into().map_err(|_| format!("{} bytes", bytes.len()))?;
                Ok(Self::from_be_bytes(bytes))
            }
        }
    )*};
}

number_value!(u64 i64);

#[expect(clippy::use_self, reason = "the type of a text happens to be the implementor")]
impl EffectValue for str {
    const TYPE: &'static str = "str";
    type Given = Self;
    type Read = String;

    fn encode(value: &Self) -> Result<Vec<u8>, String> {
        Ok(value.as_bytes().to_vec())
    }

    fn decode(bytes: &[u8]) -> Result<String, String> {
        String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())
    }
}

impl EffectValue for [u8] {
    const TYPE: &'static str = "bytes";
    type Given = Self;
    type Read = Vec<u8>;

    fn encode(value: &Self) -> Result<Vec<u8>, String> {
        Ok(value.to_vec())
    }

    fn decode(bytes: &[u8]) -> Result<Vec<u8>, String> {
        Ok(bytes.to_vec())
    }
}

impl<K: EffectKey + ?Sized, V: EffectValue + ?Sized> EffectTable<K, V> {
    /// Name and types, if the name can be used.
    pub(crate) fn spec(self) -> Result<TableSpec, EffectError> {
        let table = || self.name.to_owned();
        check_name(self.name).map_err(|why| EffectError::BadTable { table: table(), why })?;
        if is_reserved(self.name) {
            return Err(EffectError::ReservedTable { table: table() });
        }
        Ok(TableSpec { name: self.name, key: K::TYPE, value: V::TYPE })
    }

    /// The bytes of a key.
    pub(crate) fn key(self, key: &K) -> Result<Vec<u8>, EffectError> {
        let bytes = guarded(|| Ok(key.encode().into_owned()))
            .map_err(|message| EffectError::Unencodable { table: self.name.to_owned(), message })?;
        if bytes.len() > EFFECT_KEY_BYTES_MAX {
            return Err(EffectError::KeyTooLong {
                table: self.name.to_owned(),
                bytes: bytes.len(),
                bytes_max: EFFECT_KEY_BYTES_MAX,
            });
        }
        Ok(bytes)
    }

    /// A put, or, without a value, a delete.
    pub(crate) fn change(self, key: &K, value: Option<&V::Given>) -> Result<Change, EffectError> {
        let (table, key) = (self.spec()?, self.key(key)?);
        let value = value.map(|value| guarded(|| V::encode(value))).transpose();
        let value = value
            .map_err(|message| EffectError::Unencodable { table: self.name.to_owned(), message })?;
        Ok(Change { table, key, value })
    }

    /// A stored value, read.
    pub(crate) fn value(self, bytes: &[u8]) -> Result<V::Read, EffectError> {
        guarded(|| V::decode(bytes)).map_err(|message| self.undecodable(message))
    }

    /// A stored key, read.
    pub(crate) fn read_key(self, bytes: &[u8]) -> Result<K::Read, EffectError> {
        let decoded = guarded(|| K::decode(bytes).ok_or_else(|| "not such a key".to_owned()));
        decoded.map_err(|message| self.undecodable(message))
    }

    fn undecodable(self, message: String) -> EffectError {
        EffectError::Undecodable { table: self.name.to_owned(), message }
    }
}

/// A coder of the user's may panic; here that is an answer like any other.
pub(crate) fn guarded<T>(code: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    let panicked = |_| Err("the coder panicked".to_owned());
    catch_unwind(AssertUnwindSafe(code)).unwrap_or_else(panicked)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn encoded<K: EffectKey + ?Sized>(key: &K) -> Vec<u8> {
        key.encode().into_owned()
    }

    proptest! {
        /// Byte order is the order of the values, and what is written is read.
        #[test]
        fn keys_keep_their_order(a: i64, b: i64, c: u64, d: u64, e: u32, f: u32, s: String, t: String) {
            prop_assert_eq!(encoded(&a).cmp(&encoded(&b)), a.cmp(&b));
            prop_assert_eq!(encoded(&c).cmp(&encoded(&d)), c.cmp(&d));
            prop_assert_eq!(encoded(&e).cmp(&encoded(&f)), e.cmp(&f));
            prop_assert_eq!(encoded(s.as_str()).cmp(&encoded(t.as_str())), s.cmp(&t));
            prop_assert_eq!(<i64 as EffectKey>::decode(&encoded(&a)), Some(a));
            prop_assert_eq!(<u64 as EffectKey>::decode(&encoded(&c)), Some(c));
            prop_assert_eq!(u32::decode(&encoded(&e)), Some(e));
            prop_assert_eq!(<str as EffectKey>::decode(&encoded(s.as_str())), Some(s));
        }

        #[test]
        fn values_are_read_as_written(a: i64, b: u64, s: String, bytes: Vec<u8>) {
            prop_assert_eq!(<i64 as EffectValue>::decode(&i64::encode_value(&a)), Ok(a));
            prop_assert_eq!(<u64 as EffectValue>::decode(&u64::encode_value(&b)), Ok(b));
            let json = <Json<(i64, String)> as EffectValue>::encode(&(a, s.clone())).unwrap();
            prop_assert_eq!(<Json<(i64, String)> as EffectValue>::decode(&json), Ok((a, s.clone())));
            prop_assert_eq!(<str as EffectValue>::decode(s.as_bytes()), Ok(s));
            prop_assert_eq!(<[u8] as EffectValue>::decode(&bytes), Ok(bytes.clone()));
            let _ = (<u64 as EffectValue>::decode(&bytes), <str as EffectValue>::decode(&bytes));
        }
    }

    trait EncodeValue: EffectValue<Given = Self> + Sized {
        fn encode_value(&self) -> Vec<u8> {
            Self::encode(self).unwrap()
        }
    }

    impl EncodeValue for i64 {}
    impl EncodeValue for u64 {}

    /// Reserved and impossible names are refused, whatever is to be written.
    #[test]
    fn names_are_checked() {
        let spec = |name| EffectTable::<str, str>::new(name).spec();
        assert!(matches!(spec("redrive/jobs"), Err(EffectError::ReservedTable { .. })));
        assert!(matches!(spec("redrive/"), Err(EffectError::ReservedTable { .. })));
        assert!(matches!(spec(""), Err(EffectError::BadTable { .. })));
        assert!(matches!(spec("a\nb"), Err(EffectError::BadTable { .. })));
        assert!(spec("redrive").is_ok() && spec("my/redrive/").is_ok());
    }
}
