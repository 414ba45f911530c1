//! The two ways to ask a program to stop, heard as one.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Outcome};

pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    pub fn listen() -> Outcome<Self> {
        let on =
            |kind| signal(kind).map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")));
        Ok(Self { interrupt: on(SignalKind::interrupt())?, terminate: on(SignalKind::terminate())? })
    }

    /// The next SIGINT or SIGTERM.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
