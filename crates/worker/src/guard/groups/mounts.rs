//! Where this process stands in the trees of control groups, read from /proc.

use std::path::{Path, PathBuf};

/// What is wanted of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    Memory,
    Cpu,
    Pids,
}

impl Controller {
    pub const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    One,
    Two,
}

/// The group this process is in, in one of the trees that are mounted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub version: Version,
    pub path: PathBuf,
    /// Nothing is above it that could be seen.
    pub is_root: bool,
    /// What the tree of version 1 is for; one of version 2 says so in a file.
    pub controllers: Vec<Controller>,
}

/// `mountinfo` and `cgroup` as in /proc/self.
pub fn places(mountinfo: &str, cgroup: &str) -> Vec<Place> {
    mountinfo.lines().filter_map(|line| place(line, cgroup)).collect()
}

/// A line is `ID PARENT DEVICE ROOT TARGET OPTIONS [FIELDS…] - TYPE SOURCE SUPER-OPTIONS`.
fn place(line: &str, cgroup: &str) -> Option<Place> {
    let (mount, system) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, target) = (plain(mount.next()?), plain(mount.next()?));
    let mut system = system.split(' ');
    let (kind, options) = (system.next()?, system.nth(1).unwrap_or_default());
    let options: Vec<&str> = options.split(',').collect();
    let (version, own) = match kind {
        "cgroup2" => (Version::Two, member_of(cgroup, |names| names.is_empty())?),
        "cgroup" => {
            let same = |names: &str| names.split(',').any(|name| options.contains(&name));
            (Version::One, member_of(cgroup, same)?)
        }
        _ => return None,
    };
    let controllers = match version {
        Version::One => Controller::ALL.into_iter().filter(|one| options.contains(&one.name())).collect(),
        Version::Two => Vec::new(),
    };
    // A container may have only its own part mounted.
    let below = Path::new(own).strip_prefix(&root).ok()?;
    let path = Path::new(&target).join(below);
    Some(Place { version, path, is_root: below.as_os_str().is_empty(), controllers })
}

/// The path in the line `ID:NAMES:PATH` whose names fit.
fn member_of(cgroup: &str, fits: impl Fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (names, path) = rest.split_once(':')?;
        fits(names).then_some(path)
    })
}

/// Spaces and the like are written as octal numbers.
fn plain(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, sign)| text.replace(code, sign))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_of_systemd_stands_in_its_own_group() {
        let mountinfo = "24 23 0:5 / /proc rw - proc proc rw\n\
             30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = places(mountinfo, "0::/system.slice/conductor.service\n");
        let path = PathBuf::from("/sys/fs/cgroup/system.slice/conductor.service");
        assert_eq!(found, [Place { version: Version::Two, path, is_root: false, controllers: vec![] }]);
    }

    #[test]
    fn both_versions_side_by_side() {
        let mountinfo = "30 23 0:26 / /sys/fs/cgroup/unified rw shared:9 - cgroup2 cgroup2 rw\n\
             31 23 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             32 23 0:28 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             33 23 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
        let cgroup = "5:memory:/a\\b/job\n3:cpu,cpuacct:/\n1:name=systemd:/x\n0::/\n";
        let found = places(mountinfo, cgroup);
        let seen: Vec<_> = found.iter().map(|one| (one.path.to_str().unwrap(), one.is_root)).collect();
        assert_eq!(
            seen,
            [
                ("/sys/fs/cgroup/unified/", true),
                ("/sys/fs/cgroup/cpu,cpuacct/", true),
                ("/sys/fs/cgroup/memory/a\\b/job", false),
                ("/sys/fs/cgroup/systemd/x", false),
            ]
        );
        assert_eq!(found[1].controllers, [Controller::Cpu]);
        assert_eq!(found[2].controllers, [Controller::Memory]);
        assert_eq!(found[3].controllers, []);
    }

    #[test]
    fn a_container_sees_its_own_part_as_the_root() {
        let mountinfo = "31 23 0:27 /docker/abc /sys/fs/cgroup/pids ro - cgroup cgroup rw,pids\n";
        let found = places(mountinfo, "3:pids:/docker/abc\n");
        assert_eq!(found[0].path, Path::new("/sys/fs/cgroup/pids/"));
        assert!(found[0].is_root);
        assert_eq!(places(mountinfo, "3:pids:/elsewhere\n"), []);
    }
}
