//! Reads one container: image, variables, files, volumes, order and probes.
//!
//! `files` and `volumes` may also be lists, the deprecated form: each entry then names its
//! `target`. Both forms end up as the same map.

use std::collections::BTreeMap;

use crate::finding::quoted;
use crate::manifest::{
    ComputeResources, Container, ExecProbe, File, FileContent, HttpHeader, HttpProbe, Probe, Quantities,
    Ready, Scheme, Volume,
};
use crate::names::{ANY, CPU, HEADER, LABEL, MEMORY, MODE, NOT_EMPTY, VARIABLE};
use crate::object::{Object, Report, Section, Slot};
use crate::references::References;

const CONTAINER: Section = Section {
    name: "a container",
    keys: &[
        "image",
        "command",
        "args",
        "variables",
        "files",
        "volumes",
        "before",
        "resources",
        "livenessProbe",
        "readinessProbe",
    ],
    hints: &[
        ("env", "rename `env` to `variables`, a map of `NAME: value`"),
        ("environment", "rename `environment` to `variables`, a map of `NAME: value`"),
        ("envFrom", "write the values into `variables`"),
        ("ports", "move `ports` to `service.ports` at the root, as `NAME: { port: 80 }`"),
        ("port", "declare it in `service.ports` at the root, as `NAME: { port: 80 }`"),
        ("entrypoint", "did you mean `command`?"),
        ("cmd", "did you mean `command`?"),
        ("volumeMounts", "did you mean `volumes`?"),
        ("limits", "move `limits` below `resources`"),
        ("requests", "move `requests` below `resources`"),
        ("dependsOn", "did you mean `before`?"),
        ("healthcheck", "did you mean `livenessProbe`?"),
        ("startupProbe", "use `livenessProbe` or `readinessProbe`"),
    ],
};
const FILE: Section = Section {
    name: "a file",
    keys: &["source", "content", "binaryContent", "mode", "noExpand"],
    hints: &[("target", "remove `target`: the key of this entry is the path")],
};
const FILE_IN_LIST: Section = Section {
    name: "a file",
    keys: &["target", "source", "content", "binaryContent", "mode", "noExpand"],
    hints: &[("path", "did you mean `target`?")],
};
const VOLUME: Section = Section {
    name: "a volume",
    keys: &["source", "path", "readOnly"],
    hints: &[
        ("target", "remove `target`: the key of this entry is the path"),
        ("read_only", "did you mean `readOnly`?"),
    ],
};
const VOLUME_IN_LIST: Section = Section {
    name: "a volume",
    keys: &["target", "source", "path", "readOnly", "read_only"],
    hints: &[("mountPath", "did you mean `target`?")],
};
const BEFORE: Section = Section {
    name: "an entry of `before`",
    keys: &["ready"],
    hints: &[("condition", "did you mean `ready`?")],
};
const COMPUTE: Section = Section {
    name: "`resources` of a container",
    keys: &["limits", "requests"],
    hints: &[
        ("cpu", "move `cpu` below `limits` or `requests`"),
        ("memory", "move `memory` below `limits` or `requests`"),
    ],
};
const QUANTITIES: Section = Section {
    name: "`limits` and `requests`",
    keys: &["cpu", "memory"],
    hints: &[("mem", "did you mean `memory`?")],
};
const TIMING: &str = "remove it: a probe in Score has no timing, only `httpGet` and `exec`";
const PROBE: Section = Section {
    name: "a probe",
    keys: &["httpGet", "exec"],
    hints: &[
        ("initialDelaySeconds", TIMING),
        ("periodSeconds", TIMING),
        ("timeoutSeconds", TIMING),
        ("failureThreshold", TIMING),
        ("successThreshold", TIMING),
    ],
};
const HTTP: Section = Section {
    name: "`httpGet`",
    keys: &["host", "scheme", "path", "port", "httpHeaders"],
    hints: &[("headers", "did you mean `httpHeaders`?")],
};
const EXEC: Section = Section { name: "`exec`", keys: &["command"], hints: &[] };
const HTTP_HEADER: Section = Section { name: "a header", keys: &["name", "value"], hints: &[] };

pub(crate) fn read_container(report: &mut Report, slot: &Slot, references: &References) -> Option<Container> {
    let object = report.object(slot, &CONTAINER)?;
    let image = report.required(&object, "image");
    let image = image.and_then(|slot| report.text(&slot, NOT_EMPTY));
    let texts = |report: &mut Report, key| {
        let slot = object.get(key);
        slot.map_or_else(Vec::new, |slot| report.texts(&slot, ANY))
    };
    let command = texts(report, "command");
    let args = texts(report, "args");
    let variables = object.get("variables").map_or_else(BTreeMap::new, |slot| {
        report.map_of(&slot, VARIABLE, |report, slot| {
            references.check(report, slot, false);
            report.text(slot, ANY)
        })
    });
    let files = object.get("files").map_or_else(BTreeMap::new, |slot| {
        by_target(report, &slot, |report, slot, in_list| read_file(report, slot, in_list, references))
    });
    let volumes = object.get("volumes").map_or_else(BTreeMap::new, |slot| {
        by_target(report, &slot, |report, slot, in_list| read_volume(report, slot, in_list, references))
    });
    let before = object.get("before");
    let before = before.map(|slot| report.map_of(&slot, LABEL, read_ready));
    let resources = object.get("resources");
    let resources = resources.and_then(|slot| read_compute(report, &slot));
    let liveness_probe = object.get("livenessProbe");
    let liveness_probe = liveness_probe.and_then(|slot| read_probe(report, &slot));
    let readiness_probe = object.get("readinessProbe");
    let readiness_probe = readiness_probe.and_then(|slot| read_probe(report, &slot));
    Some(Container {
        image: image?,
        command,
        args,
        variables,
        files,
        volumes,
        before: before.unwrap_or_default(),
        resources: resources.unwrap_or_default(),
        liveness_probe,
        readiness_probe,
    })
}

/// A map by path, or the deprecated list of entries with a `target`.
fn by_target<T>(
    report: &mut Report,
    slot: &Slot,
    mut read: impl FnMut(&mut Report, &Slot, bool) -> Option<T>,
) -> BTreeMap<String, T> {
    let Some(items) = slot.items() else {
        return report.map_of(slot, ANY, |report, slot| read(report, slot, false));
    };
    let mut map = BTreeMap::new();
    for slot in items {
        let Some(object) = report.any_object(&slot) else {
            continue;
        };
        let value = read(report, &slot, true);
        let target = report.required(&object, "target");
        let Some((target, path)) = target.and_then(|slot| Some((slot, report.text(&slot, NOT_EMPTY)?)))
        else {
            continue;
        };
        if map.contains_key(&path) {
            report.add(target.node.at, &target.path, || {
                let message = format!("another entry has the target {} already", quoted(&path));
                (message, "keep one of the two".to_owned())
            });
        }
        if let Some(value) = value {
            map.insert(path, value);
        }
    }
    map
}

fn read_file(report: &mut Report, slot: &Slot, in_list: bool, references: &References) -> Option<File> {
    let section = if in_list { &FILE_IN_LIST } else { &FILE };
    let object = report.object(slot, section)?;
    let mode = report.optional_text(&object, "mode", MODE);
    let no_expand = object.get("noExpand");
    let no_expand = no_expand.and_then(|slot| report.boolean(&slot)).unwrap_or(false);
    let contents = ["source", "content", "binaryContent"];
    let given: Vec<_> = contents.iter().filter(|key| object.get(key).is_some()).collect();
    if given.len() != 1 {
        report.add(object.owner, &object.path, || {
            let message = "a file needs exactly one of `source`, `content` and `binaryContent`";
            let suggestion = match given.as_slice() {
                [] => "add `content:` with the text, or `source:` with a path".to_owned(),
                [first, ..] => format!("keep `{first}` and remove the others"),
            };
            (message.to_owned(), suggestion)
        });
    }
    let content = match (**given.first()?, object.get(given.first()?)?) {
        ("source", slot) => FileContent::Source(report.text(&slot, NOT_EMPTY)?),
        ("content", slot) => {
            if !no_expand {
                references.check(report, &slot, false);
            }
            FileContent::Text(read_content(report, &slot, in_list)?)
        }
        (_, slot) => FileContent::Binary(report.text(&slot, ANY)?),
    };
    Some(File { content, mode, no_expand })
}

/// The text of a file; the deprecated form may give it as a list of lines.
fn read_content(report: &mut Report, slot: &Slot, in_list: bool) -> Option<String> {
    if in_list && slot.items().is_some() {
        return Some(report.texts(slot, ANY).join("\n"));
    }
    report.text(slot, ANY)
}

fn read_volume(report: &mut Report, slot: &Slot, in_list: bool, references: &References) -> Option<Volume> {
    let section = if in_list { &VOLUME_IN_LIST } else { &VOLUME };
    let object = report.object(slot, section)?;
    let source = report.required(&object, "source");
    if let Some(slot) = &source {
        references.check(report, slot, false);
    }
    let source = source.and_then(|slot| report.text(&slot, ANY));
    let path = report.optional_text(&object, "path", ANY);
    let read_only = object.get("readOnly");
    let read_only = read_only.or_else(|| object.get("read_only"));
    let read_only = read_only.and_then(|slot| report.boolean(&slot));
    Some(Volume { source: source?, path, read_only: read_only.unwrap_or(false) })
}

fn read_ready(report: &mut Report, slot: &Slot) -> Option<Ready> {
    const WORDS: [(&str, Ready); 3] =
        [("started", Ready::Started), ("healthy", Ready::Healthy), ("complete", Ready::Complete)];
    let object = report.object(slot, &BEFORE)?;
    let ready = report.required(&object, "ready")?;
    report.choice(&ready, &WORDS)
}

fn read_compute(report: &mut Report, slot: &Slot) -> Option<ComputeResources> {
    let object = report.object(slot, &COMPUTE)?;
    let mut quantities = |key| {
        let slot = object.get(key)?;
        let object = report.object(&slot, &QUANTITIES)?;
        Some(Quantities {
            cpu: report.optional_text(&object, "cpu", CPU),
            memory: report.optional_text(&object, "memory", MEMORY),
        })
    };
    Some(ComputeResources {
        limits: quantities("limits").unwrap_or_default(),
        requests: quantities("requests").unwrap_or_default(),
    })
}

fn read_probe(report: &mut Report, slot: &Slot) -> Option<Probe> {
    let object = report.object(slot, &PROBE)?;
    let (http, exec) = (object.get("httpGet"), object.get("exec"));
    if http.is_none() && exec.is_none() {
        report.add(object.owner, &object.path, || {
            let message = "a probe needs `httpGet` or `exec`".to_owned();
            (message, "add `httpGet:` with `path` and `port`".to_owned())
        });
    }
    Some(Probe {
        http_get: http.and_then(|slot| read_http(report, &slot)),
        exec: exec.and_then(|slot| {
            let object = report.object(&slot, &EXEC)?;
            let command = report.required(&object, "command")?;
            Some(ExecProbe { command: report.texts(&command, ANY) })
        }),
    })
}

fn read_http(report: &mut Report, slot: &Slot) -> Option<HttpProbe> {
    const SCHEMES: [(&str, Scheme); 2] = [("HTTP", Scheme::Http), ("HTTPS", Scheme::Https)];
    let object = report.object(slot, &HTTP)?;
    let port = report.required(&object, "port");
    let port = port.and_then(|slot| report.port(&slot));
    let path = report.required(&object, "path");
    let path = path.and_then(|slot| report.text(&slot, ANY));
    let host = report.optional_text(&object, "host", NOT_EMPTY);
    let scheme = object.get("scheme");
    let scheme = scheme.and_then(|slot| report.choice(&slot, &SCHEMES));
    let http_headers = read_headers(report, &object);
    Some(HttpProbe { port: port?, path: path?, host, scheme: scheme.unwrap_or_default(), http_headers })
}

fn read_headers(report: &mut Report, probe: &Object) -> Vec<HttpHeader> {
    let Some(slot) = probe.get("httpHeaders") else {
        return Vec::new();
    };
    let Some(items) = slot.items() else {
        report.mismatch(&slot, "a list", "write it as `- name: NAME` and `value: VALUE` below");
        return Vec::new();
    };
    let mut header = |slot: Slot| {
        let object = report.object(&slot, &HTTP_HEADER)?;
        let name = report.required(&object, "name");
        let name = name.and_then(|slot| report.text(&slot, HEADER));
        let value = report.required(&object, "value");
        let value = value.and_then(|slot| report.text(&slot, NOT_EMPTY));
        Some(HttpHeader { name: name?, value: value? })
    };
    items.filter_map(&mut header).collect()
}
