//! Who may do what with an operation, and what a job is handed to do it with.

mod identity;
mod integrations;
mod tokens;
mod workers;

use std::{collections::BTreeMap, fs};

use conductor_tests::{House, Place};
use serde_json::{Value, json};

/// A template whose program notes its environment and one file, logs what it sees, and gives it back.
fn teller(place: &Place, name: &str, more: &str) {
    let folder = place.world.folder.display();
    place.write_program(
        &format!("catalog/{name}.sh"),
        &format!(
            "#!/bin/sh\ncat >/dev/null\n[ \"$1\" = observe ] && exit 64\n[ \"$1\" = plan ] && exit 64\n\
             env >{folder}/{name}.env\n\
             if [ -n \"$DEMO_FILE\" ]; then cp -p \"$DEMO_FILE\" {folder}/{name}.file; fi\n\
             echo \"the key is $DEMO_KEY, the file says $(cat \"$DEMO_FILE\" 2>/dev/null)\" >&2\n\
             [ \"$1\" = delete ] && {{ echo '{{}}'; exit 0; }}\n\
             [ -n \"$DEMO_BREAKS\" ] && {{ echo \"cannot use $DEMO_KEY\" >&2; exit 1; }}\n\
             printf '{{\"outputs\": {{\"seen\": \"<%s>\", \"region\": \"%s\"}}}}' \"$DEMO_KEY\" \"$DEMO_REGION\"\n"
        ),
    );
    let text = format!(
        "kind: Template\nname: {name}\ntype: {name}\nmanager: command\n{more}config:\n  program: ./{name}.sh\n  \
         protocol: conductor\n  retries: 0\n  allow: {{ write: [\"{folder}\"] }}\n"
    );
    place.apply(name, &text);
}

/// What the program of a template last saw of its environment.
fn seen(place: &Place, name: &str) -> BTreeMap<String, String> {
    let text = fs::read_to_string(place.world.folder.join(format!("{name}.env"))).expect("it was run");
    text.lines().filter_map(|line| line.split_once('=')).map(|(n, v)| (n.to_owned(), v.to_owned())).collect()
}

/// Applies a document over HTTP, so that no file of the test's own holds it.
#[track_caller]
fn apply(house: &House, document: Value) -> Value {
    let reply = house.api().post("/api/v1/catalog", &json!({ "document": document }));
    assert_eq!(reply.status, 200, "{}", reply.text);
    reply.json()
}
