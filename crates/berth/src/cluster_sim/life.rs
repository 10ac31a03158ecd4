//! One container from coming to the cluster until it is done.

use std::collections::VecDeque;
use std::time::Duration;

use berth_model::cluster::{PlacementId, Wanted};
use berth_model::{Deadline, Mono};

use super::demand::{Container, Image, Work};
use super::gpu::{Piece, Tenant};

/// Where a container is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Nobody takes it, or it has not been offered yet.
    Waits,
    /// On its way to a GPU, or there.
    Placed {
        id: PlacementId,
        node: usize,
        gpu: usize,
    },
    Gone,
}

#[derive(Debug)]
pub struct Life {
    pub container: Container,
    image: Image,
    pub stage: Stage,
    /// When its task is due; put off by what its engine takes to start it.
    due: Option<Mono>,
    /// It came while it counts.
    pub counts: bool,
    /// It was refused when it came.
    pub has_waited: bool,
    pub was_placed: bool,
    /// Requests that have not come to its GPU.
    pending: VecDeque<Piece>,
    /// How many of its requests have come, and how many are over, answered or not.
    asked: usize,
    answered: usize,
}

impl Life {
    pub fn new(container: Container, images: &[Image], counts: bool) -> Self {
        let image = images[container.image].clone();
        let deadline = image.deadline.filter(|_| matches!(container.work, Work::Task(_)));
        Self {
            due: deadline.map(|deadline| container.comes + deadline.get()),
            container,
            image,
            stage: Stage::Waits,
            counts,
            has_waited: false,
            was_placed: false,
            pending: VecDeque::new(),
            asked: 0,
            answered: 0,
        }
    }

    /// What is asked of the cluster for it now: of a task, with what is left of its deadline.
    pub fn wanted(&self, now: Mono) -> Wanted {
        match self.container.work {
            Work::Task(_) => self.image.wanted(self.due.and_then(|due| Deadline::new(due.since(now)))),
            Work::Serves(_) => self.image.wanted(self.image.deadline),
        }
    }

    /// It has a place. It is there when its engine has started it: then.
    pub fn place(&mut self, id: PlacementId, node: usize, gpu: usize, now: Mono) -> Mono {
        self.stage = Stage::Placed { id, node, gpu };
        self.was_placed = true;
        // A deadline that has passed is over.
        self.due = self.due.map(|due| if due > now { due + self.container.starts_in } else { due });
        now + self.container.starts_in
    }

    /// As its GPU sees it when it comes there.
    pub fn tenant(&mut self, id: PlacementId, now: Mono) -> Tenant {
        let due = self.due.filter(|due| *due > now);
        let (deadline, pieces) = match self.container.work {
            Work::Task(takes) => {
                (due.map(|due| due.since(now)), VecDeque::from([Piece { due, takes, done: Duration::ZERO }]))
            }
            Work::Serves(_) => (self.image.deadline.map(Deadline::get), std::mem::take(&mut self.pending)),
        };
        Tenant {
            id,
            memory: self.image.memory,
            unit: self.image.unit(),
            deadline,
            takes: self.image.past,
            pieces,
            to_come: self.requests_in_all().len() - self.asked,
            has_missed: false,
            last_float: None,
        }
    }

    /// Whether its task is late if it ends now; `None` without a deadline.
    pub fn is_late(&self, now: Mono) -> Option<bool> {
        self.due.map(|due| now > due)
    }

    /// What takes longer than its deadline by itself.
    pub fn is_hopeless(&self, takes: Duration) -> bool {
        self.image.deadline.is_some_and(|deadline| takes > deadline.get())
    }

    /// It is no server, and is not done.
    pub fn is_task_open(&self) -> bool {
        matches!(self.container.work, Work::Task(_)) && self.stage != Stage::Gone
    }

    /// When each of its requests comes: as if it had its place at once.
    pub fn requests(&self) -> Vec<Mono> {
        let begins = self.container.comes + self.container.starts_in;
        self.requests_in_all().iter().map(|(after, _)| begins + *after).collect()
    }

    /// A request comes now.
    pub fn ask(&mut self, now: Mono) -> Piece {
        let takes = self.requests_in_all().get(self.asked).map_or(Duration::ZERO, |(_, takes)| *takes);
        self.asked += 1;
        Piece { due: self.image.deadline.map(|deadline| now + deadline.get()), takes, done: Duration::ZERO }
    }

    /// It is not on its GPU: the request waits for it.
    pub fn keep(&mut self, piece: Piece) {
        self.pending.push_back(piece);
    }

    /// Requests that are due and have not come to a GPU are given up by who sent them: what each would have taken.
    pub fn give_up(&mut self, now: Mono) -> Vec<Duration> {
        let over = self.pending.iter().take_while(|piece| piece.due.is_some_and(|due| due <= now)).count();
        self.answered += over;
        self.pending.drain(..over).map(|piece| piece.takes).collect()
    }

    /// A request is answered: what it took. `None` of one that does not serve.
    pub fn answer(&mut self) -> Option<Duration> {
        let (_, takes) = *self.requests_in_all().get(self.answered)?;
        self.answered += 1;
        Some(takes)
    }

    /// Its GPU is lost with the requests that were there: what each would have taken.
    pub fn lose(&mut self) -> Vec<Duration> {
        let lost = self.answered..self.asked - self.pending.len();
        self.answered = lost.end;
        self.requests_in_all()[lost].iter().map(|(_, takes)| *takes).collect()
    }

    /// It serves, and all its requests are over.
    pub fn is_over(&self) -> bool {
        matches!(self.container.work, Work::Serves(_)) && self.answered == self.requests_in_all().len()
    }

    /// Requests that are not over and were due by now: what each takes.
    pub fn overdue(&self, now: Mono) -> Vec<Duration> {
        let deadline = self.image.deadline.map_or(Duration::MAX, Deadline::get);
        let each = self.requests().into_iter().zip(self.requests_in_all()).skip(self.answered);
        each.filter(|(at, _)| *at + deadline < now).map(|(_, (_, takes))| *takes).collect()
    }

    fn requests_in_all(&self) -> &[(Duration, Duration)] {
        match &self.container.work {
            Work::Task(_) => &[],
            Work::Serves(requests) => requests,
        }
    }
}
