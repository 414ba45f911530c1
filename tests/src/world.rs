//! The world outside: a program for the `command` manager that makes things (files) and keeps a ledger of every run.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;

use crate::tools::python;

const PROGRAM: &str = include_str!("thing.py");
/// Runs beat every 20 ms; a pause this long is the end.
const SILENCE: Duration = Duration::from_millis(600);

#[derive(Clone, Debug)]
pub struct World {
    pub folder: PathBuf,
}

/// One run of the program, as the ledger tells it.
#[derive(Clone, Debug)]
pub struct Run {
    pub id: String,
    pub step: String,
    pub resource: String,
    pub note: String,
    pub operation: String,
    pub attempt: i64,
    /// Its parameters, and the outputs of what it depends on, by requirement.
    pub given: Value,
    pub handed: Value,
    pub began: f64,
    /// When it ended and how: `done`, `failed` or `busy`; none for one that was killed.
    pub end: Option<(f64, String)>,
    /// Its last sign of life.
    pub last: f64,
}

impl World {
    pub fn new(folder: &Path) -> Self {
        for name in ["things", "beats"] {
            fs::create_dir_all(folder.join(name)).expect("a folder");
        }
        let (python, _) = python();
        let program = folder.join("thing.py");
        fs::write(&program, format!("#!{python} -IS\n{PROGRAM}")).expect("the program");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("permissions");
        Self { folder: folder.to_owned() }
    }

    /// A template served by the program. `more` is put into its parameters' properties, two levels deep.
    pub fn template(&self, name: &str, more: &str) -> String {
        let folder = self.folder.display();
        let (_, read) = python();
        let read = serde_json::to_string(&read).expect("JSON");
        format!(
            "kind: Template\nname: {name}\ntype: {name}\nversion: 1.0.0\nmanager: command\nconfig:\n  \
             program: {folder}/thing.py\n  protocol: conductor\n  retries: 4\n  grace: 2s\n  \
             allow: {{ read: {read}, write: [\"{folder}\"] }}\nparameters:\n  type: object\n  properties:\n    \
             world: {{ type: string, default: \"{folder}\" }}\n    note: {{ type: string }}\n    \
             takes: {{ type: number }}\n    deleteTakes: {{ type: number }}\n    breaks: {{ type: string }}\n    \
             busy: {{ type: integer }}\n    secret: {{ type: boolean }}\n    says: {{ type: string }}\n    \
             lines: {{ type: integer }}\n    wide: {{ type: integer }}\n    stubborn: {{ type: boolean }}\n    any: {{}}\n{more}"
        )
    }

    /// The things there are, by resource.
    pub fn things(&self) -> BTreeMap<String, Value> {
        let entries = fs::read_dir(self.folder.join("things")).expect("the things");
        entries
            .map(|entry| entry.expect("a thing").path())
            .filter(|path| path.extension().is_none())
            .map(|path| {
                let name = path.file_name().expect("a name").to_string_lossy().into_owned();
                let text = fs::read_to_string(&path).unwrap_or_default();
                (name, serde_json::from_str(&text).unwrap_or_default())
            })
            .collect()
    }

    /// Every run there ever was, in the order they began.
    pub fn runs(&self) -> Vec<Run> {
        let text = fs::read_to_string(self.folder.join("ledger")).unwrap_or_default();
        let mut runs: Vec<Run> = Vec::new();
        for line in text.lines() {
            let Ok(entry) = serde_json::from_str::<Value>(line) else {
                continue;
            };
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            let (id, at) = (text("run"), entry["at"].as_f64().expect("a time"));
            match entry["event"].as_str() {
                Some("begin") => runs.push(Run {
                    last: self.last_beat(&id).max(at),
                    id,
                    step: text("step"),
                    resource: text("resource"),
                    note: text("note"),
                    operation: text("operation"),
                    attempt: entry["attempt"].as_i64().unwrap_or(0),
                    given: entry["given"].clone(),
                    handed: entry["handed"].clone(),
                    began: at,
                    end: None,
                }),
                Some(how) => {
                    if let Some(run) = runs.iter_mut().find(|run| run.id == id) {
                        run.last = run.last.max(at);
                        run.end = Some((at, how.to_owned()));
                    }
                }
                None => {}
            }
        }
        runs
    }

    /// From now on nothing that runs comes to its end, until it is let go.
    pub fn hold(&self) {
        self.trouble("held", "");
    }

    /// As [`World::hold`], of those with this note alone.
    pub fn hold_only(&self, note: &str) {
        self.trouble("held", note);
    }

    pub fn let_go(&self) {
        self.calm("held");
    }

    /// `broken`: nothing is made or changed; `jammed`: nothing goes. For this reason, until it is calm.
    pub fn trouble(&self, what: &str, reason: &str) {
        fs::write(self.folder.join(what), reason).expect("the world can be changed");
    }

    pub fn calm(&self, what: &str) {
        fs::remove_file(self.folder.join(what)).expect("there was trouble");
    }

    /// Where a thing is.
    pub fn thing(&self, resource: &str) -> PathBuf {
        self.folder.join("things").join(resource)
    }

    fn last_beat(&self, run: &str) -> f64 {
        let text = fs::read_to_string(self.folder.join("beats").join(run)).unwrap_or_default();
        text.trim().parse().unwrap_or(0.0)
    }

    /// The steps that came to a good end, with the note each had.
    pub fn done(&self) -> Vec<(String, String)> {
        let mut done: Vec<(f64, String, String)> = self
            .runs()
            .into_iter()
            .filter_map(|run| match run.end {
                Some((at, how)) if how == "done" => Some((at, run.step, run.note)),
                _ => None,
            })
            .collect();
        done.sort_by(|one, other| one.0.total_cmp(&other.0));
        done.into_iter().map(|(_, step, note)| (step, note)).collect()
    }

    /// How often a step was begun.
    pub fn begun(&self, step: &str) -> usize {
        self.runs().iter().filter(|run| run.step == step).count()
    }

    /// The steps that ended well, without their notes.
    pub fn steps(&self) -> Vec<String> {
        self.done().into_iter().map(|(step, _)| step).collect()
    }

    /// Waits until some run has begun, and gives the first that has not ended.
    #[track_caller]
    pub fn wait_for_a_run(&self) -> Run {
        crate::eventually("a program begins", crate::seconds(30), || {
            self.runs().into_iter().find(|run| run.end.is_none())
        })
    }

    /// No run shows a sign of life, and no process of one is there.
    #[track_caller]
    pub fn is_quiet(&self) {
        let beats = |runs: Vec<Run>| runs.into_iter().map(|run| (run.id, run.last)).collect::<Vec<_>>();
        let before = beats(self.runs());
        std::thread::sleep(SILENCE);
        assert_eq!(before, beats(self.runs()), "a program is still running");
    }

    /// No two runs for one resource overlapped. What has no end in the ledger was killed: its last beat is its end.
    #[track_caller]
    pub fn never_two_at_once(&self) {
        let mut last: BTreeMap<String, Run> = BTreeMap::new();
        for run in self.runs() {
            if let Some(before) = last.get(&run.resource) {
                assert!(before.last <= run.began, "two programs at once: {before:?} and {run:?}");
            }
            last.insert(run.resource.clone(), run);
        }
    }
}
