//! Starts the worker again when it dies, as a service manager would.

use std::error::Error;
use std::path::PathBuf;
use std::process::Command;

/// Dies here, with everything that is in flight, if this is the place that was chosen.
pub(crate) fn crash_at(place: &str) {
    if std::env::var("CRASH_AT").is_ok_and(|chosen| chosen == place) {
        eprintln!("  -- the process dies: {place}");
        std::process::abort();
    }
}

/// Runs `story` in child processes until one ends well. The first dies at `crash`.
pub(crate) fn supervise(
    crash: &str,
    story: impl FnOnce(PathBuf) -> Result<(), Box<dyn Error>>,
) -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args_os().skip(1).collect();
    match arguments.as_slice() {
        [flag, directory] if flag == "--worker" => story(directory.into()),
        [] | [_] => {
            let fresh = std::env::temp_dir().join(format!("redrive-{}", std::process::id()));
            let directory = arguments.first().map_or(fresh, PathBuf::from);
            std::fs::create_dir_all(&directory)?;
            println!("in {}", directory.display());
            for life in 1..=10 {
                let mut child = Command::new(std::env::current_exe()?);
                child.arg("--worker").arg(&directory);
                if life == 1 {
                    child.env("CRASH_AT", crash);
                }
                let ended = child.status()?;
                if ended.success() {
                    return Ok(());
                }
                println!("the worker ended with {ended}; starting it again");
            }
            Err("ten lives were not enough".into())
        }
        _ => Err("usage: [DIRECTORY]".into()),
    }
}
