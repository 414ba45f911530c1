//! Minutes of deployments while workers and servers are killed at random (`make chaos`); at the end everything is true.
//!
//! `CONDUCTOR_CHAOS_SECONDS` (60) says how long, `CONDUCTOR_CHAOS_SEED` repeats a run.

use std::time::{Duration, Instant};

use conductor_api::types::{Deployment, DeploymentRequest, DestroyRequest};
use conductor_tests::{Gate, House, Running, Score, Shape, block_on, eventually, quick, seconds, shared};
use serde_json::json;

const APPLICATIONS: u64 = 8;

struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn score(application: &str, dice: &mut Dice) -> String {
    let version = dice.below(4);
    let takes = dice.below(12) as f64 / 10.0;
    let mut score = Score::new(application)
        .with("db", shared("thing", "orders", json!({ "note": "orders", "takes": 0.2 })))
        .thing(
            "own",
            json!({ "note": format!("{application} {version} ${{resources.db.note}}"), "takes": takes }),
        );
    for extra in 0..dice.below(3) {
        score = score.thing(
            &format!("extra-{extra}"),
            json!({ "note": format!("{version} ${{resources.own.note}}") }),
        );
    }
    score.text()
}

fn ask(house: &House, dice: &mut Dice) -> Option<Deployment> {
    let application = format!("app-{}", dice.below(APPLICATIONS));
    let server = dice.below(house.fleet.urls.len() as u64) as usize;
    let api = house.api_at(server);
    let environment = "dev".to_owned();
    // Whoever asks a server that is being killed hears nothing; that is no answer to rely on.
    match dice.below(4) {
        0 => {
            let request = DestroyRequest {
                environment,
                application: Some(application),
                dry_run: false,
                keep_protected: false,
            };
            block_on(api.client.destroy(&request)).ok()
        }
        _ => {
            let manifest = score(&application, dice);
            let request = DeploymentRequest { environment, manifest, ..DeploymentRequest::default() };
            block_on(api.client.deploy(&request)).ok()
        }
    }
}

#[test]
#[ignore = "takes minutes: make chaos"]
fn chaos_leaves_nothing_stuck_nothing_twice_and_nothing_behind() {
    if quick() {
        return;
    }
    let seed = number("CONDUCTOR_CHAOS_SEED", u64::from(std::process::id()) * 7919 + 1);
    let end = Instant::now() + Duration::from_secs(number("CONDUCTOR_CHAOS_SECONDS", 60));
    println!("CONDUCTOR_CHAOS_SEED={seed}");
    let mut dice = Dice(seed);
    let shape = Shape::FleetPostgres { servers: 2, workers: 0 };
    let mut house = House::with_lease(shape, "2s");
    let gate = Gate::before(&house.fleet.urls);
    let mut workers: Vec<Running> = (0..3).map(|_| house.start_worker(&gate.url)).collect();
    house.place.apply_things();
    let mut accepted = Vec::new();
    let (mut worker_deaths, mut server_deaths) = (0, 0);
    while Instant::now() < end {
        accepted.extend(ask(&house, &mut dice));
        std::thread::sleep(Duration::from_millis(dice.below(400)));
        match dice.below(10) {
            0 | 1 => {
                let victim = dice.below(workers.len() as u64) as usize;
                workers[victim].kill();
                workers[victim] = house.start_worker(&gate.url);
                worker_deaths += 1;
            }
            2 => {
                let victim = dice.below(2) as usize;
                house.fleet.servers[victim].kill();
                house.fleet.servers[victim] = house.start_server(shape, victim);
                server_deaths += 1;
            }
            _ => {}
        }
    }
    println!("{} accepted, {worker_deaths} workers and {server_deaths} servers killed", accepted.len());
    let api = house.api();
    for deployment in &accepted {
        let end = api.settled(deployment, seconds(120));
        assert!(["succeeded", "cancelled", "failed"].contains(&end.status.as_str()), "{end:?}");
        if end.status != "succeeded" {
            let error = serde_json::to_value(&end.error).unwrap();
            assert_eq!(error["code"], "superseded", "{end:?}");
        }
    }
    let world = &house.place.world;
    eventually("things and resources agree", seconds(30), || {
        let resources: Vec<String> = api.resources().iter().map(|resource| resource.id.to_string()).collect();
        let things = world.things();
        (resources.len() == things.len() && resources.iter().all(|id| things.contains_key(id))).then_some(())
    });
    world.never_two_at_once();
    for number in 0..APPLICATIONS {
        let request = DestroyRequest {
            environment: "dev".into(),
            application: Some(format!("app-{number}")),
            dry_run: false,
            keep_protected: false,
        };
        if let Ok(destruction) = block_on(api.client.destroy(&request)) {
            api.succeeded(&destruction, seconds(60));
        }
    }
    eventually("the last one out takes the rest", seconds(30), || world.things().is_empty().then_some(()));
    world.is_quiet();
    house.is_empty();
}
