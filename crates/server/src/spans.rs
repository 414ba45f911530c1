//! Every request is a span; it belongs to the trace that its `traceparent` names, or begins one.

use axum::{
    extract::{MatchedPath, Request},
    middleware::Next,
    response::Response,
};
use conductor_api::{trace, traced};
use tracing::{Instrument, field::Empty};

/// Long polls that come to nothing would be most of what is exported.
const POLLED: [&str; 4] = ["/api/v1/worker", "/healthz", "/readyz", "/metrics"];

pub async fn in_a_span(request: Request, next: Next) -> Response {
    if !trace::is_on() || POLLED.iter().any(|path| request.uri().path().starts_with(path)) {
        return next.run(request).await;
    }
    let route = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned();
    let span = traced!(
        "http.request",
        otel.name = format!("{} {route}", request.method()),
        otel.kind = "server",
        http.request.method = %request.method(),
        http.route = route,
        http.response.status_code = Empty
    );
    let parent = request.headers().get("traceparent").and_then(|value| value.to_str().ok());
    trace::adopt(&span, parent);
    let response = next.run(request).instrument(span.clone()).await;
    span.record("http.response.status_code", response.status().as_u16());
    response
}
