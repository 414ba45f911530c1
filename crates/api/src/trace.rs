//! Traces from a request to the programs it brings about: spans of `tracing`, and how they are carried from process to
//! process as W3C's `traceparent`.
//!
//! Nothing here knows OpenTelemetry: whoever exports spans installs what reads and writes the context. Without it
//! spans are disabled and nothing is carried.

use std::sync::OnceLock;

use tracing::Span;

/// The target of every span that is exported, and of nothing else.
pub const TARGET: &str = "conductor::trace";

/// Reads and writes the context of a span.
pub trait Propagation: Send + Sync {
    /// The span's `traceparent`.
    fn inject(&self, span: &Span) -> Option<String>;
    /// Makes the span a child of what `traceparent` names.
    fn adopt(&self, span: &Span, traceparent: &str);
}

static INSTALLED: OnceLock<Box<dyn Propagation>> = OnceLock::new();

/// Once, before the first span.
pub fn install(propagation: Box<dyn Propagation>) {
    let _ = INSTALLED.set(propagation);
}

pub fn is_on() -> bool {
    INSTALLED.get().is_some()
}

/// What names this span to another process.
pub fn of(span: &Span) -> Option<String> {
    INSTALLED.get()?.inject(span)
}

pub fn current() -> Option<String> {
    of(&Span::current())
}

pub fn adopt(span: &Span, traceparent: Option<&str>) {
    if let (Some(propagation), Some(traceparent)) = (INSTALLED.get(), traceparent) {
        propagation.adopt(span, traceparent);
    }
}

/// A span that is exported; `tracing`'s own words for the fields.
#[macro_export]
macro_rules! traced {
    ($name:literal $(, $($field:tt)*)?) => {
        ::tracing::debug_span!(target: $crate::trace::TARGET, $name $(, $($field)*)?)
    };
}
