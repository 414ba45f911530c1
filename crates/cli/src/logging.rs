//! Where log lines go: stderr, as text or JSON. Commands that end soon log only when asked to.

use tracing_subscriber::{EnvFilter, fmt};

use crate::{output::Screen, settings::Settings};

pub fn start(settings: &Settings, screen: &Screen, default: &str) {
    let asked = settings.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(asked).unwrap_or_else(|error| {
        screen.warn(&format!("CONDUCTOR_LOG is not understood ({error}); using `{default}`"));
        EnvFilter::new(default)
    });
    let builder = fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(screen.color_stderr);
    // Only a second call could fail, and would change nothing.
    let _ = match settings.log_json {
        true => builder.json().try_init(),
        false => builder.try_init(),
    };
}
