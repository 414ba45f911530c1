//! The engine: use cases, one transaction each, and the tasks that keep things moving.
//!
//! It knows no HTTP and starts no programs: servers, embedded commands, tests and simulation use it as it is.

mod access;
mod alerts;
mod approvals;
mod audit;
mod bootstrap;
mod catalogue;
mod changes;
mod claims;
mod clock;
mod completion;
mod consumers;
mod credentials;
mod drift;
mod hand;
mod identity;
mod integration_rules;
mod integrations;
mod lifetimes;
mod link;
mod log_keeping;
mod logs;
mod matching;
mod metrics;
mod operation_tokens;
mod owners;
mod planning;
mod pools;
mod previews;
mod progress;
mod promotion;
mod proposals;
mod queues;
mod refusal;
mod rights;
mod states;
mod steps;
mod sweep;
mod teardown;
mod templates;
mod trials;
mod turns;
mod views;

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use conductor_domain::{
    ids::{ChangeId, DomainId, Ids, OrganisationId, TemplateVersionId, WorkerId},
    lifecycle::{ChangeKind, ChangeStatus},
};
use conductor_store::{Db, OpenOptions, changes::NewChange, objects::Objects};
use uuid::Uuid;

pub use alerts::{ALERTS, AlertSettings, Webhook};
pub use audit::AuditQuery;
pub use clock::{Clock, RandomIds, SystemClock};
pub use conductor_store::{BUCKETS, Histogram};
pub use conductor_store::{Error, Result, in_request, sight::Sight};
pub use log_keeping::LogKeeping;
pub use metrics::{Gauges, Metrics};
pub use operation_tokens::PoolStanding;
pub use refusal::{PROBLEMS, refuse, refuse_all};
pub use rights::{Grant, Principal, Role};
pub use states::Workspace;
pub use views::{LogQuery, Query};

#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// `sqlite:PATH` or `postgres://…`.
    pub url: String,
    pub key: Option<String>,
    pub key_file: PathBuf,
    /// Where this process keeps what is its own.
    pub data: PathBuf,
    pub migrate: bool,
    pub connections: usize,
    pub lease: Duration,
    /// Serve workloads with the built-in template where no other is applied.
    pub default_workload: bool,
    /// Several processes share the database file; each answers for its own changes.
    pub embedded: bool,
    /// Where others reach this server: the issuer of its identity tokens.
    pub public_url: Option<String>,
    /// Where bodies of terraform state go that are not to be in the database: `file:///FOLDER`, `s3://…` and so on.
    pub state_store: Option<String>,
}

/// What never changes while the engine runs, cheap to clone into a use case.
#[derive(Clone)]
pub(crate) struct Context {
    pub organisation: OrganisationId,
    pub organisation_name: String,
    pub organisation_domain: DomainId,
    pub default_workload: Option<TemplateVersionId>,
    /// What stands for a template where there is none: somebody else looks after the resource.
    pub registered: TemplateVersionId,
    pub owner: Option<Uuid>,
    pub lease: Duration,
    pub clock: Arc<dyn Clock>,
    pub ids: Arc<dyn Ids>,
    pub templates: Arc<templates::Cache>,
    /// Without a slash at its end.
    pub public_url: Option<String>,
    /// There is a webhook to tell people by.
    pub tells: Arc<AtomicBool>,
}

impl Context {
    pub fn now(&self) -> i64 {
        self.clock.now()
    }

    /// A change that belongs to nobody yet and asks for nothing; whoever makes it says what is otherwise.
    pub fn change(&self, id: ChangeId, kind: ChangeKind, actor: &str, now: i64) -> NewChange {
        NewChange {
            id,
            organisation: self.organisation,
            kind,
            environment: None,
            application: None,
            status: ChangeStatus::Pending,
            slot: None,
            parent: None,
            owner: self.owner,
            actor: actor.to_owned(),
            commit: None,
            request: serde_json::json!({}),
            timeout_at: None,
            now,
        }
    }
}

pub struct Engine {
    pub(crate) db: Db,
    pub(crate) context: Context,
    pub(crate) owners: Option<owners::Owners>,
    worker: WorkerId,
    pub(crate) reaper: Mutex<sweep::Reaper>,
    /// Leases taken from workers that were lost.
    pub(crate) reaped: AtomicU64,
    pub(crate) gauges: metrics::Kept,
    pub(crate) turns: turns::Turns,
    pub(crate) objects: Option<Objects>,
    pub(crate) objects_swept: Mutex<Option<std::time::Instant>>,
    /// By token hash, for a moment.
    pub(crate) principals: Mutex<HashMap<Vec<u8>, (Principal, std::time::Instant)>>,
    /// When each worker was last noted as alive.
    pub(crate) seen: Mutex<BTreeMap<WorkerId, (std::time::Instant, serde_json::Value)>>,
    /// Where logs of what is over are kept, if not in the database.
    log_objects: OnceLock<Objects>,
    /// Environments whose end was told of.
    pub(crate) warned: Mutex<std::collections::BTreeSet<conductor_domain::ids::EnvironmentId>>,
    /// How many versions of each state stay; all, without a number.
    state_versions: OnceLock<i64>,
    draining: AtomicBool,
    pub key_made: bool,
    pub migrated: bool,
}

/// Later than this is no answer, for those who ask whether we are ready.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

impl Engine {
    /// Opens the database and makes what every installation has. Blocking.
    pub fn open(options: EngineOptions) -> Result<Arc<Self>> {
        Self::open_with(options, Arc::new(SystemClock), Arc::new(RandomIds))
    }

    /// As [`Engine::open`], with a clock and ids of one's own.
    pub fn open_with(options: EngineOptions, clock: Arc<dyn Clock>, ids: Arc<dyn Ids>) -> Result<Arc<Self>> {
        let objects = options.state_store.as_deref().map(Objects::open).transpose()?;
        let opened = OpenOptions {
            url: options.url.clone(),
            key: options.key.clone(),
            key_file: options.key_file.clone(),
            migrate: options.migrate,
            connections: options.connections,
        }
        .open()?;
        let process = ids.next();
        let owners = if options.embedded { Some(owners::Owners::new(&options.data, process)?) } else { None };
        let start = bootstrap::run(&opened.db, clock.as_ref(), ids.clone())?;
        let context = Context {
            organisation: start.organisation,
            organisation_name: start.organisation_name,
            organisation_domain: start.organisation_domain,
            default_workload: options.default_workload.then_some(start.workload),
            tells: Arc::default(),
            registered: start.registered,
            owner: options.embedded.then_some(process),
            lease: options.lease,
            clock,
            ids,
            templates: Arc::default(),
            public_url: options.public_url.map(|url| url.trim_end_matches('/').to_owned()),
        };
        Ok(Arc::new(Self {
            db: opened.db,
            context,
            owners,
            worker: WorkerId(process),
            reaper: Mutex::default(),
            reaped: AtomicU64::new(0),
            gauges: metrics::Kept::default(),
            turns: turns::Turns::default(),
            objects,
            objects_swept: Mutex::default(),
            principals: Mutex::default(),
            seen: Mutex::default(),
            log_objects: OnceLock::new(),
            warned: Mutex::default(),
            state_versions: OnceLock::new(),
            draining: AtomicBool::new(false),
            key_made: opened.key_made,
            migrated: opened.migrated,
        }))
    }

    /// The id an in-process worker must use: its death is noticed by the lock this process holds.
    pub fn worker_id(&self) -> WorkerId {
        self.worker
    }

    pub fn organisation(&self) -> &str {
        &self.context.organisation_name
    }

    pub fn is_postgres(&self) -> bool {
        self.db.is_postgres()
    }

    /// Whether this process can take work: `Err` says why not.
    pub async fn ready(&self) -> std::result::Result<(), &'static str> {
        if self.is_draining() {
            return Err("it is about to stop");
        }
        let look = self.db.read(|tx| tx.schema_fits());
        match tokio::time::timeout(ANSWER_WITHIN, look).await {
            Ok(Ok(true)) => Ok(()),
            Ok(Ok(false)) => Err("the database has another schema than this program"),
            Ok(Err(_)) | Err(_) => Err("the database does not answer"),
        }
    }

    /// Keeps logs of what is over at this address, and reads them there. Once, before anything else.
    pub fn keep_logs_at(&self, url: &str) -> Result<()> {
        // A second address would change nothing.
        let _ = self.log_objects.set(Objects::open(url)?);
        Ok(())
    }

    pub(crate) fn objects(&self) -> Result<&Objects> {
        self.log_objects.get().ok_or_else(|| {
            refuse(
                conductor_domain::lifecycle::ErrorCode::Failed,
                "this log was moved out of the database: set CONDUCTOR_LOG_STORE to where it is",
            )
        })
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// From here on nothing new should be sent here; what comes is still answered.
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
}
