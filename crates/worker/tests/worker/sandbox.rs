//! What a program can see and reach. Each test asks a real, hostile program.

use std::net::TcpListener;

use serde_json::json;

use super::script::{Bench, NAMESPACES, PLAIN};

#[tokio::test]
async fn the_environment_is_what_was_given_and_nothing_else() {
    let bench = Bench::new();
    let stdout = bench.stdout(json!({ "program": "/usr/bin/env", "env": { "ONE": "1" } })).await;
    assert_eq!(stdout, "ONE=1");
    assert_eq!(bench.stdout(json!({ "program": "/usr/bin/env" })).await, "");
}

#[tokio::test]
async fn nothing_outside_can_be_read_or_written_unless_allowed() {
    let bench = Bench::new();
    let outside = bench.outside.path();
    std::fs::write(outside.join("secret"), "treasure").unwrap();
    let script = format!(
        "cat {0}/secret 2>/dev/null; ls {0} 2>/dev/null; ls {1} 2>/dev/null; ls {1}/jobs 2>/dev/null
         (echo x > {0}/new) 2>/dev/null && echo wrote; (echo x > /tmp/conductor-escape) 2>/dev/null && echo wrote
         (mkdir /etc/conductor-escape) 2>/dev/null && echo wrote; (: >> /usr/bin/env) 2>/dev/null && echo wrote
         cat /etc/passwd > copy && head -c 4 copy; echo x > /dev/null && cat own 2>/dev/null || echo ' fine'",
        outside.display(),
        bench.data.path().display()
    );
    assert_eq!(bench.stdout(json!({ "sh": script })).await, "root fine");
    let script =
        format!("cat {0}/secret; (echo x > {0}/new) 2>/dev/null || echo ' read-only'", outside.display());
    assert_eq!(bench.stdout(json!({ "sh": script, "read": [outside] })).await, "treasure read-only");
    let script = format!("echo x > {0}/new && mv {0}/new {0}/newer && cat {0}/newer", outside.display());
    assert_eq!(bench.stdout(json!({ "sh": script, "write": [outside] })).await, "x");
}

#[tokio::test]
async fn no_other_process_can_be_seen_or_signalled() {
    for flags in [NAMESPACES, PLAIN] {
        let bench = Bench::with(flags, |_| {});
        let other = format!("{}", std::process::id());
        // This test's own environment has PATH or HOME: nothing of the kind may be found in any process.
        let script = format!(
            "for e in /proc/[0-9]*/environ; do tr '\\0' '\\n' < $e 2>/dev/null | grep -q '^CARGO\\|^PATH=\\|^HOME=' && echo found $e; done
             kill -0 {other} 2>/dev/null && echo signalled; kill -0 1 2>/dev/null && [ {plain} = yes ] && echo init; echo over",
            plain = if flags == PLAIN { "yes" } else { "no" }
        );
        // The shell exports PATH only when it is given one; it is not.
        assert_eq!(bench.stdout(json!({ "sh": script })).await, "over", "{flags:?}");
    }
}

#[tokio::test]
async fn inside_a_namespace_there_is_nobody_else() {
    let bench = Bench::new();
    let stdout = bench.stdout(json!({ "sh": "echo /proc/[0-9]*" })).await;
    assert!(stdout.split_whitespace().count() <= 3, "{stdout}");
}

#[tokio::test]
async fn only_named_ports_can_be_reached_and_none_be_opened() {
    let bench = Bench::new();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [open, closed] = listeners.each_ref().map(|listener| listener.local_addr().unwrap().port());
    let script = format!(
        "
import socket
for port in ({open}, {closed}):
    try: socket.create_connection(('127.0.0.1', port), 2); print('reached')
    except PermissionError: print('denied')
try: socket.create_server(('127.0.0.1', 0)); print('opened')
except PermissionError: print('denied')
"
    );
    let stdout = bench.stdout(json!({ "python": script, "connect": [open] })).await;
    assert_eq!(stdout, "reached\ndenied\ndenied");
}

#[tokio::test]
async fn power_is_left_behind_and_limits_hold() {
    let bench = Bench::new();
    let script = "
import resource
print([resource.getrlimit(r)[0] for r in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE)])
status = dict(line.split(':\\t', 1) for line in open('/proc/self/status') if ':\\t' in line)
print(status['NoNewPrivs'].strip(), hex(int(status['CapEff'], 16) & ~0xfb))
import os; print(sorted(os.listdir('/proc/self/fd'))[:4], os.getsid(0) == os.getpid())
";
    let stdout = bench.stdout(json!({ "python": script })).await;
    assert_eq!(stdout, "[0, 4096, 4294967296]\n1 0x0\n['0', '1', '2', '3'] True");
}

#[test]
fn what_protects_programs_here_can_be_asked() {
    let lines = conductor_worker::protections_of(&super::script::guard(NAMESPACES));
    assert!(lines.iter().any(|line| line.starts_with("files: ")), "{lines:?}");
    let lines = conductor_worker::protections_of(&super::script::guard(&["--plain", "--no-landlock"]));
    assert_eq!(lines.iter().filter(|line| line.contains("NOT")).count(), 3, "{lines:?}");
}
