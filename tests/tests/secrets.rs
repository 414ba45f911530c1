//! A secret is sealed at rest, in no log and in no answer but the one that reveals it; the key is looked after.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use conductor_tests::{House, Score, Shape, postgres, quick, resource, seconds, tofu};
use serde_json::{Value, json};

const TYPED: &str = "typed-in-by-somebody-4711";

fn holds(bytes: &[u8], word: &str) -> bool {
    bytes.windows(word.len()).any(|part| part == word.as_bytes())
}

fn a_secret_stays_one(shape: Shape) {
    let house = House::new(shape);
    let place = &house.place;
    place.apply_things();
    place.apply("vault", &place.world.template("vault", "    pin: { type: string, sensitive: true }\n"));
    let api = house.api();
    // Over HTTP: a file with the secret in it would be found below.
    let score = Score::new("web")
        .with("db", resource("vault", json!({ "note": "db", "secret": true, "pin": TYPED })))
        .thing("user", json!({ "note": "x ${resources.db.password} y", "says": "${resources.db.password}" }));
    let deployment = api.deploy(&score.text());
    let id = deployment.id.unwrap();
    api.succeeded(&deployment, seconds(30));
    let minted = place.outputs("web", true)["db"]["password"].as_str().expect("revealed").to_owned();
    assert!(minted.starts_with("hush"));
    assert!(
        place.world.things().values().any(|thing| thing["note"] == format!("x {minted} y")),
        "it was not handed over"
    );

    // A failure whose reason is the secret itself.
    let failing = Score::new("clumsy")
        .with("db", resource("vault", json!({ "pin": TYPED, "breaks": "cannot use PIN" })));
    let failed = api.deploy(&failing.text());
    assert_eq!(api.settled(&failed, seconds(30)).status, "failed");

    let look = |path: &str| (path.to_owned(), api.get(path).text);
    let mut told: Vec<(String, String)> =
        ["deployments", "resources", "operations", "events", "templates", "workers", "tokens"]
            .iter()
            .map(|list| look(&format!("/api/v1/{list}?limit=200")))
            .collect();
    for id in [id, failed.id.unwrap()] {
        told.push(look(&format!("/api/v1/deployments/{id}")));
        told.push(look(&format!("/api/v1/deployments/{id}/logs")));
        told.push((
            "stream".into(),
            format!("{:?}", api.events(&format!("/api/v1/deployments/{id}/logs"), None, usize::MAX)),
        ));
        told.push(("cli logs".into(), place.ok(&["logs", &id.to_string()]).all()));
    }
    for resource in api.resources() {
        told.push(look(&format!("/api/v1/resources/{}", resource.id)));
    }
    told.push(look("/api/v1/outputs?app=web&env=dev"));
    told.push((
        "plan".into(),
        api.post("/api/v1/plans", &json!({ "environment": "dev", "manifest": score.text() })).text,
    ));
    told.push(look("/metrics"));
    let said = told.iter().find(|(name, _)| name.ends_with("/logs")).unwrap();
    assert!(
        said.1.contains("somebody says") && said.1.contains("the pin is"),
        "the log is not there: {}",
        said.1
    );
    for (name, text) in &told {
        for word in [TYPED, minted.as_str()] {
            assert!(!text.contains(word), "{name} shows {word}: {text}");
        }
    }
    assert_eq!(place.outputs("web", false)["db"]["password"], Value::Null);

    let secrets = [TYPED, minted.as_str(), house.worker_token(), house.fleet.token.as_str()];
    for file in place.files() {
        let bytes = fs::read(&file).unwrap_or_default();
        for word in secrets {
            assert!(!holds(&bytes, word), "{word} is in {}", file.display());
        }
    }
    if let Some(database) = &house.database {
        let (dump, log) = (postgres().dump(database), postgres().log());
        for word in secrets {
            assert!(!holds(&dump, word), "{word} is in the database");
            assert!(!holds(&log, word), "{word} is in the database server's log");
        }
    }
}

#[test]
fn a_secret_is_in_no_file_no_log_and_no_answer() {
    a_secret_stays_one(Shape::Up { workers: 0 });
}

#[test]
fn a_secret_is_in_no_file_no_log_no_answer_and_no_dump_on_postgresql() {
    if !quick() {
        a_secret_stays_one(Shape::FleetPostgres { servers: 1, workers: 1 });
    }
}

/// The password of the database manager, and the one in its own server's address.
#[test]
fn a_generated_password_is_nowhere_but_where_it_is_revealed() {
    if quick() {
        return;
    }
    let house = House::new(Shape::FleetPostgres { servers: 1, workers: 1 });
    let place = &house.place;
    let text = format!(
        "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\nconfig: {{ engine: postgres, server: \"{}\" }}\n",
        postgres().admin()
    );
    place.apply("db", &text);
    fs::remove_file(place.path("catalog/db.yaml")).unwrap();
    let document = place.deploy(&Score::new("web").with("db", json!({ "type": "postgres" })).text());
    let outputs = place.outputs("web", true)["db"].clone();
    let password = outputs["password"].as_str().unwrap();
    assert!(password.len() >= 20, "{password}");
    assert!(postgres().can_log_in(outputs["url"].as_str().unwrap()));
    let id = document["id"].as_str().unwrap();
    let mut told =
        vec![document.to_string(), place.ok(&["logs", id]).all(), place.outputs("web", false).to_string()];
    for list in ["resources", "operations", "events", "deployments"] {
        told.push(place.json(&[list, "list"]).to_string());
    }
    for text in &told {
        assert!(!text.contains(password), "{text}");
    }
    for file in place.files() {
        assert!(!holds(&fs::read(&file).unwrap_or_default(), password), "in {}", file.display());
    }
    assert!(!holds(&postgres().dump(house.database.as_ref().unwrap()), password), "in the database");
    assert!(!holds(&postgres().log(), password), "in the log of the server it belongs to");
    place.destroy("web");
}

/// A template's own configuration may hold a password: it is no less a secret.
#[test]
fn a_password_in_a_templates_configuration_is_sealed_and_not_shown() {
    if quick() {
        return;
    }
    let house = House::new(Shape::FleetPostgres { servers: 1, workers: 1 });
    let place = &house.place;
    let text = format!(
        "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\nconfig: {{ engine: postgres, server: \"{}\" }}\n",
        postgres().admin()
    );
    place.apply("db", &text);
    let password = postgres().admin().split([':', '@']).nth(2).unwrap().to_owned();
    let shown = place.json(&["templates", "list"]).to_string() + &place.json(&["events", "list"]).to_string();
    assert!(!shown.contains(&password), "templates list shows the server's password");
    assert!(
        !holds(&postgres().dump(house.database.as_ref().unwrap()), &password),
        "the server's password is in the database"
    );
}

/// The address can also come from the worker, so that the catalogue holds no password at all.
#[test]
fn the_address_of_a_database_server_can_be_a_setting_of_the_worker() {
    if quick() {
        return;
    }
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    place.set("MANAGED_SERVER", &postgres().admin());
    place.apply("db", "kind: Template\nname: db\ntype: postgres\nversion: 1.0.0\nmanager: database\nconfig: { engine: postgres, serverEnv: MANAGED_SERVER }\n");
    place.deploy(&Score::new("web").with("db", json!({ "type": "postgres" })).text());
    assert!(postgres().can_log_in(place.outputs("web", true)["db"]["url"].as_str().unwrap()));
    place.destroy("web");
}

#[track_caller]
fn is_private(path: &Path) {
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "{}", path.display());
}

#[test]
fn a_missing_or_wrong_key_is_a_clear_error_at_the_start_embedded() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    place.apply_things();
    place.deploy(&Score::new("web").thing("db", json!({ "secret": true })).text());
    let key = place.path("data/key");
    is_private(&key);
    let right = fs::read(&key).unwrap();
    let other = House::new(Shape::Embedded);
    other.place.ok(&["status"]);
    let wrong = fs::read(other.place.path("data/key")).unwrap();
    assert_ne!(right, wrong, "every installation has the same key");
    for (what, content) in [
        ("wrong", Some(wrong)),
        ("broken", Some(b"nonsense\n".to_vec())),
        ("empty", Some(vec![])),
        ("missing", None),
    ] {
        match &content {
            Some(bytes) => fs::write(&key, bytes).unwrap(),
            None => fs::remove_file(&key).unwrap(),
        }
        for command in [&["status"][..], &["outputs", "web", "--env", "dev"], &["resources", "list"], &["up"]]
        {
            let told = place.run_with(command, &[("CONDUCTOR_LISTEN", "127.0.0.1:0")]);
            assert_eq!(told.code, 1, "{what}: {told:?}");
            assert!(told.stderr.contains("key"), "{what}: {told:?}");
        }
        assert_eq!(key.exists(), content.is_some(), "{what}: a new key was made for a sealed database");
    }
    fs::write(&key, &right).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(place.outputs("web", true)["db"]["password"].is_string());
    // The key may also be a setting.
    let text = String::from_utf8(right).unwrap();
    fs::remove_file(&key).unwrap();
    place.set("CONDUCTOR_KEY", text.trim());
    assert!(place.outputs("web", true)["db"]["password"].is_string());
}

#[test]
fn a_missing_or_wrong_key_is_a_clear_error_at_the_start_of_a_server() {
    if quick() {
        return;
    }
    let mut house = House::new(Shape::FleetPostgres { servers: 1, workers: 0 });
    house.fleet.servers[0].stop();
    let place = &house.place;
    let key = place.path("key");
    is_private(&key);
    let url = house.database.as_ref().unwrap().url.clone();
    let settings = [
        ("CONDUCTOR_DATABASE_URL", url.as_str()),
        ("CONDUCTOR_KEY_FILE", key.to_str().unwrap()),
        ("CONDUCTOR_LISTEN", "127.0.0.1:0"),
    ];
    fs::remove_file(&key).unwrap();
    let other = House::new(Shape::Embedded);
    other.place.ok(&["status"]);
    for wrong in [None, Some(other.place.path("data/key"))] {
        if let Some(wrong) = wrong {
            fs::copy(wrong, &key).unwrap();
        }
        for command in [&["server"][..], &["server", "--migrate"], &["migrate"]] {
            let told = place.run_with(command, &settings);
            assert_eq!(told.code, 1, "{told:?}");
            assert!(told.stderr.contains("key"), "{told:?}");
        }
    }
}

/// Says each secret it can get hold of in every form and in pieces; so does tofu's own output.
const TELLTALE: &str = r#"
variable "pin" {
  type      = string
  sensitive = true
}
resource "terraform_data" "made" {
}
resource "terraform_data" "telltale" {
  input = { pin = nonsensitive(var.pin), made = "made/${terraform_data.made.id}?" }
  provisioner "local-exec" {
    interpreter = ["PYTHON", "-c"]
    environment = { PIN = self.input.pin, MADE = self.input.made }
    command     = <<-END
      import base64, os, sys, time, urllib.parse
      def say(text):
          sys.stdout.write(text)
          sys.stdout.flush()
      for name in ["PIN", "MADE", "CLOUD_KEY"]:
          value = os.environ[name]
          say(f"{name} is {value[:7]}")
          time.sleep(0.02)
          say(f"{value[7:]}, honestly\n")
          say(f"url https://user:{urllib.parse.quote(value, safe='')}@host\n")
          for before in ["", "a", "ab"]:
              say(f"basic {base64.b64encode((before + value + ':').encode()).decode()} end\n")
          say(f"{'x' * 70000}{value}{'y' * 70000}\n")
      say("told everything\n")
    END
  }
}
check "telling" {
  assert {
    condition     = var.pin == "another"
    error_message = "the pin is ${nonsensitive(var.pin)}"
  }
}
output "password" {
  value     = terraform_data.telltale.output.made
  sensitive = true
}
output "shown" {
  value = "shown"
}
"#;

/// A text in the forms in which it may be written down.
fn forms(secret: &str) -> Vec<String> {
    use base64::{Engine, engine::general_purpose::STANDARD};
    let mut forms = vec![secret.to_owned(), secret.replace('/', "%2F").replace('?', "%3F")];
    for before in 0..3 {
        let text = STANDARD.encode(format!("{}{secret}", &"abc"[..before]));
        // The characters that stand for nothing but the secret.
        let first = (before * 8).div_ceil(6);
        forms.push(text[first..(before + secret.len()) * 8 / 6].to_owned());
    }
    forms
}

fn terraform_tells_nothing(shape: Shape) {
    let house = House::new(shape);
    let (place, api) = (&house.place, house.api());
    let (python, read) = conductor_tests::python();
    place.write("catalog/telltale/main.tf", TELLTALE.replace("PYTHON", &python));
    let document = json!({
        "kind": "Template", "name": "telltale", "type": "telltale", "version": "1.0.0", "manager": "terraform",
        "config": { "source": "./telltale", "tool": tofu(), "allow": { "read": read } }, "integrations": ["cloud"],
    });
    place.apply("telltale", &document.to_string());
    const KEY: &str = "cloud/key-that-opens-4711?";
    const PIN: &str = "pin/of-somebody-0815?";
    let integration = json!({ "kind": "Integration", "name": "cloud", "provider": "cloud",
        "variables": { "CLOUD_KEY": KEY } });
    let applied = api.post("/api/v1/catalog", &json!({ "document": integration }));
    assert_eq!(applied.status, 200, "{}", applied.text);
    let score = Score::new("web").with("db", resource("telltale", json!({ "pin": PIN }))).text();
    let deployment = api.deploy(&score);
    api.succeeded(&deployment, seconds(90));
    let revealed = place.outputs("web", true)["db"].clone();
    let made = revealed["password"].as_str().expect("it is revealed").to_owned();
    assert!(made.starts_with("made/") && revealed["shown"] == "shown", "{revealed}");

    let id = deployment.id.expect("an id");
    let log = place.ok(&["logs", &id.to_string()]).all();
    for word in ["PIN is ***, honestly", "MADE is ***, honestly", "CLOUD_KEY is ***, honestly"] {
        assert!(log.contains(word), "{word}: {}", &log[..log.len().min(4000)]);
    }
    assert!(log.contains("url https://user:***@host") && log.contains("told everything"), "{log}");
    let mut told = vec![("logs".to_owned(), log)];
    for path in ["", "/logs", "/operations"] {
        let path = format!("/api/v1/deployments/{id}{path}");
        told.push((path.clone(), api.get(&path).text));
    }
    let stream = api.events(&format!("/api/v1/deployments/{id}/logs"), None, usize::MAX);
    told.push(("stream".into(), format!("{stream:?}")));
    for list in
        ["deployments", "resources", "operations", "events", "integrations", "outputs?app=web&env=dev"]
    {
        told.push((list.to_owned(), api.get(&format!("/api/v1/{list}")).text));
    }
    let resource = api.resources()[0].id;
    told.push(("states".into(), api.get(&format!("/api/v1/resources/{resource}/states")).text));
    let mut kept: Vec<(String, Vec<u8>)> = place
        .files()
        .into_iter()
        .map(|file| (file.display().to_string(), fs::read(&file).unwrap_or_default()))
        .collect();
    if let Some(database) = &house.database {
        kept.push(("the database".into(), postgres().dump(database)));
        kept.push(("the database server's log".into(), postgres().log()));
    }
    kept.extend(told.into_iter().map(|(name, text)| (name, text.into_bytes())));
    for form in [PIN, KEY, made.as_str()].into_iter().flat_map(forms) {
        for (name, bytes) in &kept {
            assert!(!holds(bytes, &form), "{form} is in {name}");
        }
    }
}

#[test]
fn what_terraform_and_its_programs_tell_holds_no_secret_in_any_form() {
    if !quick() {
        terraform_tells_nothing(Shape::Up { workers: 0 });
    }
}

#[test]
fn what_terraform_and_its_programs_tell_holds_no_secret_in_any_form_on_postgresql() {
    if !quick() {
        terraform_tells_nothing(Shape::FleetPostgres { servers: 1, workers: 1 });
    }
}
