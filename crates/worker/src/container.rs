//! Programs in a container of their own: a stronger wall than the guard's, where podman or docker is to be had.
//!
//! The engine's command line is what the guard starts. It is not confined itself, because it has to build the
//! container; what it runs is. The guard removes the container whenever that command is killed, also when the worker
//! is dead: with docker it lives elsewhere and would go on.

use std::{
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use nix::unistd::{Gid, Uid};

use crate::{
    guard::wire::Spec,
    sandbox::{Aspect, Protection},
};

/// What the engine itself is told of the worker's environment.
const FOR_ENGINE: [&str; 9] = [
    "PATH",
    "HOME",
    "XDG_RUNTIME_DIR",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "DOCKER_HOST",
    "DOCKER_CONFIG",
    "CONTAINER_HOST",
    "CONTAINERS_CONF",
];
/// Programs from here are the image's own; mounting the machine's would bring the wrong libraries.
const OF_THE_IMAGE: [&str; 6] = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/lib", "/lib"];

/// The engine to start containers with, and the image they are made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// The path of podman or docker.
    pub engine: PathBuf,
    pub image: String,
}

impl Container {
    /// The same program, inside a container of that name. Its environment is in a file, where no list of processes
    /// shows it.
    pub fn wrap(
        &self,
        spec: Spec,
        name: &str,
        env_file: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Spec {
        let owner = (nix::unistd::getuid(), nix::unistd::getgid());
        let args = self.arguments(&spec, name, env_file, owner);
        let env = FOR_ENGINE.iter().filter_map(|&name| Some((name.to_owned(), environment(name)?))).collect();
        Spec { path: self.engine.clone(), args, env, container: Some(name.to_owned()), ..spec }
    }

    fn arguments(&self, spec: &Spec, name: &str, env_file: &Path, (user, group): (Uid, Gid)) -> Vec<String> {
        let limits = &spec.limits;
        let mut args: Vec<String> = ["run", "--rm", "--init", "--interactive", "--read-only", "--tmpfs=/tmp"]
            .map(str::to_owned)
            .into();
        args.extend(["--cap-drop=ALL", "--security-opt=no-new-privileges"].map(str::to_owned));
        args.extend([
            format!("--name={name}"),
            // Ports cannot be chosen one by one: all of the machine's, or none.
            format!("--network={}", if spec.connect.is_empty() { "none" } else { "host" }),
            format!("--user={user}:{group}"),
            format!("--pids-limit={}", limits.processes),
            format!("--memory={}", limits.memory),
            format!("--memory-swap={}", limits.memory),
            format!("--cpus={}.{:03}", limits.cpu / 1_000, limits.cpu % 1_000),
            format!("--ulimit=nofile={0}:{0}", limits.open_files),
            format!("--ulimit=fsize={0}:{0}", limits.file_size),
            "--ulimit=core=0:0".to_owned(),
            format!("--workdir={}", spec.folder.display()),
            format!("--env-file={}", env_file.display()),
        ]);
        if self.engine.ends_with("podman") && !user.is_root() {
            args.push("--userns=keep-id".to_owned());
        }
        args.extend(mounts(spec));
        args.push(self.image.clone());
        args.push(spec.path.display().to_string());
        args.extend(spec.args.iter().cloned());
        args
    }

    /// What such a container keeps programs from, as far as its command line says.
    pub fn describe(&self) -> Vec<Protection> {
        let engine = self.engine.file_name().unwrap_or_default().to_string_lossy();
        let by = |aspect| match aspect {
            Aspect::Ports => {
                Protection::none(aspect, "a container that connects somewhere has the machine's network")
            }
            Aspect::Disk => Protection::by(aspect, "the worker's look at the job's folder"),
            _ => Protection::by(aspect, format!("a container of {engine}")),
        };
        Aspect::ALL.map(by).into()
    }
}

/// Everything at the path it has outside, so that paths mean the same.
fn mounts(spec: &Spec) -> Vec<String> {
    let of_image = |path: &Path| OF_THE_IMAGE.iter().any(|folder| path.starts_with(folder));
    let program = Some(&spec.path).filter(|path| !of_image(path));
    let readable = spec.read.iter().chain(program).map(|path| (path, ",readonly"));
    let mut all: Vec<(&PathBuf, &str)> = readable.chain(spec.write.iter().map(|path| (path, ""))).collect();
    all.retain(|(path, _)| path.exists());
    // A folder before what is in it, and what may be written before the same to be read.
    all.sort();
    all.dedup_by(|later, earlier| later.0 == earlier.0);
    all.iter().map(|(path, how)| format!("--mount=type=bind,src={0},dst={0}{how}", path.display())).collect()
}

/// Writes the environment as engines read it: a line for each.
pub fn write_environment(file: &Path, spec: &Spec) -> io::Result<()> {
    let mut text = String::new();
    for (name, value) in &spec.env {
        if value.contains('\n') {
            return Err(io::Error::other(format!(
                "{name} has several lines, which no container can be given"
            )));
        }
        text.push_str(&format!("{name}={value}\n"));
    }
    let mut file = std::fs::File::options().create(true).truncate(true).write(true).mode(0o600).open(file)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;

    fn spec() -> Spec {
        Spec {
            path: "/usr/local/../local".into(),
            args: vec!["apply".into(), "-json".into()],
            env: [("TOKEN".to_owned(), "secret".to_owned())].into(),
            folder: "/tmp".into(),
            read: vec!["/usr".into(), "/tmp".into(), "/not/there".into()],
            write: vec!["/tmp".into()],
            connect: vec![],
            limits: Limits { cpu: 1_500, ..Limits::default() },
            stop: libc::SIGTERM,
            deadline_grace_ms: 0,
            container: None,
        }
    }

    #[test]
    fn the_command_line_says_everything_and_no_secret() {
        let container = Container { engine: "/opt/podman".into(), image: "tools:1".into() };
        let owner = (Uid::from_raw(1000), Gid::from_raw(100));
        let args = container.arguments(&spec(), "conductor-x", Path::new("/job/env"), owner);
        let expected = "run --rm --init --interactive --read-only --tmpfs=/tmp --cap-drop=ALL \
            --security-opt=no-new-privileges --name=conductor-x --network=none --user=1000:100 --pids-limit=1024 \
            --memory=2147483648 --memory-swap=2147483648 --cpus=1.500 --ulimit=nofile=4096:4096 \
            --ulimit=fsize=2147483648:2147483648 --ulimit=core=0:0 --workdir=/tmp --env-file=/job/env \
            --userns=keep-id --mount=type=bind,src=/tmp,dst=/tmp --mount=type=bind,src=/usr,dst=/usr,readonly \
            --mount=type=bind,src=/usr/local/../local,dst=/usr/local/../local,readonly tools:1 \
            /usr/local/../local apply -json";
        assert_eq!(args.join(" "), expected);
    }

    #[test]
    fn the_network_is_all_or_nothing_and_docker_has_no_user_namespace_of_its_own() {
        let container = Container { engine: "/opt/docker".into(), image: "tools:1".into() };
        let spec = Spec { connect: vec![443], ..spec() };
        let args = container.arguments(&spec, "x", Path::new("/e"), (Uid::from_raw(7), Gid::from_raw(7)));
        assert!(args.contains(&"--network=host".to_owned()), "{args:?}");
        assert!(!args.iter().any(|arg| arg.starts_with("--userns")), "{args:?}");
        let ports: Vec<_> = container.describe().into_iter().filter(|one| !one.confined).collect();
        assert_eq!(ports.len(), 1, "{ports:?}");
    }

    #[test]
    fn the_environment_is_in_a_file_for_us_alone() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("env");
        write_environment(&file, &spec()).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "TOKEN=secret\n");
        let lines = Spec { env: [("KEY".to_owned(), "a\nb".to_owned())].into(), ..spec() };
        assert!(write_environment(&file, &lines).unwrap_err().to_string().contains("KEY has several lines"));
    }
}
