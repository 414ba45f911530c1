//! What programs print, on its way out.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::json;

use super::script::{Bench, order};

#[tokio::test]
async fn a_line_of_five_megabytes_is_cut_in_the_log_and_whole_for_the_manager() {
    let bench = Bench::new();
    let python = "import sys\nfor s in (sys.stderr, sys.stdout): s.write('y' * 5_000_000 + '\\n')\nprint('after', file=sys.stderr)";
    let stdout = bench.stdout(json!({ "python": python })).await;
    assert_eq!(stdout.len(), 5_000_000);
    let log = bench.link.log();
    assert_eq!(log.len(), 2);
    assert!(log[0].ends_with("y… (cut, 5000000 bytes)") && log[0].len() < (1 << 20) + 100);
    assert_eq!(log[1], "after");
}

#[tokio::test]
async fn secrets_are_hidden_in_every_form_and_over_chunk_borders() {
    let bench = Bench::new();
    let python = "
import sys, time, base64, urllib.parse
secret = sys.stdin.read()
def say(text): sys.stderr.write(text); sys.stderr.flush()
say('raw ' + secret[:5]); time.sleep(0.3); say(secret[5:] + ' end\\n')
say('b64 ' + base64.b64encode(b'user:' + secret.encode() + b'@host').decode() + '\\n')
say('url ' + urllib.parse.quote(secret, safe='') + '\\n')
print(secret)
say('last ' + secret + '\\n')
sys.exit(int(secret == ''))
";
    let secret = "s3cr/t pa%ss&word";
    let stdout = bench.stdout(json!({ "python": python, "stdin": secret, "secrets": [secret] })).await;
    assert_eq!(stdout, secret, "the manager gets what was printed");
    let log = bench.link.log();
    assert_eq!(log[0], "raw *** end");
    assert!(log[1].starts_with("b64 ") && log[1].contains("***") && log[1].len() < 24, "{}", log[1]);
    assert_eq!((log[2].as_str(), log[3].as_str()), ("url ***", "last ***"));
}

#[tokio::test]
async fn a_secret_made_on_the_way_is_hidden_also_in_the_failure() {
    let bench = Bench::new();
    let failure = bench
        .failure(json!({ "sh": "echo no hunter2hunter2 >&2; exit 1", "secret": "hunter2hunter2" }))
        .await;
    assert_eq!(failure.message, "Some(1): no ***");
    assert_eq!(bench.link.log(), ["no ***"]);
}

#[tokio::test]
async fn lines_flow_while_the_job_runs_in_order_and_none_is_missing() {
    let bench = Bench::new();
    bench.link.offer(order(
        json!({ "sh": "i=0; while [ $i -lt 5000 ]; do echo line $i >&2; i=$((i+1)); done; sleep 0.5" }),
    ));
    bench.link.logged("line 4999").await;
    assert!(bench.link.kept().completions.is_empty(), "they came before the end");
    bench.link.completed(1).await;
    let want: Vec<_> = (0..5000).map(|i| format!("line {i}")).collect();
    assert_eq!(bench.link.log(), want);
}

#[tokio::test]
async fn lines_written_while_nobody_answers_arrive_afterwards() {
    let bench = Bench::new();
    bench.link.cut.store(true, Ordering::SeqCst);
    bench.link.offer(order(json!({ "sh": "for i in 1 2 3 4 5; do echo $i >&2; sleep 0.1; done" })));
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(bench.link.log().is_empty());
    bench.link.cut.store(false, Ordering::SeqCst);
    bench.link.completed(1).await;
    assert_eq!(bench.link.log(), ["1", "2", "3", "4", "5"]);
}

#[tokio::test]
async fn a_journal_entry_is_kept_before_the_job_goes_on() {
    let bench = Bench::new();
    bench.link.cut.store(true, Ordering::SeqCst);
    let marker = bench.outside.path().join("went-on");
    let script = format!("touch {}", marker.display());
    bench.link.offer(order(
        json!({ "sh": script, "write": [bench.outside.path()], "journal": { "apply_start": "x" } }),
    ));
    tokio::time::sleep(Duration::from_millis(400)).await;
    assert!(!marker.exists());
    bench.link.cut.store(false, Ordering::SeqCst);
    bench.link.completed(1).await;
    assert!(marker.exists());
    assert_eq!(bench.link.kept().journal, [json!({ "apply_start": "x" })]);
}
