//! The shapes Conductor runs in, so that one story can be told on all of them.

use crate::{Api, Database, Place, Running, conductor, eventually, postgres, postgres::free_port, seconds};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every command runs the engine itself, on this folder's SQLite.
    Embedded,
    /// `conductor up`, all in one process; `workers` more come over HTTP.
    Up { workers: usize },
    /// `conductor server` on SQLite with workers over HTTP.
    FleetSqlite { workers: usize },
    /// Several servers on one PostgreSQL database, workers spread over them.
    FleetPostgres { servers: usize, workers: usize },
}

/// A place with Conductor running in it, in some shape.
pub struct House {
    // Before the place: the processes go before their folder does.
    pub fleet: Fleet,
    pub place: Place,
    pub database: Option<Database>,
}

#[derive(Default)]
pub struct Fleet {
    pub servers: Vec<Running>,
    pub workers: Vec<Running>,
    pub urls: Vec<String>,
    pub token: String,
    worker_token: String,
}

impl House {
    pub fn new(shape: Shape) -> Self {
        Self::with(shape, &[])
    }

    pub fn with_lease(shape: Shape, lease: &str) -> Self {
        Self::of_release(shape, lease, conductor())
    }

    /// With these settings for every process.
    pub fn with(shape: Shape, settings: &[(&str, &str)]) -> Self {
        Self::prepared(shape, |place| settings.iter().for_each(|(name, value)| place.set(name, value)))
    }

    /// In a place that was made ready before anything runs in it.
    pub fn prepared(shape: Shape, prepare: impl FnOnce(&Place)) -> Self {
        Self::build(shape, prepare, None)
    }

    /// All of it processes of another binary.
    pub fn of_release(shape: Shape, lease: &str, binary: &std::path::Path) -> Self {
        Self::prepared(shape, |place| {
            place.use_release(binary);
            place.set("CONDUCTOR_LEASE", lease);
        })
    }

    /// On a database of one's own.
    pub fn on(shape: Shape, lease: &str, database: Database) -> Self {
        Self::build(shape, |place| place.set("CONDUCTOR_LEASE", lease), Some(database))
    }

    fn build(shape: Shape, prepare: impl FnOnce(&Place), database: Option<Database>) -> Self {
        let place = Place::new();
        place.set("CONDUCTOR_LEASE", "30s");
        prepare(&place);
        let mut house = Self { fleet: Fleet::default(), place, database: None };
        let (servers, workers) = match shape {
            Shape::Embedded => return house,
            Shape::Up { workers } | Shape::FleetSqlite { workers } => (1, workers),
            Shape::FleetPostgres { servers, workers } => {
                house.database = Some(database.unwrap_or_else(|| postgres().database()));
                (servers, workers)
            }
        };
        house.fleet.token = format!("test-admin-{}", free_port());
        for _ in 0..servers {
            house.fleet.urls.push(format!("http://127.0.0.1:{}", free_port()));
        }
        for number in 0..servers {
            let server = house.start_server(shape, number);
            house.fleet.servers.push(server);
        }
        house.place.set("CONDUCTOR_URL", &house.fleet.urls[0]);
        house.place.set("CONDUCTOR_TOKEN", &house.fleet.token);
        let made = house.place.json(&["tokens", "create", "--role", "worker", "--name", "workers"]);
        house.fleet.worker_token = made["token"].as_str().expect("a token").to_owned();
        for number in 0..workers {
            let worker = house.start_worker(&house.fleet.urls[number % servers].clone());
            house.fleet.workers.push(worker);
        }
        house
    }

    /// Starts a server, for the first time or again, and waits until it is ready.
    pub fn start_server(&self, shape: Shape, number: usize) -> Running {
        let (url, place) = (&self.fleet.urls[number], &self.place);
        let address = url.replace("http://", "");
        let data = place.path(&format!("server-{number}")).display().to_string();
        let key = place.path("key").display().to_string();
        let database = self.database_url();
        let settings = [
            ("CONDUCTOR_LISTEN", address.as_str()),
            ("CONDUCTOR_DATA", &data),
            ("CONDUCTOR_KEY_FILE", &key),
            ("CONDUCTOR_DATABASE_URL", &database),
            ("CONDUCTOR_ADMIN_TOKEN", &self.fleet.token),
        ];
        let args: &[&str] = match shape {
            Shape::Up { .. } => &["up"],
            _ => &["server", "--migrate"],
        };
        let mut server = place.start(args, &settings, &format!("server-{number}"));
        let api = Api::new(url, &self.fleet.token);
        eventually("the server is ready", seconds(30), || {
            assert!(!server.is_over(), "the server ended: {}", server.said());
            api.is_ready().then_some(())
        });
        server
    }

    /// A worker that knows an address and a worker's token, and nothing else.
    pub fn start_worker(&self, url: &str) -> Running {
        self.start_worker_with(url, "4")
    }

    /// As [`House::start_worker`], for so many operations at once.
    pub fn start_worker_with(&self, url: &str, slots: &str) -> Running {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let name = format!("worker-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let data = self.place.path(&name).display().to_string();
        let settings = [
            ("CONDUCTOR_URL", url),
            ("CONDUCTOR_TOKEN", &self.fleet.worker_token),
            ("CONDUCTOR_DATA", &data),
            ("CONDUCTOR_LEASE", ""),
            ("CONDUCTOR_WORKERS", slots),
        ];
        self.place.start(&["worker", "--name", &name], &settings, &name)
    }

    /// A worker at the first server.
    pub fn worker(&self) -> Running {
        self.start_worker(&self.fleet.urls[0])
    }

    pub fn worker_token(&self) -> &str {
        &self.fleet.worker_token
    }

    /// The first server, as its administrator.
    pub fn api(&self) -> Api {
        self.api_at(0)
    }

    pub fn api_at(&self, number: usize) -> Api {
        Api::new(&self.fleet.urls[number], &self.fleet.token)
    }

    fn database_url(&self) -> String {
        match &self.database {
            Some(database) => database.url.clone(),
            None => format!("sqlite:{}", self.place.path("data/conductor.db").display()),
        }
    }

    /// Asks the database itself, behind Conductor's back: the one number a query gives.
    #[track_caller]
    pub fn count(&self, sql: &str) -> i64 {
        if let Some(database) = &self.database {
            return database.query(sql)[0][0].parse().expect("a number");
        }
        let file = self.place.path("data/conductor.db");
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
        let connection = rusqlite::Connection::open_with_flags(file, flags).expect("the database");
        connection.query_row(sql, [], |row| row.get(0)).expect("a number")
    }

    /// Changes the database itself, behind Conductor's back.
    #[track_caller]
    pub fn execute(&self, sql: &str) {
        if let Some(database) = &self.database {
            database.query(sql);
            return;
        }
        let connection =
            rusqlite::Connection::open(self.place.path("data/conductor.db")).expect("the database");
        connection.busy_timeout(seconds(10)).expect("a time limit");
        connection.execute_batch(sql).expect("the statement");
    }

    /// As [`House::execute`], of what the database itself may refuse: what it says then.
    #[track_caller]
    pub fn refusal(&self, sql: &str) -> Option<String> {
        if let Some(database) = &self.database {
            return database.refusal(sql);
        }
        let connection =
            rusqlite::Connection::open(self.place.path("data/conductor.db")).expect("the database");
        connection.busy_timeout(seconds(10)).expect("a time limit");
        connection.execute_batch(sql).err().map(|error| error.to_string())
    }

    /// Nothing lives: no resource, no thing, no lock, no operation under way. What a change left to another change of
    /// its own, such as the collection of what nobody uses, may take a moment.
    #[track_caller]
    pub fn is_empty(&self) {
        let began = std::time::Instant::now();
        while self.open() > 0 && began.elapsed() < seconds(10) {
            std::thread::sleep(std::time::Duration::from_millis(25));
        }
        assert_eq!(self.place.resources(), Vec::<serde_json::Value>::new());
        assert!(self.place.world.things().is_empty(), "{:?}", self.place.world.things());
        self.is_at_rest();
    }

    /// Nothing is under way and nothing is locked.
    #[track_caller]
    pub fn is_at_rest(&self) {
        assert_eq!(self.open(), 0, "changes or operations are open");
        assert_eq!(self.count("SELECT count(*) FROM state_locks"), 0, "a state is locked");
    }

    /// How many changes and operations are not over.
    pub fn open(&self) -> i64 {
        self.count("SELECT count(*) FROM operations WHERE status IN ('queued', 'blocked', 'in_progress')")
            + self.count("SELECT count(*) FROM changes WHERE status IN ('pending', 'in_progress')")
    }
}
