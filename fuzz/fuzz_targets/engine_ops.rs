//! A list of operations on a store and on the reference model, which must agree after each.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| redrive::testing::run_ops_from_bytes(data));
