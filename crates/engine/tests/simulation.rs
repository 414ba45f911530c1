//! The real engine on SQLite with a scripted worker and a world in memory: applications come and go at random, share,
//! fail, get cancelled, workers vanish. Whatever happens, everything ends, nothing is made twice, nothing in use is
//! destroyed, and when everybody has left the world is empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use conductor_api::{
    types::{
        ApplyRequest, Decision, DeploymentRequest, DestroyRequest, DriftDecision, DriftRequest, PlanItem,
        ProposalRequest, Resource, ResourceRequest,
    },
    worker::{Acquire, Completion, JobOrder, JobResult, LinkError, Task, Update, WorkerLink},
};
use conductor_domain::{
    ids::{ChangeId, ResourceId, WorkerId},
    lifecycle::{Action, ApprovalStatus, ChangeKind, Phase, State},
    work::{Description, Done, Failure, FailureCode, Output, Step, StepKind},
};
use conductor_engine::{Engine, EngineOptions, Error, Principal, Query, Role};
use serde_json::json;
use uuid::Uuid;

const LEASE: Duration = Duration::from_millis(20);
const APPS: [&str; 4] = ["app-a", "app-b", "app-c", "app-d"];
const ENVIRONMENTS: [&str; 2] = ["dev", "staging"];

/// Ways to ask for a thing; the label is put in.
const WAYS: [&str; 12] = [
    "id: core",
    "id: orders",
    "reference: { mode: shared, name: everywhere, scope: organisation }",
    "matching: { scope: environment, matchOn: [label], maxConsumers: 2 }, params: { label: LABEL, note: APP }",
    "matching: { scope: organisation, matchOn: [label], maxConsumers: 3 }, params: { label: LABEL }",
    "matching: { scope: global, sharingPolicy: conditional, matchOn: [label], when: 'environment.name == \"dev\"' }, \
     params: { label: LABEL }",
    "sharing: shared, params: { label: LABEL }",
    "sharing: always, params: { label: LABEL }",
    "sharing: by-name, onConflict: keep, params: { label: LABEL }",
    "pool: warm-ENV",
    "params: { label: LABEL }",
    "sharing: dedicated, params: { label: LABEL }",
];

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
    url: String,
    dice: Dice,
    worker: WorkerId,
    /// What exists out there.
    world: BTreeSet<ResourceId>,
    /// Jobs handed out and not ended, by resource; `true` = its worker vanished.
    flying: BTreeMap<ResourceId, Vec<(JobOrder, bool)>>,
    seen: Vec<ChangeId>,
    /// The last file that was accepted, and the change it made.
    files: BTreeMap<(String, String), (String, ChangeId)>,
    /// Somebody has to agree to what is done in staging.
    approval: bool,
    /// What went behind everybody's back.
    lost: BTreeSet<ResourceId>,
    /// The same, and what was made again since: that it was missing may still be on record.
    ever_lost: BTreeSet<ResourceId>,
    made_by_hand: usize,
}

async fn open(folder: &Path, url: &str) -> Arc<Engine> {
    let options = EngineOptions {
        url: url.to_owned(),
        key: None,
        key_file: folder.join("key"),
        data: folder.to_owned(),
        migrate: true,
        connections: 3,
        lease: LEASE,
        default_workload: true,
        embedded: false,
        public_url: None,
        state_store: None,
    };
    tokio::task::spawn_blocking(|| Engine::open(options)).await.unwrap().unwrap()
}

/// Whoever has to agree, and did not ask.
fn reviewer() -> Principal {
    Principal::everywhere("reviewer", &[Role::Owner])
}

/// Refused is fine: nothing happened then. Anything else is not.
fn fine<T>(what: &str, outcome: Result<T, Error>) -> Option<T> {
    match outcome {
        Ok(done) => Some(done),
        Err(Error::Refused { .. }) => None,
        Err(error) => panic!("{what}: {error}"),
    }
}

impl Simulation {
    /// On a database of PostgreSQL, or on a file.
    async fn new(seed: u64, url: Option<String>) -> Self {
        let base =
            if PathBuf::from("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let folder = base.join(format!("conductor-simulation-{}", Uuid::now_v7()));
        std::fs::create_dir_all(&folder).unwrap();
        let url = url.unwrap_or_else(|| format!("sqlite:{}/c.db", folder.display()));
        let engine = open(&folder, &url).await;
        let approval = seed.is_multiple_of(3);
        let need = if approval { "required" } else { "none" };
        let documents = [
            json!({"kind":"Environment","name":"staging","type":"staging",
                "approval":{"create":need,"update":need,"destroy":need}}),
            json!({"kind":"Template","name":"thing","type":"thing","manager":"command","config":{"retries": 1}}),
            json!({"kind":"Template","name":"crate","type":"crate","manager":"command","grace":"60ms"}),
            json!({"kind":"Template","name":"house","type":"house","manager":"command",
                "parameters":{"type":"object","properties":{"from":{"type":"string","default":"${ground.made}"}}},
                "requires":{"ground":{"type":"thing"},
                    "street":{"type":"house","class":"street","reference":{"mode":"shared","name":"main-street"}}}}),
            json!({"kind":"Template","name":"street","type":"house","class":"street","manager":"command",
                "requires":{"town":{"type":"thing","sharing":"by-name"}}}),
        ];
        for document in documents {
            engine.apply(ApplyRequest { document, content: None, dry_run: false }, "me").await.unwrap();
        }
        let mut simulation = Self {
            engine,
            folder,
            url,
            dice: Dice(seed.wrapping_mul(7919) + 17),
            worker: WorkerId(Uuid::now_v7()),
            world: BTreeSet::new(),
            flying: BTreeMap::new(),
            seen: vec![],
            files: BTreeMap::new(),
            approval,
            lost: BTreeSet::new(),
            ever_lost: BTreeSet::new(),
            made_by_hand: 0,
        };
        simulation.work(8, true).await;
        for (environment, on_release) in ENVIRONMENTS.into_iter().zip(["recycle", "keep"]) {
            let on_release = if simulation.dice.roll(2) == 0 { "reset" } else { on_release };
            let document = json!({"kind":"Pool","name":format!("warm-{environment}"),"environment":environment,
                "template":"thing","size":1,"onRelease":on_release,"parameters":{"label":"pooled"}});
            let request = ApplyRequest { document, content: None, dry_run: false };
            simulation.engine.apply(request, "me").await.unwrap();
        }
        simulation
    }

    /// A file at random: things asked for in every way, and a chain of references.
    fn manifest(&mut self, app: &str, environment: &str) -> String {
        let mut resources = String::new();
        let label = self.dice.roll(3);
        for requirement in ["one", "two", "three"] {
            if self.dice.roll(2) == 0 {
                let way = WAYS[self.dice.roll(WAYS.len())];
                let way = way
                    .replace("LABEL", &format!("v{label}"))
                    .replace("ENV", environment)
                    .replace("APP", app);
                resources.push_str(&format!("  {requirement}: {{ type: thing, {way} }}\n"));
            }
        }
        match self.dice.roll(6) {
            0 => resources.push_str("  home: { type: house }\n"),
            1 => resources.push_str("  home: { type: house, sharing: shared }\n"),
            2 => resources.push_str("  box: { type: crate, id: box }\n"),
            _ => {}
        }
        if self.dice.roll(2) > 0 {
            resources.push_str(&format!("  own: {{ type: thing, params: {{ label: v{label} }} }}\n"));
            match self.dice.roll(3) {
                0 => {
                    resources.push_str("  top: { type: thing, params: { from: '${resources.own.made}' } }\n")
                }
                1 => resources
                    .push_str("  top: { type: thing, sharing: shared, params: { from: '${own.made}' } }\n"),
                _ => resources.push_str("  top: { type: thing, dependsOn: [{ name: own, type: weak }] }\n"),
            }
        }
        if self.dice.roll(4) == 0 && !resources.contains("  one:") {
            let way = if self.dice.roll(2) == 0 { "id: core" } else { "params: { label: v1 }" };
            resources.push_str(&format!("  first: {{ type: thing, alias: one, {way} }}\n"));
        }
        let resources = if resources.is_empty() { String::new() } else { format!("resources:\n{resources}") };
        format!(
            "apiVersion: score.dev/v1b1\nmetadata:\n  name: {app}\ncontainers:\n  main:\n    image: busybox:{label}\n{resources}"
        )
    }

    async fn act(&mut self) {
        let app = APPS[self.dice.roll(APPS.len())];
        let environment = ENVIRONMENTS[self.dice.roll(3) / 2];
        match self.dice.roll(22) {
            13 => self.answer().await,
            14 => self.by_hand(environment).await,
            15 => self.propose().await,
            16 => self.lose().await,
            17 => self.look().await,
            18 if self.dice.roll(4) == 0 => self.tear_down(environment).await,
            19 => self.reopen().await,
            0..=3 => {
                let manifest = self.manifest(app, environment);
                let request = DeploymentRequest {
                    environment: environment.into(),
                    manifest: manifest.clone(),
                    ..Default::default()
                };
                match self.engine.deploy(request, "me", None).await {
                    Ok(accepted) => {
                        self.seen.extend(accepted.id);
                        let place = (app.to_owned(), environment.to_owned());
                        self.files.insert(place, (manifest, accepted.id.unwrap()));
                    }
                    // A change right while another deployment is at it; refused, and nothing happened.
                    Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("deploy: {error}"),
                }
            }
            4 | 5 => {
                let request = DestroyRequest {
                    environment: environment.into(),
                    application: Some(app.into()),
                    dry_run: false,
                    keep_protected: false,
                };
                match self.engine.destroy(request, "me", None).await {
                    Ok(accepted) => {
                        self.seen.extend(accepted.id);
                        self.files.remove(&(app.to_owned(), environment.to_owned()));
                    }
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
                    // What it asks for may be older than the last file.
                    Ok(change) => self.files.retain(|(app, environment), (_, last)| {
                        let same = change.application.as_ref() == Some(app)
                            && change.environment.as_ref() == Some(environment);
                        !same || *last == id
                    }),
                    Err(Error::Refused { .. }) => {}
                    Err(error) => panic!("retry: {error} of {:?}", self.engine.deployment(id).await.unwrap()),
                }
            }
            12 => self.engine.keep().await.unwrap(),
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

    /// The process ends and another one goes on with what is on record.
    async fn reopen(&mut self) {
        self.engine = open(&self.folder, &self.url).await;
    }

    /// Somebody agrees to something, or does not.
    async fn answer(&mut self) {
        let pending = self
            .engine
            .approvals(Some(ApprovalStatus::Pending), None, reviewer().sight(), None, 200)
            .await
            .unwrap()
            .items;
        if pending.is_empty() {
            return;
        }
        let one = &pending[self.dice.roll(pending.len())];
        let approves = self.dice.roll(3) > 0;
        let decision = Decision { comment: Some("so be it".into()), digest: Some(one.digest.clone()) };
        let requester = Principal::everywhere(&one.requester, &[Role::Owner]);
        let own = self.engine.decide(one.id, approves, decision.clone(), &requester).await;
        assert!(matches!(own, Err(Error::Refused { .. })), "the requester could decide");
        fine("decide", self.engine.decide(one.id, approves, decision, &reviewer()).await);
    }

    async fn some_resource(&mut self) -> Option<Resource> {
        let all = self.all().await;
        if all.is_empty() { None } else { Some(all[self.dice.roll(all.len())].clone()) }
    }

    /// What a platform engineer does to one resource.
    async fn by_hand(&mut self, environment: &str) {
        if self.dice.roll(3) == 0 {
            self.made_by_hand += 1;
            let name = if self.dice.roll(3) == 0 {
                "core".to_owned()
            } else {
                format!("hand-{}", self.made_by_hand)
            };
            let request = ResourceRequest {
                template: "thing".into(),
                name,
                environment: environment.into(),
                ..ResourceRequest::default()
            };
            let made = fine("make", self.engine.make_resource(request, "me").await);
            self.seen.extend(made.and_then(|made| made.deployment?.id));
            return;
        }
        let Some(resource) = self.some_resource().await else { return };
        let id = resource.id;
        let begun = match self.dice.roll(5) {
            0 => fine("destroy one", self.engine.destroy_resource(id, false, "me").await),
            1 => fine("recreate", self.engine.make_again(id, false, false, "me").await),
            2 => fine("retry one", self.engine.make_again(id, true, false, "me").await),
            3 => {
                fine("delete", self.engine.delete_resource(id, "me").await);
                None
            }
            _ => {
                fine("undelete", self.engine.undelete(id, "me").await);
                None
            }
        };
        self.seen.extend(begun.and_then(|begun| begun.deployment?.id));
    }

    async fn propose(&mut self) {
        let proposals = self.engine.proposals(None, reviewer().sight(), None, 200).await.unwrap().items;
        if !proposals.is_empty() && self.dice.roll(3) > 0 {
            let id = proposals[self.dice.roll(proposals.len())].id;
            let begun = match self.dice.roll(4) {
                0 => {
                    let auto = self.dice.roll(2) == 0;
                    fine("submit", self.engine.submit_proposal(id, auto, "me").await);
                    None
                }
                1 | 2 => fine("merge", self.engine.merge_proposal(id, "me").await),
                _ => {
                    fine("discard", self.engine.discard_proposal(id, "me").await);
                    None
                }
            };
            // What is as its proposal says is no longer as a file says.
            self.files.clear();
            self.seen.extend(begun.and_then(|begun| begun.deployment?.id));
            return;
        }
        let Some(resource) = self.some_resource().await else { return };
        let label = json!(format!("p{}", self.dice.roll(3)));
        let request = ProposalRequest {
            set: [("label".to_owned(), label)].into_iter().collect(),
            ..Default::default()
        };
        fine("propose", self.engine.propose(resource.id, request, "me").await);
    }

    /// Something goes behind everybody's back.
    async fn lose(&mut self) {
        let live: Vec<ResourceId> = self
            .all()
            .await
            .iter()
            .filter(|r| r.phase == Phase::Active && self.world.contains(&r.id))
            .map(|resource| resource.id)
            .collect();
        if !live.is_empty() {
            let id = live[self.dice.roll(live.len())];
            self.world.remove(&id);
            self.lost.insert(id);
            self.ever_lost.insert(id);
        }
    }

    /// Somebody looks, and puts right what was found.
    async fn look(&mut self) {
        if self.dice.roll(2) == 0 {
            let change = self.engine.check_drift(DriftRequest::default(), "me").await.unwrap();
            self.seen.extend(change.id);
            return;
        }
        for drift in self.engine.drifts(DriftRequest::default()).await.unwrap().items {
            if !self.ever_lost.contains(&drift.resource) {
                self.tell([&drift.resource].into_iter()).await;
                panic!("nobody touched {drift:?}");
            }
            let decision = DriftDecision { resources: vec![drift.resource], ..Default::default() };
            let begun = fine("repair", self.engine.repair_drift(decision, "me").await);
            let begun = begun.into_iter().flatten().filter_map(|handled| handled.deployment?.id);
            self.seen.extend(begun.collect::<Vec<_>>());
        }
    }

    async fn tear_down(&mut self, environment: &str) {
        let request = DestroyRequest {
            environment: environment.into(),
            application: None,
            dry_run: false,
            keep_protected: false,
        };
        if let Some(change) = fine("tear down", self.engine.destroy(request, "me", None).await) {
            self.seen.extend(change.id);
            self.files.retain(|(_, there), _| there != environment);
        }
    }

    /// Nothing is done in staging that nobody agreed to.
    async fn check_agreed(&self, job: &JobOrder, step: &Step) {
        let looks = matches!(step.kind, StepKind::Observe | StepKind::Plan);
        if !self.approval || looks || step.subject.environment != "staging" {
            return;
        }
        let change = self.engine.deployment(job.change).await.unwrap();
        if matches!(change.kind, ChangeKind::Pool | ChangeKind::Proposal) {
            return;
        }
        let all = self
            .engine
            .approvals(Some(ApprovalStatus::Approved), None, reviewer().sight(), None, 200)
            .await
            .unwrap()
            .items;
        let about = all.iter().filter(|approval| approval.deployment == Some(job.change));
        let agreed = about.flat_map(|approval| &approval.items).any(|item| item.resource == step.subject.id);
        // An operation that another change waits for is handed to it, with what was agreed to.
        let handed =
            all.iter().flat_map(|a| &a.items).any(|item| item.operation == Some(job.claim.operation));
        assert!(agreed || handed, "{} {} of {change:?} was not agreed to", step.kind, step.subject.name);
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
            tokens: true,
            isolation: vec![],
            networks: Default::default(),
            tools: Default::default(),
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
                let result = JobResult::Described {
                    description: Description { can_observe: true, ..Description::default() },
                    content: None,
                };
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
            self.check_agreed(&job, &step).await;
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
            assert!(
                self.world.contains(&made) || self.lost.contains(&made),
                "{} before what it depends on",
                step.subject.name
            );
        }
    }

    async fn happen(&mut self, step: &Step) -> Done {
        let id = step.subject.id;
        if step.kind == StepKind::Observe {
            return Done { exists: Some(self.world.contains(&id)), ..Done::default() };
        }
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
        self.lost.remove(&id);
        let made = Output { value: json!(id.to_string()), sensitive: false };
        Done { outputs: BTreeMap::from([("made".to_owned(), made)]), ..Done::default() }
    }

    async fn all(&self) -> Vec<Resource> {
        let mut query = Query { limit: Some(200), ..Query::default() };
        let mut all = Vec::new();
        loop {
            let page = self.engine.resources(query.clone()).await.unwrap();
            all.extend(page.items);
            query.cursor = page.next_cursor;
            if query.cursor.is_none() {
                return all;
            }
        }
    }

    /// What happened to these, for whoever has to find out why.
    async fn tell(&self, ids: impl Iterator<Item = &ResourceId>) {
        for id in ids {
            let about = Query { resource: Some(*id), limit: Some(50), ..Query::default() };
            let row = self.engine.resource(*id).await.unwrap();
            println!("{id} {} {}/{} needed by {:?}", row.name, row.state, row.status, row.dependents);
            for operation in self.engine.operations(about).await.unwrap().items.iter().rev() {
                let change = self.engine.deployment(operation.deployment).await.unwrap();
                println!(
                    "  {} {} {} attempt {} of {} {} {} ({:?})",
                    operation.id,
                    operation.kind,
                    operation.status,
                    operation.attempt,
                    change.kind,
                    operation.deployment,
                    change.status,
                    operation.error.as_ref().map(|fault| &fault.message)
                );
            }
        }
    }

    /// What must hold at any time.
    async fn check(&self) {
        let mut names = BTreeSet::new();
        for resource in self.all().await {
            let live = matches!(resource.state, State::Provision | State::Provisioned);
            let home = match resource.scope.as_str() {
                "environment" => resource.environment.clone(),
                scope => scope.to_owned(),
            };
            if live && resource.sharing == "shared" {
                let key = (home, resource.kind.clone(), resource.class.clone(), resource.name.clone());
                assert!(names.insert(key), "twice: {resource:#?}");
            }
            if let Some(most) = resource.max_consumers {
                // A use that is only called otherwise from now on is there twice until the change is over.
                let uses = resource.consumers.iter().filter(|consumer| consumer.state != "leaving");
                assert!(uses.count() <= most as usize, "too many: {resource:#?}");
            }
            if resource.scope == "environment" {
                let strangers = resource.consumers.iter().filter(|c| c.environment != resource.environment);
                assert_eq!(strangers.count(), 0, "across its scope: {resource:#?}");
            }
            if resource.sharing == "dedicated" || resource.pool.is_some() {
                let users: BTreeSet<_> =
                    resource.consumers.iter().map(|c| (&c.application, &c.environment)).collect();
                assert!(users.len() <= 1, "not for two: {resource:#?}");
            }
            let gone = resource.state == State::Destroyed;
            if gone && !resource.dependents.is_empty() {
                self.tell(resource.dependents.iter().chain([&resource.id])).await;
                panic!("something depends on {}", resource.name);
            }
        }
    }

    /// The same file once more changes nothing, and two plans of it are the same.
    async fn check_plans(&self) {
        for ((app, environment), (manifest, id)) in &self.files {
            let change = self.engine.deployment(*id).await.unwrap();
            if change.status != "succeeded" {
                continue;
            }
            let request = DeploymentRequest {
                environment: environment.clone(),
                manifest: manifest.clone(),
                ..Default::default()
            };
            let plan = self.engine.plan(request.clone()).await.unwrap();
            let again = self.engine.plan(request).await.unwrap();
            let idle = |item: &&PlanItem| item.action != Action::None;
            let busy: Vec<&PlanItem> = plan.resources.iter().filter(idle).chain(&plan.removals).collect();
            assert!(busy.is_empty(), "{app} in {environment} once more: {busy:#?}\n{manifest}");
            assert!(plan == again, "two plans of one world: {plan:#?} {again:#?}");
        }
    }

    /// Everything goes well from here on, until nothing is left to do.
    async fn settle(&mut self) {
        for _ in 0..400 {
            self.engine.sweep().await.unwrap();
            self.engine.keep().await.unwrap();
            self.agree_to_all().await;
            if self.work(8, true).await > 0 {
                continue;
            }
            self.engine.collect_unused().await.unwrap();
            self.engine.destroy_again(Duration::ZERO).await.unwrap();
            self.retry_collections().await;
            if self.work(8, true).await == 0 && self.open().await.is_empty() {
                return;
            }
            tokio::time::sleep(LEASE).await;
        }
        panic!("never ends: {:#?}", self.open().await);
    }

    async fn agree_to_all(&self) {
        for one in self
            .engine
            .approvals(Some(ApprovalStatus::Pending), None, reviewer().sight(), None, 200)
            .await
            .unwrap()
            .items
        {
            let decision = Decision { comment: None, digest: Some(one.digest) };
            fine("agree", self.engine.decide(one.id, true, decision, &reviewer()).await);
        }
    }

    /// What nobody uses and could not be destroyed is tried again, as a person would.
    async fn retry_collections(&self) {
        let page = self.engine.deployments(Query { limit: Some(200), ..Query::default() }).await.unwrap();
        for change in page.items {
            let collects = matches!(change.kind, ChangeKind::Collect | ChangeKind::Rollback);
            let own = change.kind == ChangeKind::Pool && !change.removals.is_empty();
            if (collects || own) && change.status != "succeeded" && change.is_over() {
                fine("retry a collection", self.engine.retry(change.id.unwrap(), "me").await);
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
        for environment in ENVIRONMENTS {
            fine("delete pool", self.engine.delete_pool(&format!("warm-{environment}"), "me").await);
        }
        for round in 0..4 {
            for app in APPS {
                for environment in ENVIRONMENTS {
                    let request = DestroyRequest {
                        environment: environment.into(),
                        application: Some(app.into()),
                        dry_run: false,
                        keep_protected: false,
                    };
                    match self.engine.destroy(request, "me", None).await {
                        Ok(_) | Err(Error::Refused { .. }) => {}
                        Err(error) => panic!("destroy: {error}"),
                    }
                    self.settle().await;
                }
            }
            for environment in ENVIRONMENTS {
                self.tear_down(environment).await;
                self.settle().await;
            }
            // What somebody keeps by hand for more than one environment is theirs to take away.
            for resource in self.all().await.iter().filter(|resource| resource.kept_by == "hand") {
                fine("destroy what was kept", self.engine.destroy_resource(resource.id, false, "me").await);
            }
            self.settle().await;
            if round > 0 && self.world.is_empty() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(70)).await;
        }
    }

    async fn check_empty(&self) {
        let left: Vec<_> =
            self.engine.resources(Query { limit: Some(200), ..Query::default() }).await.unwrap().items;
        let left: Vec<_> = left.into_iter().filter(|resource| resource.phase != Phase::Deleted).collect();
        if !left.is_empty() {
            self.tell(left.iter().map(|resource| &resource.id)).await;
            panic!("left on record");
        }
        assert!(self.world.is_empty(), "left in the world: {:?}", self.world);
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

async fn simulate(seed: u64, steps: usize, url: Option<String>) {
    let mut simulation = Simulation::new(seed, url).await;
    for _ in 0..steps {
        simulation.act().await;
        simulation.check().await;
    }
    simulation.settle().await;
    simulation.check().await;
    simulation.check_plans().await;
    simulation.everybody_leaves().await;
    simulation.check_empty().await;
}

/// Which ones are run: more, or others, where somebody says so.
fn seeds(unless_told: u64) -> std::ops::Range<u64> {
    let told = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, count) = (told("CONDUCTOR_SEED"), told("CONDUCTOR_SIMULATIONS"));
    let first = first.unwrap_or(1);
    first..first + count.unwrap_or(unless_told)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_everything_ends_and_nothing_is_left_on_sqlite() {
    for seed in seeds(25) {
        println!("seed {seed}");
        simulate(seed, 90, None).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_happens_everything_ends_and_nothing_is_left_on_postgresql() {
    if conductor_tests::quick() {
        return;
    }
    for seed in seeds(6) {
        println!("seed {seed}");
        let database = tokio::task::spawn_blocking(|| conductor_tests::postgres().database());
        simulate(seed, 90, Some(database.await.unwrap().url.clone())).await;
    }
}
