//! Asking before something is lost.

use std::io::{self, IsTerminal, Write};

use crate::{
    failure::{Failure, Outcome},
    output::Screen,
};

/// Whether there is something to ask; without a terminal and without `--yes` nothing is done at all.
pub fn asks(screen: &Screen, command: &str) -> Outcome<bool> {
    if screen.yes {
        return Ok(false);
    }
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let message = format!("{command} asks before it does anything, and there is no terminal to ask on");
        return Err(Failure::usage(message).hint("add --yes to go ahead, or --dry-run to see what would go"));
    }
    Ok(true)
}

/// Asks; anything but yes ends it.
pub fn confirm(question: &str) -> Outcome {
    let mut err = io::stderr();
    let _ = write!(err, "{question} [y/N] ").and_then(|()| err.flush());
    let mut answer = String::new();
    let heard = io::stdin().read_line(&mut answer);
    match answer.trim().to_lowercase().as_str() {
        "y" | "yes" if heard.is_ok() => Ok(()),
        _ => Err(Failure::failed("nothing was done")),
    }
}
