//! Reads the root, `metadata` and `service`.

use std::collections::BTreeMap;

use serde_json::Map;

use crate::manifest::{Metadata, Port, Protocol};
use crate::names::{ANNOTATION, ANY, LABEL};
use crate::object::{Object, Report, Section, Slot, json};

const API_VERSION: &str = "score.dev/v1b1";

pub(crate) const ROOT: Section = Section {
    name: "a Score file",
    keys: &["apiVersion", "metadata", "containers", "service", "resources"],
    hints: &[
        ("kind", "remove `kind`: `apiVersion` alone says what this file is"),
        ("name", "move `name` below `metadata`"),
        ("annotations", "move `annotations` below `metadata`"),
        ("ports", "move `ports` below `service`"),
        (
            "environment",
            "remove `environment`: it is chosen when deploying; variables go into `containers.NAME.variables`",
        ),
        ("variables", "move `variables` below `containers.NAME`"),
        ("route", "declare the route under `resources`"),
        ("extensions", "remove `extensions`: Score has none; `metadata` may hold more keys"),
        ("workflows", "remove `workflows`: Score has none"),
        ("spec", "move what is below `spec` to the root"),
    ],
};

const SERVICE: Section = Section {
    name: "`service`",
    keys: &["ports"],
    hints: &[("port", "write `ports:` with a named port below")],
};

const PORT: Section = Section {
    name: "a port",
    keys: &["port", "protocol", "targetPort"],
    hints: &[("containerPort", "did you mean `targetPort`?")],
};

pub(crate) fn check_version(report: &mut Report, root: &Object) {
    let Some(slot) = report.required(root, "apiVersion") else {
        return;
    };
    if let Some(version) = report.text(&slot, ANY)
        && version != API_VERSION
    {
        report.add(slot.node.at, &slot.path, || {
            let shown = crate::finding::quoted(&version);
            let message = format!("the version {shown} is not known");
            (message, format!("write `apiVersion: {API_VERSION}`"))
        });
    }
}

pub(crate) fn read_metadata(report: &mut Report, slot: &Slot) -> Option<Metadata> {
    let object = report.any_object(slot)?;
    let name = report.required(&object, "name");
    let name = name.and_then(|slot| report.text(&slot, LABEL));
    let annotations = object.get("annotations");
    let annotations = annotations.map(|slot| read_annotations(report, &slot));
    let mut extra = Map::new();
    for (entry, _) in object.entries() {
        if !matches!(entry.key.as_ref(), "name" | "annotations") {
            extra.insert(entry.key.to_string(), json(&entry.node));
        }
    }
    Some(Metadata { name: name?, annotations: annotations.unwrap_or_default(), extra })
}

pub(crate) fn read_annotations(report: &mut Report, slot: &Slot) -> BTreeMap<String, String> {
    report.map_of(slot, ANNOTATION, |report, slot| report.text(slot, ANY))
}

pub(crate) fn read_service(report: &mut Report, slot: &Slot) -> BTreeMap<String, Port> {
    let Some(object) = report.object(slot, &SERVICE) else {
        return BTreeMap::new();
    };
    let ports = object.get("ports");
    ports.map_or_else(BTreeMap::new, |slot| report.map_of(&slot, LABEL, read_port))
}

fn read_port(report: &mut Report, slot: &Slot) -> Option<Port> {
    const PROTOCOLS: [(&str, Protocol); 2] = [("TCP", Protocol::Tcp), ("UDP", Protocol::Udp)];
    let object = report.object(slot, &PORT)?;
    let port = report.required(&object, "port");
    let port = port.and_then(|slot| report.port(&slot));
    let protocol = object.get("protocol");
    let protocol = protocol.and_then(|slot| report.choice(&slot, &PROTOCOLS));
    let target = object.get("targetPort");
    let target = target.and_then(|slot| report.port(&slot));
    Some(Port { port: port?, protocol: protocol.unwrap_or_default(), target_port: target.or(port)? })
}
