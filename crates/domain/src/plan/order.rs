//! Dependencies before dependents, in a fixed order; cycles are told whole.

use std::collections::{BTreeSet, BinaryHeap};

use petgraph::{algo::tarjan_scc, graph::DiGraph};

/// The names along a cycle, the first repeated at the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<usize>);

/// `depends_on[i]` are the indices that come before `i`. Among those that are free, the smallest goes first.
pub fn dependency_order(depends_on: &[Vec<usize>]) -> Result<Vec<usize>, Cycle> {
    let count = depends_on.len();
    let mut starts = vec![0usize; count + 1];
    for &dependency in depends_on.iter().flatten() {
        starts[dependency + 1] += 1;
    }
    for i in 0..count {
        starts[i + 1] += starts[i];
    }
    let mut dependents = vec![0usize; starts[count]];
    let mut cursor = starts.clone();
    for (dependent, dependencies) in depends_on.iter().enumerate() {
        for &dependency in dependencies {
            dependents[cursor[dependency]] = dependent;
            cursor[dependency] += 1;
        }
    }
    let mut open: Vec<usize> = depends_on.iter().map(Vec::len).collect();
    let mut free: BinaryHeap<std::cmp::Reverse<usize>> =
        (0..count).filter(|&i| open[i] == 0).map(std::cmp::Reverse).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(std::cmp::Reverse(next)) = free.pop() {
        order.push(next);
        for &dependent in &dependents[starts[next]..starts[next + 1]] {
            open[dependent] -= 1;
            if open[dependent] == 0 {
                free.push(std::cmp::Reverse(dependent));
            }
        }
    }
    if order.len() == count { Ok(order) } else { Err(find_cycle(depends_on)) }
}

/// One whole cycle, found only once there is known to be one.
fn find_cycle(depends_on: &[Vec<usize>]) -> Cycle {
    let edges =
        depends_on.iter().enumerate().flat_map(|(to, from)| from.iter().map(move |&f| (to as u32, f as u32)));
    let mut graph = DiGraph::<(), ()>::from_edges(edges);
    while graph.node_count() < depends_on.len() {
        graph.add_node(());
    }
    let knot: BTreeSet<usize> = tarjan_scc(&graph)
        .into_iter()
        .find(|component| component.len() > 1 || component.iter().any(|&n| graph.contains_edge(n, n)))
        .map(|component| component.into_iter().map(|n| n.index()).collect())
        .unwrap_or_default();
    let mut path: Vec<usize> = Vec::new();
    let mut at = knot.first().copied().unwrap_or_default();
    while !path.contains(&at) {
        path.push(at);
        at = depends_on[at].iter().copied().find(|next| knot.contains(next)).unwrap_or(at);
    }
    let start = path.iter().position(|&node| node == at).unwrap_or_default();
    path.drain(..start);
    path.push(at);
    Cycle(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first_and_ties_go_by_position() {
        assert_eq!(dependency_order(&[vec![2], vec![], vec![1], vec![]]), Ok(vec![1, 2, 0, 3]));
    }

    #[test]
    fn a_cycle_is_told_whole() {
        let Err(Cycle(nodes)) = dependency_order(&[vec![1], vec![2], vec![3], vec![1]]) else {
            panic!("no cycle")
        };
        assert_eq!(nodes, vec![1, 2, 3, 1]);
        assert_eq!(dependency_order(&[vec![0]]), Err(Cycle(vec![0, 0])));
    }
}
