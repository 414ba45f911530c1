//! The real engine on SQLite with a scripted worker and a world in memory: applications come and go at random, share,
//! fail, get cancelled, workers vanish. Whatever happens, everything ends, nothing is made twice, nothing in use is
//! destroyed, and when everybody has left the world is empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use conductor_api::{
    types::{ApplyRequest, DeploymentRequest, DestroyRequest},
    worker::{Acquire, Completion, JobOrder, JobResult, LinkError, Task, Update, WorkerLink},
};
use conductor_domain::{
    ids::{ChangeId, ResourceId, WorkerId},
    lifecycle::{ChangeKind, Phase},
    work::{Description, Done, Failure, FailureCode, Output, Step, StepKind},
};
use conductor_engine::{Engine, EngineOptions, Error, Query};
use serde_json::json;
use uuid::Uuid;

const LEASE: Duration = Duration::from_millis(20);
const APPS: [&str; 4] = ["app-a", "app-b", "app-c", "app-d"];

/// A small generator, so that a failing seed can be run again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % sides
    }
}

struct Simulation {
    engine: Arc<Engine>,
    folder: PathBuf,
    dice: Dice,
    worker: WorkerId,
    /// What exists out there.
    world: BTreeSet<ResourceId>,
    /// Jobs handed out and not ended, by resource; `true` = its worker vanished.
    flying: BTreeMap<ResourceId, Vec<(JobOrder, bool)>>,
    seen: Vec<ChangeId>,
}

impl Simulation {
    async fn new(seed: u64) -> Self {
        let base =
            if PathBuf::from("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let folder = base.join(format!("conductor-simulation-{}", Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        let engine = Engine::open(EngineOptions {
            url: format!("sqlite:{}/c.db", folder.display()),
            key: None,
            key_file: folder.join("key"),
            data: folder.clone(),
            migrate: true,
            connections: 2,
            lease: LEASE,
            default_workload: true,
            embedded: false,
        })
        .unwrap();
        let document = json!({"kind":"Template","name":"thing","type":"thing","manager":"command","config":{"retries": 1}});
        engine.apply(ApplyRequest { document, content: None, dry_run: false }, "me").await.unwrap();
        let mut simulation = Self {
            engine,
            folder,
            dice: Dice(seed.wrapping_mul(7919) + 17),
            worker: WorkerId(Uuid::now_v7()),
            world: BTreeSet::new(),
            flying: BTreeMap::new(),
            seen: vec![],
        };
        simulation.work(1, true).await;
        simulation
    }

    /// A file at random: shared things, own things, a chain of references.
    fn manifest(&mut self, app: &str) -> String {
        let mut resources = String::new();
        let label = self.dice.roll(3);
        if self.dice.roll(3) > 0 {
            resources.push_str("  net:\n    type: thing\n    id: core\n");
        }
        if self.dice.roll(3) > 0 {
            resources.push_str("  db:\n    type: thing\n    id: orders\n");
        }
        if self.dice.roll(2) > 0 {
            resources.push_str(&format!("  own:\n    type: thing\n    params: {{ label: v{label} }}\n"));
            if self.dice.roll(2) > 0 {
                resources
                    .push_str("  top:\n    type: thing\n    params: { from: '${resources.own.made}' }\n");
            }
        }
        let resources = if resources.is_empty() { String::new() } else { format!("resources:\n{resources}") };
        format!(
            "apiVersion: score.dev/v1b1\nmetadata:\n  name: {app}\ncontainers:\n  main:\n    image: busybox:{label}\n{resources}"
        )
    }

    async fn act(&mut self) {
        let app = APPS[self.dice.roll(APPS.len())];
        match self.dice.roll(12) {
            0..=3 => {
                let manifest = self.manifest(app);
                let request = DeploymentRequest { environment: "dev".into(), manifest, ..Default::default() };
                match self.engine.deploy(request, "me", None).await {
                    Ok(accepted) => self.seen.extend(accepted.id),
                    // A change right while another deployment is at it; refused, and nothing happened.
                    Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("deploy: {error}"),
                }
            }
            4 | 5 => {
                let request = DestroyRequest {
                    environment: "dev".into(),
                    application: Some(app.into()),
                    dry_run: false,
                };
                match self.engine.destroy(request, "me", None).await {
                    Ok(accepted) => self.seen.extend(accepted.id),
                    Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("destroy: {error}"),
                }
            }
            6 if !self.seen.is_empty() => {
                let id = self.seen[self.dice.roll(self.seen.len())];
                let rollback = self.dice.roll(2) == 0;
                match self.engine.cancel(id, rollback, "me").await {
                    Ok(_) | Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("cancel: {error}"),
                }
            }
            7 if !self.seen.is_empty() => {
                let id = self.seen[self.dice.roll(self.seen.len())];
                match self.engine.retry(id, "me").await {
                    Ok(_) | Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("retry: {error}"),
                }
            }
            8 => {
                self.engine.sweep().await.unwrap();
                tokio::time::sleep(LEASE * 2).await;
                self.engine.sweep().await.unwrap();
            }
            _ => {
                let jobs = 1 + self.dice.roll(3);
                self.work(jobs, false).await;
            }
        }
    }

    async fn acquire(&mut self, slots: usize) -> Vec<JobOrder> {
        let ask = Acquire {
            worker: self.worker,
            name: "simulated".into(),
            request: Uuid::now_v7(),
            repeated: false,
            slots: slots as u32,
            managers: vec!["command".into(), "compose".into()],
            labels: BTreeMap::new(),
            wait_ms: 0,
            running: vec![],
            only: None,
        };
        self.engine.acquire(ask).await.unwrap().jobs
    }

    /// Takes some jobs and ends them: well when `kind`, else as the dice say.
    async fn work(&mut self, slots: usize, kind: bool) -> usize {
        let jobs = self.acquire(slots).await;
        let count = jobs.len();
        for job in jobs {
            let Task::Step(step) = job.task.clone() else {
                let result = JobResult::Described { description: Description::default(), content: None };
                self.engine
                    .complete(job.claim, Completion { result, rest: Update::default() })
                    .await
                    .unwrap();
                continue;
            };
            let resource = step.subject.id;
            let before = self.flying.entry(resource).or_default();
            assert!(before.iter().all(|(_, vanished)| *vanished), "two at once for {}", step.subject.name);
            self.check_dependencies(&step);
            let fate = if kind { 0 } else { self.dice.roll(8) };
            if fate == 7 {
                // The worker vanishes; what it did may or may not have happened.
                if self.dice.roll(2) == 0 {
                    self.happen(&step).await;
                }
                self.flying.entry(resource).or_default().push((job, true));
                continue;
            }
            let result = match fate {
                5 => JobResult::Failed(Failure::new(FailureCode::Failed, "no luck")),
                6 => JobResult::Failed(Failure::new(FailureCode::Transient, "busy")),
                _ => JobResult::Done(Box::new(self.happen(&step).await)),
            };
            let completion = Completion { result, rest: Update::default() };
            self.engine.complete(job.claim, completion.clone()).await.unwrap();
            // A lost reply: the same once more changes nothing.
            self.engine
                .complete(job.claim, completion)
                .await
                .or_else(|error| match error {
                    LinkError::Lost => Ok(()),
                    error => Err(error),
                })
                .unwrap();
        }
        count
    }

    fn check_dependencies(&self, step: &Step) {
        if let (StepKind::Create | StepKind::Update, Some(from)) = (step.kind, step.parameters.get("from")) {
            let made: ResourceId = from.as_str().unwrap().parse().unwrap();
            assert!(self.world.contains(&made), "{} before what it depends on", step.subject.name);
        }
    }

    async fn happen(&mut self, step: &Step) -> Done {
        let id = step.subject.id;
        if step.kind == StepKind::Delete {
            if step.subject.kind != "workload" {
                let consumers = self.engine.resource(id).await.unwrap().consumers;
                let staying: Vec<_> =
                    consumers.iter().filter(|consumer| consumer.state != "leaving").collect();
                if !staying.is_empty() {
                    let about = Query { resource: Some(id), limit: Some(50), ..Query::default() };
                    let operations = self.engine.operations(about).await.unwrap().items;
                    let changes = self
                        .engine
                        .deployments(Query { limit: Some(100), ..Query::default() })
                        .await
                        .unwrap();
                    for change in changes.items.iter().rev() {
                        let removals: Vec<_> =
                            change.removals.iter().map(|i| (&i.requirement, &i.name, i.action)).collect();
                        let items: Vec<_> =
                            change.resources.iter().map(|i| (&i.requirement, &i.name, i.action)).collect();
                        println!(
                            "{:?} {} {} {:?} {items:?} {removals:?}",
                            change.id, change.kind, change.status, change.application
                        );
                    }
                    panic!("{} destroyed while used: {staying:?}\n{operations:#?}", step.subject.name);
                }
            }
            self.world.remove(&id);
            return Done { exists: Some(false), ..Done::default() };
        }
        self.world.insert(id);
        let made = Output { value: json!(id.to_string()), sensitive: false };
        Done { outputs: BTreeMap::from([("made".to_owned(), made)]), ..Done::default() }
    }

    /// Everything goes well from here on, until nothing is left to do.
    async fn settle(&mut self) {
        for _ in 0..400 {
            self.engine.sweep().await.unwrap();
            if self.work(8, true).await > 0 {
                continue;
            }
            self.engine.collect_unused().await.unwrap();
            self.retry_collections().await;
            if self.work(8, true).await == 0 && self.open().await.is_empty() {
                return;
            }
            tokio::time::sleep(LEASE).await;
        }
        panic!("never ends: {:#?}", self.open().await);
    }

    /// What nobody uses and could not be destroyed is tried again, as a person would.
    async fn retry_collections(&self) {
        let page = self.engine.deployments(Query { limit: Some(200), ..Query::default() }).await.unwrap();
        for change in page.items {
            let collects = matches!(change.kind, ChangeKind::Collect | ChangeKind::Rollback);
            if collects && change.status != "succeeded" && change.is_over() {
                self.engine.retry(change.id.unwrap(), "me").await.unwrap();
            }
        }
    }

    async fn open(&self) -> Vec<String> {
        let mut open = Vec::new();
        let mut query = Query { limit: Some(200), ..Query::default() };
        loop {
            let page = self.engine.deployments(query.clone()).await.unwrap();
            open.extend(
                page.items.iter().filter(|change| !change.is_over()).map(|change| format!("{change:?}")),
            );
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                return open;
            }
        }
    }

    async fn everybody_leaves(&mut self) {
        for round in 0..4 {
            for app in APPS {
                let request = DestroyRequest {
                    environment: "dev".into(),
                    application: Some(app.into()),
                    dry_run: false,
                };
                match self.engine.destroy(request, "me", None).await {
                    Ok(_) | Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("destroy: {error}"),
                }
                self.settle().await;
            }
            if round > 0 && self.world.is_empty() {
                break;
            }
        }
    }

    async fn check_empty(&self) {
        let left: Vec<_> =
            self.engine.resources(Query { limit: Some(200), ..Query::default() }).await.unwrap().items;
        let left: Vec<_> = left.into_iter().filter(|resource| resource.phase != Phase::Deleted).collect();
        assert!(left.is_empty(), "left on record: {left:#?}");
        assert!(self.world.is_empty(), "left in the world: {:?}", self.world);
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn simulate(seed: u64, steps: usize) {
    let mut simulation = Simulation::new(seed).await;
    for _ in 0..steps {
        simulation.act().await;
    }
    simulation.settle().await;
    simulation.everybody_leaves().await;
    simulation.check_empty().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_everything_ends_and_nothing_is_left() {
    let seeds: u64 =
        std::env::var("CONDUCTOR_SIMULATIONS").ok().and_then(|text| text.parse().ok()).unwrap_or(25);
    let first: u64 = std::env::var("CONDUCTOR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    for seed in first..first + seeds {
        println!("seed {seed}");
        simulate(seed, 60).await;
    }
}
