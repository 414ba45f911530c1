//! How much the programs of one operation may use: the defaults, and a template's `config.limits` over them.

use std::fmt;

use conductor_domain::{nearest, work::Failure};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

const KEY: &str = "limits";
const NAMES: [&str; 6] = ["memory", "cpu", "processes", "fileSize", "disk", "openFiles"];
const UNITS: [(&str, u32); 4] = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40)];

/// Below these nothing can start at all.
const LEAST_MEMORY: u64 = 16 << 20;
const LEAST_SIZE: u64 = 4 << 10;
const LEAST_OPEN_FILES: u64 = 16;
const LEAST_CPU: u64 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes, all processes together.
    pub memory: u64,
    /// Thousandths of one CPU.
    pub cpu: u64,
    /// Processes and threads, all together: the kernel makes no difference.
    pub processes: u64,
    /// Bytes in one file.
    pub file_size: u64,
    /// Bytes in the job's folder.
    pub disk: u64,
    /// Descriptors of one process.
    pub open_files: u64,
}

impl Default for Limits {
    /// Room for terraform with a handful of large providers; a machine survives several that use it all.
    fn default() -> Self {
        Self {
            memory: 2 << 30,
            cpu: 2_000,
            processes: 1_024,
            file_size: 2 << 30,
            disk: 4 << 30,
            open_files: 4_096,
        }
    }
}

/// A limit whose breach ends a program, or is told when it was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    Memory,
    Processes,
    FileSize,
    Disk,
}

impl Limits {
    /// Takes `limits` out of a template's config, so that managers need not know of it.
    pub fn take(config: &mut Map<String, Value>) -> Result<Self, Failure> {
        let mut limits = Self::default();
        let given = match config.remove(KEY) {
            None => return Ok(limits),
            Some(Value::Object(given)) => given,
            Some(_) => {
                let text = format!("config.{KEY} must be an object with {}", NAMES.join(", "));
                return Err(Failure::invalid(text));
            }
        };
        for (name, value) in given {
            match name.as_str() {
                "memory" => limits.memory = size(&name, &value, LEAST_MEMORY)?,
                "cpu" => limits.cpu = cpus(&name, &value)?,
                "processes" => limits.processes = count(&name, &value, 1)?,
                "fileSize" => limits.file_size = size(&name, &value, LEAST_SIZE)?,
                "disk" => limits.disk = size(&name, &value, LEAST_SIZE)?,
                "openFiles" => limits.open_files = count(&name, &value, LEAST_OPEN_FILES)?,
                _ => {
                    let hint = match nearest(&name, NAMES) {
                        Some(close) => format!("did you mean `{close}`? Known are: {}", NAMES.join(", ")),
                        None => format!("known are: {}", NAMES.join(", ")),
                    };
                    return Err(Failure::invalid(format!("config.{KEY}.{name} is not known")).hint(hint));
                }
            }
        }
        Ok(limits)
    }

    /// What was too much, for people.
    pub fn exceeded(&self, limit: Limit) -> String {
        match limit {
            Limit::Memory => format!("more than {} of memory (config.limits.memory)", Size(self.memory)),
            Limit::Processes => format!("more than {} processes (config.limits.processes)", self.processes),
            Limit::FileSize => {
                format!("a file of more than {} (config.limits.fileSize)", Size(self.file_size))
            }
            Limit::Disk => format!("more than {} in the job's folder (config.limits.disk)", Size(self.disk)),
        }
    }
}

fn invalid(name: &str, must: String) -> Failure {
    Failure::invalid(format!("config.{KEY}.{name} must be {must}"))
}

fn size(name: &str, value: &Value, least: u64) -> Result<u64, Failure> {
    let bytes = match value {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => bytes(text),
        _ => None,
    };
    bytes.filter(|bytes| *bytes >= least).ok_or_else(|| {
        invalid(name, format!("a size of at least {}", Size(least)))
            .hint("write for example 512MiB or 2GiB (KiB, MiB, GiB, TiB), or a plain number of bytes")
    })
}

/// `512MiB`, `2GiB`, or a number of bytes.
fn bytes(text: &str) -> Option<u64> {
    let text = text.trim();
    let (number, shift) = UNITS
        .iter()
        .find_map(|(unit, shift)| Some((text.strip_suffix(unit)?.trim_end(), *shift)))
        .unwrap_or((text, 0));
    if !number.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

fn count(name: &str, value: &Value, least: u64) -> Result<u64, Failure> {
    let count = value.as_u64().filter(|count| *count >= least && *count <= u64::from(u32::MAX));
    count.ok_or_else(|| invalid(name, format!("a whole number, {least} or more")))
}

fn cpus(name: &str, value: &Value) -> Result<u64, Failure> {
    let thousandths = value.as_f64().map(|cpus| (cpus * 1_000.0).round());
    let fits = |thousandths: &f64| (LEAST_CPU as f64..=1e9).contains(thousandths);
    thousandths.filter(fits).map(|thousandths| thousandths as u64).ok_or_else(|| {
        invalid(name, "a number of CPUs, 0.01 or more".to_owned()).hint("write for example 2 or 0.5")
    })
}

/// A number of bytes as one would write it.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |shift: &u32| self.0 >> shift > 0 && self.0.trailing_zeros() >= *shift;
        match UNITS.iter().rev().find(|(_, shift)| fits(shift)) {
            Some((unit, shift)) => write!(f, "{}{unit}", self.0 >> shift),
            None => write!(f, "{} bytes", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn take(value: Value) -> Result<Limits, Failure> {
        Limits::take(json!({ "limits": value }).as_object_mut().unwrap())
    }

    #[test]
    fn a_template_changes_some_and_the_rest_stays() {
        let mut config = json!({ "program": "x", "limits": {
            "memory": "256MiB", "cpu": 0.5, "processes": 64, "disk": 1048576, "fileSize": "64 KiB"
        } });
        let config = config.as_object_mut().unwrap();
        let limits = Limits::take(config).unwrap();
        let expected = Limits {
            memory: 256 << 20,
            cpu: 500,
            processes: 64,
            disk: 1 << 20,
            file_size: 64 << 10,
            ..Limits::default()
        };
        assert_eq!(limits, expected);
        assert_eq!(config.keys().collect::<Vec<_>>(), ["program"], "managers do not see it");
        assert_eq!(Limits::take(config).unwrap(), Limits::default());
    }

    #[test]
    fn what_is_wrong_is_named_with_what_would_be_right() {
        for (value, says) in [
            (json!("2GiB"), "config.limits must be an object with memory, cpu,"),
            (json!({ "memory": "2GB" }), "config.limits.memory must be a size of at least 16MiB"),
            (json!({ "memory": "lots" }), "config.limits.memory"),
            (json!({ "memory": -1 }), "config.limits.memory"),
            (json!({ "memory": 1 }), "at least 16MiB"),
            (json!({ "disk": "-1GiB" }), "config.limits.disk"),
            (json!({ "disk": "+1GiB" }), "config.limits.disk"),
            (json!({ "disk": "GiB" }), "config.limits.disk"),
            (json!({ "disk": "99999999999TiB" }), "config.limits.disk"),
            (json!({ "fileSize": 1.5 }), "config.limits.fileSize"),
            (json!({ "cpu": 0 }), "a number of CPUs, 0.01 or more"),
            (json!({ "cpu": "two" }), "config.limits.cpu"),
            (json!({ "processes": 0 }), "a whole number, 1 or more"),
            (json!({ "processes": "64" }), "config.limits.processes"),
            (json!({ "openFiles": 3 }), "a whole number, 16 or more"),
        ] {
            let failure = take(value.clone()).unwrap_err();
            assert!(failure.message.contains(says), "{value}: {}", failure.message);
        }
        let failure = take(json!({ "memry": "2GiB" })).unwrap_err();
        assert_eq!(failure.message, "config.limits.memry is not known");
        assert!(failure.hint.unwrap().starts_with("did you mean `memory`?"));
    }

    #[test]
    fn sizes_read_as_they_are_written() {
        let shown = [2 << 30, 256 << 20, 1536 << 20, 4096, 1000].map(|bytes| Size(bytes).to_string());
        assert_eq!(shown, ["2GiB", "256MiB", "1536MiB", "4KiB", "1000 bytes"]);
    }
}
