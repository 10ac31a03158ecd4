//! The index of a list: for each strategy what it is searched by.

use std::ops::Range;

use berth_model::Mono;
use berth_model::cluster::Strategy;

use super::NodesSettings;
use super::fit::{self, COLUMNS};
use super::index::{Bound as _, GROUP, Question, Tree, all, search};
use super::judge::{Asked, By, Found, Rank};
use super::line::Line;
use super::node::{Gpu, Node};
use super::paper::{self, Best};

#[derive(Debug)]
pub(super) enum Listing {
    Fit(Box<Fit>),
    Paper(Paper),
}

/// One tree for each column, so that those who have too little memory, or missed a deadline, do not stand before others.
#[derive(Debug)]
pub(super) struct Fit {
    groups: Vec<Group>,
    trees: [Tree<Line>; COLUMNS],
}

/// The GPUs of some nodes.
#[derive(Debug, Default)]
struct Group {
    /// The number of the node in the group, in ascending order, and the column.
    keys: Vec<(u8, u8)>,
    lines: Vec<Line>,
}

#[derive(Debug)]
pub(super) struct Paper {
    nodes: Vec<Best>,
    trees: [Tree<Best>; 1],
}

/// A question to the nodes of a list.
struct To<'a, L, A> {
    listing: &'a L,
    ask: &'a A,
    asked: &'a Asked<'a>,
    nodes: &'a [Option<Node>],
    now: Mono,
}

// === impl Listing ===

impl Listing {
    pub fn new(strategy: Strategy) -> Self {
        match strategy {
            Strategy::Fit => Self::Fit(Box::new(Fit { groups: Vec::new(), trees: [const { Tree::new() }; COLUMNS] })),
            Strategy::Paper => Self::Paper(Paper { nodes: Vec::new(), trees: [Tree::new()] }),
        }
    }

    /// A node has changed, or is not there any more.
    pub fn update(&mut self, at: usize, node: Option<&Node>, settings: &NodesSettings) {
        let gpus = node.filter(|node| node.is_listed()).into_iter().flat_map(Node::gpus).map(|(_, gpu)| gpu);
        match self {
            Self::Fit(listing) => listing.update(at, gpus, settings),
            Self::Paper(listing) => listing.update(at, gpus),
        }
    }

    /// What has come out of date by changes is made anew, so that a search does not go astray.
    pub fn renew(&mut self) {
        match self {
            Self::Fit(listing) => {
                let (groups, trees) = (&listing.groups, listing.trees.iter_mut().enumerate());
                trees.for_each(|(column, tree)| tree.renew(|group| groups[group].line(column)));
            }
            Self::Paper(Paper { nodes, trees: [tree] }) => tree.renew(|group| all(Paper::group(nodes, group))),
        }
    }

    /// Of the GPUs of a node that may be chosen and that answer, in their order; under `fit`.
    pub fn lines(&self, at: usize) -> &[Line] {
        match self {
            Self::Fit(listing) => listing.groups.get(at / GROUP).map_or(&[], |group| group.of_node(at % GROUP)),
            Self::Paper(_) => &[],
        }
    }

    /// The best place, as a look at every node would find it.
    pub fn choose(&self, nodes: &[Option<Node>], asked: &Asked<'_>, now: Mono) -> Option<(usize, Found)> {
        match (self, &asked.by) {
            (Self::Fit(listing), By::Fit(ask)) => {
                let question = To { listing: &**listing, ask: &**ask, asked, nodes, now };
                search(&listing.trees, &question)
            }
            (Self::Paper(listing), By::Paper(ask)) => search(&listing.trees, &To { listing, ask, asked, nodes, now }),
            _ => None,
        }
    }
}

impl Fit {
    fn update<'a>(&mut self, at: usize, gpus: impl Iterator<Item = Gpu<'a>>, settings: &NodesSettings) {
        let (at, number) = (at / GROUP, at % GROUP);
        if self.groups.len() <= at {
            self.groups.resize_with(at + 1, Group::default);
        }
        let group = &mut self.groups[at];
        let of = |gpu: Gpu<'_>| {
            let (mut line, free_bytes) = (gpu.line(), gpu.free_bytes());
            line.set_memory(fit::memory(free_bytes.unwrap_or(0)));
            (fit::column(gpu.has_missed(settings.miss_window), free_bytes), line)
        };
        let mut changed = group.replace(number, gpus.map(of));
        while changed != 0 {
            let column = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            let new = all(group.of(group.places(number), column).map(|(_, line)| line));
            self.trees[column].change(at, &new, || group.line(column));
        }
    }
}

impl Group {
    /// Puts these in the place of a node's GPUs. Says in which columns something has changed, one bit each.
    #[expect(clippy::cast_possible_truncation, reason = "64 nodes, 32 columns")]
    fn replace(&mut self, number: usize, gpus: impl Iterator<Item = (usize, Line)>) -> u32 {
        let Range { start: mut at, mut end } = self.places(number);
        let mut changed = 0;
        for (column, line) in gpus {
            changed |= 1 << column;
            let key = (number as u8, column as u8);
            if at < end {
                changed |= 1 << self.keys[at].1;
                (self.keys[at], self.lines[at]) = (key, line);
            } else {
                self.keys.insert(at, key);
                self.lines.insert(at, line);
                end += 1;
            }
            at += 1;
        }
        changed = self.keys.drain(at..end).fold(changed, |changed, (_, column)| changed | 1 << column);
        self.lines.drain(at..end);
        changed
    }

    fn places(&self, number: usize) -> Range<usize> {
        let before = |most: usize| self.keys.partition_point(|(of, _)| usize::from(*of) < most);
        before(number)..before(number + 1)
    }

    fn of_node(&self, number: usize) -> &[Line] {
        &self.lines[self.places(number)]
    }

    fn line(&self, column: usize) -> Line {
        all(self.of(0..self.keys.len(), column).map(|(_, line)| line))
    }

    /// Of some places those of a column, with the number of the node.
    fn of(&self, places: Range<usize>, column: usize) -> impl Iterator<Item = (usize, &Line)> {
        let keys = self.keys[places.clone()].iter().zip(&self.lines[places]);
        keys.filter(move |((_, of), _)| usize::from(*of) == column)
            .map(|((number, _), line)| (usize::from(*number), line))
    }
}

impl Paper {
    fn update<'a>(&mut self, at: usize, gpus: impl Iterator<Item = Gpu<'a>>) {
        if self.nodes.len() <= at {
            self.nodes.resize(at + 1, Best::NOTHING);
        }
        let Self { nodes, trees: [tree] } = self;
        nodes[at] = Best::NOTHING;
        gpus.for_each(|gpu| nodes[at].add(&gpu.best()));
        let group = at / GROUP;
        tree.change(group, &nodes[at], || all(Self::group(nodes, group)));
    }

    fn group(nodes: &[Best], group: usize) -> &[Best] {
        &nodes[group * GROUP..nodes.len().min((group + 1) * GROUP)]
    }
}

// === impl To ===

impl<L, A> To<'_, L, A> {
    fn place(&self, node: usize, lines: &[Line]) -> Option<(Rank, Found)> {
        let found = self.asked.place(self.nodes[node].as_ref()?, lines, self.now)?;
        Some((found.rank, found))
    }
}

impl Question<Line> for To<'_, Fit, fit::Ask> {
    type Found = Found;

    fn bound(&self, column: usize, line: &Line) -> Option<Rank> {
        self.ask.bound(column, line)
    }

    fn nodes(&self, column: usize, group: usize, mut open: impl FnMut(usize, Rank)) {
        let of = &self.listing.groups[group];
        for (number, line) in of.of(0..of.keys.len(), column) {
            self.ask.bound(column, line).into_iter().for_each(|rank| open(group * GROUP + number, rank));
        }
    }

    fn judge(&self, node: usize) -> Option<(Rank, Found)> {
        self.place(node, self.listing.groups[node / GROUP].of_node(node % GROUP))
    }
}

impl Question<Best> for To<'_, Paper, paper::Ask> {
    type Found = Found;

    fn bound(&self, _: usize, best: &Best) -> Option<Rank> {
        self.ask.bound(best)
    }

    fn nodes(&self, _: usize, group: usize, mut open: impl FnMut(usize, Rank)) {
        for (number, best) in Paper::group(&self.listing.nodes, group).iter().enumerate() {
            self.ask.bound(best).into_iter().for_each(|rank| open(group * GROUP + number, rank));
        }
    }

    fn judge(&self, node: usize) -> Option<(Rank, Found)> {
        self.place(node, &[])
    }
}
