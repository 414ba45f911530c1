//! Finding what is like what is asked for among a million resources, against the same among ten thousand: the lookup
//! itself, through the statements that a plan uses, a plan that is only shown, and a whole deployment that comes to
//! share what it finds.
//!
//! The goal is on a lookup as a plan makes it: one, in a transaction of its own, after somebody else has written, which
//! empties SQLite's page cache. Beside it stands what five hundred in one transaction cost each.
//!
//! Both are filled by multiplying one real resource with all that belongs to it, a hundred of each size.

use std::{
    collections::BTreeSet,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use conductor_api::types::{Deployment, DeploymentRequest};
use conductor_domain::{expr::params_from_json, lifecycle::Action, sharing::MatchOn};
use conductor_engine::{Engine, EngineOptions};
use conductor_store::{Db, OpenOptions, Tx, Value};
use serde_json::json;

use crate::{
    Bench, Outcome,
    house::{self, Scripted},
    postgres,
    report::{Goal, Line, Report, median, quantile},
};

const FEW: u64 = 10_000;
const MANY: u64 = 1_000_000;
const OF_ONE_SIZE: u64 = 100;
const AT_ONCE: u64 = 50_000;
const ROUNDS: usize = 8;
const LOOKUPS: usize = 500;
const DEPLOYMENTS: usize = 50;
/// As many as a plan looks at first, and one more to know whether there are more.
const SEEN: usize = 5;
const FIRST: &str = "size-first";

/// A database with so many resources, an engine on it, and times of what was done there.
struct Stock {
    engine: Arc<Engine>,
    db: Db,
    sizes: u64,
    dice: u64,
    number: u64,
    /// In microseconds: each in a transaction of its own, and many in one.
    lookups: Vec<f64>,
    in_a_row: Vec<f64>,
    plans: Vec<f64>,
    deployments: Vec<f64>,
}

fn score(application: &str, size: &str) -> String {
    let matching = json!({ "matchOn": ["size"], "maxConsumers": 50 });
    let asked = json!({ "type": "thing", "params": { "size": size }, "matching": matching });
    let container = json!({ "image": "busybox" });
    json!({
        "apiVersion": "score.dev/v1b1", "metadata": { "name": application },
        "containers": { "main": container }, "resources": { "it": asked },
    })
    .to_string()
}

fn microseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e6
}

impl Stock {
    async fn open(url: String, data: &Path, count: u64) -> Outcome<Self> {
        std::fs::create_dir_all(data)?;
        let options = EngineOptions { default_workload: false, ..house::options(url.clone(), data) };
        let key_file = options.key_file.clone();
        let engine = house::open(options).await?;
        house::furnish(&engine).await?;
        let store = OpenOptions { url: url.clone(), key: None, key_file, migrate: false, connections: 4 };
        let db = tokio::task::spawn_blocking(move || store.open()).await??.db;
        let sizes = count / OF_ONE_SIZE;
        let (lookups, in_a_row, plans, deployments) = (vec![], vec![], vec![], vec![]);
        let mut stock =
            Self { engine, db, sizes, dice: 7919, number: 0, lookups, in_a_row, plans, deployments };
        stock.deploy(FIRST, Action::Create).await?;
        let worker = Scripted::new(&stock.engine);
        while worker.one(0).await?.is_some() {}
        stock.fill(count).await?;
        if url.starts_with("postgres") {
            // As PostgreSQL does by itself after a while.
            let client = postgres::connect(&url).await?;
            client.batch_execute("VACUUM (ANALYZE)").await?;
            client.batch_execute("CHECKPOINT").await?;
        }
        Ok(stock)
    }

    fn any_size(&mut self) -> u64 {
        self.dice ^= self.dice << 13;
        self.dice ^= self.dice >> 7;
        self.dice ^= self.dice << 17;
        self.dice % self.sizes
    }

    /// The one resource there is, once more and once more.
    async fn fill(&self, count: u64) -> Outcome {
        let (sizes, sealer) = (self.sizes, self.db.sealer());
        let on = MatchOn::named(["size".to_owned()]);
        let hashed = move |template: &[u8], size: &str| {
            let material = on.material(&params_from_json(&json!({ "size": size })), &BTreeSet::new());
            sealer.digest(&[template, material.as_bytes()].concat())
        };
        self.db
            .write(move |tx| {
                let first = tx.query(
                    "SELECT k.hash, t.id FROM match_keys k, templates t WHERE t.name = 'thing'",
                    &[],
                )?;
                let (hash, template) = (first[0].bytes(0)?, first[0].bytes(1)?);
                if hashed(template, FIRST)? != hash {
                    return Err(conductor_store::Error::Corrupt(
                        "resources are matched by other hashes".into(),
                    ));
                }
                tx.execute("CREATE TABLE sizes (number BIGINT PRIMARY KEY, hash BYTEA NOT NULL)", &[])?;
                let row =
                    |number: u64| Ok(vec![(number as i64).into(), hashed(template, &size(number))?.into()]);
                let rows = (0..sizes).map(row).collect::<conductor_store::Result<Vec<Vec<Value>>>>()?;
                tx.put_rows("INSERT INTO sizes (number, hash) VALUES", &rows, "")
            })
            .await?;
        for from in (0..count).step_by(AT_ONCE as usize) {
            let to = (from + AT_ONCE).min(count) - 1;
            self.db.write(move |tx| multiply(tx, from, to)).await?;
        }
        Ok(())
    }

    /// As a plan does it: once, on what was written a moment ago.
    async fn look_up(&mut self) -> Outcome {
        let number = self.any_size();
        let times = self.times_of(vec![number]).await?;
        self.lookups.extend(times);
        Ok(())
    }

    /// One after the other in one transaction, where ten thousand stay in the processor's own caches.
    async fn look_up_in_a_row(&mut self) -> Outcome {
        let numbers = (0..LOOKUPS).map(|_| self.any_size()).collect();
        let times = self.times_of(numbers).await?;
        self.in_a_row.extend(times);
        Ok(())
    }

    /// The statements alone, without the way to a connection and back.
    async fn times_of(&self, numbers: Vec<u64>) -> Outcome<Vec<f64>> {
        let times = self.db.read(move |tx| {
            let domain = tx.query("SELECT domain_id FROM keysets", &[])?[0].id(0)?;
            let mut times = Vec::with_capacity(numbers.len());
            for number in &numbers {
                let row =
                    tx.query("SELECT hash FROM sizes WHERE number = $1", &[Value::from(*number as i64)])?;
                let hash = row[0].bytes(0)?;
                let started = Instant::now();
                let keysets = tx.keysets(&BTreeSet::from([domain]))?;
                let found = tx.matches(keysets[0].id, hash, SEEN)?;
                times.push(microseconds(started.elapsed()));
                if found.len() != SEEN {
                    return Err(conductor_store::Error::Corrupt(format!("found {found:?}")));
                }
            }
            Ok(times)
        });
        Ok(times.await?)
    }

    fn request(&self, size: &str) -> DeploymentRequest {
        let manifest = score(&format!("app-{}", self.number), size);
        DeploymentRequest { environment: house::environment(0), manifest, ..Default::default() }
    }

    /// What a deployment would do: with every candidate that is told of.
    async fn plan(&mut self, size: &str) -> Outcome {
        let request = self.request(size);
        let started = Instant::now();
        let planned = self.engine.plan(request).await?;
        self.plans.push(microseconds(started.elapsed()));
        expect(&planned, Action::Reuse)
    }

    async fn deploy(&mut self, size: &str, action: Action) -> Outcome {
        let request = self.request(size);
        self.number += 1;
        let started = Instant::now();
        let deployed = self.engine.deploy(request, "bench", None).await?;
        self.deployments.push(microseconds(started.elapsed()));
        expect(&deployed, action)
    }

    async fn step(&mut self) -> Outcome {
        let size = size(self.any_size());
        self.plan(&size).await?;
        self.deploy(&size, Action::Reuse).await?;
        self.look_up().await
    }

    /// What came before only warmed up.
    fn forget(&mut self) {
        self.lookups.clear();
        self.in_a_row.clear();
        self.plans.clear();
        self.deployments.clear();
    }
}

fn expect(deployment: &Deployment, action: Action) -> Outcome {
    match deployment.resources.first() {
        Some(item) if item.action == action => Ok(()),
        other => Err(format!("{other:?}, not {action}").into()),
    }
}

fn size(number: u64) -> String {
    format!("size-{number}")
}

/// Copies of the first resource with its keys and its consumer, each under a number of its own.
fn multiply(tx: &mut Tx<'_>, from: u64, to: u64) -> conductor_store::Result<()> {
    let postgres = tx.is_postgres();
    if postgres {
        // What is copied refers to what is there.
        tx.execute("SET LOCAL session_replication_role = replica", &[])?;
    }
    let id = |number: &str| match postgres {
        true => format!("convert_to(lpad(to_hex({number}), 16, '0'), 'UTF8')"),
        false => format!("CAST(printf('%016x', {number}) AS BLOB)"),
    };
    let (one, of) = (id("n.i"), format!("(n.i / {OF_ONE_SIZE})"));
    let user = id(&of);
    let numbers = |from: u64, to: u64| {
        format!("WITH RECURSIVE n (i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})")
    };
    let spec = |column: &str| format!("replace(b.{column}, '{FIRST}', 'size-' || {of})");
    let (sizes, all) = (numbers(from / OF_ONE_SIZE, to / OF_ONE_SIZE), numbers(from, to));
    let (spec, applied) = (spec("spec"), spec("applied_spec"));
    let application = id("n.i");
    tx.execute(
        &format!(
            "INSERT INTO applications (id, organisation_id, name, document, created_at, updated_at)
             {sizes} SELECT {application}, b.organisation_id, 'copy-' || n.i, b.document, b.created_at, b.updated_at
             FROM n CROSS JOIN (SELECT * FROM applications WHERE name = 'app-0') b"
        ),
        &[],
    )?;
    tx.execute(
        &format!(
            "INSERT INTO resources (id, organisation_id, environment_id, domain_id, kind, class, key_tag, key_name, name,
                 slug, workload, template_version_id, prev_state, state, place, status, kept_by, protected, generation,
                 observed_generation, spec, applied_spec, applied_version_id, outputs, fence, waiters, max_consumers,
                 lineage_id, made_change_id, spec_change_id, created_by, created_at, updated_at)
             {all} SELECT {one}, b.organisation_id, b.environment_id, b.domain_id, b.kind, b.class, b.key_tag,
                 'copy-' || n.i, 'copy-' || n.i, 'copy-' || n.i, b.workload, b.template_version_id, b.prev_state, b.state,
                 b.place, b.status, b.kept_by, b.protected, b.generation, b.observed_generation, {spec}, {applied},
                 b.applied_version_id, b.outputs, b.fence, b.waiters, b.max_consumers, {one}, b.made_change_id,
                 b.spec_change_id, b.created_by, b.created_at + n.i, b.updated_at
             FROM n CROSS JOIN (SELECT r.* FROM resources r JOIN consumers c ON c.resource_id = r.id
                 JOIN applications a ON a.id = c.application_id WHERE a.name = 'app-0') b"
        ),
        &[],
    )?;
    tx.execute(
        &format!(
            "INSERT INTO match_keys (resource_id, keyset_id, hash, counted, consumers, max_consumers, room, created_at)
             {all} SELECT {one}, b.keyset_id, s.hash, b.counted, b.consumers, b.max_consumers, b.room, b.created_at + n.i
             FROM n JOIN sizes s ON s.number = {of} CROSS JOIN (SELECT k.* FROM match_keys k
                 JOIN consumers c ON c.resource_id = k.resource_id
                 JOIN applications a ON a.id = c.application_id WHERE a.name = 'app-0') b"
        ),
        &[],
    )?;
    tx.execute(
        &format!(
            "INSERT INTO consumers (resource_id, application_id, environment_id, requirement, organisation_id, state,
                 params, outputs, change_id, since)
             {all} SELECT {one}, {user}, b.environment_id, 'r' || n.i, b.organisation_id, b.state, b.params, b.outputs,
                 b.change_id, b.since
             FROM n CROSS JOIN (SELECT c.* FROM consumers c JOIN applications a ON a.id = c.application_id
                 WHERE a.name = 'app-0') b"
        ),
        &[],
    )?;
    Ok(())
}

/// Both sizes in turns.
async fn compare(kind: &str, urls: [String; 2], data: &Path, report: &mut Report) -> Outcome {
    let [few, many] = urls;
    let mut few = Stock::open(few, &data.join("few"), FEW).await?;
    let mut many = Stock::open(many, &data.join("many"), MANY).await?;
    for round in 0..=ROUNDS {
        few.look_up_in_a_row().await?;
        many.look_up_in_a_row().await?;
        for _ in 0..DEPLOYMENTS {
            few.step().await?;
            many.step().await?;
        }
        if round == 0 {
            few.forget();
            many.forget();
        }
    }
    let goal = || Goal::RatioAtMost(1.3);
    for (what, few, many, goal) in [
        ("find a match", &few.lookups, &many.lookups, goal()),
        ("find matches in a row", &few.in_a_row, &many.in_a_row, Goal::None),
        ("plan with a match", &few.plans, &many.plans, goal()),
        ("deploy with a match", &few.deployments, &many.deployments, goal()),
    ] {
        report.add(Line {
            name: format!("{what} among 1,000,000, {kind}"),
            unit: "us",
            ours: median(many),
            reference: Some(median(few)),
            goal,
            note: format!("p95 {:.0}; the reference is among 10,000", quantile(many, 0.95)),
        });
    }
    Ok(())
}

/// A million resources take gigabytes: they go as soon as they were measured.
pub async fn measure(bench: &Bench, report: &mut Report) -> Outcome {
    let data = bench.folder.join("matching");
    let urls =
        ["few", "many"].map(|name| format!("sqlite:{}", data.join(name).join("conductor.db").display()));
    compare("SQLite", urls, &data, report).await?;
    std::fs::remove_dir_all(&data)?;
    let Some(server) = &bench.postgres else {
        return Err("there is no PostgreSQL on this machine".into());
    };
    let urls = [server.create("matching_few").await?, server.create("matching_many").await?];
    compare("PostgreSQL", urls, &data, report).await?;
    let client = server.connect("postgres").await?;
    Ok(client.batch_execute("DROP DATABASE matching_many WITH (FORCE)").await?)
}
