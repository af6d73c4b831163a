//! Damaged and foreign files: refused and left alone, or opened and honest about what is in them.
#![no_main]

#[path = "../checks/open_file.rs"]
mod open_file;

use std::sync::Once;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // libFuzzer's own hook ends the process at every panic, but some are meant to be caught: the
    // storage engine panics on pages it cannot make sense of. Those that escape still end it.
    static HOOK: Once = Once::new();
    HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    open_file::check(data);
});
