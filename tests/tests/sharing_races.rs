//! Two hundred deployments at the same moment that share in every way there is: by name, by what things are like,
//! from a pool. What comes out is what they would have made of it one after the other, in some order.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering},
};

use conductor_api::{
    client::ListFilter,
    types::{Deployment, DeploymentRequest, DestroyRequest, Pool, Resource},
};
use conductor_tests::{Api, House, Score, Shape, all_at_once, block_on, eventually, quick, seconds};
use serde_json::{Value, json};

const CROWD: usize = 200;
const ENVIRONMENTS: [&str; 2] = ["dev", "stage"];
const POOL_SIZE: u64 = 3;
const LANES: usize = 4;

/// How an application asks for the one thing it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Named(&'static str),
    NamedInTheOrganisation(&'static str),
    /// `sharing: shared`, all parameters the same.
    Alike,
    Fitting {
        size: &'static str,
        wide: bool,
        most: usize,
    },
    Pooled,
}

fn ask(number: usize) -> Ask {
    match number % 10 {
        0 if number.is_multiple_of(3) => Ask::Named("users"),
        0 => Ask::Named("orders"),
        1 => Ask::NamedInTheOrganisation("bus"),
        2 => Ask::Alike,
        3 | 4 => Ask::Fitting { size: "small", wide: false, most: 3 },
        5 | 6 => Ask::Fitting { size: "large", wide: true, most: 4 },
        // Those who look in the whole organisation may have what was made for an environment, not the other way round.
        7 => Ask::Fitting { size: "mixed", wide: false, most: 3 },
        8 => Ask::Fitting { size: "mixed", wide: true, most: 3 },
        _ => Ask::Pooled,
    }
}

fn application(number: usize) -> String {
    format!("app-{number}")
}

fn number_of(application: &str) -> usize {
    application.trim_start_matches("app-").parse().expect("one of the crowd")
}

fn environment(number: usize) -> &'static str {
    ENVIRONMENTS[number / 10 % 2]
}

fn score(number: usize) -> String {
    let asked = match ask(number) {
        Ask::Named(name) => json!({ "type": "thing", "id": name, "params": { "note": name } }),
        Ask::NamedInTheOrganisation(name) => {
            let reference = json!({ "mode": "shared", "name": name, "scope": "organisation" });
            json!({ "type": "thing", "params": { "note": name }, "reference": reference })
        }
        Ask::Alike => json!({ "type": "thing", "params": { "note": "alike" }, "sharing": "shared" }),
        Ask::Fitting { size, wide, most } => {
            let scope = if wide { "organisation" } else { "environment" };
            let matching = json!({ "scope": scope, "matchOn": ["size"], "maxConsumers": most });
            // Whoever makes it may write on it what they like: only the size counts.
            let params = json!({ "size": size, "note": application(number) });
            json!({ "type": "thing", "params": params, "matching": matching })
        }
        Ask::Pooled => json!({ "type": "thing", "pool": format!("warm-{}", environment(number)) }),
    };
    Score::new(&application(number)).with("it", asked).text()
}

/// A house with two environments and a pool in each, filled.
fn furnished(shape: Shape) -> House {
    let house = House::new(shape);
    let place = &house.place;
    place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    place.apply("thing", &place.world.template("thing", "    size: { type: string }\n"));
    for environment in ENVIRONMENTS {
        let text = format!(
            "kind: Pool\nname: warm-{environment}\nenvironment: {environment}\ntemplate: thing@1.0.0\n\
             size: {POOL_SIZE}\nparameters: {{ note: member }}\n"
        );
        place.apply(&format!("pool-{environment}"), &text);
    }
    full_pools(&house);
    house
}

/// Waits until every pool is at its size.
fn full_pools(house: &House) -> Vec<Pool> {
    let api = house.api();
    eventually("the pools are at their size", seconds(40), || {
        let pools = block_on(api.client.pools()).expect("the pools");
        let full = |pool: &Pool| (pool.ready, pool.creating, pool.failed) == (POOL_SIZE, 0, 0);
        (pools.iter().all(full) && house.open() == 0).then_some(pools)
    })
}

/// Resources of every environment that are not gone.
fn living(house: &House) -> Vec<Resource> {
    let all = block_on(house.api().client.resources(&ListFilter::default())).expect("the resources");
    all.into_iter().filter(|resource| resource.phase.to_string() != "Deleted").collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Come,
    Leave,
}

/// One application's steps, one after the other; every second one does not wait for the end of one before the next.
async fn walk(api: Api, number: usize, steps: Vec<Step>) -> Vec<Deployment> {
    let mut taken: Vec<Deployment> = Vec::new();
    for step in steps {
        let before = taken.last().and_then(|change| change.id).filter(|_| number.is_multiple_of(2));
        while let Some(id) = before {
            match api.client.deployment(id).await {
                Ok(seen) if seen.is_over() => break,
                _ => tokio::time::sleep(std::time::Duration::from_millis(50)).await,
            }
        }
        let environment = environment(number).to_owned();
        let accepted = match step {
            Step::Come => {
                let manifest = score(number);
                let request = DeploymentRequest { environment, manifest, ..DeploymentRequest::default() };
                api.client.deploy(&request).await
            }
            Step::Leave => {
                let application = Some(application(number));
                let request =
                    DestroyRequest { environment, application, dry_run: false, keep_protected: false };
                api.client.destroy(&request).await
            }
        };
        taken.push(accepted.unwrap_or_else(|error| panic!("app-{number}: {error}")));
    }
    taken
}

/// Everybody at once, spread over the servers; all of it must end well.
fn over_servers(house: &House, crowd: &[(usize, Vec<Step>)]) {
    let apis: Vec<Api> = (0..house.fleet.urls.len()).map(|number| house.api_at(number)).collect();
    let taken = block_on(async {
        let walks = crowd.iter().map(|(number, steps)| {
            let api = apis[number % apis.len()].clone();
            tokio::spawn(walk(api, *number, steps.clone()))
        });
        let mut taken = Vec::new();
        for walk in walks.collect::<Vec<_>>() {
            taken.extend(walk.await.expect("it is accepted"));
        }
        taken
    });
    for change in &taken {
        apis[0].succeeded(change, seconds(90));
    }
}

/// Four lanes of command lines, each running the engine itself on the folder of `up`.
fn over_lanes(house: &House, crowd: &[(usize, Vec<Step>)]) {
    let place = &house.place;
    let data = place.path("data").display().to_string();
    let key = place.path("key").display().to_string();
    let embedded =
        [("CONDUCTOR_URL", ""), ("CONDUCTOR_DATA", data.as_str()), ("CONDUCTOR_KEY_FILE", key.as_str())];
    let next = AtomicUsize::new(0);
    let lane = || {
        while let Some((number, steps)) = crowd.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (name, environment) = (application(*number), environment(*number));
            let file = place.write(&format!("{name}.yaml"), score(*number)).display().to_string();
            for step in steps {
                let args: &[&str] = match step {
                    Step::Come => &["deploy", "-f", &file, "--env", environment, "-o", "json"],
                    Step::Leave => &["destroy", "--app", &name, "--env", environment, "--yes", "-o", "json"],
                };
                let told = place.run_with(args, &embedded);
                assert_eq!(told.code, 0, "{told:?}");
                assert_eq!(told.json()["status"], "succeeded", "{told:?}");
            }
        }
    };
    all_at_once(
        (0..LANES).map(|number| (format!("lane {number}"), Box::new(lane) as Box<dyn FnOnce() + Send>)),
    );
}

/// Who could be among the consumers of a matched resource that belongs to this scope and place.
fn could_use(number: usize, resource: &Resource) -> bool {
    let here = environment(number) == resource.environment;
    let is_wide = resource.scope == "organisation";
    match ask(number) {
        Ask::Named(name) => resource.name == name && !is_wide && here,
        Ask::NamedInTheOrganisation(name) => resource.name == name && is_wide,
        Ask::Alike => resource.parameters["note"] == "alike" && !is_wide && here,
        Ask::Fitting { size, wide, .. } => {
            let same = resource.parameters.get("size") == Some(&Value::from(size));
            same && resource.sharing == "matched" && if is_wide { wide } else { here }
        }
        Ask::Pooled => resource.pool.is_some() && !is_wide && here,
    }
}

/// Resources among which a newcomer has the choice: of the same type and size, in the same domain.
fn groups(resources: &[Resource]) -> BTreeMap<(String, String), Vec<&Resource>> {
    let mut groups: BTreeMap<_, Vec<&Resource>> = BTreeMap::new();
    for resource in resources {
        if let Some(size) = resource.parameters.get("size").and_then(Value::as_str) {
            let place = match resource.scope.as_str() {
                "organisation" => "everywhere",
                _ => &resource.environment,
            };
            groups.entry((size.to_owned(), place.to_owned())).or_default().push(resource);
        }
    }
    groups
}

fn most(resource: &Resource) -> usize {
    resource.max_consumers.expect("a limit") as usize
}

/// What holds after any serial order of those who came and those who left.
fn is_lawful(resources: &[Resource], came: &BTreeSet<usize>, present: &BTreeSet<usize>) {
    let mut served = BTreeMap::new();
    let mut named = BTreeSet::new();
    for resource in resources {
        assert_eq!(resource.phase.to_string(), "Active", "{resource:?}");
        let idle = resource.consumers.is_empty();
        assert!(!idle || resource.kept_by == "pool", "nobody uses it, and it is there: {resource:?}");
        assert!(resource.pool.is_none() || resource.consumers.len() <= 1, "claimed twice: {resource:?}");
        let limit = resource.max_consumers.map_or(usize::MAX, |limit| limit as usize);
        assert!(resource.consumers.len() <= limit, "more than may use it: {resource:?}");
        for consumer in &resource.consumers {
            let number = number_of(&consumer.application);
            assert_eq!(consumer.environment, environment(number));
            assert!(could_use(number, resource), "{:?} got {resource:?}", ask(number));
            let before = served.insert(number, resource.id);
            assert_eq!(before, None, "{} has two", consumer.application);
        }
        if resource.sharing == "shared" {
            let place = (resource.scope == "environment").then(|| resource.environment.clone());
            assert!(named.insert((place, resource.name.clone())), "two of one name: {resource:?}");
        }
    }
    assert_eq!(
        served.keys().copied().collect::<BTreeSet<_>>(),
        *present,
        "everybody has what they asked for"
    );
    // One more is made only when all others are full: never more than all who ever came could fill, but the last.
    for (group, members) in groups(resources) {
        let most = most(members[0]);
        let could = came.iter().filter(|number| could_use(**number, members[0])).count();
        assert!(members.len() <= could.div_ceil(most), "{group:?}: {} for {could}", members.len());
    }
}

/// What holds beyond that when nobody has left yet: each is filled up before the next is made.
fn is_packed(resources: &[Resource], came: &BTreeSet<usize>) {
    for (group, members) in groups(resources) {
        let with_room = members.iter().filter(|resource| resource.consumers.len() < most(resource)).count();
        assert!(with_room <= 1, "{group:?}: {with_room} with room, of {members:?}");
        let users: usize = members.iter().map(|resource| resource.consumers.len()).sum();
        assert_eq!(members.len(), users.div_ceil(most(members[0])), "{group:?}");
    }
    for (size, wide) in [("small", false), ("large", true)] {
        for place in if wide { &["everywhere"] } else { &ENVIRONMENTS[..] } {
            let members = &groups(resources)[&(size.to_owned(), (*place).to_owned())];
            let could = came.iter().filter(|number| could_use(**number, members[0])).count();
            assert_eq!(members.len(), could.div_ceil(most(members[0])), "{size} in {place}");
        }
    }
    let alike = resources.iter().filter(|resource| resource.parameters["note"] == "alike").count();
    assert_eq!(alike, ENVIRONMENTS.len());
}

/// The ledger agrees with the record: whatever was made was made once, and what is gone was taken away once.
fn is_true(house: &House, resources: &[Resource]) {
    let world = &house.place.world;
    world.never_two_at_once();
    let mut runs: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for run in world.runs() {
        assert!(matches!(&run.end, Some((_, how)) if how == "done"), "{run:?}");
        runs.entry(run.resource).or_default().push(run.step);
    }
    let living: BTreeSet<String> = resources.iter().map(|resource| resource.id.to_string()).collect();
    assert_eq!(world.things().into_keys().collect::<BTreeSet<_>>(), living);
    for (resource, steps) in &runs {
        let expected: &[&str] = if living.contains(resource) { &["create"] } else { &["create", "delete"] };
        assert_eq!(steps, expected, "{resource}");
    }
    let made = house.count("SELECT count(*) FROM resources WHERE workload = 0");
    assert_eq!(runs.len() as i64, made, "something was recorded and never made");
}

/// Pools at their size; every claim was served from it or made, one each.
fn pools_agree(house: &House, came: &BTreeSet<usize>, present: &BTreeSet<usize>) {
    for pool in full_pools(house) {
        let of = |numbers: &BTreeSet<usize>| {
            let here = |number: &&usize| format!("warm-{}", environment(**number)) == pool.name;
            numbers.iter().filter(here).filter(|number| ask(**number) == Ask::Pooled).count() as u64
        };
        assert_eq!(pool.claims + pool.on_demand, of(came), "{pool:?}");
        assert_eq!(pool.claimed, of(present), "{pool:?}");
        assert!(pool.claims >= POOL_SIZE, "none of those that were ready was taken: {pool:?}");
    }
}

/// Everybody leaves; what is left is what the pools keep ready, and nothing once they are gone.
fn everybody_leaves(house: &House, crowd: impl Fn(&House, &[(usize, Vec<Step>)]), present: &BTreeSet<usize>) {
    let leaving: Vec<_> = present.iter().map(|number| (*number, vec![Step::Leave])).collect();
    crowd(house, &leaving);
    full_pools(house);
    let kept = living(house);
    assert_eq!(kept.len() as u64, POOL_SIZE * ENVIRONMENTS.len() as u64, "{kept:?}");
    assert!(kept.iter().all(|resource| resource.kept_by == "pool" && resource.consumers.is_empty()));
    is_true(house, &kept);
    for environment in ENVIRONMENTS {
        house.place.ok(&["pools", "delete", &format!("warm-{environment}"), "--yes"]);
    }
    eventually("the last members go", seconds(30), || {
        (living(house).is_empty() && house.open() == 0).then_some(())
    });
    is_true(house, &[]);
    for table in ["consumers", "match_keys", "waits", "state_locks", "pools"] {
        assert_eq!(house.count(&format!("SELECT count(*) FROM {table}")), 0, "left in {table}");
    }
    house.is_at_rest();
}

type Crowd = fn(&House, &[(usize, Vec<Step>)]);

fn everybody_comes_at_once(shape: Shape, crowd: Crowd) {
    let house = furnished(shape);
    let all: BTreeSet<usize> = (0..CROWD).collect();
    crowd(&house, &all.iter().map(|number| (*number, vec![Step::Come])).collect::<Vec<_>>());
    pools_agree(&house, &all, &all);
    let resources = living(&house);
    is_lawful(&resources, &all, &all);
    is_packed(&resources, &all);
    is_true(&house, &resources);
    everybody_leaves(&house, crowd, &all);
}

/// Every third one leaves again as soon as it has come, while the others are still coming.
fn some_leave_while_others_come(shape: Shape, crowd: Crowd) {
    let house = furnished(shape);
    let all: BTreeSet<usize> = (0..CROWD).collect();
    let present: BTreeSet<usize> = all.iter().copied().filter(|number| !number.is_multiple_of(3)).collect();
    let steps = |number: &usize| match present.contains(number) {
        true => (*number, vec![Step::Come]),
        false => (*number, vec![Step::Come, Step::Leave]),
    };
    crowd(&house, &all.iter().map(steps).collect::<Vec<_>>());
    pools_agree(&house, &all, &present);
    let resources = living(&house);
    is_lawful(&resources, &all, &present);
    is_true(&house, &resources);
    everybody_leaves(&house, crowd, &present);
}

const UP: Shape = Shape::Up { workers: 0 };
const FLEET: Shape = Shape::FleetPostgres { servers: 4, workers: 4 };

#[test]
fn two_hundred_share_in_every_way_with_four_processes_on_sqlite() {
    everybody_comes_at_once(UP, over_lanes);
}

#[test]
fn two_hundred_share_in_every_way_with_four_servers_on_postgresql() {
    if !quick() {
        everybody_comes_at_once(FLEET, over_servers);
    }
}

#[test]
fn some_leave_while_others_come_with_four_processes_on_sqlite() {
    some_leave_while_others_come(UP, over_lanes);
}

#[test]
fn some_leave_while_others_come_with_four_servers_on_postgresql() {
    if !quick() {
        some_leave_while_others_come(FLEET, over_servers);
    }
}
