//! What was measured, as a table or as JSON.

use std::time::{Duration, Instant};

use serde_json::json;

/// What a measurement is held against.
#[derive(Clone, Copy)]
pub enum Goal {
    RatioAtLeast(f64),
    RatioAtMost(f64),
    AtMost(f64),
    /// Shown for comparison only.
    None,
}

pub struct Line {
    pub name: String,
    pub unit: &'static str,
    pub ours: f64,
    pub reference: Option<f64>,
    pub goal: Goal,
    pub note: String,
}

impl Line {
    fn ratio(&self) -> Option<f64> {
        self.reference.filter(|reference| *reference > 0.0).map(|reference| self.ours / reference)
    }

    fn met(&self) -> Option<bool> {
        match self.goal {
            Goal::RatioAtLeast(limit) => self.ratio().map(|ratio| ratio >= limit),
            Goal::RatioAtMost(limit) => self.ratio().map(|ratio| ratio <= limit),
            Goal::AtMost(limit) => Some(self.ours <= limit),
            Goal::None => None,
        }
    }

    fn goal(&self) -> String {
        match self.goal {
            Goal::RatioAtLeast(limit) => format!(">= {limit}x"),
            Goal::RatioAtMost(limit) => format!("<= {limit}x"),
            Goal::AtMost(limit) => format!("<= {}", short(limit)),
            Goal::None => String::new(),
        }
    }
}

pub struct Report {
    json: bool,
    started: Instant,
    lines: Vec<Line>,
    broken: Vec<(String, String)>,
}

impl Report {
    pub fn new(json: bool) -> Self {
        Self { json, started: Instant::now(), lines: vec![], broken: vec![] }
    }

    pub fn begin(&self, name: &str) {
        eprintln!("[{:>5.1} s] {name}", self.started.elapsed().as_secs_f64());
    }

    pub fn add(&mut self, line: Line) {
        self.lines.push(line);
    }

    pub fn broken(&mut self, name: &str, why: &str) {
        self.broken.push((name.to_owned(), why.to_owned()));
    }

    pub fn print(&self) {
        if self.json {
            let lines: Vec<_> = self
                .lines
                .iter()
                .map(|line| {
                    json!({
                        "name": line.name, "unit": line.unit, "ours": line.ours, "reference": line.reference,
                        "ratio": line.ratio(), "goal": line.goal(), "met": line.met(), "note": line.note,
                    })
                })
                .collect();
            let broken: Vec<_> =
                self.broken.iter().map(|(name, why)| json!({ "name": name, "error": why })).collect();
            let seconds = self.started.elapsed().as_secs_f64();
            println!("{}", json!({ "lines": lines, "broken": broken, "seconds": seconds }));
            return;
        }
        println!(
            "{:<44} {:>10} {:>10} {:<7} {:>7}  {:<9} {:<7}",
            "", "ours", "reference", "", "ratio", "goal", ""
        );
        for line in &self.lines {
            let met = match line.met() {
                Some(true) => "met",
                Some(false) => "MISSED",
                None => "",
            };
            println!(
                "{:<44} {:>10} {:>10} {:<7} {:>7}  {:<9} {:<7} {}",
                line.name,
                short(line.ours),
                line.reference.map(short).unwrap_or_default(),
                line.unit,
                line.ratio().map(|ratio| format!("{ratio:.2}x")).unwrap_or_default(),
                line.goal(),
                met,
                line.note
            );
        }
        for (name, why) in &self.broken {
            println!("{name:<44} not measured: {why}");
        }
        println!("{:.0} s in all", self.started.elapsed().as_secs_f64());
    }
}

/// Three digits that mean something.
fn short(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get((last as f64 * part).round() as usize).copied().unwrap_or(f64::NAN)
}

pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
