//! What people get wrong: each mistake with its place and the word that helps.

use conductor_score::{Finding, Options, parse, render_findings};

use crate::{HEAD, finds, invalid};

#[test]
fn other_names_for_params() {
    for wrong in ["properties", "parameters"] {
        let source =
            format!("{HEAD}resources:\n  db:\n    type: postgres\n    {wrong}:\n      size: small\n");
        finds(&source, 10, 5, "params");
    }
}

#[test]
fn keys_that_belong_elsewhere() {
    finds(&format!("{HEAD}    env:\n      A: b\n"), 7, 5, "variables");
    finds(&format!("{HEAD}    ports:\n      - 80\n"), 7, 5, "service.ports");
    finds(&format!("{HEAD}kind: Workload\n"), 7, 1, "kind");
    finds(&format!("{HEAD}flavour: vanilla\n"), 7, 1, "flavour");
    finds(&format!("{HEAD}conteiners: {{}}\n"), 7, 1, "containers");
    finds(&format!("{HEAD}    varables: {{}}\n"), 7, 5, "variables");
}

#[test]
fn empty_sections_are_found_at_their_key() {
    finds(&format!("{HEAD}resources:\n"), 7, 1, "`resources` is empty");
    finds(&format!("{HEAD}service:\n  ports:\n"), 8, 3, "`ports` is empty");
    finds(&format!("{HEAD}    variables: # none\nresources: {{}}\n"), 7, 5, "`variables` is empty");
    finds(&format!("{HEAD}    variables:\n      A: null\n"), 8, 10, "`A` is empty");
}

#[test]
fn placeholders_are_found_where_they_stand() {
    let resources = "resources:\n  orders:\n    type: postgres\n";
    let variable = |value: &str| format!("{HEAD}    variables:\n      DB: {value}\n{resources}");
    finds(&variable("${resources.order.url}"), 8, 11, "orders");
    finds(&variable("a ${resources.orders.url} b ${resources.order.url}"), 8, 39, "orders");
    finds(&variable("'ü ${externals.orders.url}'"), 8, 14, "resources.NAME");
    finds(&variable("${pod.orders.url}"), 8, 11, "resources");
    finds(&variable("${orders.url}"), 8, 11, "${resources.orders.url}");
    finds(&variable("${resource.orders.url}"), 8, 11, "${resources.");
    finds(&variable("|\n        one\n        two ${resources.order}"), 10, 13, "orders");
    finds(&variable("\"\\x24{resources.order.url}\""), 8, 11, "orders");
    let content =
        |more: &str| format!("{HEAD}    files:\n      /a:\n        content: ${{FRIEND}}\n{more}{resources}");
    finds(&content(""), 9, 18, "$${");
    assert!(crate::read(&content("        noExpand: true\n")).is_ok());
    let params = "    params:\n      deep: [{ x: '${resources.orderz.x}' }]\n";
    finds(&format!("{HEAD}{resources}{params}"), 11, 20, "orders");
    let volume = "    volumes:\n      /a:\n        source: ${resources.order}\n";
    finds(&format!("{HEAD}{volume}{resources}"), 9, 17, "orders");
}

#[test]
fn placeholders_are_not_read_where_score_does_not_expand_them() {
    let source = HEAD.replace("busybox", "'x:${value.tag}'") + "    args: ['${x}']\n    command: ['${y}']\n";
    assert!(crate::read(&source).is_ok());
}

#[test]
fn values_of_the_wrong_kind() {
    finds(&format!("{HEAD}    variables:\n      A: 12\n"), 8, 10, "\"12\"");
    finds(&format!("{HEAD}    resources:\n      limits:\n        cpu: 1\n"), 9, 14, "\"1\"");
    finds(&format!("{HEAD}service:\n  ports:\n    web:\n      port: '80'\n"), 10, 13, "whole number");
    finds(&format!("{HEAD}service:\n  ports:\n    web:\n      port: 70000\n"), 10, 13, "65535");
    finds(&format!("{HEAD}    command: run\n"), 7, 14, "list");
    finds(
        &format!("{HEAD}    before:\n      next: {{ ready: startd }}\n  next:\n    image: x\n"),
        8,
        22,
        "started",
    );
}

#[test]
fn names_of_the_wrong_shape() {
    finds(&format!("{HEAD}resources:\n  db:\n    type: aws.s3\n"), 9, 11, "`aws-s3`");
    finds(&format!("{HEAD}resources:\n  my_db:\n    type: postgres\n"), 8, 3, "`my-db`");
    finds(&format!("{HEAD}resources:\n  d:\n    type: postgres\n"), 8, 3, "2 to 63");
    finds(&format!("{HEAD}resources:\n  d\u{202e}b:\n    type: postgres\n"), 8, 3, "letters");
    finds(&HEAD.replace("name: web", "name: Web"), 3, 9, "`web`");
}

#[test]
fn missing_keys_are_found_at_their_owner() {
    finds(&HEAD.replace("    image: busybox", "    args: []"), 5, 3, "image");
    finds(&HEAD.replace("apiVersion: score.dev/v1b1\n", ""), 1, 1, "apiVersion");
    finds(&HEAD.replace("v1b1", "v1"), 1, 13, "score.dev/v1b1");
    finds(&format!("{HEAD}resources:\n  db: {{}}\n"), 8, 3, "type");
    finds(&format!("{HEAD}    files:\n      /a: {{}}\n"), 8, 7, "content");
    finds(&format!("{HEAD}    livenessProbe: {{}}\n"), 7, 5, "httpGet");
}

#[test]
fn circles_are_written_out() {
    let resource = |name: &str, needs: &str| {
        format!("  {name}:\n    type: thing\n    params: {{ v: '${{resources.{needs}.v}}' }}\n")
    };
    let source = format!("{HEAD}resources:\n{}{}", resource("aa", "bb"), resource("bb", "aa"));
    finds(&source, 10, 18, "`aa` → `bb` → `aa`");
    let source = format!("{HEAD}resources:\n{}", resource("aa", "aa"));
    finds(&source, 10, 18, "`aa` → `aa`");
    let before = "    before: { other: { ready: started } }\n  other:\n    image: x\n    before: { main: { ready: started } }\n";
    finds(&format!("{HEAD}{before}"), 7, 15, "`main` → `other` → `main`");
    finds(&format!("{HEAD}    before: {{ mian: {{ ready: started }} }}\n"), 7, 15, "`main`");
}

#[test]
fn yaml_itself() {
    finds(&format!("{HEAD}    image: again\n"), 7, 5, "line 6");
    finds(&format!("{HEAD}resources: {{\n"), 7, 12, "YAML");
    finds(&format!("{HEAD}    variables:\n      80: x\n"), 8, 7, "quotes");
    finds(&format!("{HEAD}    variables: *gone\n"), 7, 16, "anchor");
    finds("", 1, 1, "apiVersion");
    finds("---\n", 1, 1, "apiVersion");
    finds("- 1\n- 2\n", 1, 1, "map");
}

#[test]
fn all_findings_come_at_once_and_in_order() {
    let source = format!("{HEAD}    env: {{}}\n    ports: []\nkind: x\nresources:\n");
    let places: Vec<_> = invalid(&source).iter().map(|finding| finding.line).collect();
    assert_eq!(places, [7, 8, 9, 10]);
    let many: String = (0..500).map(|n| format!("key{n}: x\n")).collect();
    assert_eq!(invalid(&format!("{HEAD}{many}")).len(), 50);
}

#[test]
fn a_finding_is_shown_with_its_line() {
    let source = format!("{HEAD}    env: {{}}\n");
    let findings = invalid(&source);
    assert_eq!(findings[0].path, "containers.main.env");
    let shown = findings[0].render("score.yaml", &source, false);
    assert_eq!(
        shown,
        "score.yaml:7:5: a container has no key `env`\n 7 |     env: {}\n   |     ^^^\nhelp: rename `env` to `variables`, a map of `NAME: value`\n"
    );
    assert!(findings[0].render("score.yaml", &source, true).contains("\x1b["));
    let json = serde_json::to_value(&findings[0]).expect("a finding is JSON");
    assert_eq!(json["line"], 7);
    assert!(json.get("length").is_none());
}

#[test]
fn hostile_text_is_shown_short_and_harmless() {
    let key = format!("\u{202e}{}", "x".repeat(100_000));
    let source = format!("{HEAD}? \"{key}\\e[31m\"\n: 1\n");
    let findings = invalid(&source);
    let shown = render_findings(&findings, "score.yaml", &source, false);
    assert!(shown.len() < 10_000);
    assert!(!shown.contains(['\u{202e}', '\x1b']));
    let many = vec![findings[0].clone(); 50];
    let shown = render_findings(&many, "score.yaml", &source, true);
    assert!(shown.len() <= 10_000, "{}", shown.len());
    assert!(shown.contains("more"));
}

#[test]
fn strict_mode_refuses_the_short_spelling() {
    let source = format!("{HEAD}resources:\n  db:\n    type: postgres\n    sharing: shared\n");
    let findings: Vec<Finding> = parse(&source, &Options { strict: true }).expect_err("strict");
    assert_eq!(findings.len(), 1);
    assert_eq!(findings[0].line, 10);
    assert!(findings[0].suggestion.as_deref().is_some_and(|help| help.contains("conductor")));
}
