//! Programs that show that they live, by writing; and waiting until none does any more.

use std::{
    fs,
    path::Path,
    thread::sleep,
    time::{Duration, Instant},
};

/// A child, a grandchild in a session of its own, and one that ignores every polite signal: each keeps
/// writing to a file for as long as it lives.
pub fn beating(folder: &Path) -> String {
    let beat = |name: &str| format!("while :; do echo >> {}/{name}; sleep 0.02; done", folder.display());
    format!(
        "trap '' TERM INT HUP; setsid sh -c '{}' & setsid setsid sh -c \"trap '' TERM INT HUP; {}\" & {}",
        beat("grandchild"),
        beat("stubborn"),
        beat("child")
    )
}

pub fn beats(folder: &Path) -> Vec<u64> {
    ["child", "grandchild", "stubborn"]
        .map(|name| fs::metadata(folder.join(name)).map_or(0, |info| info.len()))
        .to_vec()
}

pub fn wait_for_beats(folder: &Path) {
    let until = Instant::now() + Duration::from_secs(20);
    while beats(folder).iter().any(|&count| count < 3) {
        assert!(Instant::now() < until, "they never began: {:?}", beats(folder));
        sleep(Duration::from_millis(10));
    }
}

/// How long it took until nothing beat any more.
pub fn wait_for_silence(folder: &Path, within: Duration) -> Duration {
    let started = Instant::now();
    loop {
        let before = beats(folder);
        let at = started.elapsed();
        sleep(Duration::from_millis(250));
        if beats(folder) == before {
            return at;
        }
        assert!(at < within, "still alive after {at:?}");
    }
}
