//! What a module says of itself: its variables, its outputs, and whether it brings a backend.

use std::{collections::BTreeMap, fs, path::Path};

use conductor_domain::work::Failure;
use hcl_edit::{
    expr::Expression,
    structure::{Block, Body},
};
use serde_json::{Map, Value};

use super::schema;
use crate::files;

#[derive(Debug, Default)]
pub(super) struct Module {
    pub variables: BTreeMap<String, Variable>,
    /// By name, whether it is sensitive.
    pub outputs: BTreeMap<String, bool>,
}

#[derive(Debug, Default)]
pub(super) struct Variable {
    /// The schema of its type.
    pub kind: Option<Value>,
    pub description: Option<String>,
    /// Outer: there is one. Inner: what it is, where it can be told without running terraform.
    pub default: Option<Option<Value>>,
    pub nullable: Option<bool>,
    pub sensitive: bool,
}

impl Module {
    /// Reads the files of the folder itself; modules below it are terraform's business.
    pub fn read(folder: &Path, tofu: bool) -> Result<Self, Failure> {
        let mut module = Self::default();
        let names = files_of(folder, tofu)?;
        if names.is_empty() {
            return Err(Failure::invalid("the module has no *.tf file")
                .hint("config.source must name the folder that holds the module's own files"));
        }
        for name in names {
            let path = folder.join(&name);
            let text = fs::read_to_string(&path).map_err(files::failed("read", &path))?;
            if name.ends_with(".json") {
                let document: Value = serde_json::from_str(&text).map_err(|error| {
                    Failure::invalid(format!("{name}:{}:{}: {error}", error.line(), error.column()))
                })?;
                module.add_json(&name, &document)?;
            } else {
                let body = hcl_edit::parser::parse_body(&text).map_err(|error| {
                    let place = error.location();
                    Failure::invalid(format!(
                        "{name}:{}:{}: {}",
                        place.line(),
                        place.column(),
                        error.message()
                    ))
                })?;
                module.add(&name, &body)?;
            }
        }
        Ok(module)
    }

    fn add(&mut self, file: &str, body: &Body) -> Result<(), Failure> {
        for block in body.blocks() {
            let label = block.labels.first().map(|label| label.as_str().to_owned());
            match (block.ident.as_str(), label) {
                ("terraform", _) => {
                    let inner = block.body.blocks().map(|inner| inner.ident.as_str());
                    refuse_backend(file, inner)?;
                }
                ("variable", Some(name)) => self.variables.entry(name).or_default().add(block),
                ("output", Some(name)) => {
                    let sensitive = attribute(block, "sensitive").and_then(Expression::as_bool);
                    self.outputs.insert(name, sensitive.unwrap_or(false));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn add_json(&mut self, file: &str, document: &Value) -> Result<(), Failure> {
        for part in one_or_many(document.get("terraform")) {
            refuse_backend(file, part.keys().map(String::as_str))?;
        }
        for (name, spec) in one_or_many(document.get("variable")).into_iter().flatten() {
            let variable = self.variables.entry(name.clone()).or_default();
            for spec in one_or_many(Some(spec)) {
                variable.add_json(spec);
            }
        }
        for (name, spec) in one_or_many(document.get("output")).into_iter().flatten() {
            let sensitive =
                one_or_many(Some(spec)).iter().any(|spec| spec.get("sensitive") == Some(&true.into()));
            self.outputs.insert(name.clone(), sensitive);
        }
        Ok(())
    }
}

impl Variable {
    fn add(&mut self, block: &Block) {
        if let Some(kind) = attribute(block, "type") {
            self.kind = Some(schema::of_type(kind));
        }
        if let Some(default) = attribute(block, "default") {
            self.default = Some(schema::literal(default));
        }
        if let Some(Value::String(text)) = attribute(block, "description").and_then(schema::literal) {
            self.description = Some(text);
        }
        let flag = |name| attribute(block, name).and_then(Expression::as_bool);
        self.nullable = flag("nullable").or(self.nullable);
        self.sensitive = flag("sensitive").unwrap_or(self.sensitive);
    }

    fn add_json(&mut self, spec: &Map<String, Value>) {
        let text = |name: &str| spec.get(name).and_then(Value::as_str);
        if let Some(kind) = text("type").and_then(|kind| kind.parse::<Expression>().ok()) {
            self.kind = Some(schema::of_type(&kind));
        }
        if let Some(default) = spec.get("default") {
            self.default = Some(Some(default.clone()));
        }
        if let Some(description) = text("description") {
            self.description = Some(description.to_owned());
        }
        let flag = |name: &str| spec.get(name).and_then(Value::as_bool);
        self.nullable = flag("nullable").or(self.nullable);
        self.sensitive = flag("sensitive").unwrap_or(self.sensitive);
    }
}

fn attribute<'a>(block: &'a Block, name: &str) -> Option<&'a Expression> {
    block.body.get_attribute(name).map(|attribute| &attribute.value)
}

/// JSON syntax allows an object or a list of objects wherever a block can stand.
fn one_or_many(value: Option<&Value>) -> Vec<&Map<String, Value>> {
    match value {
        Some(Value::Object(map)) => vec![map],
        Some(Value::Array(items)) => items.iter().filter_map(Value::as_object).collect(),
        _ => Vec::new(),
    }
}

fn refuse_backend<'a>(file: &str, blocks: impl IntoIterator<Item = &'a str>) -> Result<(), Failure> {
    match blocks.into_iter().find(|block| ["backend", "cloud"].contains(block)) {
        Some(block) => Err(Failure::invalid(format!("{file} has a `{block}` block"))
            .hint("take it out: Conductor keeps the state of every resource itself")),
        None => Ok(()),
    }
}

/// The module's files in the order in which they count: overrides last. A `.tofu` file hides its `.tf` twin.
fn files_of(folder: &Path, tofu: bool) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(files::failed("read", folder))? {
        let entry = entry.map_err(files::failed("read", folder))?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    let ours = |name: &&String| {
        let hidden = name.starts_with('.') || name.ends_with('~');
        let tf = name.ends_with(".tf") || name.ends_with(".tf.json");
        let twin = name.replace(".tf", ".tofu");
        !hidden
            && ((tf && !(tofu && names.contains(&twin)))
                || (tofu && (name.ends_with(".tofu") || name.ends_with(".tofu.json"))))
    };
    let mut found: Vec<String> = names.iter().filter(ours).cloned().collect();
    let overrides = |name: &str| {
        let stem = name.split_once(".t").map_or(name, |(stem, _)| stem);
        stem == "override" || stem.ends_with("_override")
    };
    found.sort_by_key(|name| (overrides(name), name.clone()));
    Ok(found)
}
