//! What planning decides, case by case, and why. A small world is built in memory; nothing is run.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use conductor_domain::{
    catalogue::{Criteria, Rule, TemplateVersion, VersionState},
    expr::Params,
    ids::{
        ApplicationId, DomainId, EnvironmentId, Ids, OperationId, ResourceId, TemplateId, TemplateVersionId,
    },
    lifecycle::{Action, ConsumerState, ErrorCode, KeptBy, OperationKind, OperationStatus, State, Status},
    plan::{
        ApplicationView, ConsumerView, Effect, EnvironmentView, Intent, Key, KeyTag, Matches, OpenOperation,
        Plan, PlanError, ResourceView, Rivals, Snapshot, Until, Want, plan,
    },
    schema::Schema,
    score::{self, Scope},
    sharing::SharingTerms,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

/// Ids in order, the same in every run.
struct Counting(Mutex<u128>);

impl Ids for Counting {
    fn next(&self) -> Uuid {
        let mut next = self.0.lock().unwrap();
        *next += 1;
        Uuid::from_u128(*next)
    }
}

fn ids() -> Counting {
    Counting(Mutex::new(1000))
}

fn id(n: u128) -> Uuid {
    Uuid::from_u128(n)
}

fn template(n: u128, kind: &str, version: &str, schema: Value) -> Arc<TemplateVersion> {
    Arc::new(TemplateVersion {
        id: TemplateVersionId(id(n)),
        template: TemplateId(id(n + 100)),
        name: format!("{kind}-template"),
        kind: kind.into(),
        class: "default".into(),
        version: version.parse().unwrap(),
        state: VersionState::Active,
        manager: "command".into(),
        config: serde_json::Map::new(),
        schema: Arc::new(Schema::compile(schema).unwrap()),
        outputs: None,
        can_observe: true,
        can_plan: false,
        create_first: false,
        requires: BTreeMap::new(),
        sharing: SharingTerms::default(),
        retain: false,
        grace: 0,
        content: None,
        integrations: vec![],
        needs: conductor_domain::needs::Needs::of("command"),
        approval: Default::default(),
        drift_policy: None,
        drift_schedule: None,
        parents: vec![],
        tags: BTreeMap::new(),
        configs: BTreeMap::new(),
    })
}

/// One environment, one application that deploys, and whatever is there already.
struct World {
    snapshot: Snapshot,
}

impl World {
    fn new() -> Self {
        let schema = json!({ "type": "object", "properties": {
            "size": { "type": "string", "default": "small" },
            "zone": { "type": "string", "immutable": true },
            "seal": { "type": "string", "frozen": true },
            "from": {},
        }, "additionalProperties": false });
        let versions = [template(1, "db", "1.0.0", schema.clone()), template(2, "net", "1.0.0", schema)];
        Self {
            snapshot: Snapshot {
                versions: versions.into_iter().map(|version| (version.id, version)).collect(),
                types: vec!["db".into(), "net".into()],
                kinds: BTreeSet::from(["db".into(), "dbb".into(), "net".into()]),
                ..Snapshot::new(
                    EnvironmentView {
                        id: EnvironmentId(id(50)),
                        name: "dev".into(),
                        kind: "development".into(),
                        labels: BTreeMap::new(),
                        domain: DomainId(id(51)),
                        grace: 0,
                        approval: Default::default(),
                    },
                    DomainId(id(52)),
                    DomainId(id(53)),
                    ApplicationView {
                        id: ApplicationId(id(60)),
                        name: "web".into(),
                        labels: BTreeMap::new(),
                    },
                )
            },
        }
    }

    fn key(&self, kind: &str, tag: KeyTag, name: &str) -> Key {
        let name = match tag {
            KeyTag::Dedicated => format!("{}/{name}", self.snapshot.application.id),
            _ => name.to_owned(),
        };
        Key {
            domain: self.snapshot.environment.domain,
            kind: kind.into(),
            class: "default".into(),
            tag,
            name,
        }
    }

    /// Something that is there, made and in order, used by these applications under the requirement `db`.
    fn there(
        &mut self,
        n: u128,
        kind: &str,
        tag: KeyTag,
        name: &str,
        params: Value,
        users: &[&str],
    ) -> ResourceId {
        let version = if kind == "db" { 1 } else { 2 };
        let mut params: Params = conductor_domain::expr::params_from_json(&params);
        params.entry("size".into()).or_insert(conductor_domain::expr::Expr::Literal(json!("small")));
        let key = self.key(kind, tag, name);
        let consumers: Vec<ConsumerView> = users
            .iter()
            .map(|user| ConsumerView {
                application: if *user == "web" {
                    self.snapshot.application.id
                } else {
                    ApplicationId(id(61))
                },
                application_name: (*user).into(),
                environment: self.snapshot.environment.id,
                requirement: "db".into(),
                state: ConsumerState::Active,
                outputs: BTreeSet::new(),
                asked: None,
            })
            .collect();
        let resource = ResourceView {
            id: ResourceId(id(n)),
            key: key.clone(),
            name: name.into(),
            scope: Scope::Environment,
            version: TemplateVersionId(id(version)),
            state: State::Provisioned,
            status: Status::Done,
            generation: 1,
            spec: params.clone(),
            applied: Some((params, TemplateVersionId(id(version)))),
            message: None,
            kept_by: KeptBy::Consumers,
            protected: false,
            workload: false,
            consumer_count: consumers.len() as u64,
            consumers,
            max_consumers: None,
            when: None,
            pool: None,
            buried_until: None,
            depends_on: BTreeSet::new(),
            own: BTreeMap::new(),
            dependents: BTreeSet::new(),
            open_operation: None,
            attempted: true,
        };
        self.snapshot.keys.insert(key, Some(resource.id));
        self.snapshot.resources.insert(resource.id, resource);
        ResourceId(id(n))
    }

    fn busy(&mut self, resource: ResourceId, kind: OperationKind, status: OperationStatus) {
        let view = self.snapshot.resources.get_mut(&resource).unwrap();
        view.open_operation = Some(OpenOperation { id: OperationId(id(900)), kind, status, begun: false });
        view.status = if status == OperationStatus::InProgress { Status::InProgress } else { Status::Queued };
    }

    /// Plans as the engine does: what is asked for is looked up, and there is nothing else.
    fn try_plan(&mut self, intent: &Intent<'_>) -> Result<Plan, PlanError> {
        loop {
            match plan(intent, &self.snapshot, &ids()) {
                Err(PlanError::Need(wants)) => {
                    for want in wants {
                        match want {
                            Want::Key(key) => drop(self.snapshot.keys.entry(key).or_insert(None)),
                            Want::Resource(id) => drop(self.snapshot.missing.insert(id)),
                            Want::External(text) => drop(self.snapshot.external.insert(text, None)),
                            Want::Pool(name) => drop(self.snapshot.pools.insert(name, None)),
                            Want::Match(query, _) => {
                                drop(self.snapshot.matches.insert(query, Matches::default()))
                            }
                            Want::Contracts(id) => drop(self.snapshot.contracts.insert(id, BTreeSet::new())),
                            Want::Rivals(scope, kind, class) => {
                                self.snapshot.rivals.insert((scope, kind, class), Rivals::default());
                            }
                            Want::Type(kind) => drop(self.snapshot.kinds.insert(kind)),
                        }
                    }
                }
                other => return other,
            }
        }
    }

    fn deploy(&mut self, resources: &str) -> Result<Plan, PlanError> {
        let text = format!(
            "apiVersion: score.dev/v1b1\nmetadata:\n  name: web\ncontainers:\n  main:\n    image: busybox\nresources:\n{resources}"
        );
        let manifest = score::parse(&text, &score::Options::default()).unwrap();
        self.try_plan(&Intent::Deploy { manifest: &manifest, image: None })
    }
}

fn actions(plan: &Plan) -> Vec<(String, Action)> {
    plan.items.iter().chain(&plan.removals).map(|item| (item.requirement.clone(), item.action)).collect()
}

fn kinds(plan: &Plan) -> Vec<OperationKind> {
    plan.operations.iter().map(|operation| operation.kind).collect()
}

fn refusal(result: Result<Plan, PlanError>) -> (ErrorCode, String) {
    match result {
        Err(PlanError::Refused { code, problems }) => (
            code,
            problems
                .iter()
                .map(|p| format!("{}: {} {:?}", p.path, p.message, p.suggestion))
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn nothing_is_there_so_it_is_made() {
    let plan = World::new().deploy("  db: { type: db }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Create)]);
    assert_eq!(kinds(&plan), [OperationKind::Create, OperationKind::Settle]);
    assert!(plan.items[0].reason.contains("only template for type `db`"), "{}", plan.items[0].reason);
}

#[test]
fn the_same_again_does_nothing() {
    let mut world = World::new();
    world.there(10, "db", KeyTag::Dedicated, "db", json!({}), &["web"]);
    let plan = world.deploy("  db: { type: db }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::None)]);
    assert_eq!(plan.operations, []);
    assert_eq!(plan.effects, []);
}

#[test]
fn a_shared_one_is_reused_and_joined() {
    let mut world = World::new();
    let orders = world.there(10, "db", KeyTag::Shared, "orders", json!({}), &["shop"]);
    let plan = world.deploy("  db: { type: db, id: orders }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Reuse)]);
    assert!(plan.items[0].reason.contains("used by shop"), "{}", plan.items[0].reason);
    assert!(
        matches!(&plan.effects[..], [Effect::Join { resource, .. }] if *resource == orders),
        "{:?}",
        plan.effects
    );
}

#[test]
fn one_that_is_being_made_is_waited_for() {
    let mut world = World::new();
    let orders = world.there(10, "db", KeyTag::Shared, "orders", json!({}), &["shop"]);
    world.snapshot.resources.get_mut(&orders).unwrap().state = State::Provision;
    world.snapshot.resources.get_mut(&orders).unwrap().applied = None;
    world.busy(orders, OperationKind::Create, OperationStatus::InProgress);
    let plan = world
        .deploy(
            "  db: { type: db, id: orders }\n  net: { type: net, params: { from: '${resources.db.url}' } }\n",
        )
        .unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Reuse), ("net".into(), Action::Create)]);
    let create = plan.operations.iter().find(|operation| operation.kind == OperationKind::Create).unwrap();
    assert_eq!(create.waits.len(), 1);
    assert_eq!((create.waits[0].resource, create.waits[0].until), (orders, Until::Ready));
}

#[test]
fn a_sole_users_change_is_an_update_and_an_immutable_one_a_replacement() {
    let mut world = World::new();
    let db = world.there(10, "db", KeyTag::Dedicated, "db", json!({ "zone": "eu" }), &["web"]);
    let plan = world.deploy("  db: { type: db, params: { zone: eu, size: large } }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Update)]);
    assert_eq!(plan.items[0].reason, "`size` differs");
    let plan = world.deploy("  db: { type: db, params: { zone: us } }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Replace)]);
    assert_ne!(plan.items[0].resource, db);
    assert_eq!(kinds(&plan)[..2], [OperationKind::Destroy, OperationKind::Create]);
    assert_eq!(plan.operations[1].after, [plan.operations[0].id], "the old one goes first");
}

#[test]
fn a_frozen_parameter_is_refused() {
    let mut world = World::new();
    world.there(10, "db", KeyTag::Dedicated, "db", json!({ "seal": "a" }), &["web"]);
    let (code, text) = refusal(world.deploy("  db: { type: db, params: { seal: b } }\n"));
    assert_eq!(code, ErrorCode::Conflict);
    assert!(text.contains("resources.db.params.seal"), "{text}");
}

#[test]
fn a_shared_one_with_other_parameters_is_a_conflict_that_shows_both_sides() {
    let mut world = World::new();
    let orders = world.there(10, "db", KeyTag::Shared, "orders", json!({ "size": "large" }), &["shop"]);
    let (code, text) = refusal(world.deploy("  db: { type: db, id: orders, params: { size: tiny } }\n"));
    assert_eq!(code, ErrorCode::Conflict);
    assert!(text.contains("large") && text.contains("tiny") && text.contains("shop"), "{text}");
    let kept =
        world.deploy("  db: { type: db, id: orders, params: { size: tiny }, onConflict: keep }\n").unwrap();
    assert_eq!((kept.items[0].resource, kept.items[0].action), (orders, Action::Reuse));
    assert!(kept.operations.is_empty());
}

#[test]
fn params_left_out_take_what_is_there() {
    let mut world = World::new();
    world.there(10, "db", KeyTag::Shared, "orders", json!({ "size": "large" }), &["shop"]);
    let plan = world.deploy("  db: { type: db, id: orders }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Reuse)]);
}

#[test]
fn what_the_file_no_longer_names_is_removed_or_only_released() {
    let mut world = World::new();
    world.there(10, "db", KeyTag::Dedicated, "db", json!({}), &["web"]);
    let plan = world.deploy("  net: { type: net }\n").unwrap();
    assert_eq!(actions(&plan), [("net".into(), Action::Create), ("db".into(), Action::Remove)]);
    let destroy = plan.operations.last().unwrap();
    assert_eq!(destroy.kind, OperationKind::Destroy);
    assert_eq!(destroy.after.len(), 2, "after everything that is made: {:?}", plan.operations);

    let mut world = World::new();
    world.there(10, "db", KeyTag::Shared, "orders", json!({}), &["web", "shop"]);
    let plan = world.try_plan(&Intent::Destroy).unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Release)]);
    assert_eq!(plan.removals[0].reason, "still used by shop");
    assert!(plan.operations.is_empty());
}

#[test]
fn the_protected_the_hand_made_and_the_depended_on_stay() {
    for (change, why) in [
        ((|view| view.protected = true) as fn(&mut ResourceView), "protected"),
        (|view| view.kept_by = KeptBy::Hand, "retained"),
        (|view| view.dependents = BTreeSet::from([ResourceId(id(77))]), "depends on it"),
    ] {
        let mut world = World::new();
        let db = world.there(10, "db", KeyTag::Dedicated, "db", json!({}), &["web"]);
        change(world.snapshot.resources.get_mut(&db).unwrap());
        let plan = world.try_plan(&Intent::Destroy).unwrap();
        assert_eq!(actions(&plan), [("db".into(), Action::Release)]);
        assert!(plan.removals[0].reason.contains(why), "{}", plan.removals[0].reason);
        assert!(plan.operations.is_empty());
    }
}

#[test]
fn waiting_for_destruction_it_is_revived_and_being_destroyed_it_is_waited_for() {
    let mut world = World::new();
    let orders = world.there(10, "db", KeyTag::Shared, "orders", json!({}), &[]);
    world.snapshot.resources.get_mut(&orders).unwrap().state = State::Destroy;
    world.busy(orders, OperationKind::Destroy, OperationStatus::Queued);
    let plan = world.deploy("  db: { type: db, id: orders }\n").unwrap();
    assert_eq!((plan.items[0].resource, plan.items[0].action), (orders, Action::Reuse));
    assert!(plan.effects.iter().any(|effect| matches!(effect, Effect::Revive { .. })), "{:?}", plan.effects);

    world.busy(orders, OperationKind::Destroy, OperationStatus::InProgress);
    let plan = world.deploy("  db: { type: db, id: orders }\n").unwrap();
    assert_eq!(plan.items[0].action, Action::Create);
    assert_ne!(plan.items[0].resource, orders);
    assert_eq!(plan.operations[0].waits[0].until, Until::Gone);
}

#[test]
fn a_failed_one_is_tried_again_even_when_nothing_differs() {
    let mut world = World::new();
    let db = world.there(10, "db", KeyTag::Dedicated, "db", json!({}), &["web"]);
    let view = world.snapshot.resources.get_mut(&db).unwrap();
    (view.state, view.status, view.applied, view.message) =
        (State::Provision, Status::Error, None, Some("quota reached".into()));
    let plan = world.deploy("  db: { type: db }\n").unwrap();
    assert_eq!(actions(&plan), [("db".into(), Action::Create)]);
    assert!(plan.items[0].reason.contains("quota reached"), "{}", plan.items[0].reason);
}

#[test]
fn a_dependent_of_what_changes_is_looked_at_again() {
    let mut world = World::new();
    let db = world.there(10, "db", KeyTag::Dedicated, "db", json!({}), &["web"]);
    let from = json!({ "from": { "$expr": [{ "resource": db, "path": ["url"] }] } });
    let net = world.there(11, "net", KeyTag::Dedicated, "net", from, &["web"]);
    world.snapshot.resources.get_mut(&net).unwrap().consumers[0].requirement = "net".into();
    world.snapshot.resources.get_mut(&net).unwrap().depends_on = BTreeSet::from([db]);
    let file = |size: &str| {
        format!(
            "  db: {{ type: db, params: {{ size: {size} }} }}\n  net: {{ type: net, params: {{ from: '${{resources.db.url}}' }} }}\n"
        )
    };
    let same = world.deploy(&file("small")).unwrap();
    assert_eq!(actions(&same), [("db".into(), Action::None), ("net".into(), Action::None)]);
    let changed = world.deploy(&file("large")).unwrap();
    assert_eq!(actions(&changed), [("db".into(), Action::Update), ("net".into(), Action::Update)]);
    let (first, second) = (&changed.operations[0], &changed.operations[1]);
    assert!(
        !first.conditional && second.conditional && second.after == [first.id],
        "{:?}",
        changed.operations
    );
}

#[test]
fn mistakes_are_told_with_what_was_meant() {
    let mut world = World::new();
    let (code, text) =
        refusal(world.deploy("  aa: { type: dbb }\n  bb: { type: db, params: { sise: x } }\n"));
    assert_eq!(code, ErrorCode::Invalid);
    assert!(text.contains("did you mean `db`"), "{text}");
    let (_, text) = refusal(world.deploy("  bb: { type: db, params: { sise: x } }\n"));
    assert!(text.contains("resources.bb.params.sise") && text.contains("did you mean `size`"), "{text}");
    let (code, text) =
        refusal(world.deploy("  bb: { type: db, reference: { mode: existing, id: nowhere } }\n"));
    assert_eq!(code, ErrorCode::NotFound);
    assert!(text.contains("nowhere"), "{text}");
}

#[test]
fn rules_choose_by_weight() {
    let mut world = World::new();
    let prod = Arc::new(TemplateVersion {
        name: "db-prod".into(),
        ..(*template(3, "db", "2.0.0", json!({ "type": "object" }))).clone()
    });
    world.snapshot.versions.insert(prod.id, prod.clone());
    let (_, text) = refusal(world.deploy("  db: { type: db }\n"));
    assert!(text.contains("2 templates serve type `db`") && text.contains("write a rule"), "{text}");
    let rule = |name: &str, template: &str, criteria: Value| Rule {
        name: name.into(),
        template: template.into(),
        version: None,
        criteria: serde_json::from_value::<Criteria>(criteria).unwrap(),
    };
    world.snapshot.rules = vec![
        rule("weak", "db-template", json!({ "type": "db", "environmentType": "development" })),
        rule("strong", "db-prod", json!({ "type": "db", "environment": "dev" })),
    ];
    let plan = world.deploy("  db: { type: db }\n").unwrap();
    assert!(plan.items[0].reason.contains("rule `strong` chose db-prod@2.0.0"), "{}", plan.items[0].reason);
}

proptest! {
    /// Any set of requirements with backward references: planned twice it is the same, every dependency comes
    /// first, and nothing that a plan makes is made twice.
    #[test]
    fn plans_are_deterministic_and_in_order(edges in proptest::collection::vec((0usize..12, 0usize..12), 0..30)) {
        let mut references: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (a, b) in edges {
            if a != b {
                references.entry(a.max(b)).or_default().insert(a.min(b));
            }
        }
        let file: String = (0..12)
            .map(|i| {
                let from: Vec<String> = references.get(&i).into_iter().flatten().map(|j| format!("${{resources.r{j:02}.url}}")).collect();
                format!("  r{i:02}: {{ type: db, params: {{ from: '{}' }} }}\n", from.join(" "))
            })
            .collect();
        let plan_once = || World::new().deploy(&file).unwrap();
        let (first, second) = (plan_once(), plan_once());
        prop_assert_eq!(&first, &second);
        let position: BTreeMap<OperationId, usize> = first.operations.iter().enumerate().map(|(i, op)| (op.id, i)).collect();
        for (i, operation) in first.operations.iter().enumerate() {
            for before in &operation.after {
                prop_assert!(position[before] < i);
            }
        }
        let made: BTreeSet<ResourceId> = first.operations.iter().filter_map(|op| op.resource).collect();
        prop_assert_eq!(made.len(), 12);
    }
}
