//! What can be confined, in words: for the log, for `conductor workers`, and for those who insist on it.

use std::{fmt, str::FromStr};

use conductor_domain::nearest;
use serde::{Deserialize, Serialize};

/// One thing that a program may be kept from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Aspect {
    Files,
    Ports,
    Signals,
    Syscalls,
    Processes,
    Memory,
    Cpu,
    Disk,
    Pids,
}

impl Aspect {
    pub const ALL: [Self; 9] = [
        Self::Files,
        Self::Ports,
        Self::Signals,
        Self::Syscalls,
        Self::Processes,
        Self::Memory,
        Self::Cpu,
        Self::Disk,
        Self::Pids,
    ];

    /// As it is asked for.
    pub fn word(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Ports => "ports",
            Self::Signals => "signals",
            Self::Syscalls => "syscalls",
            Self::Processes => "processes",
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Disk => "disk",
            Self::Pids => "pids",
        }
    }

    fn label(self) -> &'static str {
        match self {
            Self::Ports => "tcp ports",
            Self::Pids => "pid namespace",
            other => other.word(),
        }
    }

    /// `files,ports,pids`: commas or spaces between them.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let words = text.split([',', ' ']).map(str::trim).filter(|word| !word.is_empty());
        words.map(str::parse).collect()
    }
}

impl FromStr for Aspect {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words = Self::ALL.map(Self::word);
        Self::ALL.into_iter().find(|aspect| aspect.word() == text).ok_or_else(|| {
            let all = words.join(", ");
            match nearest(text, words) {
                Some(close) => {
                    format!("`{text}` cannot be isolated: did you mean `{close}`? Known are {all}")
                }
                None => format!("`{text}` cannot be isolated: known are {all}"),
            }
        })
    }
}

/// Whether something is confined on this machine, by what or why not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Protection {
    pub aspect: Aspect,
    pub confined: bool,
    how: String,
}

impl Protection {
    pub fn by(aspect: Aspect, what: impl Into<String>) -> Self {
        Self { aspect, confined: true, how: what.into() }
    }

    pub fn none(aspect: Aspect, why: impl Into<String>) -> Self {
        Self { aspect, confined: false, how: why.into() }
    }

    /// Those of `required` that are not in force.
    pub fn missing<'a>(all: &'a [Self], required: &[Aspect]) -> Vec<&'a Self> {
        all.iter().filter(|one| !one.confined && required.contains(&one.aspect)).collect()
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.confined {
            true => write!(f, "{}: confined by {}", self.aspect.label(), self.how),
            false => write!(f, "{}: NOT confined ({})", self.aspect.label(), self.how),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_mistakes_named() {
        assert_eq!(Aspect::list("files, pids").unwrap(), [Aspect::Files, Aspect::Pids]);
        assert_eq!(Aspect::list(" ").unwrap(), []);
        assert!(Aspect::list("files,syscals").unwrap_err().contains("did you mean `syscalls`?"));
        for aspect in Aspect::ALL {
            assert_eq!(aspect.word().parse(), Ok(aspect));
        }
    }

    #[test]
    fn what_is_missing_is_told_in_full() {
        let all =
            [Protection::by(Aspect::Files, "landlock 7"), Protection::none(Aspect::Ports, "no landlock")];
        assert_eq!(all[0].to_string(), "files: confined by landlock 7");
        assert!(Protection::missing(&all, &[Aspect::Files]).is_empty());
        let missing = Protection::missing(&all, &[Aspect::Ports, Aspect::Files]);
        assert_eq!(missing[0].to_string(), "tcp ports: NOT confined (no landlock)");
    }
}
