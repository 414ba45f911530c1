//! `/metrics` in Prometheus' text format.

use std::fmt::{Display, Write};

use conductor_domain::lifecycle::{ChangeKind, ChangeStatus};
use conductor_engine::{BUCKETS, Gauges, Histogram, Metrics};

/// A page of families, each with its help and its samples.
#[derive(Default)]
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = writeln!(self.0, "{name}{} {value}", braces(labels));
    }

    fn histogram(&mut self, name: &str, labels: &[(&str, &str)], histogram: &Histogram) {
        let bucket = format!("{name}_bucket");
        let limits = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (limit, count) in limits.zip(histogram.buckets.iter().chain([&histogram.count])) {
            self.sample(&bucket, &[labels, &[("le", limit.as_str())]].concat(), count);
        }
        self.sample(&format!("{name}_sum"), labels, histogram.sum);
        self.sample(&format!("{name}_count"), labels, histogram.count);
    }
}

fn braces(labels: &[(&str, &str)]) -> String {
    if labels.is_empty() {
        return String::new();
    }
    let escaped = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let pairs = labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value)));
    format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
}

pub fn render(metrics: &Metrics) -> String {
    let mut page = Page::default();
    counters(&mut page, metrics);
    page.family("conductor_database_up", "gauge", "Whether the database answers.");
    page.sample("conductor_database_up", &[], u8::from(metrics.gauges.is_some()));
    if let Some(gauges) = &metrics.gauges {
        standing(&mut page, gauges);
    }
    page.0
}

/// What this process counted since it started.
fn counters(page: &mut Page, metrics: &Metrics) {
    let counted = &metrics.counted;
    let name = "conductor_operations_total";
    page.family(name, "counter", "Operations that ended here, by kind and status.");
    for ((kind, status), count) in &counted.operations {
        page.sample(name, &[("kind", kind.as_str()), ("status", status.as_str())], count);
    }
    let name = "conductor_operation_duration_seconds";
    page.family(name, "histogram", "From first start to end, by kind.");
    for (kind, histogram) in &counted.durations {
        page.histogram(name, &[("kind", kind.as_str())], histogram);
    }
    let name = "conductor_deployments_total";
    page.family(name, "counter", "Deployments and other changes that ended here, by kind and status.");
    // Those that alerts are about are there from the start: a rate needs a value before the first end.
    let first = [ChangeStatus::Succeeded, ChangeStatus::Failed, ChangeStatus::TimedOut];
    let mut changes = counted.changes.clone();
    for status in first {
        changes.entry((ChangeKind::Deploy, status)).or_default();
    }
    for ((kind, status), count) in &changes {
        page.sample(name, &[("kind", kind.as_str()), ("status", status.as_str())], count);
    }
    let name = "conductor_leases_reaped_total";
    page.family(name, "counter", "Leases taken from workers that were lost.");
    page.sample(name, &[], metrics.reaped);
    let name = "conductor_log_lines_total";
    page.family(name, "counter", "Log lines stored.");
    page.sample(name, &[], counted.log_lines);
    let name = "conductor_log_lag_seconds";
    page.family(
        name,
        "histogram",
        "Age of the oldest line of a batch when it was committed, by the worker's clock.",
    );
    page.histogram(name, &[], &counted.log_lag);
    let name = "conductor_database_errors_total";
    page.family(name, "counter", "Transactions that the database failed, by reason.");
    for reason in ["busy", "corrupt", "database", "schema", "unreachable"] {
        let count = counted.errors.get(reason).copied().unwrap_or_default();
        page.sample(name, &[("reason", reason)], count);
    }
    let name = "conductor_database_retries_total";
    page.family(name, "counter", "Transactions that were begun again.");
    page.sample(name, &[], counted.retries);
}

/// How things stand in the database, whoever did it.
fn standing(page: &mut Page, gauges: &Gauges) {
    let name = "conductor_queue_depth";
    page.family(name, "gauge", "Operations ready and not claimed, by manager.");
    for (manager, queue) in &gauges.queues {
        page.sample(name, &[("manager", manager)], queue.ready);
    }
    let name = "conductor_queue_age_seconds";
    page.family(name, "gauge", "How long the oldest of them has been ready.");
    for (manager, queue) in &gauges.queues {
        let age = queue.oldest.map_or(0.0, |at| (gauges.at - at).max(0) as f64 / 1e6);
        page.sample(name, &[("manager", manager)], age);
    }
    let name = "conductor_workers";
    page.family(name, "gauge", "Workers by when they were last heard of: live, quiet or dead.");
    for (state, count) in &gauges.workers {
        page.sample(name, &[("state", state)], count);
    }
    let name = "conductor_deployments";
    page.family(name, "gauge", "Deployments and other changes that are not over, by kind and status.");
    for status in [ChangeStatus::Pending, ChangeStatus::ApprovalPending, ChangeStatus::InProgress] {
        for kind in ChangeKind::ALL {
            let count = gauges.changes.get(&(*kind, status)).copied();
            if let Some(count) = count.or_else(|| (*kind == ChangeKind::Deploy).then_some(0)) {
                page.sample(name, &[("kind", kind.as_str()), ("status", status.as_str())], count);
            }
        }
    }
    let name = "conductor_deployments_long_running";
    page.family(name, "gauge", "Deployments that have used half of their time.");
    page.sample(name, &[], gauges.long_running);
    let name = "conductor_alert_firing";
    page.family(name, "gauge", "Whether each of the built-in alerts fires.");
    for (alert, firing) in &gauges.alerts {
        page.sample(name, &[("alert", alert)], u8::from(*firing));
    }
    let name = "conductor_pool_members";
    page.family(name, "gauge", "Members of pools: ready, claimed, creating or failed.");
    for ((pool, state), count) in &gauges.pools {
        page.sample(name, &[("pool", pool), ("state", state)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::braces;

    #[test]
    fn labels_are_escaped() {
        assert_eq!(braces(&[("a", "x\"y\\z\n")]), r#"{a="x\"y\\z\n"}"#);
        assert_eq!(braces(&[]), "");
    }
}
