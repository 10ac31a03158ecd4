//! Who may be chosen, without looking at everybody: trees of bounds over groups of nodes, and a search for the best.
//!
//! A bound stands for a group of nodes, or for sixteen bounds, and says that none of them is better. The search goes on from the
//! best bound it has until no bound is better than a node that was judged. So it finds what a scan of all finds; bounds only save looks.
//! They hold while reports age, for what is due comes nearer and makes no node better.
//!
//! A change is added to the bounds above it, each of which is made anew only after several of them: until then it may be better than those it
//! stands for, which costs a look and changes no answer. To look at everybody it stands for at each report would cost more.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::judge::Rank;

/// Nodes of a group. The bounds of all groups are to stay at hand, and a group is to be looked through quickly.
pub(super) const GROUP: usize = 64;
/// Bounds that one stands for.
const FAN: usize = 16;
/// After so many changes a bound is made anew.
const MOST_CHANGES: u8 = 16;

/// Something of which one can stand for many.
pub(super) trait Bound: Copy + PartialEq {
    /// Stands for nobody.
    const NOTHING: Self;

    /// Stands for the other, too.
    fn add(&mut self, other: &Self);
}

/// Bounds over bounds, the lowest of them over groups of nodes. What is beyond their ends stands for nobody.
#[derive(Debug)]
pub(super) struct Tree<B> {
    /// The last has one.
    levels: Vec<Level<B>>,
}

#[derive(Debug)]
struct Level<B> {
    bounds: Vec<B>,
    /// Below each bound, since it was made.
    changes: Vec<u8>,
}

/// A place where a search goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Open {
    rank: Rank,
    /// The first node it stands for.
    node: usize,
    /// 0 is a node, above are the levels of a tree.
    level: usize,
    tree: usize,
}

/// What a search asks.
pub(super) trait Question<B> {
    type Found;

    /// How good the best can be of those for which a bound of a tree stands; `None` if none of them will do.
    fn bound(&self, tree: usize, bound: &B) -> Option<Rank>;

    /// The same of each node of a group, as far as it is in a tree.
    fn nodes(&self, tree: usize, group: usize, open: impl FnMut(usize, Rank));

    /// How good a node is.
    fn judge(&self, node: usize) -> Option<(Rank, Self::Found)>;
}

// === impl Tree ===

impl<B: Bound> Tree<B> {
    pub const fn new() -> Self {
        Self { levels: Vec::new() }
    }

    /// One of a group has changed: from now on the group's bound stands for `new`, too. `all` is what stands for the whole group.
    pub fn change(&mut self, group: usize, new: &B, all: impl FnOnce() -> B) {
        self.reach(group);
        let (mut at, mut new) = (group, *new);
        let mut is_changed = self.levels[0].change(at, &new, all);
        for level in 1..self.levels.len() {
            if !is_changed {
                return;
            }
            let (below, above) = self.levels.split_at_mut(level);
            let below = &below[level - 1].bounds;
            (new, at) = (below[at], at / FAN);
            is_changed = above[0].change(at, &new, || of_children(below, at));
        }
    }

    /// Makes every bound anew below which something has changed. `all` is what stands for a group.
    pub fn renew(&mut self, all: impl Fn(usize) -> B) {
        for level in 0..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(level);
            let Some((Level { bounds, changes }, above)) = above.split_first_mut() else { return };
            for at in (0..bounds.len()).filter(|at| changes[*at] > 0).collect::<Vec<_>>() {
                bounds[at] = below.last().map_or_else(|| all(at), |below| of_children(&below.bounds, at));
                changes[at] = 0;
                above.iter_mut().take(1).for_each(|above| above.changes[at / FAN] = 1);
            }
        }
    }

    /// Makes place for a group.
    fn reach(&mut self, group: usize) {
        let (mut at, mut level) = (group, 0);
        loop {
            if level == self.levels.len() {
                // What was the top is below another now.
                let below: Vec<B> =
                    self.levels.last().and_then(|top| top.bounds.first()).copied().into_iter().collect();
                self.levels.push(Level { changes: vec![0; below.len()], bounds: below });
            }
            let Level { bounds, changes } = &mut self.levels[level];
            if bounds.len() <= at {
                bounds.resize(at + 1, B::NOTHING);
                changes.resize(at + 1, 0);
            }
            if bounds.len() == 1 {
                return;
            }
            (at, level) = ((bounds.len() - 1) / FAN, level + 1);
        }
    }

    /// What is below a bound: from the second level on, bounds.
    fn children(&self, level: usize, node: usize) -> &[B] {
        let below = &self.levels[level - 2].bounds;
        let first = node / span(level - 1);
        &below[first..below.len().min(first + FAN)]
    }
}

// === impl Level ===

impl<B: Bound> Level<B> {
    /// Whether the bound is another now.
    fn change(&mut self, at: usize, new: &B, all: impl FnOnce() -> B) -> bool {
        let before = self.bounds[at];
        self.changes[at] += 1;
        if self.changes[at] < MOST_CHANGES {
            self.bounds[at].add(new);
        } else {
            (self.bounds[at], self.changes[at]) = (all(), 0);
        }
        self.bounds[at] != before
    }
}

fn of_children<B: Bound>(below: &[B], at: usize) -> B {
    all(&below[at * FAN..below.len().min((at + 1) * FAN)])
}

/// Stands for all of them.
pub(super) fn all<'a, B: Bound + 'a>(bounds: impl IntoIterator<Item = &'a B>) -> B {
    let mut all = B::NOTHING;
    bounds.into_iter().for_each(|bound| all.add(bound));
    all
}

/// Nodes that one of this level stands for.
fn span(level: usize) -> usize {
    let above_groups = |level| GROUP * FAN.pow(u32::try_from(level).unwrap_or(u32::MAX));
    level.checked_sub(1).map_or(1, above_groups)
}

/// The best node of all trees, by its rank and of equals the first.
pub(super) fn search<B: Bound, Q: Question<B>>(trees: &[Tree<B>], question: &Q) -> Option<(usize, Q::Found)> {
    let mut open = BinaryHeap::with_capacity(8 * FAN);
    let mut best: Option<(Rank, usize, Q::Found)> = None;
    for (tree, Tree { levels }) in trees.iter().enumerate() {
        let top = levels.last().and_then(|top| question.bound(tree, top.bounds.first()?));
        open.extend(top.map(|rank| Reverse(Open { rank, node: 0, level: levels.len(), tree })));
    }
    while let Some(Reverse(next)) = open.pop() {
        if best.as_ref().is_some_and(|(rank, node, _)| (*rank, *node) <= (next.rank, next.node)) {
            break;
        }
        match next.level {
            0 => {
                let judged = question.judge(next.node).map(|(rank, found)| (rank, next.node, found));
                best = better(best, judged);
            }
            1 => question.nodes(next.tree, next.node / GROUP, |node, rank| {
                open.push(Reverse(Open { rank, node, level: 0, ..next }));
            }),
            level => {
                for (number, child) in trees[next.tree].children(level, next.node).iter().enumerate() {
                    let node = next.node + number * span(level - 1);
                    let rank = question.bound(next.tree, child);
                    open.extend(rank.map(|rank| Reverse(Open { rank, node, level: level - 1, ..next })));
                }
            }
        }
    }
    best.map(|(_, node, found)| (node, found))
}

fn better<F>(one: Option<(Rank, usize, F)>, other: Option<(Rank, usize, F)>) -> Option<(Rank, usize, F)> {
    match (&one, &other) {
        (Some(a), Some(b)) if (b.0, b.1) < (a.0, a.1) => other,
        (None, _) => other,
        _ => one,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The least of two figures each.
    #[derive(Debug, Clone, Copy, PartialEq)]
    struct Least([u8; 2]);

    impl Bound for Least {
        const NOTHING: Self = Least([u8::MAX; 2]);

        fn add(&mut self, other: &Self) {
            self.0 = [self.0[0].min(other.0[0]), self.0[1].min(other.0[1])];
        }
    }

    /// The least first figure of those whose second is low enough.
    struct Below<'a> {
        nodes: &'a [Least],
        limit: u8,
    }

    impl Below<'_> {
        fn rank(&self, bound: &Least) -> Option<Rank> {
            (bound.0[1] <= self.limit && *bound != Least::NOTHING).then_some(Rank(bound.0[0].into()))
        }
    }

    impl Question<Least> for Below<'_> {
        type Found = u8;

        fn bound(&self, _: usize, bound: &Least) -> Option<Rank> {
            self.rank(bound)
        }

        fn nodes(&self, _: usize, group: usize, mut open: impl FnMut(usize, Rank)) {
            for (number, node) in self.nodes.iter().skip(group * GROUP).take(GROUP).enumerate() {
                self.rank(node).into_iter().for_each(|rank| open(group * GROUP + number, rank));
            }
        }

        fn judge(&self, node: usize) -> Option<(Rank, u8)> {
            self.rank(&self.nodes[node]).map(|rank| (rank, self.nodes[node].0[1]))
        }
    }

    fn of_group(nodes: &[Least], group: usize) -> Least {
        all(&nodes[group * GROUP..nodes.len().min((group + 1) * GROUP)])
    }

    proptest! {
        /// Up to three levels.
        #[test]
        fn the_search_finds_what_a_scan_finds(
            sets in prop::collection::vec((0..9_000usize, any::<[u8; 2]>()), 1..300), limits in prop::collection::vec(any::<u8>(), 1..20),
        ) {
            let (mut nodes, mut tree) = (vec![Least::NOTHING; 9_000], Tree::new());
            for (node, figures) in sets {
                nodes[node] = Least(figures);
                let group = node / GROUP;
                tree.change(group, &nodes[node], || of_group(&nodes, group));
            }
            for limit in limits {
                let question = Below { nodes: &nodes, limit };
                let scanned = (0..nodes.len()).filter_map(|node| Some((question.judge(node)?.0, node))).min();
                let found = search(std::slice::from_ref(&tree), &question);
                prop_assert_eq!(found.map(|(node, _)| node), scanned.map(|(_, node)| node));
                tree.renew(|group| of_group(&nodes, group));
            }
        }
    }
}
