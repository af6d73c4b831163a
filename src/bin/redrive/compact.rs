//! `redrive compact`.

use std::path::Path;

use clap::Args as Arguments;
use redrive::Options;

use crate::exit::{Status, Trouble};
use crate::{output, store};

/// Gives space that is not used back to the file system. A file never shrinks by itself: what finished
/// jobs leave is used again for new ones.
#[derive(Debug, Arguments)]
pub(crate) struct CompactArgs {
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(file: &Path, args: &CompactArgs) -> Result<Status, Trouble> {
    let done = store::open_existing(file, Options::new())?.close_compacted()?;
    if args.json {
        output::print_json(&done)?;
    } else {
        output::print(|out| {
            writeln!(out, "{} bytes, {} before", done.bytes_after, done.bytes_before)
        })?;
    }
    Ok(Status::Done)
}
