//! Everything that can break, at the worst moment of every step: the work is done and nobody has heard of it yet. A
//! worker, a server or the database is killed, a worker freezes beyond its lease, the network is cut, a reply is lost,
//! the disk is full. After each, nothing is stuck, nothing ran twice at once, and the record says what is really there.
//!
//! `make chaos` does the same at every moment of every step (`CONDUCTOR_CHAOS_ROUNDS` times).

use std::{process::Command, time::Duration};

use conductor_api::types::Deployment;
use conductor_tests::{
    At, Database, Gate, House, Running, Score, Server, Shape, eventually, postgres, quick, seconds, tofu,
};
use serde_json::{Value, json};

const LEASE: &str = "2s";
const SOON: Duration = seconds(60);
const SHAPE: Shape = Shape::FleetPostgres { servers: 1, workers: 0 };

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    WorkerKilled,
    ServerKilled,
    DatabaseKilled,
    WorkerFrozen,
    NetworkCut,
    ReplyLost,
}

const FAULTS: [Fault; 6] = [
    Fault::WorkerKilled,
    Fault::ServerKilled,
    Fault::DatabaseKilled,
    Fault::WorkerFrozen,
    Fault::NetworkCut,
    Fault::ReplyLost,
];

/// A call of the worker, and on which side of the server's doing it.
type Moment = (&'static str, At);

/// Where nobody but the worker knows that the work is done.
const WORST: Moment = ("/complete", At::Request);

/// Something made by a manager, and how a look at the world itself finds it.
trait Maker: Sync {
    /// The moments there are in each of its steps.
    fn moments(&self) -> Vec<Moment> {
        vec![("/acquire", At::Reply), WORST, ("/complete", At::Reply)]
    }

    fn template(&self, house: &House);
    fn asked(&self, size: &str) -> Value;
    fn is_there(&self, outputs: &Value, size: &str);
    fn is_gone(&self, outputs: &Value);
}

struct Tofu;

impl Maker for Tofu {
    fn moments(&self) -> Vec<Moment> {
        vec![
            ("/acquire", At::Reply),
            ("/state/lock", At::Request),
            ("/state/lock", At::Reply),
            ("PUT /state?", At::Request),
            ("PUT /state?", At::Reply),
            ("/state/unlock", At::Request),
            ("/state/unlock", At::Reply),
            WORST,
            ("/complete", At::Reply),
        ]
    }

    fn template(&self, house: &House) {
        let world = house.place.world.folder.display().to_string();
        house.place.write("catalog/net/main.tf", MODULE.replace("WORLD", &world));
        let tool = tofu().display().to_string();
        house.place.apply(
            "net",
            &format!(
                "kind: Template\nname: net\ntype: thing\nversion: 1.0.0\nmanager: terraform\n\
                 config: {{ source: ./net, tool: {tool}, allow: {{ write: [\"{world}\"] }} }}\n"
            ),
        );
    }

    fn asked(&self, size: &str) -> Value {
        json!({ "type": "thing", "params": { "size": size } })
    }

    fn is_there(&self, outputs: &Value, size: &str) {
        assert_eq!(outputs["size"], size, "{outputs}");
        let file = std::fs::read_to_string(outputs["file"].as_str().expect("a file")).expect("the file");
        assert_eq!(file.trim(), "made");
    }

    fn is_gone(&self, outputs: &Value) {
        assert!(!std::path::Path::new(outputs["file"].as_str().expect("a file")).exists());
    }
}

const MODULE: &str = r#"
variable "size" {
  type = string
}
resource "terraform_data" "file" {
  input = "WORLD/made-by-tofu"
  provisioner "local-exec" {
    command = "echo made > ${self.input}"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "rm -f ${self.input}"
  }
}
resource "terraform_data" "size" {
  input = var.size
}
output "size" {
  value = terraform_data.size.output
}
output "file" {
  value = terraform_data.file.output
}
"#;

/// A database and its role on a server that is not Conductor's own.
struct Databases;

impl Maker for Databases {
    fn template(&self, house: &House) {
        let server = postgres().admin();
        house.place.apply(
            "db",
            &format!(
                "kind: Template\nname: db\ntype: thing\nversion: 1.0.0\nmanager: database\n\
                 config: {{ engine: postgres, server: \"{server}\" }}\n\
                 parameters: {{ type: object, properties: {{ size: {{ type: string }} }} }}\n"
            ),
        );
    }

    fn asked(&self, size: &str) -> Value {
        json!({ "type": "thing", "params": { "size": size } })
    }

    fn is_there(&self, outputs: &Value, _: &str) {
        assert!(postgres().can_log_in(outputs["url"].as_str().expect("an address")));
        assert_eq!(roles(outputs), 1);
    }

    fn is_gone(&self, outputs: &Value) {
        assert_eq!(roles(outputs), 0);
    }
}

fn roles(outputs: &Value) -> usize {
    let name = outputs["name"].as_str().expect("a name");
    postgres().query(&postgres().admin(), &format!("SELECT 1 FROM pg_roles WHERE rolname = '{name}'")).len()
}

/// One after the other in one house: made, changed and destroyed, and the same thing breaks each time.
fn suffers(maker: &dyn Maker, fault: Fault, (path, at): Moment) {
    if quick() {
        return;
    }
    // A database server of its own where it is killed; the others would notice.
    let mut own = (fault == Fault::DatabaseKilled).then(Server::start);
    let database: Database = own.as_ref().map_or_else(|| postgres().database(), Server::database);
    let mut house = House::on(SHAPE, LEASE, database);
    let mut worker = house.worker();
    maker.template(&house);
    worker.stop();
    let gate = Gate::before(&house.fleet.urls);
    let score = |size: &str| Score::new("web").with("db", maker.asked(size)).text();
    let mut outputs = Value::Null;
    for step in ["small", "large", ""] {
        let stop = match fault {
            Fault::ReplyLost => gate.cut(path, At::Reply, 1),
            _ => gate.hold(path, at),
        };
        let victim = house.start_worker_with(&gate.url, "1");
        let change = match step {
            "" => house.api().destroy("web"),
            size => house.api().deploy(&score(size)),
        };
        stop.wait();
        let _survivors = strike(&mut house, &gate, own.as_mut(), victim, fault, &change);
        stop.release();
        house.api().succeeded(&change, SOON);
        match step {
            "" => maker.is_gone(&outputs),
            size => {
                outputs = house.place.outputs("web", true)["db"].clone();
                maker.is_there(&outputs, size);
            }
        }
        house.is_at_rest();
        let running = house.count("SELECT count(*) FROM operations WHERE status = 'in_progress'");
        assert_eq!(running, 0, "{fault:?} at {step:?}");
    }
    house.is_empty();
}

/// What breaks, and who goes on.
fn strike(
    house: &mut House,
    gate: &Gate,
    own: Option<&mut Server>,
    mut victim: Running,
    fault: Fault,
    change: &Deployment,
) -> Vec<Running> {
    match fault {
        Fault::WorkerKilled => {
            victim.kill();
            vec![house.worker()]
        }
        Fault::ServerKilled => {
            house.fleet.servers[0].kill();
            house.fleet.servers[0] = house.start_server(SHAPE, 0);
            vec![victim]
        }
        Fault::DatabaseKilled => {
            own.expect("a server of its own").crash();
            vec![victim]
        }
        Fault::WorkerFrozen => {
            victim.freeze();
            let successor = house.worker();
            house.api().succeeded(change, SOON);
            let before = house.count("SELECT count(*) FROM attempts");
            victim.thaw();
            std::thread::sleep(seconds(2));
            assert_eq!(house.count("SELECT count(*) FROM attempts"), before, "the zombie was believed");
            vec![victim, successor]
        }
        Fault::NetworkCut => {
            let cut = gate.cut("/worker/", At::Request, usize::MAX);
            std::thread::sleep(seconds(1));
            let successor = house.worker();
            house.api().succeeded(change, SOON);
            cut.release();
            vec![victim, successor]
        }
        Fault::ReplyLost => vec![victim],
    }
}

macro_rules! faults {
    ($($name:ident: $maker:expr, $fault:ident;)*) => {$(
        #[test]
        fn $name() {
            suffers(&$maker, Fault::$fault, WORST);
        }
    )*};
}

faults! {
    tofu_and_a_killed_worker: Tofu, WorkerKilled;
    tofu_and_a_killed_server: Tofu, ServerKilled;
    tofu_and_a_killed_database: Tofu, DatabaseKilled;
    tofu_and_a_frozen_worker: Tofu, WorkerFrozen;
    tofu_and_a_cut_network: Tofu, NetworkCut;
    tofu_and_a_lost_reply: Tofu, ReplyLost;
    a_database_and_a_killed_worker: Databases, WorkerKilled;
    a_database_and_a_killed_server: Databases, ServerKilled;
    a_database_and_a_killed_database_of_ours: Databases, DatabaseKilled;
    a_database_and_a_frozen_worker: Databases, WorkerFrozen;
    a_database_and_a_cut_network: Databases, NetworkCut;
    a_database_and_a_lost_reply: Databases, ReplyLost;
}

fn rounds() -> usize {
    std::env::var("CONDUCTOR_CHAOS_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// Every fault at every moment of every step; a few houses at a time, as most of it is waiting for leases.
#[test]
#[ignore = "takes minutes: make chaos"]
fn chaos_of_every_fault_at_every_moment() {
    let makers: [(&str, &dyn Maker); 2] = [("tofu", &Tofu), ("database", &Databases)];
    let mut cases: Vec<(&str, &dyn Maker, Fault, Moment)> = Vec::new();
    for _ in 0..rounds() {
        for (name, maker) in makers {
            for (fault, moment) in
                FAULTS.iter().flat_map(|&fault| maker.moments().into_iter().map(move |m| (fault, m)))
            {
                // A lost reply has no other side.
                if fault != Fault::ReplyLost || moment.1 == At::Reply {
                    cases.push((name, maker, fault, moment));
                }
            }
        }
    }
    let (total, next) = (cases.len(), std::sync::atomic::AtomicUsize::new(0));
    let one_after_the_other = || {
        while let Some((name, maker, fault, moment)) =
            cases.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
        {
            let began = std::time::Instant::now();
            suffers(*maker, *fault, *moment);
            println!("{name}, {fault:?} at {moment:?}: well after {:.1?}", began.elapsed());
        }
    };
    conductor_tests::all_at_once((0..4).map(|number| {
        let case: Box<dyn FnOnce() + Send> = Box::new(one_after_the_other);
        (format!("chaos-{number}"), case)
    }));
    println!("{total} cases, each with create, update and destroy");
}

/// The disk of a worker is full: the deployment says so, and goes well once there is room. So with every step.
/// The database was away for a moment while nobody used it: those who come afterwards do not notice.
#[test]
fn a_database_that_was_restarted_is_nobodys_business() {
    if quick() {
        return;
    }
    let mut own = Server::start();
    let database = own.database();
    let house = House::on(SHAPE, LEASE, database);
    let api = house.api();
    let everything = |round: usize| {
        for number in 0..16 {
            let document =
                json!({ "kind": "Environment", "name": format!("e-{round}-{number}"), "type": "staging" });
            let reply = api.post("/api/v1/catalog", &json!({ "document": document }));
            assert!(reply.status < 300, "{} {}", reply.status, reply.text);
            assert_eq!(api.get("/api/v1/environments").status, 200);
        }
    };
    everything(0);
    own.crash();
    everything(1);
    let made = house.count("SELECT count(*) FROM environments WHERE name LIKE 'e-%'");
    assert_eq!(made, 32, "each of them once");
}

#[test]
fn a_full_disk_is_told_and_the_next_try_goes_well() {
    if quick() {
        return;
    }
    let house = House::with_lease(SHAPE, LEASE);
    let mut worker = house.worker();
    Tofu.template(&house);
    worker.stop();
    let api = house.api();
    let ask = |size: &str| match size {
        "" => api.destroy("web"),
        size => api.deploy(&Score::new("web").with("db", Tofu.asked(size)).text()),
    };
    let mut outputs = Value::Null;
    for step in ["small", "large", ""] {
        let cramped = cramped_worker(&house);
        let change = ask(step);
        let ended = eventually("it ends", SOON, || Some(api.deployment(&change)).filter(Deployment::is_over));
        assert_eq!(ended.status, "failed", "{step:?} {ended:?} {}", cramped.said());
        let message = ended.error.expect("a reason").message;
        assert!(message.contains("space"), "{step:?} {message}");
        house.is_at_rest();
        drop(cramped);
        let _roomy = house.worker();
        api.succeeded(&ask(step), SOON);
        match step {
            "" => Tofu.is_gone(&outputs),
            size => {
                outputs = house.place.outputs("web", true)["db"].clone();
                Tofu.is_there(&outputs, size);
            }
        }
    }
}

/// A worker whose disk has two pages, which it alone sees.
fn cramped_worker(house: &House) -> Running {
    let folder = house.place.path("small-disk");
    std::fs::create_dir_all(&folder).expect("a folder");
    let script = "mount -t tmpfs -o size=8k none \"$CONDUCTOR_DATA\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c", script, "sh"]);
    let inner = house.place.command(&["worker", "--name", "cramped"]);
    command.arg(inner.get_program()).args(inner.get_args()).env_clear();
    command.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command
        .env("CONDUCTOR_URL", &house.fleet.urls[0])
        .env("CONDUCTOR_TOKEN", house.worker_token())
        .env("CONDUCTOR_DATA", &folder);
    Running::start(&mut command, house.place.path("cramped.log"))
}
