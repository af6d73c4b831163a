//! Asking before something is done that cannot be undone.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use crate::exit::{Status, Trouble};

/// Goes on when `--yes` was given, or when somebody at the terminal says yes.
pub(crate) fn confirm(yes: bool, question: impl Display) -> Result<(), Trouble> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        let why = format_args!("{question} Nobody is here to ask: repeat it with --yes");
        return Err(Trouble::new(Status::Usage, why));
    }
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stderr().flush());
    asked.map_err(|error| Trouble::output(&error))?;
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    read.map_err(|error| Trouble::new(Status::Io, format_args!("cannot read: {error}")))?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(Trouble::new(Status::Usage, "nothing was done")),
    }
}
