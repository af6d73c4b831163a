//! Rules that a machine can check, each with its remedy in the message.

use std::path::{Path, PathBuf};

/// Non-test lines of one file. One concept per file is the rule; this is only its smoke alarm.
const FILE_LINES_MAX: usize = 450;

struct Source {
    name: String,
    text: String,
}

impl Source {
    /// The part before the file's own tests.
    fn code(&self) -> &str {
        self.text.split("#[cfg(test)]\nmod tests").next().unwrap()
    }
}

fn sources(folder: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let name = path.strip_prefix(root).unwrap().display().to_string();
                found.push(Source { name, text: std::fs::read_to_string(path).unwrap() });
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

fn none(problems: &[String], remedy: &str) {
    assert!(problems.is_empty(), "{remedy}\n{}", problems.join("\n"));
}

/// The layers of docs/architecture.md: who may use whom.
#[test]
fn layers_point_downward() {
    let leaves = ["clock", "error", "domain"];
    let allowed: [(&str, &[&str]); 7] = [
        ("domain", &[]),
        ("format", &["domain"]),
        ("store", &["domain", "format", "error", "clock"]),
        ("writer", &["domain", "format", "store", "error", "clock"]),
        ("handle", &["domain", "format", "store", "writer", "error", "clock"]),
        ("worker", &["domain", "handle", "writer", "error", "clock"]),
        ("relay", &["domain", "format", "handle", "worker", "writer", "error", "clock"]),
    ];
    let mut problems = Vec::new();
    for (layer, below) in allowed {
        for source in sources(&format!("src/{layer}")) {
            for used in source.text.split("crate::").skip(1) {
                let used = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap();
                let known = leaves.contains(&used) || allowed.iter().any(|(name, _)| *name == used);
                if known && used != layer && !below.contains(&used) {
                    problems.push(format!("{} uses crate::{used}", source.name));
                }
            }
        }
    }
    none(&problems, "a layer uses one above it: move the code to the layer it belongs to");
}

#[test]
fn only_the_store_names_redb_and_only_the_clock_asks_for_the_time() {
    let mut problems = Vec::new();
    for source in sources("src") {
        let store = source.name.starts_with("src/store/") || source.name.starts_with("src/testing");
        let code = source.code().lines().filter(|line| !line.trim_start().starts_with("//"));
        for line in code {
            // Options hands a test's backend to the store.
            if line.contains("redb::") && !store && source.name != "src/handle/options.rs" {
                problems.push(format!("{} names redb: {line}", source.name));
            }
            let clock = line.contains("Instant::now") || line.contains("SystemTime::now");
            if clock && source.name != "src/clock.rs" {
                problems.push(format!("{} asks for the time: {line}", source.name));
            }
        }
    }
    none(&problems, "go through store/ for redb and through the Clock for time");
}

#[test]
fn every_write_passes_the_one_narrow_place() {
    let mut problems = Vec::new();
    for source in sources("src") {
        for call in [".insert(key, value)", ".remove(key)", "open_table("] {
            let mut code =
                source.code().lines().filter(|line| !line.trim_start().starts_with("//"));
            if code.any(|line| line.contains(call)) && source.name != "src/store/rows.rs" {
                problems.push(format!("{} has {call}", source.name));
            }
        }
    }
    none(&problems, "write rows through store::rows::WriteRows::write");
}

#[test]
fn files_stay_small() {
    let problems: Vec<String> = sources("src")
        .iter()
        .map(|source| (source.code().lines().count(), &source.name))
        .filter(|(lines, _)| *lines > FILE_LINES_MAX)
        .map(|(lines, name)| format!("{name}: {lines} lines"))
        .collect();
    none(&problems, "a file over the cap: does it hold one concept?");
}

#[test]
fn no_test_asks_a_question_without_reading_the_answer() {
    let mut problems = Vec::new();
    for source in sources("tests").into_iter().chain(sources("src")) {
        for line in source.text.lines() {
            let line = line.trim();
            if line.starts_with("matches!(") && line.ends_with(");") {
                problems.push(format!("{}: {line}", source.name));
            }
        }
    }
    none(&problems, "a bare matches! asserts nothing: write assert!(matches!(..))");
}

#[test]
fn sources_are_ascii_and_finished() {
    let mut problems = Vec::new();
    for folder in ["src", "tests"] {
        for source in sources(folder) {
            if !source.text.is_ascii() {
                problems.push(format!("{} is not ASCII", source.name));
            }
            for mark in ["TO".to_owned() + "DO", "FIX".to_owned() + "ME", "XX".to_owned() + "X"] {
                if source.text.contains(&mark) {
                    problems.push(format!("{} holds {mark}", source.name));
                }
            }
        }
    }
    none(&problems, "finish it, or file it");
}
