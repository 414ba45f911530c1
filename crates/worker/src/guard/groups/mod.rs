//! Control groups: how much memory, CPU and how many processes a program's tree may have, kept by the kernel.
//!
//! ```text
//! the group this process is in
//! ├─ conductor-main          worker and guard, where version 2 wants them out of the way
//! └─ conductor-PID           one per guard; locked while it lives, so that others can tell who is dead
//!    └─ NUMBER               one per program
//! ```
//! Version 2 or 1 is used, for each controller on its own, where the group we are in may be divided: it is
//! the root, or nobody but this worker is in it. What others share is theirs to divide.

mod group;
mod mounts;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use nix::unistd;

use crate::{limits::Limits, sandbox::SWITCHED_OFF};
pub use group::Group;
pub use mounts::{Controller, Version};
use mounts::{Place, places};

const PREFIX: &str = "conductor-";
const MAIN: &str = "conductor-main";

/// A tree of groups that programs are put into.
struct Base {
    version: Version,
    controllers: Vec<Controller>,
    folder: PathBuf,
    /// Held for as long as the guard lives.
    _lock: File,
}

/// What this guard may use.
#[derive(Default)]
pub struct Groups {
    bases: Vec<Base>,
    /// Why something cannot be used.
    refusals: Vec<(Controller, String)>,
}

impl Groups {
    pub fn switched_off() -> Self {
        let refusals = Controller::ALL.map(|controller| (controller, SWITCHED_OFF.to_owned()));
        Self { bases: Vec::new(), refusals: refusals.into() }
    }

    pub fn find() -> Self {
        let read = |name: &str| fs::read_to_string(format!("/proc/self/{name}")).unwrap_or_default();
        let ours = [unistd::getpid().as_raw(), unistd::getppid().as_raw()];
        Self::find_in(&places(&read("mountinfo"), &read("cgroup")), &ours).tried()
    }

    /// Only what can really be set is said to be in force.
    fn tried(self) -> Self {
        let mut found = Self { bases: Vec::new(), refusals: self.refusals };
        for base in self.bases {
            let mut trial = Group::default();
            match trial.add(base.version, &base.folder.join("trial"), &base.controllers, &Limits::default()) {
                Ok(()) => found.bases.push(base),
                Err(error) => {
                    drop(trial);
                    remove(&base.folder);
                    let refused = base.controllers.iter().map(|controller| (*controller, error.to_string()));
                    found.refusals.extend(refused);
                }
            }
        }
        found
    }

    /// `ours`: the processes that may be moved out of the way.
    fn find_in(places: &[Place], ours: &[i32]) -> Self {
        let mut found = Self::default();
        // Version 2 first: what it has, version 1 has not.
        let (two, one): (Vec<_>, Vec<_>) = places.iter().partition(|place| place.version == Version::Two);
        for place in two.into_iter().chain(one) {
            let place = above_main(place);
            let wanted: Vec<Controller> = offered(&place)
                .into_iter()
                .filter(|controller| found.version(*controller).is_none())
                .collect();
            if wanted.is_empty() {
                continue;
            }
            match Base::open(&place, &wanted, ours) {
                Ok(base) => found.bases.push(base),
                Err(error) => {
                    found.refusals.extend(wanted.into_iter().map(|one| (one, error.to_string())));
                }
            }
        }
        found
    }

    /// The version that serves a controller, if any does.
    pub fn version(&self, controller: Controller) -> Option<Version> {
        self.bases.iter().find(|base| base.controllers.contains(&controller)).map(|base| base.version)
    }

    /// Why a controller cannot be used.
    pub fn refusal(&self, controller: Controller) -> String {
        match self.refusals.iter().find(|(refused, _)| *refused == controller) {
            Some((_, why)) => why.clone(),
            None => format!("no control group has {}", controller.name()),
        }
    }

    /// Groups for one program, with its limits set.
    pub fn make(&self, number: u64, limits: &Limits) -> io::Result<Group> {
        let mut group = Group::default();
        for base in &self.bases {
            group.add(base.version, &base.folder.join(number.to_string()), &base.controllers, limits)?;
        }
        Ok(group)
    }

    /// Takes away what this guard made. Programs must be gone.
    pub fn remove(&self) {
        self.bases.iter().for_each(|base| remove(&base.folder));
    }
}

impl Base {
    fn open(place: &Place, controllers: &[Controller], ours: &[i32]) -> io::Result<Self> {
        match place.version {
            Version::Two => enable(place, controllers, ours)?,
            Version::One if place.is_root || strangers(&place.path, ours)?.is_empty() => {}
            Version::One => return Err(shared(&place.path)),
        }
        sweep(&place.path);
        let folder = place.path.join(format!("{PREFIX}{}", unistd::getpid()));
        let explain = |error: io::Error| {
            io::Error::new(
                error.kind(),
                format!("no control group can be made in {}: {error}", place.path.display()),
            )
        };
        fs::create_dir(&folder).map_err(explain)?;
        let lock = File::open(&folder).map_err(explain)?;
        lock.lock().map_err(explain)?;
        if place.version == Version::Two {
            switch_on(&folder, controllers).map_err(explain)?;
        }
        Ok(Self { version: place.version, controllers: controllers.to_vec(), folder, _lock: lock })
    }
}

/// A guard that comes after another finds itself in the folder that the first one made for it.
fn above_main(place: &Place) -> Place {
    match (place.path.ends_with(MAIN), place.path.parent()) {
        (true, Some(parent)) => Place { path: parent.to_owned(), ..place.clone() },
        _ => place.clone(),
    }
}

fn offered(place: &Place) -> Vec<Controller> {
    match place.version {
        Version::One => place.controllers.clone(),
        Version::Two => listed(&place.path.join("cgroup.controllers")),
    }
}

fn listed(file: &Path) -> Vec<Controller> {
    let text = fs::read_to_string(file).unwrap_or_default();
    Controller::ALL.into_iter().filter(|one| text.split_whitespace().any(|name| name == one.name())).collect()
}

/// Hands controllers down to the groups below. Only groups without processes may do so, save for the root.
fn enable(place: &Place, controllers: &[Controller], ours: &[i32]) -> io::Result<()> {
    let enabled = listed(&place.path.join("cgroup.subtree_control"));
    if controllers.iter().all(|controller| enabled.contains(controller)) {
        return Ok(());
    }
    if !strangers(&place.path, ours)?.is_empty() {
        return Err(shared(&place.path));
    }
    let inside = members(&place.path)?;
    if !inside.is_empty() {
        let main = place.path.join(MAIN);
        if !main.is_dir() {
            fs::create_dir(&main)?;
        }
        for pid in inside {
            fs::write(main.join("cgroup.procs"), pid.to_string())?;
        }
    }
    switch_on(&place.path, controllers)
}

fn switch_on(folder: &Path, controllers: &[Controller]) -> io::Result<()> {
    let words: Vec<String> = controllers.iter().map(|one| format!("+{}", one.name())).collect();
    fs::write(folder.join("cgroup.subtree_control"), words.join(" "))
}

fn members(folder: &Path) -> io::Result<Vec<i32>> {
    let text = fs::read_to_string(folder.join("cgroup.procs"))?;
    Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
}

fn strangers(folder: &Path, ours: &[i32]) -> io::Result<Vec<i32>> {
    Ok(members(folder)?.into_iter().filter(|pid| !ours.contains(pid)).collect())
}

fn shared(folder: &Path) -> io::Error {
    io::Error::other(format!("other processes are in the control group {}", folder.display()))
}

/// Removes what guards left that could not do so themselves.
fn sweep(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let left = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
        if left.is_some_and(|owner| owner.parse::<i32>().is_ok())
            && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok())
        {
            remove(&entry.path());
        }
    }
}

/// A group's files go with it.
fn remove(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests;
