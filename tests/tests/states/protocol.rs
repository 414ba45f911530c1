//! The state protocol of the server, request by request.

use conductor_tests::{Api, House, Reply, Shape, quick};
use serde_json::json;

use super::{POSTGRES, SQLITE};

struct Workspace {
    api: Api,
    path: String,
}

impl Workspace {
    fn send(&self, method: &str, query: &str, body: &str) -> Reply {
        self.api.call(method, &format!("{}{query}", self.path), &[], body)
    }

    fn status(&self, method: &str, query: &str, body: &str) -> u16 {
        self.send(method, query, body).status
    }

    fn by(&self, token: &str) -> Self {
        Self { api: self.api.with_token(token), path: self.path.clone() }
    }
}

fn state(serial: i64, note: &str) -> String {
    json!({ "version": 4, "serial": serial, "lineage": "l", "outputs": { "note": note } }).to_string()
}

fn lock(id: &str) -> String {
    json!({ "ID": id, "Operation": "OperationTypeApply", "Who": "somebody@somewhere", "Info": "" })
        .to_string()
}

fn whole_protocol(shape: Shape) {
    let house = House::new(shape);
    let made = |role: &str, name: &str| {
        let made = house.place.json(&["tokens", "create", "--role", role, "--name", name]);
        made["token"].as_str().unwrap().to_owned()
    };
    let (writer, other, reader) = (made("write", "one"), made("write", "two"), made("read", "three"));
    let space =
        Workspace { api: house.api().with_token(&writer), path: "/api/v1/state/team/net work".into() };

    assert_eq!(space.status("GET", "", ""), 404);
    assert_eq!(space.status("LOCK", "", &lock("l-1")), 200);
    assert_eq!(space.status("LOCK", "", &lock("l-1")), 200, "an answer may have been lost");
    let refused = space.by(&other).send("LOCK", "", &lock("l-2"));
    assert_eq!(refused.status, 423);
    assert_eq!(refused.json()["ID"], "l-1");
    assert_eq!(refused.json()["Who"], "somebody@somewhere");
    for query in ["", "?ID=l-2"] {
        let refused = space.by(&other).send("POST", query, &state(1, "a"));
        assert_eq!(refused.status, 409);
        assert!(refused.text.contains("locked by somebody@somewhere"), "{}", refused.text);
    }
    assert_eq!(space.status("POST", "?ID=l-1", &state(1, "a")), 200);
    assert_eq!(space.status("POST", "?ID=l-1", &state(1, "a")), 200, "the same once more");
    assert_eq!(space.status("POST", "?ID=l-1", &state(1, "b")), 409, "another content under that serial");
    assert_eq!(space.status("POST", "?ID=l-1", &state(3, "c")), 200);
    assert_eq!(space.status("POST", "?ID=l-1", &state(2, "d")), 409, "an older serial");
    assert_eq!(space.send("GET", "", "").text, state(3, "c"));
    assert_eq!(space.status("UNLOCK", "", &lock("l-2")), 409);
    assert_eq!(space.status("UNLOCK", "", &lock("l-1")), 200);
    assert_eq!(space.status("UNLOCK", "", &lock("l-1")), 200, "an answer may have been lost");

    // By force: one's own, or anybody's by an administrator.
    assert_eq!(space.status("LOCK", "", &lock("l-3")), 200);
    assert_eq!(space.by(&other).status("UNLOCK", "", ""), 409);
    assert_eq!(space.status("UNLOCK", "", ""), 200);
    assert_eq!(space.status("LOCK", "", &lock("l-4")), 200);
    assert_eq!(space.by(&house.fleet.token).status("UNLOCK", "", ""), 200);
    assert_eq!(house.count("SELECT count(*) FROM workspace_locks"), 0);
    assert_eq!(house.count("SELECT count(*) FROM events WHERE kind = 'state.unlocked'"), 2);

    for (body, why) in [("x", "not JSON"), ("{}", "no serial"), ("{\"serial\":-4}", "negative")] {
        let refused = space.send("POST", "", body);
        assert!(refused.status == 409 && refused.text.contains(why), "{refused:?}");
    }
    assert_eq!(space.status("LOCK", "", "nonsense"), 400);
    assert_eq!(space.status("DELETE", "", ""), 405);
    let wrong = [("content-md5", "AAAAAAAAAAAAAAAAAAAAAA==")];
    assert_eq!(space.api.call("POST", &space.path, &wrong, state(9, "z")).status, 400);
    house.api().get("/api/v1/state/a/../../b").problem(404);
    house.api().get("/api/v1/state/a%00b").problem(422);

    // Terraform can only say its token as a password.
    let basic = |token: &str| format!("Basic {}", base64(&format!("anything:{token}")));
    let nobody = space.api.with_token("");
    let knock = |given: &str| nobody.call("GET", &space.path, &[("authorization", given)], "").status;
    assert_eq!(knock(&basic(&writer)), 200);
    assert_eq!(knock(&basic("wrong")), 401);
    assert_eq!(knock(&basic(&reader)), 403);
    assert_eq!(knock("Basic ???"), 401);
    assert_eq!(nobody.get(&space.path).status, 401);
    assert_eq!(space.by(&reader).status("GET", "", ""), 403);
    assert_eq!(
        nobody.call("GET", "/api/v1/resources", &[("authorization", &basic(&writer))], "").status,
        401
    );
    assert_eq!(house.count("SELECT count(*) FROM workspace_states"), 2);
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for piece in text.as_bytes().chunks(3) {
        let bits =
            piece.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - piece.len()));
        for place in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * place)) as usize & 63] as char;
            out.push(if place <= piece.len() { letter } else { '=' });
        }
    }
    out
}

#[test]
fn the_protocol_answers_as_terraform_expects() {
    whole_protocol(SQLITE);
}

#[test]
fn the_protocol_answers_as_terraform_expects_on_postgresql() {
    if !quick() {
        whole_protocol(POSTGRES);
    }
}

/// Whoever is first writes; of many at once with one serial exactly one is.
fn many_at_once(shape: Shape) {
    let house = House::new(shape);
    let path = "/api/v1/state/crowd".to_owned();
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let space =
                    Workspace { api: house.api_at(number % house.fleet.urls.len()), path: path.clone() };
                scope.spawn(move || space.status("LOCK", "", &lock(&format!("l-{number}"))))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert!(answers.iter().all(|status| [200, 423].contains(status)), "{answers:?}");
    assert_eq!(Workspace { api: house.api(), path: path.clone() }.status("UNLOCK", "", ""), 200);
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|number| {
                let space =
                    Workspace { api: house.api_at(number % house.fleet.urls.len()), path: path.clone() };
                scope.spawn(move || space.status("POST", "", &state(1, &number.to_string())))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(answers.iter().filter(|status| **status == 200).count(), 1, "{answers:?}");
    assert_eq!(house.count("SELECT count(*) FROM workspace_states"), 1);
}

#[test]
fn of_many_at_once_one_gets_the_lock_and_one_the_serial() {
    many_at_once(SQLITE);
    if !quick() {
        many_at_once(POSTGRES);
    }
}
