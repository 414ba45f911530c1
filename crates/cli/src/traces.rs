//! Exporting traces by OTLP over HTTP, when `OTEL_EXPORTER_OTLP_ENDPOINT` says where to. The other settings of
//! OpenTelemetry are read by its own library.

use std::{sync::OnceLock, time::Duration};

use conductor_api::trace;
use opentelemetry::{propagation::TextMapPropagator, trace::TracerProvider as _};
use opentelemetry_otlp::{Protocol, WithExportConfig};
use opentelemetry_sdk::{Resource, propagation::TraceContextPropagator, trace::SdkTracerProvider};
use tracing::{Span, Subscriber};
use tracing_opentelemetry::OpenTelemetrySpanExt;
use tracing_subscriber::{Layer, filter::Targets, registry::LookupSpan};

const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"];
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_PROTOCOL", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"];
/// How long the last spans may take at the end.
const LAST: Duration = Duration::from_secs(5);

static PROVIDER: OnceLock<SdkTracerProvider> = OnceLock::new();

struct Carried(TraceContextPropagator);

impl trace::Propagation for Carried {
    fn inject(&self, span: &Span) -> Option<String> {
        let mut carrier = std::collections::HashMap::new();
        self.0.inject_context(&span.context(), &mut carrier);
        carrier.remove("traceparent")
    }

    fn adopt(&self, span: &Span, traceparent: &str) {
        let carrier = std::collections::HashMap::from([("traceparent".to_owned(), traceparent.to_owned())]);
        let _ = span.set_parent(self.0.extract(&carrier));
    }
}

fn is_set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|value| !value.trim().is_empty())
}

/// The layer that exports, or nothing where it is not asked for. An error says why it cannot.
pub fn layer<S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync>()
-> Result<Option<impl Layer<S> + Send + Sync>, String> {
    if !ENDPOINTS.iter().any(|name| is_set(name)) {
        return Ok(None);
    }
    let mut exporter = opentelemetry_otlp::SpanExporter::builder().with_http();
    if !PROTOCOLS.iter().any(|name| is_set(name)) {
        exporter = exporter.with_protocol(Protocol::HttpBinary);
    }
    let exporter = exporter.build().map_err(|error| error.to_string())?;
    let mut resource = Resource::builder();
    if !is_set("OTEL_SERVICE_NAME") {
        resource = resource.with_service_name("conductor");
    }
    let provider =
        SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build();
    let tracer = provider.tracer("conductor");
    let _ = PROVIDER.set(provider);
    trace::install(Box::new(Carried(TraceContextPropagator::new())));
    let only = Targets::new().with_target(trace::TARGET, tracing::Level::DEBUG);
    Ok(Some(tracing_opentelemetry::layer().with_tracer(tracer).with_filter(only)))
}

/// Sends what is left.
pub fn finish() {
    if let Some(provider) = PROVIDER.get() {
        let _ = provider.shutdown_with_timeout(LAST);
    }
}
