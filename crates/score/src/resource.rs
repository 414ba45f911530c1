//! Reads one entry of `resources`.

use serde_json::Map;

use crate::dialect::{self, DIALECT_KEYS, read_sharing};
use crate::graph::Edges;
use crate::manifest::{Position, Resource};
use crate::names::{ID, TYPE};
use crate::object::{Object, Report, Section, Slot, json};
use crate::references::References;
use crate::workload::read_annotations;

const RENAME: &str = "rename it to `params`";
const HINTS: &[(&str, &str)] = &[
    ("properties", RENAME),
    ("parameters", RENAME),
    ("parms", RENAME),
    ("config", RENAME),
    ("spec", RENAME),
    ("options", RENAME),
    ("name", "name it with `id`, or by its key"),
    ("kind", "did you mean `type`?"),
    ("annotations", "move `annotations` below `metadata`"),
    ("labels", "move `labels` below `metadata`"),
];

/// A resource as every Score tool knows it.
const STRICT: Section =
    Section { name: "a resource", keys: &["type", "class", "id", "metadata", "params"], hints: HINTS };

/// A resource that may use the short spelling of the dialect.
const SHORT: Section = Section {
    name: "a resource",
    keys: &[
        "type",
        "class",
        "id",
        "metadata",
        "params",
        "reference",
        "matching",
        "sharing",
        "pool",
        "dependsOn",
        "onConflict",
        "alias",
    ],
    hints: HINTS,
};

/// Reads the resource with the given index; what it needs first is added to `edges`.
pub(crate) fn read_resource(
    report: &mut Report,
    slot: &Slot,
    index: usize,
    references: &References,
    edges: &mut Edges,
) -> Option<Resource> {
    let object = report.any_object(slot)?;
    check_keys(report, &object);
    let kind = report.required(&object, "type");
    let kind = kind.and_then(|slot| report.text(&slot, TYPE));
    let class = report.optional_text(&object, "class", TYPE);
    let id = report.optional_text(&object, "id", ID);

    let metadata_slot = object.get("metadata");
    let metadata_object = metadata_slot.as_ref().and_then(|slot| report.any_object(slot));
    let metadata = metadata_object.as_ref().map(|object| read_metadata(report, object));
    let sharing = read_sharing(report, &object, metadata_object.as_ref(), index, references, edges);

    let params_slot = object.get("params");
    let params = params_slot.and_then(|slot| {
        let object = report.any_object(&slot)?;
        let short = !report.strict && sharing.uses_dialect();
        references.follow(report, &slot, short, &mut |needed, at| {
            edges.entry((index, needed)).or_insert(at);
        });
        let values = object.entries().map(|(entry, slot)| (entry.key.to_string(), json(slot.node)));
        Some(values.collect::<Map<_, _>>())
    });
    Some(Resource {
        kind: kind?,
        class,
        id,
        metadata: metadata.unwrap_or_default(),
        params,
        sharing,
        at: Position { line: slot.owner.line as usize, column: slot.owner.column as usize },
    })
}

fn check_keys(report: &mut Report, object: &Object) {
    if !report.strict {
        report.check_keys(object, &SHORT, &[]);
        return;
    }
    // In strict mode a word of the dialect is unknown here, but legal in one other place.
    for (entry, unknown) in object.entries() {
        if DIALECT_KEYS.contains(&entry.key.as_ref()) {
            report.add(entry.key_at, &unknown.path, || dialect::not_in_score(&entry.key));
        }
    }
    report.check_keys(object, &STRICT, DIALECT_KEYS);
}

/// Everything but the dialect.
fn read_metadata(report: &mut Report, object: &Object) -> Map<String, serde_json::Value> {
    if let Some(slot) = object.get("annotations") {
        read_annotations(report, &slot);
    }
    object
        .entries()
        .filter(|(entry, _)| entry.key.as_ref() != dialect::STRICT_KEY)
        .map(|(entry, slot)| (entry.key.to_string(), json(slot.node)))
        .collect()
}
