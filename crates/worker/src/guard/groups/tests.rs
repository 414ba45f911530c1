//! On folders that look like trees of groups, for what a machine may not have. Real groups are tested with
//! real programs.

use super::*;

const WORKER: i32 = 10;
const GUARD: i32 = 11;
const STRANGER: i32 = 12;

/// A folder with the files of a group.
fn group(controllers: &str, members: &[i32]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let lines: Vec<String> = members.iter().map(i32::to_string).collect();
    fs::write(folder.path().join("cgroup.controllers"), controllers).unwrap();
    fs::write(folder.path().join("cgroup.subtree_control"), "").unwrap();
    fs::write(folder.path().join("cgroup.procs"), lines.join("\n")).unwrap();
    folder
}

fn place(version: Version, path: &Path, controllers: &[Controller]) -> Place {
    Place { version, path: path.to_owned(), is_root: false, controllers: controllers.to_vec() }
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn a_group_of_version_2_that_is_ours_alone_is_divided() {
    let folder = group("cpuset cpu io memory pids", &[WORKER, GUARD]);
    let groups = Groups::find_in(&[place(Version::Two, folder.path(), &[])], &[WORKER, GUARD]);
    for controller in Controller::ALL {
        assert_eq!(groups.version(controller), Some(Version::Two));
    }
    assert_eq!(read(folder.path().join("conductor-main/cgroup.procs")), GUARD.to_string(), "moved last");
    assert_eq!(read(folder.path().join("cgroup.subtree_control")), "+memory +cpu +pids");
    let own = folder.path().join(format!("conductor-{}", std::process::id()));
    assert_eq!(read(own.join("cgroup.subtree_control")), "+memory +cpu +pids");
}

#[test]
fn a_later_guard_uses_the_group_above_the_one_it_was_moved_to() {
    let folder = group("memory pids", &[]);
    fs::write(folder.path().join("cgroup.subtree_control"), "memory pids").unwrap();
    let main = folder.path().join(MAIN);
    fs::create_dir(&main).unwrap();
    let groups = Groups::find_in(&[place(Version::Two, &main, &[])], &[WORKER, GUARD]);
    assert_eq!(groups.version(Controller::Pids), Some(Version::Two));
    assert_eq!(groups.version(Controller::Cpu), None);
    assert_eq!(groups.refusal(Controller::Cpu), "no control group has cpu");
}

#[test]
fn what_others_share_is_left_alone() {
    for version in [Version::One, Version::Two] {
        let folder = group("memory", &[WORKER, STRANGER, GUARD]);
        let shared = place(version, folder.path(), &[Controller::Memory]);
        let groups = Groups::find_in(&[shared], &[WORKER, GUARD]);
        assert_eq!(groups.version(Controller::Memory), None);
        let why = groups.refusal(Controller::Memory);
        assert!(why.starts_with("other processes are in the control group /"), "{why}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing was made");
    }
}

#[test]
fn each_controller_comes_from_where_it_is() {
    let (two, one) = (group("pids", &[GUARD]), group("", &[GUARD]));
    let places = [
        place(Version::One, one.path(), &[Controller::Cpu, Controller::Pids]),
        place(Version::Two, two.path(), &[]),
    ];
    let groups = Groups::find_in(&places, &[WORKER, GUARD]);
    assert_eq!(groups.version(Controller::Pids), Some(Version::Two));
    assert_eq!(groups.version(Controller::Cpu), Some(Version::One));
    assert_eq!(groups.version(Controller::Memory), None);
}

#[test]
fn groups_of_dead_guards_are_removed_and_those_of_living_ones_kept() {
    let folder = group("", &[GUARD]);
    let [dead, alive, other] =
        ["conductor-4", "conductor-5", "conductors"].map(|name| folder.path().join(name));
    for path in [&dead.join("1"), &alive, &other] {
        fs::create_dir_all(path).unwrap();
    }
    let lock = File::open(&alive).unwrap();
    lock.lock().unwrap();
    Groups::find_in(&[place(Version::One, folder.path(), &[Controller::Cpu])], &[GUARD]);
    assert_eq!([dead.exists(), alive.exists(), other.exists()], [false, true, true]);
}

#[test]
fn limits_are_written_the_way_each_version_wants_them() {
    let limits = Limits { memory: 256 << 20, cpu: 1_500, processes: 64, ..Limits::default() };
    let written = |version| {
        let all = Controller::ALL.map(|controller| group::settings(version, controller, &limits));
        let lines: Vec<String> =
            all.concat().iter().map(|(file, value)| format!("{file} = {value}")).collect();
        lines
    };
    assert_eq!(written(Version::Two), ["memory.max = 268435456", "cpu.max = 150000 100000", "pids.max = 64"]);
    assert_eq!(
        written(Version::One),
        [
            "memory.limit_in_bytes = 268435456",
            "cpu.cfs_period_us = 100000",
            "cpu.cfs_quota_us = 150000",
            "pids.max = 64"
        ]
    );
}
