//! Every route of the description, called by every role held on every kind of place: who is let in, who is refused, and
//! for whom there is nothing there.

use std::collections::BTreeSet;

use conductor_tests::{Api, House, Score, Shape, eventually, quick, seconds};
use serde_json::{Value, json};

const CHECKS: &str = "POST /drift/checks";

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
    /// This role on all of `dev`, for something of its own with an id.
    ThingOfAll(&'static str),
}

use Takes::{Environment, Named, Organisation, Somewhere, Thing, ThingOfAll};

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
            Environment(role) | ThingOfAll(role) => self.is(role) && self.covers(Some("dev"), None),
            Named(role) | Thing(role) => self.is(role) && self.covers(Some("dev"), Some("web")),
        };
        match takes {
            _ if let_in => Outcome::LetIn,
            ThingOfAll(_) if !self.covers(Some("dev"), None) => Outcome::NotThere,
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
    proposal: String,
    approval: String,
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
    let Things { deployment, resource, operation, proposal, approval } = things;
    let fine = Score::new("web").thing("db", json!({})).text();
    let impossible = Score::new("web").with("db", json!({ "type": "nothing-like-it" })).text();
    let push = json!({ "ref": "refs/heads/main", "after": "a".repeat(40), "repository": {} });
    let none = || json!({});
    let rule = json!({ "document": { "kind": "Rule", "name": "r", "template": "nothing" } });
    let own = json!({ "document": { "kind": "Environment", "name": "dev", "type": "development" } });
    let pool = json!({ "document": { "kind": "Pool", "name": "warm", "environment": "dev", "template": "nothing", "size": 0 } });
    let made = json!({ "template": "nothing", "name": "x", "environment": "dev" });
    let registered = json!({ "type": "thing", "name": "", "environment": "dev" });
    let (dry, fixed) = (json!({ "dryRun": true }), json!({ "name": "never changes" }));
    let decision = json!({ "comment": "no", "digest": "of something else" });
    let this = json!({ "resources": [resource] });
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
        case("POST /resources", Environment("write"), "/resources", made),
        case("POST /registrations", Environment("write"), "/registrations", registered),
        case("PATCH /resources/{id}", Thing("write"), &of(""), json!({ "description": "it" })),
        case("PATCH /resources/{id}", Thing("admin"), &of(""), json!({ "owner": "ann" })),
        case("POST /resources/{id}/destroy", Thing("read"), &of("/destroy"), dry),
        case("POST /resources/{id}/destroy", Thing("admin"), &of("/destroy"), none()),
        case("POST /resources/{id}/recreate", Thing("write"), &of("/recreate"), none()),
        case("POST /resources/{id}/retry", Thing("write"), &of("/retry"), none()),
        case("POST /resources/{id}/upgrade", Thing("write"), &of("/upgrade"), json!({ "version": "9.9.9" })),
        case(
            "POST /deployments/{id}/redeploy",
            Thing("read"),
            &format!("/deployments/{deployment}/redeploy"),
            json!({ "dryRun": true }),
        ),
        case(
            "POST /promotions",
            Named("read"),
            "/promotions",
            json!({ "application": "web", "from": "dev", "to": "dev" }),
        ),
        case("DELETE /resources/{id}", Thing("admin"), &of(""), none()),
        case("POST /resources/{id}/protect", Thing("write"), &of("/protect"), none()),
        case("POST /resources/{id}/unprotect", Thing("admin"), &of("/unprotect"), none()),
        case("POST /resources/{id}/proposals", Thing("write"), &of("/proposals"), fixed.clone()),
        case("GET /resources/{id}/revisions", Thing("read"), &of("/revisions"), none()),
        case("GET /resources/{id}/revisions/{a}/diff/{b}", Thing("read"), &of("/revisions/1/diff/1"), none()),
        case(
            "POST /resources/{id}/revisions/{number}/rollback",
            Thing("write"),
            &of("/revisions/999/rollback"),
            none(),
        ),
        case("GET /approvals", Somewhere("read"), "/approvals", none()),
        case("GET /approvals/{id}", ThingOfAll("read"), &format!("/approvals/{approval}"), none()),
        case("GET /proposals", Somewhere("read"), "/proposals", none()),
        case("GET /proposals/{id}", Thing("read"), &format!("/proposals/{proposal}"), none()),
        case("PATCH /proposals/{id}", Thing("write"), &format!("/proposals/{proposal}"), fixed),
        case("GET /drift", Somewhere("read"), "/drift", none()),
    ];
    for what in ["approve", "reject"] {
        let route = format!("POST /approvals/{{id}}/{what}");
        let path = format!("/approvals/{approval}/{what}");
        all.push(case(&route, ThingOfAll("admin"), &path, decision.clone()));
    }
    // Dropped by the first, it cannot be carried out by the others.
    for what in ["dry-run", "discard", "submit", "merge"] {
        let route = format!("POST /proposals/{{id}}/{what}");
        all.push(case(&route, Thing("write"), &format!("/proposals/{proposal}/{what}"), none()));
    }
    for what in ["repair", "adopt", "ignore"] {
        let route = format!("POST /drift/{what}");
        all.push(case(&route, Thing("write"), &format!("/drift/{what}"), this.clone()));
    }
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
    // There is nothing left to look at.
    let web = json!({ "environment": "dev", "application": "web" });
    all.push(case(CHECKS, Named("write"), "/drift/checks", web));
    all.push(case(CHECKS, Thing("write"), "/drift/checks", this));
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
    let not_there = [
        ("deployment", "dep_"),
        ("resource", "res_"),
        ("operation", "op_"),
        ("proposal", "prop_"),
        ("approval", "apr_"),
    ]
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
    let resource = made["resources"][0]["resource"].as_str().expect("a resource").to_owned();
    let api = house.api();
    let proposed =
        api.post(&format!("/api/v1/resources/{resource}/proposals"), &json!({ "set": { "note": "b" } }));
    assert_eq!(proposed.status, 201, "{}", proposed.text);
    let gated = house.place.world.template("gated", "approval: { create: required }\n");
    place.apply("gated", &gated);
    let asked = json!({ "template": "gated", "name": "asked", "environment": "dev" });
    let asked = api.post("/api/v1/resources", &asked);
    assert_eq!(asked.status, 202, "{}", asked.text);
    let waiting = api.get("/api/v1/approvals?status=pending").json();
    let things = Things {
        proposal: proposed.json()["id"].as_str().expect("a proposal").to_owned(),
        approval: waiting["items"][0]["id"].as_str().expect("an approval").to_owned(),
        resource,
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

fn destroying(house: &House) -> i64 {
    house
        .count("SELECT count(*) FROM changes WHERE kind = 'destroy' AND status IN ('pending', 'in_progress')")
}

fn check_every_route(shape: Shape) {
    let (house, things) = furnished(shape);
    let (admin, holders, cases) = (house.api(), holders(&house), cases(&things));
    let told: BTreeSet<String> = cases.iter().map(|case| case.route.clone()).collect();
    assert_eq!(told, described(&admin), "every route says here who may call it, and none that is not there");
    let worker = admin.with_token(house.worker_token());
    let mut wrong = Vec::new();
    for case in &cases {
        if case.route == CHECKS {
            eventually("web is gone", seconds(30), || (destroying(&house) == 0).then_some(()));
        }
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
    eventually("web is gone", seconds(30), || {
        let open =
            "SELECT count(*) FROM changes WHERE kind = 'destroy' AND status IN ('pending', 'in_progress')";
        (house.count(open) == 0).then_some(())
    });
}

#[test]
fn every_route_lets_in_who_may_and_nobody_else() {
    check_every_route(Shape::Up { workers: 0 });
    if !quick() {
        check_every_route(Shape::FleetPostgres { servers: 1, workers: 1 });
    }
}
