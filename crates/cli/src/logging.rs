//! Where log lines go: stderr, as text or JSON. Commands that end soon log only when asked to. Where traces are asked
//! for, spans are exported; log lines do not show them.

use tracing_subscriber::{EnvFilter, Layer, fmt, layer::SubscriberExt, util::SubscriberInitExt};

use crate::{output::Screen, settings::Settings};

pub fn start(settings: &Settings, screen: &Screen, default: &str) {
    let asked = settings.log.as_deref().unwrap_or(default);
    let filter = EnvFilter::try_new(asked).unwrap_or_else(|error| {
        screen.warn(&format!("CONDUCTOR_LOG is not understood ({error}); using `{default}`"));
        EnvFilter::new(default)
    });
    let lines = fmt::layer().with_writer(std::io::stderr).with_ansi(screen.color_stderr);
    let lines = match settings.log_json {
        true => lines.json().with_filter(filter).boxed(),
        false => lines.with_filter(filter).boxed(),
    };
    // Only a second call could fail, and would change nothing.
    let _ = tracing_subscriber::registry().with(spans(screen)).with(lines).try_init();
}

#[cfg(feature = "otel")]
fn spans(screen: &Screen) -> Option<impl Layer<tracing_subscriber::Registry> + Send + Sync + use<>> {
    crate::traces::layer().unwrap_or_else(|error| {
        screen.warn(&format!("traces cannot be exported: {error}"));
        None
    })
}

#[cfg(not(feature = "otel"))]
fn spans(_: &Screen) -> Option<tracing_subscriber::layer::Identity> {
    None
}

/// Sends what is left of the traces.
pub fn finish() {
    #[cfg(feature = "otel")]
    crate::traces::finish();
}
