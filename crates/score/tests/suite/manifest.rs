//! What a valid file turns into.

use conductor_score::{FileContent, Position, Protocol, Ready, Scheme};
use serde_json::json;

use crate::{HEAD, valid};

#[test]
fn every_part_is_read() {
    let source = include_str!("../files/valid/everything.yaml");
    let manifest = valid(source);
    assert_eq!(manifest.metadata.name, "shop");
    assert_eq!(manifest.metadata.annotations["example.org/team"], "orders");
    assert_eq!(manifest.metadata.extra["tier"], json!({ "level": 2 }));
    let path = |keys: &[&str]| keys.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(manifest.metadata.lookup(&path(&["tier", "level"])), Some(json!(2)));
    assert_eq!(manifest.metadata.lookup(&path(&["name"])), Some(json!("shop")));
    assert_eq!(manifest.metadata.lookup(&path(&["nothing"])), None);

    let main = &manifest.containers["main"];
    assert_eq!(main.image, ".");
    assert_eq!(main.command, ["/bin/shop"]);
    assert_eq!(main.variables["DB"], "${resources.orders.url}");
    assert_eq!(main.before["setup"], Ready::Complete);
    assert_eq!(main.resources.limits.cpu.as_deref(), Some("500m"));
    assert_eq!(main.resources.requests.memory.as_deref(), Some("0.5Gi"));
    let file = &main.files["/etc/shop.conf"];
    assert_eq!(file.content, FileContent::Text("name=${metadata.name}\n".to_owned()));
    assert_eq!(file.mode.as_deref(), Some("0640"));
    assert!(main.volumes["/data"].read_only);
    let probe = main.liveness_probe.as_ref().expect("a probe");
    let http = probe.http_get.as_ref().expect("over HTTP");
    assert_eq!((http.port, http.scheme), (8080, Scheme::Https));
    assert_eq!(http.http_headers[0].name, "X-Probe");

    assert_eq!(manifest.service["web"].target_port, 8080);
    assert_eq!(manifest.service["dns"].target_port, 53);
    assert_eq!(manifest.service["dns"].protocol, Protocol::Udp);

    let orders = &manifest.resources["orders"];
    assert_eq!(orders.kind, "postgres");
    assert_eq!(orders.class.as_deref(), Some("large"));
    assert_eq!(orders.id.as_deref(), Some("shop.orders"));
    let line = 1 + source.lines().position(|line| line == "  orders:").expect("its line");
    assert_eq!(orders.at, Position { line, column: 3 });
    assert_eq!(orders.params.as_ref().map(|params| &params["size"]), Some(&json!(3)));
    assert_eq!(manifest.resources["data"].params, None);
}

#[test]
fn values_keep_their_type() {
    let params = "
      yes: yes
      on: true
      date: 2024-05-01
      version: '1.10'
      ratio: 1.5
      octal: 0o17
      nothing: ~
      quoted: \"12\"
      tagged: !!str 12
      list: [1, two, {three: 3}]
";
    let source = format!("{HEAD}resources:\n  db:\n    type: pg\n    params:{params}");
    let manifest = valid(&source);
    let expected = json!({
        "yes": "yes", "on": true, "date": "2024-05-01", "version": "1.10", "ratio": 1.5,
        "octal": 15, "nothing": null, "quoted": "12", "tagged": "12", "list": [1, "two", {"three": 3}],
    });
    let params = manifest.resources["db"].params.clone().map(serde_json::Value::Object);
    assert_eq!(params, Some(expected));
}

#[test]
fn merge_keys_are_merged_and_own_keys_win() {
    let source = format!(
        "{HEAD}    variables: &base {{ A: base, B: base }}\n  other:\n    image: x\n    variables:\n      <<: [*base, {{ B: late, C: late }}]\n      A: own\n"
    );
    let manifest = valid(&source);
    let variables: Vec<_> = manifest.containers["other"].variables.values().collect();
    assert_eq!(variables, ["own", "base", "late"]);
}

#[test]
fn the_deprecated_lists_become_maps() {
    let source = format!(
        "{HEAD}    files:\n      - target: /a\n        content: [one, two]\n    volumes:\n      - target: /b\n        source: vol\n        read_only: true\n"
    );
    let manifest = valid(&source);
    let main = &manifest.containers["main"];
    assert_eq!(main.files["/a"].content, FileContent::Text("one\ntwo".to_owned()));
    assert!(main.volumes["/b"].read_only);
}

#[test]
fn a_manifest_is_written_with_the_words_of_score() {
    let manifest =
        valid(&format!("{HEAD}    files: {{ /a: {{ content: x }} }}\nresources: {{ db: {{ type: pg }} }}\n"));
    let json = serde_json::to_value(&manifest).expect("a manifest is JSON");
    assert_eq!(json["resources"]["db"]["type"], "pg");
    assert_eq!(json["containers"]["main"]["files"]["/a"], json!({ "content": "x", "noExpand": false }));
}
