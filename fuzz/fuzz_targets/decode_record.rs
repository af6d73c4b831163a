//! Arbitrary bytes as every kind of record and key: never a panic, and what is read is written again
//! as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| redrive::__fuzz::decode(data));
