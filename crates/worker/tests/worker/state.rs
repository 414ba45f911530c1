//! Terraform's state protocol, spoken by a program inside the sandbox.

use conductor_api::worker::JobResult;
use serde_json::json;

use super::script::Bench;

const CLIENT: &str = r#"
import base64, hashlib, json, os, urllib.parse, http.client
url = urllib.parse.urlparse(os.environ['URL'])
def call(method, body=None, query='', password=None, md5=None, path=None):
    c = http.client.HTTPConnection(url.hostname, url.port)
    basic = base64.b64encode(f"job:{password or os.environ['PASSWORD']}".encode()).decode()
    headers = {'Authorization': 'Basic ' + basic}
    body = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    if body is not None: headers['Content-MD5'] = md5 or base64.b64encode(hashlib.md5(body).digest()).decode()
    c.request(method, (path or url.path) + query, body=body, headers=headers)
    r = c.getresponse()
    return [r.status, r.read().decode()]
"#;

#[tokio::test]
async fn the_whole_protocol_works_from_inside_a_job() {
    let bench = Bench::new();
    let script = format!(
        "{CLIENT}
mine, other = dict(ID='l-1', Operation='apply', Who='me'), dict(ID='l-2', Operation='plan', Who='you')
print(json.dumps([
    call('GET'), call('LOCK', mine), call('LOCK', mine), call('LOCK', other),
    call('POST', b'{{\"serial\":1}}', '?ID=l-1'), call('GET'), call('UNLOCK', mine), call('LOCK', other),
    call('UNLOCK', b''), call('POST', b'x', md5='AAAA'), call('GET', password='wrong'), call('GET', path='/guess'),
    call('DELETE'),
]))"
    );
    let stdout = bench.stdout(json!({ "python": script, "state": true })).await;
    let answers: Vec<(u16, String)> = serde_json::from_str(&stdout).unwrap();
    let codes: Vec<u16> = answers.iter().map(|(code, _)| *code).collect();
    assert_eq!(codes, [404, 200, 200, 423, 200, 200, 200, 200, 200, 400, 401, 401, 405]);
    let holder: serde_json::Value = serde_json::from_str(&answers[3].1).unwrap();
    assert_eq!(holder, json!({ "ID": "l-1", "Operation": "apply", "Who": "me" }));
    assert_eq!(answers[5].1, "{\"serial\":1}");
    let kept = bench.link.kept();
    assert!(kept.state_lock.is_none());
    assert_eq!(kept.state.as_deref(), Some(&b"{\"serial\":1}"[..]));
}

#[tokio::test]
async fn a_job_cannot_use_the_address_of_one_that_ended() {
    let bench = Bench::new();
    let script =
        format!("{CLIENT}\nprint(json.dumps([os.environ['URL'], os.environ['PASSWORD'], call('GET')[0]]))");
    let stdout = bench.stdout(json!({ "python": script, "state": true })).await;
    let (url, password, code): (String, String, u16) = serde_json::from_str(&stdout).unwrap();
    assert_eq!(code, 404);
    let script = format!(
        "{CLIENT}\nold = urllib.parse.urlparse('{url}')\nprint(call('GET', password='{password}', path=old.path)[0])"
    );
    assert_eq!(bench.stdout(json!({ "python": script, "state": true })).await, "401");
}

#[tokio::test]
async fn losing_the_operation_or_the_link_has_its_own_answer() {
    use std::sync::atomic::Ordering::SeqCst;
    let bench = Bench::new();
    let script = format!(
        "{CLIENT}\nimport time\nprint('asking', file=os.sys.stderr)\ntime.sleep(0.5)\nprint(call('GET')[0])"
    );
    bench.link.offer(super::script::order(json!({ "python": script, "state": true })));
    bench.link.logged("asking").await;
    bench.link.cut.store(true, SeqCst);
    tokio::time::sleep(std::time::Duration::from_millis(900)).await;
    bench.link.cut.store(false, SeqCst);
    let JobResult::Done(done) = bench.link.completed(1).await else { panic!("{:?}", bench.link.log()) };
    assert_eq!(done.outputs["stdout"].value, "503");
}
