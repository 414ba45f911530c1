//! A place of its own for each test: a folder, an environment, a catalogue, the command line.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Mutex,
    time::{Duration, Instant},
};

use serde_json::Value;
use tempfile::TempDir;

use crate::{Running, World, conductor, keeper};

/// A command that hangs is a failure, not a test that never ends.
const LONGEST: Duration = Duration::from_secs(150);

pub struct Place {
    folder: TempDir,
    settings: Mutex<BTreeMap<String, String>>,
    binary: Mutex<PathBuf>,
    pub world: World,
}

/// What a command said, and how it ended.
#[derive(Debug)]
pub struct Told {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Told {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Everything it said, on either stream.
    pub fn all(&self) -> String {
        format!("{}{}", self.stdout, self.stderr)
    }
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("conductor-test-").tempdir().expect("a folder");
        keeper::keep(&folder.path().display());
        let world = World::new(&folder.path().join("world"));
        let binary = Mutex::new(conductor().to_owned());
        let place = Self { folder, settings: Mutex::default(), binary, world };
        place.set("CONDUCTOR_DATA", &place.path("data").display().to_string());
        place.set("NO_COLOR", "1");
        place
    }

    /// From now on every command and process is this binary.
    pub fn use_release(&self, binary: &Path) {
        *self.binary.lock().expect("a binary") = binary.to_owned();
    }

    pub fn use_this_release(&self) {
        self.use_release(conductor());
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A setting for every command and process started from now on.
    pub fn set(&self, name: &str, value: &str) {
        self.settings.lock().expect("settings").insert(name.to_owned(), value.to_owned());
    }

    pub fn unset(&self, name: &str) {
        self.settings.lock().expect("settings").remove(name);
    }

    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(&path, text).expect("the file can be written");
        path
    }

    pub fn write_program(&self, name: &str, text: &str) -> PathBuf {
        let path = self.write(name, text);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
        path
    }

    /// The binary with this place's settings and nothing of the outer environment but PATH and HOME.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&*self.binary.lock().expect("a binary"));
        command.args(args).current_dir(self.folder()).env_clear();
        for name in ["PATH", "HOME", "USER"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.envs(&*self.settings.lock().expect("settings"));
        command
    }

    #[track_caller]
    pub fn run(&self, args: &[&str]) -> Told {
        self.run_with(args, &[])
    }

    /// As [`Place::run`], with some settings different; an empty one is unset.
    #[track_caller]
    pub fn run_with(&self, args: &[&str], settings: &[(&str, &str)]) -> Told {
        let mut command = self.command(args);
        for (name, value) in settings {
            match value.is_empty() {
                true => command.env_remove(name),
                false => command.env(name, value),
            };
        }
        let began = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let child = child.expect("the binary starts");
        let id = child.id();
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || sender.send(child.wait_with_output()));
        let Ok(output) = receiver.recv_timeout(LONGEST) else {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(id as i32),
                nix::sys::signal::Signal::SIGKILL,
            );
            panic!("conductor {} goes on after {LONGEST:?}", args.join(" "));
        };
        let output = output.expect("its output");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let told = Told {
            code: output.status.code().unwrap_or(-1),
            stdout: text(&output.stdout),
            stderr: text(&output.stderr),
            took: began.elapsed(),
        };
        assert!(!told.stderr.contains("panicked"), "conductor {}: {told:?}", args.join(" "));
        told
    }

    #[track_caller]
    pub fn ok(&self, args: &[&str]) -> Told {
        let told = self.run(args);
        assert_eq!(told.code, 0, "conductor {}: {}", args.join(" "), told.all());
        told
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.ok(&[args, &["-o", "json"]].concat()).json()
    }

    /// Starts a command that goes on; its output goes to `NAME.log`.
    pub fn start(&self, args: &[&str], settings: &[(&str, &str)], name: &str) -> Running {
        let mut command = self.command(args);
        for (name, value) in settings {
            match value.is_empty() {
                true => command.env_remove(name),
                false => command.env(name, value),
            };
        }
        Running::start(&mut command, self.path(&format!("{name}.log")))
    }

    /// Applies a catalogue file of this name.
    #[track_caller]
    pub fn apply(&self, name: &str, text: &str) {
        let file = self.write(&format!("catalog/{name}.yaml"), text);
        self.ok(&["apply", "-f", &file.display().to_string()]);
    }

    /// Applies the template `thing`: what the ledger-keeping program makes.
    #[track_caller]
    pub fn apply_things(&self) {
        self.apply("thing", &self.world.template("thing", ""));
    }

    #[track_caller]
    pub fn deploy(&self, score: &str) -> Value {
        let file = self.score_file(score);
        self.json(&["deploy", "-f", &file, "--env", "dev"])
    }

    /// Deploys what must not work; the exit code is checked to be 1.
    #[track_caller]
    pub fn deploy_in_vain(&self, score: &str) -> Told {
        let file = self.score_file(score);
        let told = self.run(&["deploy", "-f", &file, "--env", "dev", "-o", "json"]);
        assert_eq!(told.code, 1, "{told:?}");
        told
    }

    #[track_caller]
    pub fn plan(&self, score: &str) -> Value {
        let file = self.score_file(score);
        self.json(&["plan", "-f", &file, "--env", "dev"])
    }

    #[track_caller]
    pub fn destroy(&self, application: &str) -> Value {
        self.json(&["destroy", "--app", application, "--env", "dev", "--yes"])
    }

    #[track_caller]
    pub fn outputs(&self, application: &str, reveal: bool) -> Value {
        let reveal: &[&str] = if reveal { &["--reveal"] } else { &[] };
        self.json(&[&["outputs", application, "--env", "dev"], reveal].concat())
    }

    /// Resources that are not gone.
    #[track_caller]
    pub fn resources(&self) -> Vec<Value> {
        let all = self.json(&["resources", "list", "--env", "dev"]);
        let all = all.as_array().expect("an array").clone();
        all.into_iter().filter(|resource| resource["phase"] != "Deleted").collect()
    }

    /// Every file below the folder but the world's, which is the provider's own.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        collect(self.folder(), &self.world.folder, &mut found);
        found
    }

    fn score_file(&self, score: &str) -> String {
        use std::sync::atomic::{AtomicUsize, Ordering};
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        self.write(&format!("score-{number}.yaml"), score).display().to_string()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        keeper::forget(&self.folder().display());
    }
}

fn collect(folder: &Path, but: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() && path != but => collect(&path, but, found),
            Ok(kind) if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}
