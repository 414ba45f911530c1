//! Planning a graph of 10,000 resources, without a database.
//!
//! The reference builds the same graph from the same names with petgraph and sorts it, which is only a part of a
//! plan: `ordering` compares exactly that part, `plan` the whole of what planning does with it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hint::black_box,
    sync::Arc,
    time::Instant,
};

use conductor_domain::{
    catalogue::{TemplateVersion, VersionState},
    ids::{ApplicationId, DomainId, EnvironmentId, Ids, TemplateId, TemplateVersionId},
    plan::{
        ApplicationView, EnvironmentView, Intent, Key, KeyTag, PlanError, Snapshot, Want, dependency_order,
        plan,
    },
    schema::Schema,
    score::{self, Manifest},
    sharing::SharingTerms,
    workload,
};
use petgraph::{algo::toposort, graph::DiGraph};
use uuid::Uuid;

use crate::{
    Outcome,
    report::{Goal, Line, Report, median, milliseconds},
};

const ROUNDS: usize = 7;
const RESOURCES: usize = 10_000;
/// Every so many resources a new chain begins, fanned out from the first resource of all.
const CHAIN: usize = 20;

struct Counted(std::sync::atomic::AtomicU64);

impl Ids for Counted {
    fn next(&self) -> Uuid {
        Uuid::from_u128(u128::from(self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) + 1_000)
    }
}

fn predecessor(i: usize) -> Option<usize> {
    match i {
        0 => None,
        i if i.is_multiple_of(CHAIN) => Some(0),
        i => Some(i - 1),
    }
}

fn text() -> String {
    let mut text = String::from(
        "apiVersion: score.dev/v1b1\nmetadata:\n  name: big\ncontainers:\n  main:\n    image: busybox\nresources:\n",
    );
    for i in 0..RESOURCES {
        text.push_str(&format!("  r{i}:\n    type: thing\n"));
        if let Some(before) = predecessor(i) {
            text.push_str(&format!("    params:\n      near: ${{resources.r{before}.id}}\n"));
        }
    }
    text
}

fn version(id: u128, kind: &str) -> Arc<TemplateVersion> {
    Arc::new(TemplateVersion {
        id: TemplateVersionId(Uuid::from_u128(id)),
        template: TemplateId(Uuid::from_u128(id)),
        name: kind.into(),
        kind: kind.into(),
        class: "default".into(),
        version: "1.0.0".parse().expect("a version"),
        state: VersionState::Active,
        manager: "command".into(),
        config: Default::default(),
        schema: Arc::new(Schema::open()),
        outputs: None,
        can_observe: false,
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
        tags: Default::default(),
        configs: Default::default(),
    })
}

/// An empty world in which every key of the file has been looked for.
fn snapshot(manifest: &Manifest) -> Snapshot {
    let domain = DomainId(Uuid::from_u128(3));
    let application = ApplicationId(Uuid::from_u128(4));
    let (thing, built_in) = (version(1, "thing"), version(2, workload::TYPE));
    let key = |kind: &str, tag, name| Key { domain, kind: kind.into(), class: "default".into(), tag, name };
    let keys = manifest
        .resources
        .keys()
        .map(|name| key("thing", KeyTag::Dedicated, format!("{application}/{name}")));
    let own = key(workload::TYPE, KeyTag::Workload, application.to_string());
    let environment = EnvironmentView {
        id: EnvironmentId(Uuid::from_u128(5)),
        name: "dev".into(),
        kind: "development".into(),
        labels: BTreeMap::new(),
        domain,
        grace: 0,
        approval: Default::default(),
    };
    let asker = ApplicationView { id: application, name: "big".into(), labels: BTreeMap::new() };
    let (organisation, global) = (DomainId(Uuid::from_u128(6)), DomainId(Uuid::from_u128(7)));
    Snapshot {
        default_workload: Some(built_in.id),
        versions: BTreeMap::from([(thing.id, thing), (built_in.id, built_in)]),
        types: vec!["thing".into()],
        kinds: BTreeSet::from(["thing".to_owned(), workload::TYPE.to_owned()]),
        keys: keys.chain([own]).map(|key| (key, None)).collect(),
        ..Snapshot::new(environment, organisation, global, asker)
    }
}

/// The graph as a plan finds it: names, and for each the names before it.
fn petgraph_order(edges: &[(String, Option<String>)]) -> usize {
    let mut graph = DiGraph::<&str, ()>::with_capacity(edges.len(), edges.len());
    let nodes: HashMap<&str, _> =
        edges.iter().map(|(name, _)| (name.as_str(), graph.add_node(name))).collect();
    for (name, before) in edges {
        if let Some(before) = before {
            graph.add_edge(nodes[before.as_str()], nodes[name.as_str()], ());
        }
    }
    toposort(&graph, None).map_or(0, |order| order.len())
}

fn our_order(edges: &[(String, Option<String>)]) -> usize {
    let index: HashMap<&str, usize> =
        edges.iter().enumerate().map(|(i, (name, _))| (name.as_str(), i)).collect();
    let depends_on: Vec<Vec<usize>> = edges
        .iter()
        .map(|(_, before)| before.iter().filter_map(|name| index.get(name.as_str()).copied()).collect())
        .collect();
    dependency_order(&depends_on).map_or(0, |order| order.len())
}

fn timed<T>(into: &mut Vec<f64>, body: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = black_box(body());
    into.push(milliseconds(started.elapsed()));
    result
}

pub fn measure(report: &mut Report) -> Outcome {
    let text = text();
    let options = score::Options { strict: false };
    let parse = || score::parse(&text, &options).map_err(|findings| findings[0].message.clone());
    let manifest = parse()?;
    let snapshot = snapshot(&manifest);
    let mut edges: Vec<(String, Option<String>)> = (0..RESOURCES)
        .map(|i| (format!("r{i}"), predecessor(i).map(|before| format!("r{before}"))))
        .collect();
    // A plan has them in the order of their names.
    edges.sort();
    let intent = Intent::Deploy { manifest: &manifest, image: None };
    let ids = Counted(Default::default());
    let (mut parsing, mut planning, mut ordering, mut reference) = (vec![], vec![], vec![], vec![]);
    for _ in 0..ROUNDS {
        timed(&mut parsing, parse)?;
        let made = timed(&mut planning, || plan(&intent, &snapshot, &ids)).map_err(told)?;
        if made.operations.len() <= RESOURCES {
            return Err(format!("only {} operations were planned", made.operations.len()).into());
        }
        // What the plan left behind is tidied up by whoever asks for memory next.
        black_box(petgraph_order(&edges));
        let ordered = timed(&mut ordering, || our_order(&edges));
        let sorted = timed(&mut reference, || petgraph_order(&edges));
        if (ordered, sorted) != (RESOURCES, RESOURCES) {
            return Err("the graph was not ordered".into());
        }
    }
    let reference = median(&reference);
    let mut add = |name: &str, ours: &[f64], goal, note: &str| {
        report.add(Line {
            name: name.into(),
            unit: "ms",
            ours: median(ours),
            reference: Some(reference),
            goal,
            note: note.into(),
        });
    };
    add("ordering 10k resources", &ordering, Goal::RatioAtMost(2.0), "the same as petgraph does");
    add(
        "planning 10k resources, whole",
        &planning,
        Goal::RatioAtMost(2.0),
        "with templates, keys, checks, reasons, effects",
    );
    add("parsing their Score file", &parsing, Goal::None, "before any lock");
    Ok(())
}

fn told(error: PlanError) -> String {
    match error {
        PlanError::Need(wants) => match wants.first() {
            Some(Want::Key(key)) => format!("planning wants to know of {key:?}"),
            other => format!("planning wants {other:?}"),
        },
        refused => refused.to_string(),
    }
}
