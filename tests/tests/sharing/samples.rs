//! The sample files of the design, completed with what every Score file needs: each deploys as it is written, and in
//! the spelling that other Score tools accept. One application writes it the one way, one the other, and both mean
//! the same.

use conductor_tests::{House, Place, Score};
use serde_json::{Value, json};

use super::{get, item, leave, on, ran, served, stories, templates};

const DIALECT: [&str; 6] = ["reference", "matching", "sharing", "pool", "dependsOn", "onConflict"];

/// The rest of a Score file.
fn file(application: &str, resources: &str) -> String {
    format!(
        "apiVersion: score.dev/v1b1\nmetadata:\n  name: {application}\ncontainers:\n  main:\n    image: busybox\n\
         {resources}"
    )
}

/// The same with the words of the dialect below `metadata.conductor` of each resource.
fn strict(resources: &str) -> String {
    let mut out = String::new();
    let mut inside = Vec::new();
    let mut moves = false;
    let close = |out: &mut String, inside: &mut Vec<String>| {
        if !inside.is_empty() {
            out.push_str("    metadata:\n      conductor:\n");
            inside.drain(..).for_each(|line| out.push_str(&format!("    {line}\n")));
        }
    };
    for line in resources.lines() {
        let key = line.trim_start().split(':').next().unwrap_or_default();
        match line.len() - line.trim_start().len() {
            0..4 => {
                close(&mut out, &mut inside);
                moves = false;
            }
            4 => moves = DIALECT.contains(&key),
            _ => {}
        }
        match moves {
            true => inside.push(line.to_owned()),
            false => out.push_str(&format!("{line}\n")),
        }
    }
    close(&mut out, &mut inside);
    out
}

fn catalogue(place: &Place) {
    let group = "    location: { type: string }\n";
    let cosmos = "    tier: { type: string }\n    consistency: { type: string }\n    resourceGroupId: { type: string }\n";
    let blob = "    replication: { type: string }\n    resourceGroupId: { type: string }\n";
    let all = [("azure-resource-group", group), ("azure-cosmosdb", cosmos), ("azure-blob-storage", blob)];
    templates(place, &all);
}

/// Two applications deploy a sample, each in its spelling; what is to be shared is, and at the end nothing is left.
/// `shared` and `own` are requirements.
#[track_caller]
fn tell(house: &House, sample: &str, shared: &[&str], own: &[&str]) {
    let place = &house.place;
    let (direct, below) = (file("api", sample), file("worker", &strict(sample)));
    assert!(below.contains("conductor:") && !below.contains("\n    reference:"), "{below}");
    let one = place.deploy(&direct);
    let other = place.deploy(&below);
    for document in [&one, &other] {
        assert_eq!(document["status"], "succeeded");
        assert_eq!(document["resources"].as_array().map(Vec::len), Some(shared.len() + own.len()));
    }
    for name in shared {
        assert_eq!(served(&one, name).0, "create", "{one}");
        assert_eq!(served(&other, name), ("reuse".into(), served(&one, name).1), "{other}");
    }
    for name in own {
        assert_eq!((served(&one, name).0, served(&other, name).0), ("create".into(), "create".into()));
        assert_ne!(served(&one, name).1, served(&other, name).1);
    }
    groups_are_filled_in(place);
    if house.fleet.urls.is_empty() {
        is_legal_score(place, &direct, &below);
    }

    let gone = leave(place, "api", "dev");
    shared.iter().for_each(|name| assert_eq!(served(&gone, name).0, "release", "{gone}"));
    own.iter().for_each(|name| assert_eq!(served(&gone, name).0, "remove", "{gone}"));
    assert_eq!(place.world.things().len(), shared.len() + own.len());
    leave(place, "worker", "dev");
    house.is_empty();
}

/// The longer spelling is Score as everybody reads it, but for the short placeholder; the shorter one is not.
#[track_caller]
fn is_legal_score(place: &Place, direct: &str, below: &str) {
    let validate = |text: &str, flags: &[&str]| {
        let file = place.write("validate.yaml", text).display().to_string();
        place.run(&[&["validate", &file], flags].concat()).code
    };
    let below = below.replace("${resource-group.", "${resources.resource-group.");
    assert_eq!(validate(&below, &["--strict-score"]), 0, "{below}");
    assert_eq!((validate(direct, &[]), validate(direct, &["--strict-score"])), (0, 1), "{direct}");
}

/// Whoever asked for a group's id was given that of a thing that is there.
#[track_caller]
fn groups_are_filled_in(place: &Place) {
    let things = place.world.things();
    for run in place.world.runs() {
        if let Some(group) = run.given.get("resourceGroupId").filter(|_| things.contains_key(&run.resource)) {
            let is_there = things.values().any(|thing| thing["place"] == *group);
            assert!(is_there, "{group} is no group: {things:?}");
        }
    }
}

fn every_score_file_example(house: &House) {
    catalogue(&house.place);
    let dedicated = r#"
resources:
  storage:
    type: azure-blob-storage
    reference:
      mode: dedicated  # everybody has their own
    params:
      replication: ZRS
"#;
    tell(house, dedicated, &[], &["storage"]);
    let shared_database = r#"
resources:
  database:
    type: azure-cosmosdb
    reference:
      mode: shared
      name: "crew-db"
    params:
      tier: Basic
      consistency: Session
"#;
    tell(house, shared_database, &["database"], &[]);
    let with_dependencies = r#"
resources:
  resource-group:
    type: azure-resource-group
    reference:
      mode: shared
      name: "stage-rg"
    params:
      location: northeurope

  storage:
    type: azure-blob-storage
    reference:
      mode: dedicated
    dependsOn:
      - resource-group
    params:
      replication: ZRS
      resourceGroupId: ${resource-group.id}
"#;
    tell(house, with_dependencies, &["resource-group"], &["storage"]);
}

fn the_sample_of_every_option(house: &House) {
    catalogue(&house.place);
    let matching = r#"
resources:
  database:
    type: azure-cosmosdb
    params:
      tier: Basic
      consistency: Session
    matching:
      scope: environment        # here, and nowhere else
      sharingPolicy: shared     # others may use it too
      matchOn:                  # alike are those that agree in these
        - tier
        - consistency
"#;
    tell(house, matching, &["database"], &[]);
    let explicit_reference = r#"
resources:
  database:
    type: azure-cosmosdb
    params:
      tier: Basic
      consistency: Session
    reference:
      mode: shared              # shared, dedicated
      name: "orders-cosmos"     # whoever says this name shares it
"#;
    tell(house, explicit_reference, &["database"], &[]);
    let graph = r#"
resources:
  resource-group:
    type: azure-resource-group
    sharing: shared             # one for everybody here
    params:
      location: northeurope

  cosmos-db:
    type: azure-cosmosdb
    sharing: shared             # one for those who ask for the same
    dependsOn:
      - resource-group
    params:
      tier: Basic
      consistency: Session
      resourceGroupId: ${resources.resource-group.id}

  blob-storage:
    type: azure-blob-storage
    sharing: dedicated          # everybody has their own
    dependsOn:
      - resource-group
    params:
      replication: ZRS
      resourceGroupId: ${resources.resource-group.id}
"#;
    tell(house, graph, &["resource-group", "cosmos-db"], &["blob-storage"]);
}

fn the_sample_of_the_recommendation(house: &House) {
    catalogue(&house.place);
    let enhanced = r#"
resources:
  resource-group:
    type: azure-resource-group
    reference:
      mode: shared
      name: "stage-rg"
    params:
      location: northeurope

  cosmos-db:
    type: azure-cosmosdb
    reference:
      mode: shared
      name: "orders-cosmos"
    dependsOn:
      - resource-group    # a plain list
    params:
      tier: Basic
      resourceGroupId: ${resource-group.id}  # what the other gives
"#;
    tell(house, enhanced, &["resource-group", "cosmos-db"], &[]);
    let order: Vec<(String, String)> =
        house.place.world.runs().iter().map(|run| (run.step.clone(), run.resource.clone())).collect();
    let (group, cosmos) = (&order[0].1, &order[1].1);
    let told = [("create", group), ("create", cosmos), ("delete", cosmos), ("delete", group)];
    assert_eq!(order, told.map(|(step, resource)| (step.to_owned(), resource.clone())));
}

/// The appendix: how the days go on with what the first one stored.
fn what_the_first_day_stores(house: &House) {
    let place = &house.place;
    catalogue(place);
    let wants = |application: &str| {
        let database = json!({
            "type": "azure-cosmosdb", "reference": { "mode": "shared", "name": "orders-cosmos" },
            "params": { "tier": "Basic" },
        });
        Score::new(application).with("database", database).text()
    };
    let (_, id) = served(&place.deploy(&wants("app-a")), "database");
    let stored = get(house, &id);
    assert_eq!((&stored["name"], &stored["type"]), (&json!("orders-cosmos"), &json!("azure-cosmosdb")));
    assert_eq!((&stored["phase"], &stored["parameters"]["tier"]), (&json!("Active"), &json!("Basic")));
    assert_eq!(stored["outputs"], place.world.things()[&id]);
    assert_eq!(place.outputs("app-a", false)["database"], stored["outputs"]);
    place.deploy(&wants("app-b"));
    assert_eq!(place.outputs("app-b", false)["database"], stored["outputs"]);
    leave(place, "app-a", "dev");
    leave(place, "app-b", "dev");
    let gone = get(house, &id);
    assert_eq!((&gone["phase"], &gone["outputs"]), (&json!("Deleted"), &json!({})));
    ran(place, json!({ "create": 1, "delete": 1 }));
}

fn the_list_of_pools(house: &House) {
    let place = &house.place;
    catalogue(place);
    place.apply("production", "kind: Environment\nname: production\ntype: production\n");
    let pools = r#"
# What is made ahead
pools:
  - name: cosmos-basic
    environment: production
    resourceTemplate: azure-cosmosdb
    version: v1.0.0
    size: 3                    # so many are made ahead
    sharingPolicy: shared
    parameters:
      tier: Basic
      consistency: Session
"#;
    place.apply("pools", pools);
    place.apply("pools", pools);
    let pool = super::pools::ready(house, "cosmos-basic", 3);
    assert_eq!(
        (&pool["template"], &pool["environment"]),
        (&json!("azure-cosmosdb@1.0.0"), &json!("production"))
    );
    assert_eq!((&pool["sharingPolicy"], &pool["size"]), (&json!("shared"), &json!(3)));
    let sample = "resources:\n  database:\n    type: azure-cosmosdb\n    pool: cosmos-basic\n";
    let mut ids = Vec::new();
    for score in [file("api", sample), file("worker", &strict(sample))] {
        let document = on(place, "deploy", "production", &score);
        let (action, id) = served(&document, "database");
        assert_eq!(action, "claim", "{document}");
        let parameters: &Value = &get(house, &id)["parameters"];
        assert_eq!((&parameters["tier"], &parameters["consistency"]), (&json!("Basic"), &json!("Session")));
        assert_eq!(item(&document, "database")["phase"], "Active");
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1], "one that nobody had was ready");
    leave(place, "api", "production");
    leave(place, "worker", "production");
}

stories!(
    embedded: every_score_file_example the_sample_of_every_option the_sample_of_the_recommendation
        what_the_first_day_stores;
    up: the_list_of_pools
);
