//! From source to manifest: bounds first, then the tree, then its sections, then the graphs.

use std::collections::BTreeMap;

use crate::container::read_container;
use crate::finding::Finding;
use crate::graph::{Edges, circles};
use crate::manifest::{Container, Manifest, Resource};
use crate::names::LABEL;
use crate::object::{Object, Path, Report, Slot};
use crate::references::{References, unknown_container};
use crate::resource::read_resource;
use crate::scalar::Scalar;
use crate::tree::{self, Flaw, Node, Span, Value};
use crate::workload::{ROOT, check_version, read_metadata, read_service};
use crate::{Options, limits};

pub(crate) fn read(source: &str, options: &Options) -> Result<Manifest, Vec<Finding>> {
    if source.len() > limits::SOURCE_BYTES {
        return Err(vec![too_large()]);
    }
    let source = source.strip_prefix('\u{feff}').unwrap_or(source);
    let mut report = Report { source, strict: options.strict, findings: Vec::new() };
    let (root, flaws) = tree::build(source);
    let broken = !flaws.is_empty();
    for flaw in flaws {
        report.add_flaw(flaw);
    }
    let manifest = match root {
        Some(root) if !matches!(root.value, Value::Scalar(Scalar::Null)) => read_root(&mut report, &root),
        _ if broken => None,
        _ => {
            let at = Span { line: 1, column: 1, ..Span::default() };
            report.add(at, &Path::Root, || {
                let suggestion = "begin with `apiVersion: score.dev/v1b1`".to_owned();
                ("the file is empty".to_owned(), suggestion)
            });
            None
        }
    };
    let mut findings = report.findings;
    findings.sort_by_key(|finding| (finding.line, finding.column));
    findings.dedup();
    match manifest {
        Some(manifest) if findings.is_empty() => Ok(manifest),
        _ => Err(findings),
    }
}

fn too_large() -> Finding {
    Finding {
        line: 1,
        column: 1,
        path: String::new(),
        message: "the file is larger than 10 MB".to_owned(),
        suggestion: Some("keep large content out of the file, in `files` with `source`".to_owned()),
        length: 1,
    }
}

impl Report<'_> {
    fn add_flaw(&mut self, flaw: Flaw) {
        self.add(flaw.at, &Path::Root, || (flaw.message, flaw.suggestion.unwrap_or_default()));
    }
}

/// The manifest, where everything that it needs could be read.
fn read_root(report: &mut Report, root: &Node) -> Option<Manifest> {
    let whole = Slot { node: root, owner: root.at, path: Path::Root };
    let root = report.object(&whole, &ROOT)?;
    check_version(report, &root);
    let metadata = report.required(&root, "metadata");
    let metadata = metadata.and_then(|slot| read_metadata(report, &slot));
    let resources = root.get("resources");
    let references = References::new(resources.as_ref());
    let containers = read_containers(report, &root, &references);
    let service = root.get("service");
    let service = service.map(|slot| read_service(report, &slot));
    let resources = resources.map(|slot| read_resources(report, &slot, &references));
    Some(Manifest {
        metadata: metadata?,
        containers,
        service: service.unwrap_or_default(),
        resources: resources.unwrap_or_default(),
    })
}

fn read_containers(
    report: &mut Report,
    root: &Object,
    references: &References,
) -> BTreeMap<String, Container> {
    let Some(slot) = report.required(root, "containers") else {
        return BTreeMap::new();
    };
    let containers = report.map_of(&slot, LABEL, |report, slot| read_container(report, slot, references));
    if let Value::Map(entries) = &slot.node.value {
        if entries.is_empty() {
            report.add(slot.owner, &slot.path, || {
                let message = "a workload needs at least one container".to_owned();
                (message, "add one below `containers`, with an `image`".to_owned())
            });
        }
        check_order(report, &slot);
    }
    containers
}

/// Checks that `before` names other containers, and that they do not wait for each other.
fn check_order(report: &mut Report, slot: &Slot) {
    let Some(containers) = report.any_object(slot) else {
        return;
    };
    let names: Vec<&str> = containers.entries().map(|(entry, _)| entry.key.as_ref()).collect();
    let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, name)| (*name, i)).collect();
    let mut edges = Edges::new();
    for (from, (_, container)) in containers.entries().enumerate() {
        let Some(Value::Map(entries)) = container.child("before").map(|node| &node.value) else {
            continue;
        };
        for entry in entries {
            let path = Path::Key(&container.path, "before");
            let path = Path::Key(&path, &entry.key);
            match index.get(entry.key.as_ref()) {
                Some(to) => {
                    edges.insert((from, *to), entry.key_at);
                }
                None => report.add(entry.key_at, &path, || unknown_container(&entry.key, &names)),
            }
        }
    }
    for circle in circles(names.len(), &edges) {
        let container = Path::Key(&slot.path, names[circle.first()]);
        report.add(circle.at, &Path::Key(&container, "before"), || {
            let message = format!("containers wait for each other: {}", circle.describe(&names));
            (message, "remove one of these from `before`".to_owned())
        });
    }
}

fn read_resources(report: &mut Report, slot: &Slot, references: &References) -> BTreeMap<String, Resource> {
    let names = references.names();
    if names.len() > limits::RESOURCES {
        report.add_flaw(tree::too_many_resources(slot.owner));
        return BTreeMap::new();
    }
    let mut edges = Edges::new();
    let mut index = 0;
    let resources = report.map_of(slot, LABEL, |report, slot| {
        let resource = read_resource(report, slot, index, references, &mut edges);
        index += 1;
        resource
    });
    for circle in circles(names.len(), &edges) {
        report.add(circle.at, &Path::Key(&slot.path, names[circle.first()]), || {
            let message = format!("resources depend on each other: {}", circle.describe(names));
            (message, "remove one of these references".to_owned())
        });
    }
    resources
}
