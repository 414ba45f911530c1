//! Reads the sharing dialect in both of its spellings into [`Sharing`].

use std::collections::HashSet;

use crate::finding::quoted;
use crate::graph::Edges;
use crate::names::{LABEL, NOT_EMPTY};
use crate::object::{Object, Report, Section, Slot};
use crate::references::References;
use crate::sharing::{
    DependencyKind, DependsOn, Matching, OnConflict, Reference, Relationship, Scope, Sharing, SharingPolicy,
    SharingWord,
};

/// The object below `metadata` that holds the dialect in its strict spelling.
pub(crate) const STRICT_KEY: &str = "conductor";
pub(crate) const DIALECT_KEYS: &[&str] =
    &["reference", "matching", "sharing", "pool", "dependsOn", "onConflict", "alias"];
/// Of these a resource may use one.
const WAYS: [&str; 4] = ["reference", "matching", "sharing", "pool"];

const DIALECT: Section = Section { name: "`metadata.conductor`", keys: DIALECT_KEYS, hints: &[] };
const REFERENCE: Section = Section {
    name: "`reference`",
    keys: &["mode", "name", "scope", "id"],
    hints: &[("type", "did you mean `mode`?")],
};
const MATCHING: Section = Section {
    name: "`matching`",
    keys: &["scope", "sharingPolicy", "matchOn", "maxConsumers", "when"],
    hints: &[
        ("policy", "did you mean `sharingPolicy`?"),
        ("sharing", "did you mean `sharingPolicy`?"),
        ("condition", "did you mean `when`?"),
    ],
};
const DEPENDENCY: Section = Section {
    name: "an entry of `dependsOn`",
    keys: &["name", "type", "relationship"],
    hints: &[("kind", "did you mean `type`?")],
};

const SCOPES: [(&str, Scope); 3] =
    [("environment", Scope::Environment), ("organisation", Scope::Organisation), ("global", Scope::Global)];
const POLICIES: [(&str, SharingPolicy); 3] = [
    ("dedicated", SharingPolicy::Dedicated),
    ("shared", SharingPolicy::Shared),
    ("conditional", SharingPolicy::Conditional),
];
const WORDS: [(&str, SharingWord); 5] = [
    ("dedicated", SharingWord::Dedicated),
    ("shared", SharingWord::Shared),
    ("by-name", SharingWord::ByName),
    ("by-params", SharingWord::ByParams),
    ("always", SharingWord::Always),
];
const KINDS: [(&str, DependencyKind); 3] =
    [("strong", DependencyKind::Strong), ("weak", DependencyKind::Weak), ("output", DependencyKind::Output)];
const RELATIONSHIPS: [(&str, Relationship); 3] =
    [("requires", Relationship::Requires), ("uses", Relationship::Uses), ("extends", Relationship::Extends)];
const CONFLICTS: [(&str, OnConflict); 3] =
    [("fail", OnConflict::Fail), ("keep", OnConflict::Keep), ("update", OnConflict::Update)];

#[derive(Clone, Copy)]
enum Mode {
    Dedicated,
    Shared,
    Existing,
}
const MODES: [(&str, Mode); 3] =
    [("dedicated", Mode::Dedicated), ("shared", Mode::Shared), ("existing", Mode::Existing)];

/// What to say about a word of the dialect that stands directly on a resource.
pub(crate) fn not_in_score(key: &str) -> (String, String) {
    let message = format!("Score has no {} on a resource", quoted(key));
    let suggestion = format!("move it below `metadata`, as `{STRICT_KEY}: {{ {key}: … }}`");
    (message, suggestion)
}

/// What a resource says in the dialect; `dependsOn` is added to `edges`.
pub(crate) fn read_sharing(
    report: &mut Report,
    resource: &Object,
    metadata: Option<&Object>,
    index: usize,
    references: &References,
    edges: &mut Edges,
) -> Sharing {
    let nested = metadata.and_then(|metadata| metadata.get(STRICT_KEY));
    let short = resource.entries().find(|(entry, _)| DIALECT_KEYS.contains(&entry.key.as_ref()));
    let Some(nested) = nested else {
        if short.is_none() || report.strict {
            return Sharing::default();
        }
        return read_words(report, resource, index, references, edges);
    };
    if let Some((entry, slot)) = short.filter(|_| !report.strict) {
        report.add(entry.key_at, &slot.path, || {
            let message = format!("{} stands here and `metadata.{STRICT_KEY}` below", quoted(&entry.key));
            (message, "use one of the two spellings for all of it".to_owned())
        });
    }
    match report.object(&nested, &DIALECT) {
        Some(object) => read_words(report, &object, index, references, edges),
        None => Sharing::default(),
    }
}

fn read_words(
    report: &mut Report,
    object: &Object,
    index: usize,
    references: &References,
    edges: &mut Edges,
) -> Sharing {
    let ways = object.entries().filter(|(entry, _)| WAYS.contains(&entry.key.as_ref()));
    let ways: Vec<_> = ways.collect();
    if let [(first, _), (second, slot), ..] = ways.as_slice() {
        report.add(second.key_at, &slot.path, || {
            let message =
                format!("{} and {} both say which one to use", quoted(&first.key), quoted(&second.key));
            (message, format!("keep one of `{}`", WAYS.join("`, `")))
        });
    }
    let own = references.names().get(index).copied().unwrap_or_default();
    let alias = object.get("alias");
    let alias = alias.and_then(|slot| {
        let alias = report.text(&slot, LABEL)?;
        if alias == own {
            report.add(slot.node.at, &slot.path, || {
                let message = format!("{} is called so now", quoted(own));
                (message, "write the name it had before, or remove `alias`".to_owned())
            });
        }
        Some(alias)
    });
    let word = |key| object.get(key);
    let (reference, matching) = (word("reference"), word("matching"));
    let (sharing, on_conflict) = (word("sharing"), word("onConflict"));
    let depends_on = word("dependsOn");
    Sharing {
        reference: reference.and_then(|slot| read_reference(report, &slot)),
        matching: matching.and_then(|slot| read_matching(report, &slot)),
        sharing: sharing.and_then(|slot| report.choice(&slot, &WORDS)),
        pool: report.optional_text(object, "pool", NOT_EMPTY),
        depends_on: depends_on
            .map_or_else(Vec::new, |slot| read_dependencies(report, &slot, index, references, edges)),
        on_conflict: on_conflict.and_then(|slot| report.choice(&slot, &CONFLICTS)),
        alias,
    }
}

fn read_reference(report: &mut Report, slot: &Slot) -> Option<Reference> {
    let object = report.object(slot, &REFERENCE)?;
    let mode = report.required(&object, "mode")?;
    let mode = report.choice(&mode, &MODES)?;
    let (word, allowed, needed): (_, &[&str], _) = match mode {
        Mode::Dedicated => ("dedicated", &["mode"], None),
        Mode::Shared => ("shared", &["mode", "name", "scope"], Some("name")),
        Mode::Existing => ("existing", &["mode", "id"], Some("id")),
    };
    for (entry, slot) in object.entries() {
        let key = entry.key.as_ref();
        if REFERENCE.keys.contains(&key) && !allowed.contains(&key) {
            report.add(entry.key_at, &slot.path, || {
                let message = format!("a reference with `mode: {word}` has no {}", quoted(key));
                (message, format!("remove {}, or choose another mode", quoted(key)))
            });
        }
    }
    let mut needed_text = |key: &'static str| {
        let Some(slot) = object.get(key) else {
            report.add(object.owner, &object.path, || {
                let message = format!("a reference with `mode: {word}` needs `{key}`");
                (message, format!("add `{key}:` to say which one"))
            });
            return None;
        };
        report.text(&slot, NOT_EMPTY)
    };
    let value = match needed {
        Some(key) => needed_text(key)?,
        None => String::new(),
    };
    Some(match mode {
        Mode::Dedicated => Reference::Dedicated,
        Mode::Existing => Reference::Existing { id: value },
        Mode::Shared => {
            let scope = object.get("scope");
            Reference::Shared { name: value, scope: scope.and_then(|slot| report.choice(&slot, &SCOPES)) }
        }
    })
}

fn read_matching(report: &mut Report, slot: &Slot) -> Option<Matching> {
    let object = report.object(slot, &MATCHING)?;
    let scope = object.get("scope");
    let policy = object.get("sharingPolicy");
    let match_on = object.get("matchOn");
    let max_consumers = object.get("maxConsumers");
    Some(Matching {
        scope: scope.and_then(|slot| report.choice(&slot, &SCOPES)).unwrap_or_default(),
        policy: policy.and_then(|slot| report.choice(&slot, &POLICIES)).unwrap_or_default(),
        match_on: match_on.map_or_else(Vec::new, |slot| report.texts(&slot, NOT_EMPTY)),
        max_consumers: max_consumers.and_then(|slot| report.integer(&slot, 1..=u32::MAX)),
        when: report.optional_text(&object, "when", NOT_EMPTY),
    })
}

fn read_dependencies(
    report: &mut Report,
    slot: &Slot,
    index: usize,
    references: &References,
    edges: &mut Edges,
) -> Vec<DependsOn> {
    let Some(items) = slot.items() else {
        report.mismatch(slot, "a list", "write it as `[NAME]`");
        return Vec::new();
    };
    let mut seen = HashSet::new();
    let mut dependencies = Vec::new();
    for item in items {
        let Some((dependency, at)) = read_dependency(report, &item) else {
            continue;
        };
        let name = &dependency.name;
        match references.index_of(name) {
            None => report.add(at.node.at, &at.path, || references.unknown(name)),
            Some(needed) if needed == index => report.add(at.node.at, &at.path, || {
                let message = format!("{} depends on itself", quoted(name));
                (message, format!("remove {} from its own `dependsOn`", quoted(name)))
            }),
            Some(needed) => {
                edges.entry((index, needed)).or_insert(at.node.at);
            }
        }
        if !seen.insert(name.clone()) {
            report.add(at.node.at, &at.path, || {
                let message = format!("{} is in this `dependsOn` twice", quoted(name));
                (message, "keep one of the two".to_owned())
            });
        }
        dependencies.push(dependency);
    }
    dependencies
}

/// A name, or a map with one; and where the name stands.
fn read_dependency<'a>(report: &mut Report, slot: &Slot<'a>) -> Option<(DependsOn, Slot<'a>)> {
    if slot.as_text().is_some() {
        let name = report.text(slot, NOT_EMPTY)?;
        let (kind, relationship) = Default::default();
        return Some((DependsOn { name, kind, relationship }, *slot));
    }
    let object = report.object(slot, &DEPENDENCY)?;
    let name = report.required(&object, "name")?;
    let at = Slot { node: slot.child("name").unwrap_or(slot.node), ..*slot };
    let (kind, relationship) = (object.get("type"), object.get("relationship"));
    let dependency = DependsOn {
        name: report.text(&name, NOT_EMPTY)?,
        kind: kind.and_then(|slot| report.choice(&slot, &KINDS)).unwrap_or_default(),
        relationship: relationship.and_then(|slot| report.choice(&slot, &RELATIONSHIPS)).unwrap_or_default(),
    };
    Some((dependency, at))
}
