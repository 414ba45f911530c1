//! What is refused says what is wrong, where, and what to write instead; and nothing is made.

use conductor_tests::{House, Place};
use serde_json::{Value, json};

use super::{asked, refused, says, stories, template, thing, wants};

/// A file whose resource `db` is written so, from line 8 on.
fn file(resource: &str) -> String {
    let lines: Vec<String> = resource.lines().map(|line| format!("    {line}\n")).collect();
    format!(
        "apiVersion: score.dev/v1b1\nmetadata:\n  name: app-a\ncontainers:\n  main: {{ image: busybox }}\nresources:\n  \
         db:\n{}",
        lines.concat()
    )
}

#[track_caller]
fn nothing_was_made(house: &House) {
    let place = &house.place;
    assert!(place.world.runs().is_empty());
    assert_eq!(place.json(&["resources", "list"]), json!([]));
    assert_eq!(place.json(&["deployments", "list"]), json!([]));
    assert_eq!(place.json(&["pools", "list"]), json!([]));
}

/// Applies what must be refused, and finds these words in what is said.
#[track_caller]
fn not_applied(place: &Place, text: &str, words: &[&str]) {
    let file = place.write("catalog/refused.yaml", text).display().to_string();
    let told = place.run(&["apply", "-f", &file]);
    assert!(matches!(told.code, 1 | 6), "{told:?}");
    says(&told.all(), words);
}

/// What can be told from the file alone is told with its line.
fn words_that_are_not_there(house: &House) {
    let place = &house.place;
    place.apply_things();
    for (resource, words) in [
        (
            "type: thing\nreference:\n  mode: borrowed\n",
            &[":10:", "borrowed", "dedicated", "shared", "existing"][..],
        ),
        ("type: thing\nreference:\n  mode: shared\n", &[":9:", "`mode: shared` needs `name`", "add `name:`"]),
        ("type: thing\nreference:\n  mode: existing\n", &[":9:", "`mode: existing` needs `id`", "add `id:`"]),
        (
            "type: thing\nreference: { mode: dedicated, name: x }\n",
            &[":9:", "`mode: dedicated` has no `name`", "remove `name`"],
        ),
        ("type: thing\nsharing: everybody\n", &[":9:", "everybody", "by-params", "always"]),
        ("type: thing\nmatching:\n  scope: planet\n", &[":10:", "planet", "organisation"]),
        ("type: thing\nmatching:\n  sharingPolicy: sometimes\n", &[":10:", "sometimes", "conditional"]),
        ("type: thing\nmatching:\n  maxConsumers: 0\n", &[":10:", "maxConsumers"]),
        (
            "type: thing\nmatching:\n  policy: shared\n",
            &[":10:", "`policy`", "did you mean `sharingPolicy`?"],
        ),
        ("type: thing\nsharing: shared\npool: warm\n", &[":10:", "`sharing` and `pool` both", "keep one of"]),
        ("type: thing\ndependsOn: [nobody]\n", &[":9:", "nobody"]),
        ("type: thing\ndependsOn: [db]\n", &[":9:", "`db` depends on itself"]),
        ("type: thing\nonConflict: fight\n", &[":9:", "fight", "keep", "update"]),
        (
            "type: thing\nsharing: shared\nmetadata: { conductor: { pool: warm } }\n",
            &["`metadata.conductor`", "one of the two spellings"],
        ),
    ] {
        refused(house, &file(resource), &[&["refused.yaml"], words].concat());
        // And the same below `metadata.conductor`, where it stands elsewhere: one reader reads both.
        if house.fleet.urls.is_empty() && !resource.contains("metadata") {
            let below = resource.lines().skip(1).map(|line| format!("    {line}\n"));
            let nested = format!("type: thing\nmetadata:\n  conductor:\n{}", below.collect::<String>());
            let is_place = |word: &&str| word.starts_with(':');
            let words: Vec<&str> = words.iter().copied().filter(|word| !is_place(word)).collect();
            refused(house, &file(&nested), &words);
        }
    }
    nothing_was_made(house);
}

/// What only the catalogue or the record can tell is told with the line of the resource, over HTTP also with its path.
fn what_does_not_fit(house: &House) {
    let place = &house.place;
    place.apply_things();
    template(place, "own", "sharing: { permitted: [dedicated] }\n");
    template(place, "near", "sharing: { permitted: [shared], scope: environment }\n");
    let matching = |terms: Value| thing("x", json!({ "matching": terms }));
    let conditional = |when: &str| matching(json!({ "sharingPolicy": "conditional", "when": when }));
    let existing = |id: &str| thing("x", json!({ "reference": { "mode": "existing", "id": id } }));
    let own = |way: Value| asked("own", json!({}), way);
    let near = |way: Value| asked("near", json!({}), way);
    let unknown = "res_00000000000000000000000000";
    for (resource, status, path, words) in [
        (existing(unknown), 404, ".reference.id", &[unknown, "resources list"][..]),
        (existing("some-bucket"), 404, ".reference.id", &["`some-bucket`", "resources list"]),
        (
            matching(json!({ "matchOn": ["note", "nota"] })),
            422,
            ".matching.matchOn",
            &["`nota`", "no parameter", "did you mean `note`?"],
        ),
        (conditional("resource.consumers <"), 422, ".matching.when", &["at character", "write CEL"]),
        (conditional("(application.name"), 422, ".matching.when", &["at character", "write CEL"]),
        (
            conditional("user.name == 'me'"),
            422,
            ".matching.when",
            &["`user` is not known", "resource, application, environment"],
        ),
        (
            matching(json!({ "sharingPolicy": "conditional" })),
            422,
            ".matching",
            &["needs a condition", "add `when:`"],
        ),
        (
            own(json!({ "sharing": "shared" })),
            422,
            "",
            &["own@1.0.0", "does not permit `shared`", "it permits dedicated"],
        ),
        (own(json!({ "matching": {} })), 422, "", &["does not permit `by-params`", "it permits dedicated"]),
        (own(json!({ "id": "one" })), 422, "", &["does not permit `by-name`", "it permits dedicated"]),
        (near(json!({})), 422, "", &["near@1.0.0", "does not permit `dedicated`", "it permits shared"]),
        (
            near(json!({ "matching": { "scope": "organisation" } })),
            422,
            "",
            &["near@1.0.0", "one environment at most", "not organisation", "scope: environment"],
        ),
        (
            near(json!({ "reference": { "mode": "shared", "name": "x", "scope": "global" } })),
            422,
            "",
            &["near@1.0.0", "one environment at most", "not global", "scope: environment"],
        ),
        (thing("x", json!({ "pool": "warm" })), 422, ".pool", &["no pool `warm`", "`dev`", "kind Pool"]),
        (json!({ "type": "thnig", "sharing": "shared" }), 422, "", &["`thnig`", "did you mean `thing`?"]),
    ] {
        let score = file(&resource.to_string());
        if house.fleet.urls.is_empty() {
            refused(house, &score, &[words, &["refused.yaml:7:"]].concat());
            continue;
        }
        let body = json!({ "environment": "dev", "manifest": score });
        let problem = house.api().post("/api/v1/deployments", &body).problem(status);
        assert_eq!(problem["errors"][0]["path"], format!("resources.db{path}"), "{problem}");
        assert_eq!(problem["errors"][0]["line"], 7, "{problem}");
        says(&problem["errors"][0].to_string(), words);
    }
    nothing_was_made(house);
    assert_eq!(place.json(&["apps", "list"]), json!([]), "not even the application");
}

/// Everything wrong with a file is told at once.
fn all_of_it_at_once(house: &House) {
    let place = &house.place;
    place.apply_things();
    let mut score = file(&thing("x", json!({ "pool": "warm" })).to_string());
    for (name, way) in [("other", json!({ "matchOn": ["nota"] })), ("third", json!({ "when": "1 +" }))] {
        score.push_str(&format!("  {name}: {}\n", thing("x", json!({ "matching": way }))));
    }
    let words = [
        "refused.yaml:7:",
        "no pool",
        "refused.yaml:9:",
        "`nota`",
        "refused.yaml:10:",
        "`when`",
        "3 reasons",
    ];
    refused(house, &score, &words);
    nothing_was_made(house);
}

fn pools_that_cannot_be(house: &House) {
    let place = &house.place;
    place.apply_things();
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let pool =
        |words: &str| format!("kind: Pool\nname: warm\nenvironment: stage\ntemplate: thing@1.0.0\n{words}\n");
    for (words, told) in [
        ("size: 5\nmax: 3", &["refused.yaml:5", "size of 5", "`max`", "3", "lower `size`"][..]),
        ("size: 1\nmin: 2", &["refused.yaml:6", "`min` is 2", "lower `min`"]),
        ("size: 1\nidle: soon", &["refused.yaml:6", "`soon`", "30s"]),
        ("sharingPolicy: conditional", &["refused.yaml:5", "`dedicated` or `shared`"]),
        ("sharingPolicy: sometimes", &["sometimes"]),
        ("onRelease: forget", &["forget", "recycle"]),
        ("sise: 3", &["refused.yaml:5", "`sise`", "did you mean `size`?"]),
        ("size: -1", &["-1"]),
        ("parameters: { note: 7 }", &["refused.yaml:5:15", "7", "string"]),
    ] {
        not_applied(place, &pool(words), told);
    }
    let replaced = |old: &str, new: &str| pool("size: 1").replace(old, new);
    not_applied(place, &replaced("thing@1.0.0", "thing@9.0.0"), &["thing@9.0.0", "1.0.0"]);
    not_applied(place, &replaced("thing@1.0.0", "think"), &["`think`", "did you mean `thing`?"]);
    not_applied(
        place,
        &replaced("environment: stage", "environment: stag"),
        &["`stag`", "did you mean `stage`?"],
    );
    not_applied(
        place,
        "pools:\n  - name: warm\n    environment: stage\n    resourceTemplate: thing\n    size: 5\n    max: 3\n",
        &["refused.yaml:5", "size of 5", "`max`"],
    );
    nothing_was_made(house);

    // A pool serves its own environment, and as it makes them.
    place.apply("pool", &pool("size: 0\nparameters: { note: warm }"));
    refused(house, &wants("app-a", thing("warm", json!({ "pool": "warm" }))), &["no pool `warm`", "`dev`"]);
    place.apply(
        "near",
        &pool("size: 0\nparameters: { note: warm }")
            .replace("warm\nenv", "near\nenv")
            .replace("stage", "dev"),
    );
    let other = thing("cold", json!({ "pool": "near" }));
    refused(house, &wants("app-a", other), &["pool `near`", "its own `note`", "take it out of `params`"]);
    refused(
        house,
        &wants("app-a", thing("warm", json!({ "pool": "naer" }))),
        &["no pool `naer`", "did you mean `near`?"],
    );
    template(place, "other", "");
    refused(
        house,
        &wants("app-a", asked("other", json!({}), json!({ "pool": "near" }))),
        &["pool `near` holds thing", "not other"],
    );
    not_applied(
        place,
        &pool("size: 0").replace("stage", "dev"),
        &["pool `warm`", "`stage`", "cannot change", "another name"],
    );
}

fn rules_that_tie(house: &House) {
    let place = &house.place;
    place.apply_things();
    let rule = |name: &str, more: &str| {
        format!("kind: Rule\nname: {name}\ntemplate: thing@1.0.0\nmatch: {{ type: thing, {more} }}\n")
    };
    place.apply("first", &rule("first", "environment: dev"));
    not_applied(
        place,
        &rule("second", "environment: dev"),
        &["`second`", "`first`", "neither is stronger", "narrow one of them"],
    );
    // Heavier, lighter or elsewhere is no tie.
    place.apply("third", &rule("third", "environment: dev, application: web"));
    place.apply("fourth", &rule("fourth", "environment: stage"));
    let names: Vec<Value> =
        place.json(&["rules", "list"]).as_array().unwrap().iter().map(|rule| rule["name"].clone()).collect();
    assert_eq!(names.len(), 3, "{names:?}");
}

/// Two templates for one type: somebody has to say which.
fn templates_that_tie(house: &House) {
    let place = &house.place;
    place.apply_things();
    let text = place.world.template("thing", "").replace("name: thing", "name: gadget");
    place.apply("gadget", &text);
    refused(
        house,
        &wants("app-a", thing("x", json!({ "sharing": "shared" }))),
        &["gadget, thing", "write a rule"],
    );
    nothing_was_made(house);
}

stories!(
    embedded: words_that_are_not_there what_does_not_fit all_of_it_at_once pools_that_cannot_be rules_that_tie
        templates_that_tie
);
