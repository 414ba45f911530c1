//! Finds circles in a graph of names, without recursion.

use std::collections::BTreeMap;

use crate::finding::quoted;
use crate::tree::Span;

/// From and to, by index, and where the file says so.
pub(crate) type Edges = BTreeMap<(usize, usize), Span>;

/// How many circles are reported at most.
const REPORTED: usize = 10;
/// How many names of a circle are written out.
const NAMED: usize = 12;

/// A circle: its nodes in order, the one declared first at the start.
pub(crate) struct Circle {
    nodes: Vec<usize>,
    /// The place of the edge that leaves the first node.
    pub at: Span,
}

impl Circle {
    pub fn first(&self) -> usize {
        self.nodes[0]
    }

    /// `a → b → a`.
    pub fn describe(&self, names: &[&str]) -> String {
        let mut shown: Vec<String> = self.nodes.iter().take(NAMED).map(|node| quoted(names[*node])).collect();
        if self.nodes.len() > NAMED {
            shown.push("…".to_owned());
        }
        shown.push(quoted(names[self.first()]));
        shown.join(" → ")
    }
}

/// The circles among `count` nodes; each part of the graph that has one yields at least one.
pub(crate) fn circles(count: usize, edges: &Edges) -> Vec<Circle> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let mut targets = vec![Vec::new(); count];
    for (from, to) in edges.keys() {
        targets[*from].push(*to);
    }
    let mut marks = vec![Mark::New; count];
    let mut found = Vec::new();
    for start in 0..count {
        if marks[start] != Mark::New {
            continue;
        }
        // Each node on the way, with how many of its targets have been visited.
        let mut way = vec![(start, 0)];
        marks[start] = Mark::Open;
        while let Some((node, visited)) = way.last_mut() {
            let Some(next) = targets[*node].get(*visited).copied() else {
                marks[*node] = Mark::Done;
                way.pop();
                continue;
            };
            *visited += 1;
            match marks[next] {
                Mark::New => {
                    marks[next] = Mark::Open;
                    way.push((next, 0));
                }
                Mark::Open if found.len() < REPORTED => {
                    let from = way.iter().position(|(node, _)| *node == next).unwrap_or(0);
                    found.push(circle(way[from..].iter().map(|(node, _)| *node).collect(), edges));
                }
                Mark::Open | Mark::Done => {}
            }
        }
    }
    found
}

fn circle(mut nodes: Vec<usize>, edges: &Edges) -> Circle {
    let first = (0..nodes.len()).min_by_key(|index| nodes[*index]).unwrap_or(0);
    nodes.rotate_left(first);
    let second = nodes.get(1).copied().unwrap_or(nodes[0]);
    let at = edges.get(&(nodes[0], second)).copied().unwrap_or_default();
    Circle { nodes, at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn describe(edges: &[(usize, usize)]) -> Vec<String> {
        let edges = edges.iter().map(|edge| (*edge, Span::default())).collect();
        let names = ["a", "b", "c", "d"];
        circles(4, &edges).iter().map(|circle| circle.describe(&names)).collect()
    }

    #[test]
    fn circles_are_named_from_the_first_declared() {
        assert_eq!(describe(&[(0, 1), (1, 2), (0, 2)]), Vec::<String>::new());
        assert_eq!(describe(&[(1, 0), (0, 1)]), ["`a` → `b` → `a`"]);
        assert_eq!(describe(&[(2, 2)]), ["`c` → `c`"]);
        assert_eq!(describe(&[(0, 3), (3, 1), (1, 2), (2, 1)]), ["`b` → `c` → `b`"]);
        assert_eq!(describe(&[(0, 1), (1, 0), (2, 3), (3, 2)]).len(), 2);
    }

    #[test]
    fn a_long_chain_needs_no_stack() {
        let edges = (0..100_000).map(|node| ((node, node + 1), Span::default())).collect();
        assert!(circles(100_001, &edges).is_empty());
    }
}
