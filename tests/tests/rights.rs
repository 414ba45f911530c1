//! Roles on the organisation, an environment, an application: what a token sees, what it may do, and that it ends.

mod table;

use conductor_tests::{Api, House, Score, Shape, Told, eventually, quick, resource, seconds, shared};
use serde_json::{Value, json};

fn on_both(story: impl Fn(Shape)) {
    story(Shape::Up { workers: 0 });
    if !quick() {
        story(Shape::FleetPostgres { servers: 1, workers: 1 });
    }
}

/// Somebody with a token of their own.
struct Person<'a> {
    house: &'a House,
    token: String,
}

impl<'a> Person<'a> {
    fn new(house: &'a House, name: &str, may: &[&str]) -> Self {
        let made = house.place.json(&[&["tokens", "create", "--name", name, "--role"], may].concat());
        assert_eq!(made["name"], name);
        Self { house, token: made["token"].as_str().expect("a token").to_owned() }
    }

    fn run(&self, args: &[&str]) -> Told {
        self.house.place.run_with(args, &[("CONDUCTOR_TOKEN", &self.token)])
    }

    #[track_caller]
    fn json(&self, args: &[&str]) -> Value {
        let told = self.run(&[args, &["-o", "json"]].concat());
        assert_eq!(told.code, 0, "conductor {}: {}", args.join(" "), told.all());
        told.json()
    }

    fn deploy(&self, score: &Score, environment: &str) -> Told {
        let file = self.house.place.write("score.yaml", score.text()).display().to_string();
        self.run(&["deploy", "-f", &file, "--env", environment])
    }

    /// Exit code 4, and a sentence that names the role and the place.
    #[track_caller]
    fn is_refused(&self, told: &Told, role: &str, place: &str) {
        assert_eq!(told.code, 4, "{told:?}");
        assert!(told.stderr.contains(&format!("the role {role} on {place}")), "{}", told.stderr);
    }

    fn api(&self) -> Api {
        self.house.api().with_token(&self.token)
    }
}

fn web() -> Score {
    Score::new("web").thing("db", json!({ "secret": true })).with("bus", shared("thing", "bus", json!({})))
}

fn other() -> Score {
    Score::new("other").thing("db", json!({})).with("bus", shared("thing", "bus", json!({})))
}

fn names(list: &Value, key: &str) -> Vec<String> {
    let list = list.as_array().expect("an array").iter();
    let mut names: Vec<String> = list.map(|item| item[key].as_str().unwrap_or_default().to_owned()).collect();
    names.sort();
    names.dedup();
    names
}

fn furnished(shape: Shape) -> House {
    let house = House::new(shape);
    house.place.apply_things();
    house.place.apply("prod", "kind: Environment\nname: prod\ntype: production\n");
    house
}

#[test]
fn a_token_of_one_application_in_one_environment_sees_and_does_that_alone() {
    on_both(|shape| {
        let house = furnished(shape);
        // Before anybody deployed it.
        let ci = Person::new(&house, "ci", &["write", "--env", "dev", "--app", "web"]);
        let listed = house.place.json(&["tokens", "list"]);
        let listed = listed.as_array().unwrap().iter().find(|token| token["name"] == "ci").unwrap();
        assert_eq!(
            listed["grants"],
            json!([{ "role": "write", "environment": "dev", "application": "web" }])
        );
        house.place.deploy(&other().text());

        assert_eq!(ci.deploy(&web(), "dev").code, 0);
        let there = "application `web` in environment `prod`";
        ci.is_refused(&ci.deploy(&web(), "prod"), "write", there);
        ci.is_refused(&ci.deploy(&other(), "dev"), "write", "application `other` in environment `dev`");
        let destroyed = ci.run(&["destroy", "--env", "dev", "--app", "web", "--yes"]);
        ci.is_refused(&destroyed, "admin or owner", "application `web` in environment `dev`");
        assert_eq!(ci.run(&["destroy", "--env", "dev", "--app", "web", "--dry-run"]).code, 0);
        ci.is_refused(&ci.run(&["outputs", "other", "--env", "dev"]), "read", "application `other`");
        assert!(ci.json(&["outputs", "web", "--env", "dev", "--reveal"])["db"]["password"].is_string());
        ci.is_refused(&ci.run(&["audit", "verify"]), "read", "the organisation");
        ci.is_refused(
            &ci.run(&["tokens", "create", "--role", "read", "--name", "x"]),
            "admin or owner",
            "the organisation",
        );

        // Lists show what it may see, whole pages of it.
        assert_eq!(names(&ci.json(&["deployments", "list"]), "application"), ["web"]);
        let seen = ci.json(&["resources", "list"]);
        assert_eq!(names(&seen, "name"), ["bus", "web-db"], "{seen}");
        let (mut paged, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = ci.api().get(&format!("/api/v1/resources?limit=1{cursor}")).json();
            assert_eq!(page["items"].as_array().unwrap().len(), 1, "a page that is not full: {page}");
            paged.push(page["items"][0]["name"].as_str().unwrap().to_owned());
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        paged.sort();
        assert_eq!(paged, ["bus", "web-db"]);
        let steps = names(&ci.json(&["operations", "list"]), "resourceName");
        assert!(!steps.contains(&"other-db".to_owned()) && steps.contains(&"web-db".to_owned()), "{steps:?}");
        let all = house.place.json(&["events", "list"]);
        let mine = ci.json(&["events", "list"]);
        assert!(mine.as_array().unwrap().len() < all.as_array().unwrap().len());
        assert!(!names(&mine, "kind").contains(&"token.created".to_owned()));

        // What it may not see is not there.
        let foreign = house.place.json(&["resources", "list"]);
        let foreign = foreign.as_array().unwrap().iter().find(|item| item["name"] == "other-db").unwrap();
        let foreign = foreign["id"].as_str().unwrap();
        assert_eq!(ci.run(&["resources", "get", foreign]).code, 6);
        ci.api().get(&format!("/api/v1/resources/{foreign}")).problem(404);
        ci.api().get(&format!("/api/v1/events?resource={foreign}")).json()["items"]
            .as_array()
            .map(|items| assert!(items.is_empty()))
            .unwrap();
    });
}

#[test]
fn what_several_use_is_seen_by_each_and_changed_by_who_may_for_all() {
    on_both(|shape| {
        let house = furnished(shape);
        house.place.deploy(&web().text());
        let made = house.place.deploy(&other().text());
        let bus = made["resources"].as_array().unwrap().iter().find(|item| item["requirement"] == "bus");
        let bus = bus.unwrap()["resource"].as_str().unwrap();
        let one = Person::new(&house, "one", &["owner", "--app", "web"]);
        let both = Person::new(&house, "both", &["owner", "--app", "web"]);
        house.place.ok(&["tokens", "grant", "both", "--role", "owner", "--app", "other"]);
        let all = Person::new(&house, "all", &["write", "--env", "dev"]);
        for person in [&one, &both, &all] {
            assert_eq!(person.api().get(&format!("/api/v1/resources/{bus}")).status, 200);
        }
        let unlock = |person: &Person<'_>| {
            person.api().call("DELETE", &format!("/api/v1/resources/{bus}/states/lock"), &[], "")
        };
        let refused = unlock(&one).problem(403);
        let detail = refused["detail"].as_str().unwrap();
        assert!(
            detail.contains("the role admin or owner on") && detail.contains("environment `dev`"),
            "{detail}"
        );
        unlock(&all).problem(403);
        assert_ne!(unlock(&both).status, 403);
    });
}

#[test]
fn linking_by_id_takes_write_on_what_is_linked() {
    on_both(|shape| {
        let house = furnished(shape);
        let made = house.place.deploy(&Score::new("other").thing("db", json!({})).text());
        let id = made["resources"][0]["resource"].as_str().unwrap();
        let mut linked = resource("thing", json!({}));
        linked["reference"] = json!({ "mode": "existing", "id": id });
        let score = Score::new("web").with("db", linked);
        let blind = Person::new(&house, "blind", &["write", "--app", "web"]);
        let told = blind.deploy(&score, "dev");
        assert_eq!(told.code, 6, "{told:?}");
        let looks = Person::new(&house, "looks", &["write", "--app", "web"]);
        house.place.ok(&["tokens", "grant", "looks", "--role", "read", "--env", "dev"]);
        looks.is_refused(&looks.deploy(&score, "dev"), "write", id);
        let may = Person::new(&house, "may", &["write", "--env", "dev"]);
        let told = may.deploy(&score, "dev");
        assert_eq!(told.code, 0, "{told:?}");
    });
}

#[test]
fn a_role_that_is_taken_down_is_down_everywhere() {
    let shape = match quick() {
        true => Shape::Up { workers: 0 },
        false => Shape::FleetPostgres { servers: 2, workers: 1 },
    };
    let house = furnished(shape);
    let ann = Person::new(&house, "ann", &["admin"]);
    let last = house.fleet.urls.len() - 1;
    let elsewhere = house.api_at(last).with_token(&ann.token);
    // Known on every server.
    assert_eq!(elsewhere.get("/api/v1/tokens").status, 200);
    assert_eq!(ann.deploy(&web(), "dev").code, 0);

    let token = house.place.json(&["tokens", "grant", "ann", "--role", "write"]);
    assert_eq!(token["grants"], json!([{ "role": "write" }]));
    let destroy = json!({ "environment": "dev", "application": "web" });
    elsewhere.post("/api/v1/destroys", &destroy).problem(403);
    elsewhere.post("/api/v1/tokens", &json!({ "name": "back", "role": "admin" })).problem(403);
    eventually("it is no administrator anywhere", seconds(5), || {
        (elsewhere.get("/api/v1/tokens").status == 403).then_some(())
    });
    assert_eq!(ann.deploy(&web(), "dev").code, 0);

    house.place.ok(&["tokens", "grant", "ann", "--role", "read", "--env", "dev"]);
    house.place.ok(&["tokens", "ungrant", "ann"]);
    ann.is_refused(&ann.deploy(&web(), "dev"), "write", "application `web` in environment `dev`");
    assert_eq!(ann.run(&["resources", "list"]).code, 0);
    assert_eq!(house.place.run(&["tokens", "ungrant", "ann"]).code, 6, "it holds nothing there any more");
    house.place.ok(&["tokens", "ungrant", "ann", "--env", "dev"]);
    assert_eq!(ann.run(&["resources", "list"]).code, 4);
    house.place.ok(&["tokens", "revoke", "ann"]);
    elsewhere.post("/api/v1/destroys", &destroy).problem(401);

    // Every step is in the audit trail, with what was before and after.
    let events = house.place.json(&["events", "list"]);
    let granted: Vec<&Value> =
        events.as_array().unwrap().iter().filter(|event| event["kind"] == "token.granted").collect();
    assert_eq!(granted.len(), 4, "{granted:?}");
    let first = granted.last().unwrap();
    assert_eq!(first["data"]["before"], json!([{ "role": "admin" }]));
    assert_eq!(first["data"]["after"], json!([{ "role": "write" }]));
}

#[test]
fn the_owners_of_an_application_are_those_its_document_names() {
    on_both(|shape| {
        let house = furnished(shape);
        house.place.deploy(&web().text());
        house.place.deploy(&other().text());
        let ann = Person::new(&house, "ann", &["read"]);
        let destroy =
            |application: &str| ann.run(&["destroy", "--env", "dev", "--app", application, "--yes"]);
        ann.is_refused(&destroy("web"), "admin or owner", "application `web` in environment `dev`");
        house.place.apply("web", "kind: Application\nname: web\nowners: [ann, bob]\n");
        ann.is_refused(&destroy("other"), "admin or owner", "application `other` in environment `dev`");
        let told = destroy("web");
        assert_eq!(told.code, 0, "{told:?}");
        house.place.apply("web", "kind: Application\nname: web\nowners: [bob]\n");
        ann.is_refused(&ann.deploy(&web(), "dev"), "write", "application `web` in environment `dev`");
    });
}

#[test]
fn an_environments_administrator_keeps_its_document_and_its_pools() {
    let house = furnished(Shape::Up { workers: 0 });
    let ann = Person::new(&house, "ann", &["admin", "--env", "dev"]);
    let apply = |name: &str, text: &str| {
        let file = house.place.write(name, text).display().to_string();
        ann.run(&["apply", "-f", &file])
    };
    assert_eq!(apply("env.yaml", "kind: Environment\nname: dev\ntype: development\ngrace: 1h\n").code, 0);
    let pool = "kind: Pool\nname: warm\nenvironment: dev\ntemplate: thing\nsize: 0\n";
    assert_eq!(apply("pool.yaml", pool).code, 0);
    assert_eq!(ann.run(&["pools", "delete", "warm", "--yes"]).code, 0);
    ann.is_refused(
        &apply("prod.yaml", "kind: Environment\nname: prod\ntype: staging\n"),
        "admin or owner",
        "environment `prod`",
    );
    let rule = "kind: Rule\nname: r\ntemplate: thing\nmatch: { type: thing }\n";
    ann.is_refused(&apply("rule.yaml", rule), "admin or owner", "the organisation");
}

#[test]
fn a_workers_role_has_no_place_and_a_place_must_be_there() {
    let house = furnished(Shape::Up { workers: 0 });
    let create = |name: &str, more: &[&str]| {
        house.place.run(&[&["tokens", "create", "--name", name, "--role"], more].concat())
    };
    let told = create("w", &["worker", "--env", "dev"]);
    assert_eq!(told.code, 1, "{told:?}");
    assert!(told.stderr.contains("whole organisation"), "{}", told.stderr);
    let told = create("x", &["read", "--env", "nowhere"]);
    assert_eq!(told.code, 6, "{told:?}");
    assert!(told.stderr.contains("dev"), "{}", told.stderr);
}

#[test]
fn where_destroying_needs_approval_who_may_write_may_ask_for_it() {
    on_both(|shape| {
        let house = furnished(shape);
        house.place.deploy(&web().text());
        let ci = Person::new(&house, "ci", &["write", "--app", "web"]);
        let destroy = || ci.run(&["destroy", "--env", "dev", "--app", "web", "--yes"]);
        ci.is_refused(&destroy(), "admin or owner", "application `web` in environment `dev`");
        house.place.apply(
            "dev",
            "kind: Environment\nname: dev\ntype: development\napproval: { destroy: required }\n",
        );
        let told = destroy();
        assert_eq!(told.code, 5, "{told:?}");
        let waiting = ci.json(&["approvals", "list"]);
        let id = waiting[0]["id"].as_str().unwrap();
        let told = ci.run(&["approvals", "approve", id]);
        ci.is_refused(&told, "admin or owner", "application `web` in environment `dev`");

        // The right to answer counts as of the answer.
        let ann = Person::new(&house, "ann", &["admin", "--app", "web"]);
        assert_eq!(names(&ann.json(&["approvals", "list", "--mine"]), "id"), [id]);
        house.place.ok(&["tokens", "grant", "ann", "--role", "read", "--app", "web"]);
        ann.is_refused(&ann.run(&["approvals", "approve", id]), "admin or owner", "application `web`");
        let stranger = Person::new(&house, "stranger", &["owner", "--app", "other"]);
        assert_eq!(stranger.run(&["approvals", "approve", id]).code, 6);
        house.place.ok(&["tokens", "grant", "ann", "--role", "owner", "--env", "dev"]);
        let told = ann.run(&["approvals", "approve", id]);
        assert_eq!(told.code, 0, "{told:?}");
        eventually("web is gone", seconds(30), || {
            let left = house.place.resources();
            (!left.iter().any(|resource| resource["name"] == "web-db")).then_some(())
        });
    });
}

#[test]
fn who_makes_something_by_hand_owns_it_while_they_may_write() {
    on_both(|shape| {
        let house = furnished(shape);
        let make = |person: &Person<'_>, name: &str, environment: &str| {
            let args = ["resources", "create", "--template", "thing", "--name", name, "--env", environment];
            person.run(&[&args[..], &["-o", "json"]].concat())
        };
        let ann = Person::new(&house, "ann", &["write", "--env", "dev"]);
        let bob = Person::new(&house, "bob", &["write", "--env", "dev"]);
        ann.is_refused(&make(&ann, "cache", "prod"), "write", "environment `prod`");
        let (mine, kept) = (make(&ann, "cache", "dev"), make(&ann, "other-cache", "dev"));
        assert_eq!((mine.code, kept.code), (0, 0), "{mine:?} {kept:?}");
        let id = |told: &Told| told.json()["id"].as_str().expect("an id").to_owned();
        let (mine, kept) = (id(&mine), id(&kept));
        let destroy = |person: &Person<'_>, id: &str| person.run(&["resources", "destroy", id, "--yes"]);
        bob.is_refused(&destroy(&bob, &mine), "admin or owner", &mine);
        let stolen = json!({ "owner": "bob" }).to_string();
        let path = format!("/api/v1/resources/{mine}");
        bob.api().call("PATCH", &path, &[("content-type", "application/json")], stolen).problem(403);
        let told = destroy(&ann, &mine);
        assert_eq!(told.code, 0, "{told:?}");
        house.place.ok(&["tokens", "grant", "ann", "--role", "read", "--env", "dev"]);
        ann.is_refused(&destroy(&ann, &kept), "admin or owner", &kept);
    });
}
