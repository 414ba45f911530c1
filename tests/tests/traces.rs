//! One trace from a request to the programs it brings about, across server and worker.

use std::collections::BTreeMap;

use conductor_tests::{House, Listener, Score, Shape, eventually, seconds};
use serde_json::{Value, json};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[derive(Clone, Debug)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
}

/// Every span that was exported so far.
fn spans(listener: &Listener) -> Vec<Span> {
    fn all(value: &Value, key: &str) -> Vec<Value> {
        value[key].as_array().cloned().unwrap_or_default()
    }
    let mut found = Vec::new();
    for export in listener.heard() {
        for resource in all(&export, "resourceSpans") {
            for scope in all(&resource, "scopeSpans") {
                for span in all(&scope, "spans") {
                    let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
                    found.push(Span {
                        trace: text("traceId"),
                        id: text("spanId"),
                        parent: text("parentSpanId"),
                        name: text("name"),
                    });
                }
            }
        }
    }
    found
}

#[test]
fn one_trace_leads_from_the_request_to_the_program() {
    let collector = Listener::default();
    let house = House::with(
        Shape::FleetSqlite { workers: 1 },
        &[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"),
            ("OTEL_BSP_SCHEDULE_DELAY", "200"),
        ],
    );
    house.place.apply_things();
    let body = json!({ "environment": "dev", "manifest": Score::new("web").thing("db", json!({})).text() });
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let headers = [("content-type", "application/json"), ("traceparent", parent.as_str())];
    let reply = house.api().call("POST", "/api/v1/deployments", &headers, body.to_string());
    assert_eq!(reply.status, 202, "{}", reply.text);
    let found = eventually("a program's span arrives", seconds(40), || {
        let ours: Vec<Span> = spans(&collector).into_iter().filter(|span| span.trace == TRACE).collect();
        let complete =
            ["POST", "program", "job"].iter().all(|name| ours.iter().any(|span| span.name.starts_with(name)));
        complete.then_some(ours)
    });
    let by_id: BTreeMap<&str, &Span> = found.iter().map(|span| (span.id.as_str(), span)).collect();
    let mut path = Vec::new();
    let mut at = found.iter().find(|span| span.name == "program");
    while let Some(span) = at {
        path.push(span.name.clone());
        at = by_id.get(span.parent.as_str()).copied();
        if at.is_none() {
            assert_eq!(span.parent, PARENT, "{found:?}");
        }
    }
    assert_eq!(path, ["program", "job", "operation.claim", "deploy", "POST /api/v1/deployments"]);
}
