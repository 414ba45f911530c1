//! Many claim from one pool, and whoever keeps it is killed: it is kept at its size, nothing is lost, nothing is made
//! twice, and nobody gets what somebody else has.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use conductor_api::types::{Deployment, DeploymentRequest, Pool, Resource};
use conductor_tests::{Api, Gate, House, Score, Shape, all_at_once, block_on, eventually, quick, seconds};
use serde_json::json;

const LEASE: &str = "2s";
const SIZE: u64 = 3;
const SOON: Duration = seconds(40);
const UP: Shape = Shape::Up { workers: 0 };

fn apply_pool(house: &House, takes: f64) {
    house.place.apply_things();
    let text = format!(
        "kind: Pool\nname: warm\nenvironment: dev\ntemplate: thing@1.0.0\nsize: {SIZE}\n\
         parameters: {{ note: member, takes: {takes} }}\n"
    );
    house.place.apply("pool", &text);
}

/// An application that claims so many members.
fn claim(application: &str, members: usize) -> String {
    let asked = json!({ "type": "thing", "pool": "warm" });
    let score = (0..members).fold(Score::new(application), |score, number| {
        score.with(&format!("member-{number}"), asked.clone())
    });
    score.text()
}

/// Waits until as many are ready as shall be, and nothing is under way.
#[track_caller]
fn full(house: &House, api: &Api) -> Pool {
    eventually("the pool is at its size", SOON, || {
        let pool = block_on(api.client.pools()).ok()?.pop()?;
        let full = (pool.ready, pool.creating, pool.failed) == (SIZE, 0, 0);
        (full && house.open() == 0).then_some(pool)
    })
}

/// So many were ever made, all of them are there, and each was made once. What was interrupted may have been begun
/// again, by the same operation.
#[track_caller]
fn made_once(house: &House, api: &Api, members: u64) -> Vec<Resource> {
    let world = &house.place.world;
    world.never_two_at_once();
    let resources = api.resources();
    assert_eq!(resources.len() as u64, members, "{resources:?}");
    assert_eq!(house.count("SELECT count(*) FROM resources WHERE workload = 0"), members as i64);
    let ids: BTreeSet<String> = resources.iter().map(|resource| resource.id.to_string()).collect();
    assert_eq!(world.things().into_keys().collect::<BTreeSet<_>>(), ids);
    let mut operations: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for run in world.runs() {
        assert_eq!(run.step, "create", "{run:?}");
        operations.entry(run.resource).or_default().push((run.operation, run.attempt));
    }
    assert_eq!(operations.keys().cloned().collect::<BTreeSet<_>>(), ids);
    let begun: usize = operations.values().map(Vec::len).sum();
    for (resource, runs) in &operations {
        assert!(runs.iter().all(|(operation, _)| *operation == runs[0].0), "{resource}: {runs:?}");
        assert!(runs.windows(2).all(|two| two[0].1 < two[1].1), "{resource}: {runs:?}");
    }
    let lost = house.count("SELECT count(*) FROM attempts WHERE outcome = 'lost'");
    assert!(begun as i64 <= members as i64 + lost, "{begun} begun for {members}, {lost} lost");
    for resource in &resources {
        assert_eq!(resource.phase.to_string(), "Active", "{resource:?}");
        assert!(resource.consumers.len() <= 1, "claimed twice: {resource:?}");
    }
    house.is_at_rest();
    resources
}

fn request(manifest: String) -> DeploymentRequest {
    DeploymentRequest { environment: "dev".into(), manifest, ..DeploymentRequest::default() }
}

/// Four claims at the same moment, spread over the servers; `None` for whom nobody answered.
fn four_claims(apis: &[Api]) -> Vec<Option<Deployment>> {
    block_on(async {
        let claims = (0..4).map(|number| {
            let api = apis[number % apis.len()].clone();
            let request = request(claim(&format!("app-{number}"), 1));
            tokio::spawn(async move { api.client.deploy(&request).await.ok() })
        });
        let mut answers = Vec::new();
        for claim in claims.collect::<Vec<_>>() {
            answers.push(claim.await.expect("no panic"));
        }
        answers
    })
}

fn four_claim_from_a_pool_of_three(shape: Shape) {
    let house = House::with_lease(shape, LEASE);
    let mut worker = house.worker();
    apply_pool(&house, 0.2);
    let apis: Vec<Api> = (0..house.fleet.urls.len()).map(|number| house.api_at(number)).collect();
    full(&house, &apis[0]);
    made_once(&house, &apis[0], SIZE);
    // Nobody works: what is had now was ready.
    worker.stop();
    let claims: Vec<Deployment> =
        four_claims(&apis).into_iter().map(|claim| claim.expect("accepted")).collect();
    let mut told: Vec<(String, &str)> =
        claims.iter().map(|claim| (claim.resources[0].action.to_string(), claim.status.as_str())).collect();
    told.sort_unstable();
    let at_once = ("claim".to_owned(), "succeeded");
    assert_eq!(told, [at_once.clone(), at_once.clone(), at_once, ("create".to_owned(), "in_progress")]);
    let _worker = house.worker();
    for claim in &claims {
        apis[0].succeeded(claim, SOON);
    }
    let pool = full(&house, &apis[0]);
    assert_eq!((pool.claimed, pool.claims, pool.on_demand), (4, 3, 1));
    let resources = made_once(&house, &apis[0], SIZE + 4);
    assert_eq!(resources.iter().filter(|resource| resource.consumers.len() == 1).count(), 4);
}

#[test]
fn four_claims_at_once_from_a_pool_of_three() {
    four_claim_from_a_pool_of_three(Shape::FleetSqlite { workers: 0 });
}

#[test]
fn four_claims_at_once_from_a_pool_of_three_with_two_servers_on_postgresql() {
    if !quick() {
        four_claim_from_a_pool_of_three(Shape::FleetPostgres { servers: 2, workers: 0 });
    }
}

/// Where in filling up whoever does it is killed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    /// Members were taken out, and nobody has looked since.
    BetweenTwoRounds,
    ChangeIsStored,
    MembersAreMade,
    HalfOfThemAreMade,
}

const MOMENTS: [Moment; 4] =
    [Moment::BetweenTwoRounds, Moment::ChangeIsStored, Moment::MembersAreMade, Moment::HalfOfThemAreMade];

/// Waits for the moment, in the round that makes members until there are `members`.
fn wait_for(house: &House, moment: Moment, changes: i64, members: u64) {
    let world = &house.place.world;
    match moment {
        Moment::BetweenTwoRounds => {}
        Moment::ChangeIsStored => {
            let stored = || (pool_changes(house) > changes).then_some(());
            eventually("the change is stored", SOON, stored);
        }
        Moment::MembersAreMade => drop(world.wait_for_a_run()),
        Moment::HalfOfThemAreMade => {
            let done = || world.steps().len() as u64;
            eventually("one of them is made", SOON, || (done() > members - 2).then_some(()));
        }
    }
}

fn pool_changes(house: &House) -> i64 {
    house.count("SELECT count(*) FROM changes WHERE kind = 'pool'")
}

#[test]
fn up_dies_at_each_moment_of_filling_a_pool() {
    let mut house = House::with_lease(UP, LEASE);
    house.place.set("CONDUCTOR_WORKERS", "1");
    house.fleet.servers[0].stop();
    house.fleet.servers[0] = house.start_server(UP, 0);
    let api = house.api();
    let mut members = SIZE;
    apply_pool(&house, 0.6);
    // While it is filled for the first time as well.
    wait_for(&house, Moment::HalfOfThemAreMade, 0, members);
    for (round, moment) in MOMENTS.into_iter().enumerate() {
        house.fleet.servers[0].kill();
        std::thread::sleep(Duration::from_millis(500));
        house.place.world.is_quiet();
        house.fleet.servers[0] = house.start_server(UP, 0);
        let pool = full(&house, &api);
        assert_eq!((pool.claimed, pool.claims, pool.on_demand), (2 * round as u64, 2 * round as u64, 0));
        made_once(&house, &api, members);
        let changes = pool_changes(&house);
        members += 2;
        api.deploy(&claim(&format!("app-{round}"), 2));
        wait_for(&house, moment, changes, members);
    }
    house.fleet.servers[0].kill();
    house.fleet.servers[0] = house.start_server(UP, 0);
    let pool = full(&house, &api);
    assert_eq!((pool.claimed, pool.claims, pool.on_demand), (8, 8, 0));
    made_once(&house, &api, members);
}

/// One of two servers dies and the other goes on; in the end both die.
#[test]
fn servers_die_at_each_moment_of_filling_a_pool_on_postgresql() {
    if quick() {
        return;
    }
    let shape = Shape::FleetPostgres { servers: 2, workers: 0 };
    let mut house = House::with_lease(shape, LEASE);
    let gate = Gate::before(&house.fleet.urls);
    let mut worker = house.start_worker_with(&gate.url, "1");
    apply_pool(&house, 0.6);
    full(&house, &house.api());
    let mut members = SIZE;
    let last = [Moment::ChangeIsStored, Moment::MembersAreMade];
    for (round, moment) in MOMENTS.into_iter().chain(last).enumerate() {
        let both = round >= MOMENTS.len();
        let (victim, other) = (round % 2, 1 - round % 2);
        let changes = pool_changes(&house);
        members += 2;
        if moment == Moment::ChangeIsStored {
            worker.stop();
        }
        let claimed = house.api_at(victim).deploy(&claim(&format!("app-{round}"), 2));
        assert_eq!(claimed.status, "succeeded", "both were ready");
        wait_for(&house, moment, changes, members);
        house.fleet.servers[victim].kill();
        if both {
            house.fleet.servers[other].kill();
            house.fleet.servers[other] = house.start_server(shape, other);
        }
        if moment == Moment::ChangeIsStored {
            worker = house.start_worker_with(&gate.url, "1");
        }
        let api = house.api_at(other);
        let pool = full(&house, &api);
        let claims = 2 * (round as u64 + 1);
        assert_eq!((pool.claimed, pool.claims, pool.on_demand), (claims, claims, 0), "{moment:?}");
        made_once(&house, &api, members);
        house.fleet.servers[victim] = house.start_server(shape, victim);
    }
}

/// Claims are under way when the process dies: whoever heard nothing asks again, and has one member, as all others.
fn up_dies_under_claims(moment: Duration) {
    let mut house = House::with_lease(UP, LEASE);
    apply_pool(&house, 0.2);
    let api = house.api();
    full(&house, &api);
    let answers = std::thread::scope(|scope| {
        let claims = scope.spawn(|| four_claims(std::slice::from_ref(&api)));
        std::thread::sleep(moment);
        house.fleet.servers[0].kill();
        claims.join().expect("no panic")
    });
    house.fleet.servers[0] = house.start_server(UP, 0);
    for (number, answer) in answers.into_iter().enumerate() {
        let deployment = answer.unwrap_or_else(|| api.deploy(&claim(&format!("app-{number}"), 1)));
        api.succeeded(&deployment, SOON);
    }
    let pool = full(&house, &api);
    assert_eq!((pool.claimed, pool.claims + pool.on_demand), (4, 4), "{pool:?}");
    let resources = made_once(&house, &api, SIZE + 4);
    let consumers = resources.iter().flat_map(|resource| &resource.consumers);
    let users: BTreeSet<&str> = consumers.map(|consumer| consumer.application.as_str()).collect();
    assert_eq!(users.len(), 4, "{resources:?}");
}

#[test]
fn up_dies_while_members_are_claimed() {
    all_at_once([0, 8, 25, 100].map(|moment| {
        let case = move || up_dies_under_claims(Duration::from_millis(moment));
        (format!("after {moment} ms"), Box::new(case) as Box<dyn FnOnce() + Send>)
    }));
}

fn number_of(application: &str) -> usize {
    application.trim_start_matches("app-").parse().expect("one of the crowd")
}

/// A pool is deleted while some claim from it and others look for what is like its members: what was claimed stays
/// with who has it.
fn what_was_claimed_outlives_its_pool(shape: Shape) {
    let house = House::with_lease(shape, LEASE);
    apply_pool(&house, 0.0);
    full(&house, &house.api());
    let apis: Vec<Api> = (0..house.fleet.urls.len()).map(|number| house.api_at(number)).collect();
    let ask = |number: usize| {
        let mut asked = json!({ "type": "thing", "params": { "note": "member", "takes": 0 } });
        match number {
            number if number.is_multiple_of(2) => asked["pool"] = "warm".into(),
            41 => asked["matching"] = json!({ "matchOn": ["note"] }),
            43 => asked["sharing"] = "always".into(),
            _ => asked["sharing"] = "shared".into(),
        }
        request(Score::new(&format!("app-{number}")).with("it", asked).text())
    };
    let accepted = block_on(async {
        let deployments = (0..40).map(|number| {
            let (api, request) = (apis[number % apis.len()].clone(), ask(number));
            tokio::spawn(async move { api.client.deploy(&request).await })
        });
        let deployments: Vec<_> = deployments.collect();
        apis[0].client.delete_pool("warm").await.expect("the pool can be deleted");
        let mut accepted = Vec::new();
        for deployment in deployments {
            accepted.push(deployment.await.expect("no panic"));
        }
        accepted
    });
    let mut present = BTreeSet::new();
    for (number, answer) in accepted.into_iter().enumerate() {
        match answer {
            Ok(deployment) => {
                apis[0].succeeded(&deployment, seconds(60));
                present.insert(number);
            }
            Err(error) => {
                assert!(number.is_multiple_of(2), "{error}");
                assert!(error.to_string().contains("there is no pool `warm`"), "{error}");
            }
        }
    }
    // Those who look in a way that nobody has looked before find nothing else.
    for number in [41, 43] {
        apis[0].succeeded(&block_on(apis[0].client.deploy(&ask(number))).expect("accepted"), seconds(60));
        present.insert(number);
    }
    let resources = apis[0].resources();
    let used = resources.iter().filter(|resource| !resource.consumers.is_empty());
    let mut sharers = Vec::new();
    for resource in used {
        let users: BTreeSet<usize> =
            resource.consumers.iter().map(|consumer| number_of(&consumer.application)).collect();
        users.iter().for_each(|number| assert!(present.remove(number), "{resource:?}"));
        match users.iter().all(|number| number.is_multiple_of(2)) {
            true => assert_eq!(users.len(), 1, "claimed twice: {resource:?}"),
            false => sharers.push(users),
        }
    }
    assert!(present.is_empty(), "{present:?} have nothing");
    assert_eq!(sharers.len(), 1, "{sharers:?}");
    assert!(sharers[0].iter().all(|number| !number.is_multiple_of(2)), "{sharers:?} share what was claimed");
}

#[test]
fn what_was_claimed_outlives_its_pool_on_sqlite() {
    what_was_claimed_outlives_its_pool(UP);
}

#[test]
fn what_was_claimed_outlives_its_pool_with_four_servers_on_postgresql() {
    if !quick() {
        what_was_claimed_outlives_its_pool(Shape::FleetPostgres { servers: 4, workers: 2 });
    }
}
