//! Every route of the description, called by every role held on every kind of place: who is let in, who is refused, and
//! for whom there is nothing there.

use std::collections::BTreeSet;

use conductor_tests::{Api, House, Score, Shape, eventually, quick, seconds};
use serde_json::{Value, json};

const ROLES: [&str; 4] = ["read", "write", "admin", "owner"];

/// Environment and application a role is held on; the things that are called about belong to `web` in `dev`.
const PLACES: [(Option<&str>, Option<&str>); 6] = [
    (None, None),
    (Some("dev"), None),
    (None, Some("web")),
    (Some("dev"), Some("web")),
    (Some("prod"), None),
    (None, Some("other")),
];

#[derive(Clone, Copy, Debug)]
enum Takes {
    /// This role, wherever it is held.
    Somewhere(&'static str),
    /// This role on the organisation.
    Organisation(&'static str),
    /// This role on all of `dev`.
    Environment(&'static str),
    /// This role on `web` in `dev`, both named in the request.
    Named(&'static str),
    /// The same, for something with an id: who may not even read it is told that it is not there.
    Thing(&'static str),
}

use Takes::{Environment, Named, Organisation, Somewhere, Thing};

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    LetIn,
    Refused,
    NotThere,
}

struct Holder {
    role: &'static str,
    environment: Option<&'static str>,
    application: Option<&'static str>,
    api: Api,
}

impl Holder {
    fn is(&self, role: &str) -> bool {
        let rank = |role: &str| ROLES.iter().position(|other| *other == role);
        rank(self.role) >= rank(role)
    }

    fn covers(&self, environment: Option<&str>, application: Option<&str>) -> bool {
        (self.environment.is_none() || self.environment == environment)
            && (self.application.is_none() || self.application == application)
    }

    fn expects(&self, takes: Takes) -> Outcome {
        let let_in = match takes {
            Somewhere(role) => self.is(role),
            Organisation(role) => self.is(role) && self.covers(None, None),
            Environment(role) => self.is(role) && self.covers(Some("dev"), None),
            Named(role) | Thing(role) => self.is(role) && self.covers(Some("dev"), Some("web")),
        };
        match takes {
            _ if let_in => Outcome::LetIn,
            Thing(_) if !self.covers(Some("dev"), Some("web")) => Outcome::NotThere,
            _ => Outcome::Refused,
        }
    }
}

/// What the calls are about.
struct Things {
    deployment: String,
    resource: String,
    operation: String,
}

struct Case {
    route: String,
    takes: Takes,
    path: String,
    body: Value,
}

fn case(route: &str, takes: Takes, path: &str, body: Value) -> Case {
    Case { route: route.to_owned(), takes, path: path.to_owned(), body }
}

/// One or more for each route. Who is let in does no harm: what they ask for cannot be done, or has been done.
#[allow(clippy::too_many_lines, reason = "a table")]
fn cases(things: &Things) -> Vec<Case> {
    let Things { deployment, resource, operation } = things;
    let fine = Score::new("web").thing("db", json!({})).text();
    let impossible = Score::new("web").with("db", json!({ "type": "nothing-like-it" })).text();
    let push = json!({ "ref": "refs/heads/main", "after": "a".repeat(40), "repository": {} });
    let none = || json!({});
    let rule = json!({ "document": { "kind": "Rule", "name": "r", "template": "nothing" } });
    let own = json!({ "document": { "kind": "Environment", "name": "dev", "type": "development" } });
    let pool = json!({ "document": { "kind": "Pool", "name": "warm", "environment": "dev", "template": "nothing", "size": 0 } });
    let of = |what: &str| format!("/resources/{resource}{what}");
    let mut all = vec![
        case(
            "POST /deployments",
            Named("write"),
            "/deployments",
            json!({ "environment": "dev", "manifest": impossible }),
        ),
        case("GET /deployments", Somewhere("read"), "/deployments", none()),
        case("POST /plans", Named("read"), "/plans", json!({ "environment": "dev", "manifest": fine })),
        case(
            "POST /destroys",
            Named("read"),
            "/destroys",
            json!({ "environment": "dev", "application": "web", "dryRun": true }),
        ),
        case("POST /hooks/git", Somewhere("write"), "/hooks/git", push),
        case("GET /outputs", Named("read"), "/outputs?app=web&env=dev", none()),
        case("GET /outputs", Named("write"), "/outputs?app=web&env=dev&reveal=true", none()),
        case("GET /events", Somewhere("read"), "/events", none()),
        case("GET /audit", Organisation("read"), "/audit", none()),
        case("GET /audit/verify", Organisation("read"), "/audit/verify", none()),
        case("POST /audit/verify", Organisation("read"), "/audit/verify", json!({ "entries": [] })),
        case("GET /alerts", Organisation("read"), "/alerts", none()),
        case(
            "POST /alerts/{name}/silence",
            Organisation("write"),
            "/alerts/nobody/silence",
            json!({ "seconds": 1 }),
        ),
        case("GET /workers", Somewhere("read"), "/workers", none()),
        case("POST /catalog", Organisation("admin"), "/catalog", rule),
        case("POST /catalog", Environment("admin"), "/catalog", own),
        case("POST /catalog", Environment("admin"), "/catalog", pool),
        case("PUT /blobs/{digest}", Organisation("admin"), "/blobs/nobody", none()),
        case("DELETE /rules/{name}", Organisation("admin"), "/rules/nobody", none()),
        case("GET /pools/{name}", Somewhere("read"), "/pools/nobody", none()),
        case("GET /integrations/{name}", Somewhere("read"), "/integrations/nobody", none()),
        case("POST /integrations/{name}/test", Organisation("write"), "/integrations/demo/test", none()),
        case(
            "POST /integrations/{name}/test",
            Environment("write"),
            "/integrations/demo/test?env=dev",
            none(),
        ),
        case("DELETE /integrations/{name}", Organisation("admin"), "/integrations/nobody", none()),
        case("GET /tokens", Organisation("admin"), "/tokens", none()),
        case("POST /tokens", Organisation("admin"), "/tokens", json!({ "name": "x", "role": "king" })),
        case("DELETE /tokens/{id}", Organisation("admin"), "/tokens/nobody", none()),
        case(
            "POST /tokens/{id}/grants",
            Organisation("admin"),
            "/tokens/nobody/grants",
            json!({ "role": "read" }),
        ),
        case("DELETE /tokens/{id}/grants", Organisation("admin"), "/tokens/nobody/grants", none()),
        case("GET /resources", Somewhere("read"), "/resources", none()),
        case("GET /resources/{id}", Thing("read"), &of(""), none()),
        case(
            "POST /resources/{id}/consumers",
            Thing("write"),
            &of("/consumers"),
            json!({ "application": "web", "requirement": "" }),
        ),
        case(
            "DELETE /resources/{id}/consumers/{application}",
            Thing("write"),
            &of("/consumers/web?requirement=nothing"),
            none(),
        ),
        case("POST /resources/{id}/undelete", Thing("write"), &of("/undelete"), none()),
        case("GET /resources/{id}/states", Thing("read"), &of("/states"), none()),
        case("GET /resources/{id}/states/{number}", Thing("admin"), &of("/states/999"), none()),
        case("GET /resources/{id}/states/{a}/diff/{b}", Thing("write"), &of("/states/998/diff/999"), none()),
        case(
            "POST /resources/{id}/states/rollback",
            Thing("admin"),
            &of("/states/rollback"),
            json!({ "number": 999 }),
        ),
        case("DELETE /resources/{id}/states/lock", Thing("admin"), &of("/states/lock"), none()),
        case("GET /operations", Somewhere("read"), "/operations", none()),
    ];
    for list in
        ["organisations", "environments", "applications", "templates", "rules", "pools", "integrations"]
    {
        let route = format!("GET /{list}");
        all.push(case(&route, Somewhere("read"), &format!("/{list}"), none()));
    }
    for (what, takes) in [("cancel", "write"), ("retry", "write")] {
        let route = format!("POST /deployments/{{id}}/{what}");
        all.push(case(&route, Thing(takes), &format!("/deployments/{deployment}/{what}"), none()));
        let route = format!("POST /operations/{{id}}/{what}");
        all.push(case(&route, Thing(takes), &format!("/operations/{operation}/{what}"), none()));
    }
    for what in ["", "/logs", "/events"] {
        let route = format!("GET /deployments/{{id}}{what}");
        all.push(case(&route, Thing("read"), &format!("/deployments/{deployment}{what}"), none()));
    }
    all.push(case("GET /operations/{id}", Thing("read"), &format!("/operations/{operation}"), none()));
    // What cannot be done twice comes last.
    all.push(case("DELETE /pools/{name}", Environment("admin"), "/pools/warm", none()));
    let destroy = json!({ "environment": "dev", "application": "web" });
    all.push(case("POST /destroys", Named("admin"), "/destroys", destroy));
    all
}

fn described(api: &Api) -> BTreeSet<String> {
    let document = api.get("/api/v1/openapi.json").json();
    let mut all = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        let path = path.strip_prefix("/api/v1").expect("below /api/v1");
        for method in methods.as_object().expect("methods").keys() {
            all.insert(format!("{} {path}", method.to_uppercase()));
        }
    }
    all
}

fn call(api: &Api, case: &Case) -> (Outcome, String) {
    let method = case.route.split(' ').next().expect("a method");
    let headers = [("content-type", "application/json")];
    let body = if method == "GET" { String::new() } else { case.body.to_string() };
    let reply = api.call(method, &format!("/api/v1{}", case.path), &headers, body);
    assert!(reply.status < 500 && reply.status != 401, "{} {}: {}", case.route, reply.status, reply.text);
    let not_there = [("deployment", "dep_"), ("resource", "res_"), ("operation", "op_")]
        .iter()
        .any(|(what, prefix)| reply.text.contains(&format!("there is no {what} `{prefix}")));
    let outcome = match reply.status {
        403 => {
            let detail = reply.problem(403)["detail"].as_str().unwrap_or_default().to_owned();
            assert!(detail.contains("it takes the role "), "{} does not say which: {detail}", case.route);
            Outcome::Refused
        }
        404 if not_there => Outcome::NotThere,
        _ => Outcome::LetIn,
    };
    (outcome, format!("{} {}", reply.status, reply.text))
}

fn furnished(shape: Shape) -> (House, Things) {
    let house = House::new(shape);
    let place = &house.place;
    place.apply_things();
    place.apply(
        "more",
        "kind: Environment\nname: prod\ntype: production\n---\n\
         kind: Integration\nname: demo\nprovider: demo\nvariables: { A: b }\n---\n\
         kind: Integration\nname: demo\nprovider: demo\nenvironment: dev\nvariables: { A: b }\n",
    );
    let made = place.deploy(&Score::new("web").thing("db", json!({})).text());
    place.deploy(&Score::new("other").thing("db", json!({})).text());
    let deployment = made["id"].as_str().expect("an id").to_owned();
    let operations = place.json(&["operations", "list", "--deployment", &deployment]);
    let things = Things {
        resource: made["resources"][0]["resource"].as_str().expect("a resource").to_owned(),
        operation: operations[0]["id"].as_str().expect("an operation").to_owned(),
        deployment,
    };
    (house, things)
}

fn holders(house: &House) -> Vec<Holder> {
    let admin = house.api();
    let mut all = Vec::new();
    for (number, (environment, application)) in PLACES.into_iter().enumerate() {
        for role in ROLES {
            let mut request = json!({ "name": format!("{role}-{number}"), "role": role });
            if let Some(environment) = environment {
                request["environment"] = environment.into();
            }
            if let Some(application) = application {
                request["application"] = application.into();
            }
            let made = admin.post("/api/v1/tokens", &request);
            assert_eq!(made.status, 201, "{}", made.text);
            let api = admin.with_token(made.json()["token"].as_str().expect("a token"));
            all.push(Holder { role, environment, application, api });
        }
    }
    all
}

fn check_every_route(shape: Shape) {
    let (house, things) = furnished(shape);
    let (admin, holders, cases) = (house.api(), holders(&house), cases(&things));
    let told: BTreeSet<String> = cases.iter().map(|case| case.route.clone()).collect();
    assert_eq!(told, described(&admin), "every route says here who may call it, and none that is not there");
    let worker = admin.with_token(house.worker_token());
    let mut wrong = Vec::new();
    for case in &cases {
        let (outcome, text) = call(&worker, case);
        if outcome != Outcome::Refused {
            wrong.push(format!("{} by a worker: {text}", case.route));
        }
        for holder in &holders {
            if case.route == "DELETE /pools/{name}" {
                let pool = json!({ "document": { "kind": "Pool", "name": "warm", "environment": "dev", "template": "thing", "size": 0 } });
                let made = admin.post("/api/v1/catalog", &pool);
                assert_eq!(made.status, 200, "{}", made.text);
            }
            let (expected, (outcome, text)) = (holder.expects(case.takes), call(&holder.api, case));
            if outcome != expected {
                wrong.push(format!(
                    "{} {} by {} on {:?} {:?}: {expected:?} is right, {text}",
                    case.route, case.path, holder.role, holder.environment, holder.application
                ));
            }
        }
    }
    let first: Vec<&str> = wrong.iter().map(String::as_str).take(20).collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), first.join("\n"));
    eventually("web is gone", seconds(30), || (house.open() == 0).then_some(()));
}

#[test]
fn every_route_lets_in_who_may_and_nobody_else() {
    check_every_route(Shape::Up { workers: 0 });
    if !quick() {
        check_every_route(Shape::FleetPostgres { servers: 1, workers: 1 });
    }
}
