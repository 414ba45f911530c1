//! `/metrics` in Prometheus' text format.

use std::fmt::Write;

use conductor_engine::{BUCKETS, Metrics};

pub fn render(metrics: &Metrics) -> String {
    let mut text = String::new();
    let head = |text: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    };
    head(&mut text, "conductor_operations_total", "counter", "Operations that ended, by kind and status.");
    for ((kind, status), count) in &metrics.ended {
        let _ = writeln!(text, "conductor_operations_total{{kind=\"{kind}\",status=\"{status}\"}} {count}");
    }
    head(&mut text, "conductor_operation_duration_seconds", "histogram", "From first start to end, by kind.");
    for (kind, histogram) in &metrics.durations {
        for (bucket, limit) in histogram.buckets.iter().zip(BUCKETS) {
            let _ = writeln!(
                text,
                "conductor_operation_duration_seconds_bucket{{kind=\"{kind}\",le=\"{limit}\"}} {bucket}"
            );
        }
        let (count, sum) = (histogram.count, histogram.sum);
        let _ = writeln!(
            text,
            "conductor_operation_duration_seconds_bucket{{kind=\"{kind}\",le=\"+Inf\"}} {count}"
        );
        let _ = writeln!(text, "conductor_operation_duration_seconds_sum{{kind=\"{kind}\"}} {sum}");
        let _ = writeln!(text, "conductor_operation_duration_seconds_count{{kind=\"{kind}\"}} {count}");
    }
    head(&mut text, "conductor_queue_depth", "gauge", "Operations ready and not claimed.");
    let _ = writeln!(text, "conductor_queue_depth {}", metrics.queue_depth);
    head(&mut text, "conductor_queue_age_seconds", "gauge", "How long the oldest of them has been ready.");
    let _ = writeln!(text, "conductor_queue_age_seconds {}", metrics.queue_age_seconds);
    head(&mut text, "conductor_workers", "gauge", "Workers by state.");
    for (state, count) in &metrics.workers {
        let _ = writeln!(text, "conductor_workers{{state=\"{state}\"}} {count}");
    }
    head(&mut text, "conductor_leases_reaped_total", "counter", "Leases taken from workers that were lost.");
    let _ = writeln!(text, "conductor_leases_reaped_total {}", metrics.reaped);
    text
}
