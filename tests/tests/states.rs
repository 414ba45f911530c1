//! Terraform's state: its versions, people's own workspaces, bodies outside the database, backends of the
//! environment's own; with real terraform and real tofu, on both databases.

mod native;
mod objects;
mod protocol;
mod tools;
mod versions;

use std::path::Path;

use conductor_tests::{House, Score, Shape, resource};
use serde_json::{Value, json};

const SQLITE: Shape = Shape::Up { workers: 0 };
const POSTGRES: Shape = Shape::FleetPostgres { servers: 2, workers: 1 };

const MODULE: &str = r#"
variable "note" { default = "none" }
variable "hush" {
  default   = "nothing-at-all"
  sensitive = true
}
variable "pause" { default = 0 }
resource "terraform_data" "thing" { input = var.note }
resource "terraform_data" "secret" { input = var.hush }
resource "terraform_data" "slow" {
  count = var.pause > 0 ? 1 : 0
  provisioner "local-exec" { command = "sleep ${var.pause}" }
}
output "note" { value = terraform_data.thing.output }
output "hush" {
  value     = terraform_data.secret.output
  sensitive = true
}
"#;

/// Applies the module as the template of type `noted`.
fn catalogue(house: &House, tool: &Path) {
    house.place.write("catalog/noted/main.tf", MODULE);
    let tool = tool.display();
    house.place.apply(
        "noted",
        &format!(
            "kind: Template\nname: noted\ntype: noted\nversion: 1.0.0\nmanager: terraform\n\
             config: {{ source: ./noted, tool: {tool} }}\n"
        ),
    );
}

fn score(params: Value) -> String {
    Score::new("web").with("notes", resource("noted", params)).text()
}

/// Deploys it with these parameters, and gives its resource.
#[track_caller]
fn deploy(house: &House, params: Value) -> String {
    house.place.deploy(&score(params));
    id_of(house)
}

#[track_caller]
fn id_of(house: &House) -> String {
    let all = house.place.resources();
    let one = all.iter().find(|resource| resource["type"] == "noted").expect("the resource");
    one["id"].as_str().expect("an id").to_owned()
}

fn note(text: &str) -> Value {
    json!({ "note": text })
}
