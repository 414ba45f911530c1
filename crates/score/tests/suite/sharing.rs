//! The sharing dialect: one meaning for two spellings, and what goes wrong in it.

use conductor_score::{
    DependencyKind, DependsOn, Matching, OnConflict, Options, Reference, Relationship, Scope, Sharing,
    SharingPolicy, SharingWord, parse,
};

use crate::{HEAD, finds, valid};

/// A file whose resource `db` says `words`, which begin at line 10, column 5.
fn short(words: &str) -> String {
    format!("{HEAD}resources:\n  db:\n    type: pg\n{}  cache:\n    type: redis\n", indented(words, 4))
}

fn nested(words: &str) -> String {
    let conductor = format!("    metadata:\n      conductor:\n{}", indented(words, 8));
    format!("{HEAD}resources:\n  db:\n    type: pg\n{conductor}  cache:\n    type: redis\n")
}

fn indented(words: &str, by: usize) -> String {
    words.lines().map(|line| format!("{}{line}\n", " ".repeat(by))).collect()
}

#[test]
fn both_spellings_mean_the_same() {
    let named = |name: &str| DependsOn {
        name: name.to_owned(),
        kind: DependencyKind::Strong,
        relationship: Relationship::Requires,
    };
    let cases = [
        (
            "reference: { mode: dedicated }",
            Sharing { reference: Some(Reference::Dedicated), ..Sharing::default() },
        ),
        (
            "reference: { mode: shared, name: main, scope: global }",
            Sharing {
                reference: Some(Reference::Shared { name: "main".into(), scope: Some(Scope::Global) }),
                ..Sharing::default()
            },
        ),
        (
            "reference: { mode: existing, id: res_1 }\nalias: old-db",
            Sharing {
                reference: Some(Reference::Existing { id: "res_1".into() }),
                alias: Some("old-db".into()),
                ..Sharing::default()
            },
        ),
        (
            "matching: { scope: organisation, sharingPolicy: conditional, matchOn: [size], maxConsumers: 3, when: 'true' }",
            Sharing {
                matching: Some(Matching {
                    scope: Scope::Organisation,
                    policy: SharingPolicy::Conditional,
                    match_on: vec!["size".into()],
                    max_consumers: Some(3),
                    when: Some("true".into()),
                }),
                ..Sharing::default()
            },
        ),
        ("sharing: by-params", Sharing { sharing: Some(SharingWord::ByParams), ..Sharing::default() }),
        ("pool: warm", Sharing { pool: Some("warm".into()), ..Sharing::default() }),
        (
            "dependsOn: [cache]\nonConflict: keep",
            Sharing {
                depends_on: vec![named("cache")],
                on_conflict: Some(OnConflict::Keep),
                ..Sharing::default()
            },
        ),
        (
            "dependsOn:\n  - name: cache\n    type: weak\n    relationship: uses",
            Sharing {
                depends_on: vec![DependsOn {
                    kind: DependencyKind::Weak,
                    relationship: Relationship::Uses,
                    ..named("cache")
                }],
                ..Sharing::default()
            },
        ),
    ];
    for (words, expected) in cases {
        let manifest = valid(&short(words));
        assert_eq!(manifest.resources["db"].sharing, expected, "{words}");
        assert!(manifest.resources["db"].sharing.uses_dialect());
        assert!(!manifest.resources["cache"].sharing.uses_dialect());
        let manifest = parse(&nested(words), &Options { strict: true }).expect(words);
        assert_eq!(manifest.resources["db"].sharing, expected, "{words}");
        assert!(manifest.resources["db"].metadata.is_empty());
        let written = serde_json::to_value(&expected).expect("JSON");
        assert_eq!(serde_json::from_value::<Sharing>(written).expect("read back"), expected);
    }
}

#[test]
fn defaults_are_filled_in() {
    let manifest = valid(&short("matching: {}"));
    let matching = manifest.resources["db"].sharing.matching.as_ref().expect("matching");
    assert_eq!((matching.scope, matching.policy), (Scope::Environment, SharingPolicy::Shared));
}

#[test]
fn mistakes_say_what_to_change() {
    for (words, column, word) in [
        ("reference: { mode: share, name: x }", 24, "`shared`"),
        ("reference: { mode: shared }", 5, "name"),
        ("reference: { mode: existing }", 5, "id"),
        ("reference: { mode: dedicated, name: x }", 35, "remove `name`"),
        ("reference: { mode: existing, id: x, name: y }", 41, "remove `name`"),
        ("reference: { name: x }", 5, "mode"),
        ("reference: shared", 16, "map"),
        ("matching: { matchOn: size }", 26, "list"),
        ("matching: { matchOn: [1] }", 27, "\"1\""),
        ("matching: { maxConsumers: 0 }", 31, "from 1"),
        ("matching: { scope: org }", 24, "organisation"),
        ("matching: { sharing: shared }", 17, "sharingPolicy"),
        ("sharing: byname", 14, "by-name"),
        ("onConflict: ignore", 17, "`keep`"),
        ("dependsOn: [cash]", 17, "`cache`"),
        ("dependsOn: [db]", 17, "itself"),
        ("dependsOn: [cache, cache]", 24, "twice"),
        ("dependsOn: [{ name: cahce }]", 25, "`cache`"),
        ("dependsOn: cache", 16, "list"),
        ("alias: db", 12, "before"),
        ("pool: ''", 11, "empty"),
        ("dependson: [cache]", 5, "dependsOn"),
    ] {
        finds(&short(words), 10, column, word);
    }
}

#[test]
fn one_way_of_asking_at_once() {
    finds(&short("sharing: shared\npool: warm"), 11, 5, "keep one");
    finds(&short("reference: { mode: dedicated }\nmatching: {}"), 11, 5, "`reference` and `matching`");
    let both = short("metadata: { conductor: { pool: warm } }\nalias: old");
    finds(&both, 11, 5, "one of the two spellings");
    finds(&nested("sharring: shared"), 12, 9, "`sharing`");
}

#[test]
fn the_short_placeholder_needs_the_dialect() {
    let words = "params: { url: '${cache.host}' }";
    finds(&short(words), 10, 21, "${resources.cache.host}");
    let with_dialect = format!("sharing: shared\n{words}");
    valid(&short(&with_dialect));
    let strict =
        short(words).replace("    params", "    metadata: { conductor: { sharing: shared } }\n    params");
    assert!(parse(&strict, &Options { strict: true }).is_err());
    valid(&strict);
}

#[test]
fn circles_run_over_both_kinds_of_edges() {
    let source = short("dependsOn: [cache]") + "    params: { url: '${resources.db.url}' }\n";
    finds(&source, 10, 17, "`db` → `cache` → `db`");
}
