//! Many at the same moment: one resource, every consumer, one create, one delete.

use conductor_api::types::{Deployment, DeploymentRequest, DestroyRequest};
use conductor_tests::{Api, House, Score, Shape, all_at_once, block_on, eventually, quick, seconds, shared};
use serde_json::json;

const CROWD: usize = 20;

/// Sends one request per application, all at once, spread over the servers.
fn together(apis: &[Api], send: impl AsyncFn(&Api, usize) -> Deployment) -> Vec<Deployment> {
    block_on(async {
        let mut waiting: Vec<_> =
            (0..CROWD).map(|n| Some(Box::pin(send(&apis[n % apis.len()], n)))).collect();
        let mut answers: Vec<Option<Deployment>> = vec![None; CROWD];
        std::future::poll_fn(|context| {
            for (slot, answer) in waiting.iter_mut().zip(&mut answers) {
                if let Some(request) = slot
                    && let std::task::Poll::Ready(got) = request.as_mut().poll(context)
                {
                    *answer = Some(got);
                    *slot = None;
                }
            }
            match waiting.iter().all(Option::is_none) {
                true => std::task::Poll::Ready(()),
                false => std::task::Poll::Pending,
            }
        })
        .await;
        answers.into_iter().flatten().collect()
    })
}

fn a_crowd_shares_one_resource(shape: Shape) {
    let house = House::new(shape);
    let world = &house.place.world;
    house.place.apply_things();
    let apis: Vec<Api> = (0..house.fleet.urls.len()).map(|number| house.api_at(number)).collect();
    let score = |number: usize| {
        let orders = shared("thing", "orders", json!({ "note": "orders", "takes": 0.4 }));
        Score::new(&format!("app-{number}")).with("db", orders).text()
    };

    let deployments = together(&apis, async |api, number| {
        let request = DeploymentRequest {
            environment: "dev".into(),
            manifest: score(number),
            ..DeploymentRequest::default()
        };
        api.client.deploy(&request).await.expect("accepted")
    });
    for deployment in &deployments {
        apis[0].succeeded(deployment, seconds(60));
    }
    let resources = apis[0].resources();
    assert_eq!(resources.len(), 1, "{resources:?}");
    let mut consumers: Vec<String> =
        resources[0].consumers.iter().map(|one| one.application.clone()).collect();
    consumers.sort_unstable();
    consumers.dedup();
    assert_eq!(consumers.len(), CROWD);
    assert_eq!(world.runs().iter().map(|run| run.step.as_str()).collect::<Vec<_>>(), ["create"]);

    let leaving = together(&apis, async |api, number| {
        let application = Some(format!("app-{number}"));
        let request =
            DestroyRequest { environment: "dev".into(), application, dry_run: false, keep_protected: false };
        api.client.destroy(&request).await.expect("accepted")
    });
    for destruction in &leaving {
        apis[0].succeeded(destruction, seconds(60));
    }
    // The one who leaves last may leave the deletion to a change of its own.
    eventually("the resource goes", seconds(30), || apis[0].resources().is_empty().then_some(()));
    assert_eq!(world.runs().iter().map(|run| run.step.as_str()).collect::<Vec<_>>(), ["create", "delete"]);
    house.is_empty();
}

#[test]
fn twenty_deployments_at_once_share_one_resource_on_sqlite() {
    a_crowd_shares_one_resource(Shape::Up { workers: 3 });
}

#[test]
fn twenty_deployments_at_once_share_one_resource_with_three_servers_on_postgresql() {
    if !quick() {
        a_crowd_shares_one_resource(Shape::FleetPostgres { servers: 3, workers: 4 });
    }
}

/// The last one leaves while the next one comes: the newcomer has a living thing, the same one or a new one.
fn a_newcomer_meets_the_last_to_leave(shape: Shape) {
    let house = House::new(shape);
    let world = &house.place.world;
    house.place.apply_things();
    let apis: Vec<Api> = (0..house.fleet.urls.len()).map(|number| house.api_at(number)).collect();
    let (here, there) = (&apis[0], &apis[apis.len() - 1]);
    let score = |application: &str| {
        Score::new(application)
            .with("db", shared("thing", "orders", json!({ "note": "orders", "deleteTakes": 0.1 })))
            .thing("own", json!({ "note": "${resources.db.place}" }))
            .text()
    };
    here.succeeded(&here.deploy(&score("app-0")), seconds(30));
    for round in 0..12u64 {
        let (old, new) = (format!("app-{round}"), format!("app-{}", round + 1));
        let (leaving, coming) = std::thread::scope(|scope| {
            let leaving = scope.spawn(|| here.destroy(&old));
            // A little later each time: before, during and after the deletion.
            std::thread::sleep(std::time::Duration::from_millis(round * 15));
            let coming = there.deploy(&score(&new));
            (leaving.join().unwrap(), coming)
        });
        here.succeeded(&leaving, seconds(30));
        there.succeeded(&coming, seconds(30));
        let orders: Vec<_> = here.resources().into_iter().filter(|one| one.name == "orders").collect();
        assert_eq!(orders.len(), 1, "round {round}: {orders:?}");
        assert_eq!(orders[0].phase.to_string(), "Active", "round {round}");
        assert_eq!(orders[0].consumers.len(), 1, "round {round}");
        assert_eq!(orders[0].consumers[0].application, new);
        let things = world.things();
        assert!(things.contains_key(&orders[0].id.to_string()), "round {round}: used, and gone");
        assert_eq!(things.len(), 2, "round {round}: {things:?}");
        let own = things.values().find(|thing| thing["note"] != "orders").expect("its own thing");
        assert!(own["note"].as_str().unwrap().ends_with(&orders[0].id.to_string()), "round {round}: {own}");
    }
    world.never_two_at_once();
    here.succeeded(&here.destroy("app-12"), seconds(30));
    eventually("all of it goes", seconds(20), || world.things().is_empty().then_some(()));
    house.is_empty();
}

#[test]
fn a_newcomer_meets_the_last_to_leave_on_sqlite() {
    a_newcomer_meets_the_last_to_leave(Shape::Up { workers: 1 });
}

#[test]
fn a_newcomer_meets_the_last_to_leave_with_two_servers_on_postgresql() {
    if !quick() {
        a_newcomer_meets_the_last_to_leave(Shape::FleetPostgres { servers: 2, workers: 2 });
    }
}

/// Everybody wants the same three things, named in another order each time and in two environments: nobody waits
/// for somebody who waits for them.
fn nobody_waits_in_a_circle(shape: Shape) {
    let house = House::new(shape);
    house.place.apply_things();
    house.place.apply("stage", "kind: Environment\nname: stage\ntype: staging\n");
    let apis: Vec<Api> = (0..house.fleet.urls.len()).map(|number| house.api_at(number)).collect();
    let orders = [["aa", "bb", "cc"], ["bb", "cc", "aa"], ["cc", "aa", "bb"], ["cc", "bb", "aa"]];
    let score = |number: usize| {
        let mut score = Score::new(&format!("app-{number}"));
        for (place, name) in orders[number % 4].iter().enumerate() {
            let reference = match *name {
                "bb" => json!({ "mode": "shared", "name": name, "scope": "organisation" }),
                _ => json!({ "mode": "shared", "name": name }),
            };
            let asked = json!({ "type": "thing", "params": { "note": name }, "reference": reference });
            score = score.with(&format!("r{place}"), asked);
        }
        score.text()
    };
    let environment = |number: usize| if number.is_multiple_of(3) { "stage" } else { "dev" }.to_owned();
    let deployments = together(&apis, async |api, number| {
        let request = DeploymentRequest {
            environment: environment(number),
            manifest: score(number),
            ..DeploymentRequest::default()
        };
        api.client.deploy(&request).await.expect("accepted")
    });
    for deployment in &deployments {
        apis[0].succeeded(deployment, seconds(60));
    }
    // aa and cc in each environment, bb once for the organisation.
    assert_eq!(house.place.world.runs().len(), 5, "{:?}", house.place.world.runs());
    let leaving = together(&apis, async |api, number| {
        let application = Some(format!("app-{number}"));
        let request = DestroyRequest {
            environment: environment(number),
            application,
            dry_run: false,
            keep_protected: false,
        };
        api.client.destroy(&request).await.expect("accepted")
    });
    for destruction in &leaving {
        apis[0].succeeded(destruction, seconds(60));
    }
    let world = &house.place.world;
    eventually("all of it goes", seconds(20), || world.things().is_empty().then_some(()));
    assert_eq!(world.begun("delete"), 5);
    house.is_empty();
}

#[test]
fn nobody_waits_in_a_circle_on_sqlite() {
    nobody_waits_in_a_circle(Shape::Up { workers: 1 });
}

#[test]
fn nobody_waits_in_a_circle_with_three_servers_on_postgresql() {
    if !quick() {
        nobody_waits_in_a_circle(Shape::FleetPostgres { servers: 3, workers: 2 });
    }
}

#[test]
fn six_command_lines_at_once_work_on_one_folder() {
    let house = House::new(Shape::Embedded);
    let place = &house.place;
    place.apply_things();
    all_at_once((0..6).map(|number| {
        let application = format!("app-{number}");
        let score = Score::new(&application)
            .with("db", shared("thing", "orders", json!({ "note": "orders", "takes": 0.5 })))
            .thing("own", json!({ "note": format!("{application} after ${{resources.db.note}}") }));
        let case = move || {
            let document = place.deploy(&score.text());
            assert_eq!(document["status"], "succeeded", "{document}");
        };
        (application, Box::new(case) as Box<dyn FnOnce() + Send>)
    }));
    assert_eq!(place.resources().len(), 7);
    assert_eq!(place.world.things().len(), 7);
    assert_eq!(place.world.runs().len(), 7, "{:?}", place.world.runs());
    place.world.never_two_at_once();
    let orders = place.resources().into_iter().find(|one| one["name"] == "orders").expect("orders");
    assert_eq!(orders["consumers"].as_array().unwrap().len(), 6);

    all_at_once((0..6).map(|number| {
        let application = format!("app-{number}");
        let name = application.clone();
        (name, Box::new(move || drop(place.destroy(&application))) as Box<dyn FnOnce() + Send>)
    }));
    eventually("the last one out takes it down", seconds(20), || {
        place.world.things().is_empty().then_some(())
    });
    assert_eq!(place.world.begun("delete"), 7);
    house.is_empty();
}

/// A server and command lines on one folder: each leaves the other's work alone, and both share.
#[test]
fn command_lines_work_on_the_folder_of_a_server_that_runs() {
    let house = House::with_lease(Shape::Up { workers: 0 }, "3s");
    let place = &house.place;
    place.apply_things();
    let data = place.path("data").display().to_string();
    let key = place.path("key").display().to_string();
    let embedded =
        [("CONDUCTOR_URL", ""), ("CONDUCTOR_DATA", data.as_str()), ("CONDUCTOR_KEY_FILE", key.as_str())];
    all_at_once((0..6).map(|number| {
        let application = format!("app-{number}");
        let score = Score::new(&application)
            .with("db", shared("thing", "orders", json!({ "note": "orders", "takes": 0.5 })))
            .thing(
                "own",
                json!({ "note": format!("{application} after ${{resources.db.note}}"), "takes": 1.0 }),
            );
        let file = place.write(&format!("{application}.yaml"), score.text()).display().to_string();
        let case = move || {
            let args = ["deploy", "-f", &file, "--env", "dev", "-o", "json"];
            let told = place.run_with(&args, if number % 2 == 0 { &embedded } else { &[] });
            assert_eq!(told.code, 0, "{told:?}");
        };
        (application, Box::new(case) as Box<dyn FnOnce() + Send>)
    }));
    assert_eq!(place.world.runs().len(), 7, "{:?}", place.world.runs());
    place.world.never_two_at_once();
    assert_eq!(place.resources().len(), 7);
    house.is_at_rest();
}

fn deployments_of_one_application_take_turns(shape: Shape) {
    let house = House::new(shape);
    house.place.apply_things();
    let api = house.api();
    let score = |note: &str| {
        Score::new("web")
            .thing("aa", json!({ "note": note, "takes": 1.2 }))
            .thing("bb", json!({ "note": format!("{note} ${{resources.aa.note}}") }))
            .text()
    };
    let first = api.deploy(&score("one"));
    let second = api.deploy(&score("two"));
    assert_eq!(second.status, "pending");
    let told = api.deployment(&second).waiting_for.expect("what it waits for");
    assert!(told.contains(&first.id.unwrap().to_string()), "{told}");
    let third = api.deploy(&score("three"));

    let replaced = api.settled(&second, seconds(5));
    assert_eq!(replaced.status, "cancelled");
    let error = serde_json::to_value(replaced.error.expect("why")).unwrap();
    assert_eq!(error["code"], "superseded");
    assert!(error["message"].as_str().unwrap().contains(&third.id.unwrap().to_string()), "{error}");
    let first = api.succeeded(&first, seconds(30));
    let third = api.succeeded(&third, seconds(30));
    assert!(third.started_at >= first.completed_at, "{third:?} began before {first:?} was over");
    let done = house.place.world.done();
    let expected = [("create", "one"), ("create", "one one"), ("update", "three"), ("update", "three three")];
    assert_eq!(done, expected.map(|(step, note)| (step.to_owned(), note.to_owned())));
    house.place.world.never_two_at_once();
}

/// As above, where each deployment asks for something new and changes nothing that is being made.
#[test]
fn deployments_that_only_add_and_remove_take_turns_too() {
    let house = House::new(Shape::Up { workers: 1 });
    house.place.apply_things();
    let api = house.api();
    let score = |name: &str| {
        let mut score = Score::new("web").thing("aa", json!({ "note": "aa", "takes": 1.0 }));
        if name != "one" {
            score = score.thing(name, json!({ "note": format!("{name} ${{resources.aa.note}}") }));
        }
        score.text()
    };
    let first = api.deploy(&score("one"));
    let second = api.deploy(&score("two"));
    let third = api.deploy(&score("three"));
    let replaced = api.settled(&second, seconds(5));
    let code = serde_json::to_value(replaced.error.expect("why")).unwrap()["code"].clone();
    assert_eq!((replaced.status.as_str(), code), ("cancelled", json!("superseded")));
    let first = api.succeeded(&first, seconds(30));
    let third = api.succeeded(&third, seconds(30));
    assert!(third.started_at >= first.completed_at);
    // Taking it down waits its turn as well.
    let fourth = api.deploy(&score("four"));
    let end = api.destroy("web");
    api.succeeded(&fourth, seconds(30));
    api.succeeded(&end, seconds(30));
    house.place.world.never_two_at_once();
    house.is_empty();
}

#[test]
fn two_deployments_of_one_application_take_turns_and_a_third_replaces_the_one_that_waits() {
    deployments_of_one_application_take_turns(Shape::Up { workers: 1 });
}

#[test]
fn two_deployments_of_one_application_take_turns_on_postgresql() {
    if !quick() {
        deployments_of_one_application_take_turns(Shape::FleetPostgres { servers: 1, workers: 2 });
    }
}

/// A deployment that only waits for what another one makes is not stuck when that one fails.
#[test]
fn a_deployment_that_waits_for_what_fails_elsewhere_fails_too_and_names_it() {
    let house = House::new(Shape::Up { workers: 0 });
    house.place.apply_things();
    let api = house.api();
    let orders = shared("thing", "orders", json!({ "takes": 1.0, "breaks": "no space left" }));
    let first = api.deploy(&Score::new("app-a").with("db", orders.clone()).text());
    let second = api.deploy(&Score::new("app-b").with("db", orders).text());
    for deployment in [&first, &second] {
        let end = api.settled(deployment, seconds(20));
        assert_eq!(end.status, "failed");
        let error = serde_json::to_string(&end.error).unwrap();
        assert!(error.contains("orders") || error.contains("no space left"), "{error}");
    }
    assert_eq!(house.place.world.begun("create"), 1);
}
