//! Replays the checked-in fuzz corpora: what was found once stays found.

use std::path::{Path, PathBuf};

#[path = "../../fuzz/checks/open_file.rs"]
mod open_file;

fn inputs(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let files = std::fs::read_dir(&directory).unwrap();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    };
    let inputs: Vec<_> = files.map(|file| read(file.unwrap().path())).collect();
    assert!(!inputs.is_empty(), "no corpus in {}", directory.display());
    inputs
}

fn replay(target: &str, check: fn(&[u8])) {
    for (path, bytes) in inputs(target) {
        println!("{}", path.display());
        check(&bytes);
    }
}

#[test]
fn records_and_keys_are_read_as_they_are_written_or_not_at_all() {
    replay("decode_record", redrive::__fuzz::decode);
}

#[test]
fn a_damaged_file_is_refused_and_left_alone_or_honest_about_itself() {
    replay("open_file", open_file::check);
}

#[test]
fn operations_do_what_the_model_says() {
    replay("engine_ops", redrive::testing::run_ops_from_bytes);
}

/// Damage in any page, met before or while the store is taken over: refused with the file as it was, or
/// let in and honest about itself (P14).
#[test]
fn damage_in_any_page_is_refused_with_the_file_untouched_or_told() {
    let pages = open_file::sound().len() / 4_096;
    for page in 0..pages {
        for place in [5, 70, 1_000] {
            let place = u32::try_from(page * 4_096 + place).unwrap().to_be_bytes();
            open_file::check(&[4, place[1], place[2], place[3], 0xff]);
        }
    }
}
