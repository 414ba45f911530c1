//! A process of ours: stopped, frozen or killed by the test, and never left behind.

use std::{
    fs,
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use crate::keeper;

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// A running process. Dropped, it is killed with everything in its group.
pub struct Running {
    child: Child,
    pub log: PathBuf,
}

impl Running {
    /// Starts it in a process group of its own, with both streams appended to `log`.
    pub fn start(command: &mut Command, log: PathBuf) -> Self {
        use std::os::unix::process::CommandExt;
        let open = || {
            let file = fs::OpenOptions::new().create(true).append(true).open(&log);
            Stdio::from(file.expect("a log file"))
        };
        let child = command
            .stdin(Stdio::null())
            .stdout(open())
            .stderr(open())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        keeper::keep(&child.id());
        Self { child, log }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn said(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id() as i32), signal).expect("the process is there");
    }

    /// kill -9, of this process alone: what it started has to see for itself.
    pub fn kill(&mut self) {
        self.child.kill().expect("the process can be killed");
        self.child.wait().expect("the process ends");
    }

    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    pub fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// SIGTERM alone.
    pub fn terminate(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// SIGTERM, and its end.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        self.wait(Duration::from_secs(20))
    }

    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("the process can be waited for") {
                return status;
            }
            assert!(began.elapsed() < within, "process {} goes on: {}", self.id(), self.said());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn is_over(&mut self) -> bool {
        self.child.try_wait().expect("the process can be waited for").is_some()
    }

    /// Resident memory in kilobytes, as the kernel counts it: (now, at its highest).
    pub fn memory(&self) -> (u64, u64) {
        let status = fs::read_to_string(format!("/proc/{}/status", self.id())).expect("the process is there");
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a field");
            line.trim().trim_end_matches(" kB").trim().parse().expect("a number")
        };
        (field("VmRSS:"), field("VmHWM:"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = Pid::from_raw(-(self.child.id() as i32));
        let _ = kill(group, Signal::SIGKILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
        keeper::forget(&self.child.id());
    }
}
