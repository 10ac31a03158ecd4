//! What each event makes of a cluster.

use std::sync::Arc;
use std::time::Duration;

use berth_model::cluster::{Engine, GpuReport, PlacementId, Report};
use berth_model::{Bytes, Mono};

use super::{Cluster, Event, OFFER_EVERY};
use crate::cluster_sim::gpu::Done;
use crate::cluster_sim::life::{Life, Stage};

/// Until an engine says that a node is down, and until such a node is back.
const NOTICED_AFTER: Duration = Duration::from_secs(10);
const BACK_AFTER: Duration = Duration::from_secs(60);

impl Cluster<'_> {
    pub fn happens(&mut self, event: Event) {
        let (now, nodes) = (self.now, &self.nodes);
        self.score.pass(now, || nodes.iter().flat_map(|node| &node.gpus).map(|gpu| gpu.busy(now)).sum());
        match event {
            Event::Comes => self.comes(),
            Event::Offer => self.offer_all(),
            Event::Ask(node) => self.ask(node),
            Event::Heard(report, made) => self.hear(report, made),
            Event::Starts(life, id) => self.starts(life, id),
            Event::Request(life) => self.request(life),
            Event::Slice(node, gpu) => self.step(node, gpu),
            Event::Fails(node) => self.fails(node),
            Event::Noticed(node) => self.noticed(node),
            Event::Back(node) => self.back(node),
            Event::Tell => {}
        }
    }

    fn comes(&mut self) {
        let Some(container) = self.next.take() else { return };
        let number = self.lives.len();
        let counts = self.score.comes(container.comes);
        let life = Life::new(container, &self.demand.images, counts);
        life.requests().into_iter().for_each(|at| self.agenda.note(at, Event::Request(number)));
        self.lives.push(life);
        self.there += 1;
        if !self.offer(number) {
            self.lives[number].has_waited = true;
            self.waiting.push(number);
        }
        self.await_next();
    }

    fn offer_all(&mut self) {
        self.placer.expire(self.now);
        let waiting = std::mem::take(&mut self.waiting);
        for number in waiting {
            if !self.give_up_late_requests(number) && !self.offer(number) {
                self.waiting.push(number);
            }
        }
        self.note_in(OFFER_EVERY, Event::Offer);
    }

    /// `true`: there is nothing left for it to do, and it is gone.
    fn give_up_late_requests(&mut self, number: usize) -> bool {
        let life = &mut self.lives[number];
        for takes in life.give_up(self.now) {
            self.score.burst(life, true, takes);
        }
        let is_over = life.is_over();
        if is_over {
            self.leaves(number);
        }
        is_over
    }

    /// `false`: nobody takes it.
    fn offer(&mut self, number: usize) -> bool {
        let now = self.now;
        let life = &mut self.lives[number];
        let wanted = life.wanted(now);
        self.score.outcome.traffic.choices += 1;
        let Some(choice) = self.placer.choose(&wanted, now) else { return false };
        let node = *self.by_id.get(&choice.node).expect("who is chosen is in the cluster");
        let gpu = choice.gpus.first().and_then(|uuid| self.nodes[node].gpu_of(uuid));
        let gpu = gpu.expect("a GPU that is chosen is one of its node's");
        self.placements += 1;
        let id = PlacementId(self.placements);
        self.placer.reserve(id, &wanted, &choice, now);
        let starts = life.place(id, node, gpu, now);
        self.score.placed(life, now);
        let is_stale = self.heard[node].is_none_or(|made| now.since(made) > self.setup.stale_after);
        self.score.outcome.placed_on_stale += u64::from(is_stale);
        self.score.outcome.placed_on_lost += u64::from(!self.nodes[node].is_alive);
        self.whose.insert(id, number);
        self.agenda.note(starts, Event::Starts(number, id));
        true
    }

    fn ask(&mut self, node: usize) {
        self.note_in(self.setup.report_every, Event::Ask(node));
        let is_lost = self.dice.between(0.0, 1.0) < self.setup.report_loss;
        if !self.nodes[node].is_alive {
            return;
        }
        let report = Arc::new(self.nodes[node].report(self.now));
        let traffic = &mut self.score.outcome.traffic;
        traffic.reports += 1;
        traffic.changed += u64::from(self.made[node].as_ref().is_none_or(|before| news(before) != news(&report)));
        self.made[node] = Some(Arc::clone(&report));
        if !is_lost {
            self.note_in(self.setup.report_takes, Event::Heard(report, self.now));
        }
    }

    fn hear(&mut self, report: Arc<Report>, made: Mono) {
        if let Some(node) = self.by_id.get(&report.node) {
            self.heard[*node] = Some(made);
        }
        self.placer.apply(report, made);
    }

    fn starts(&mut self, number: usize, id: PlacementId) {
        let Stage::Placed { id: of, node, gpu } = self.lives[number].stage else { return };
        if of != id || !self.nodes[node].is_alive || self.give_up_late_requests(number) {
            return;
        }
        let tenant = self.lives[number].tenant(id, self.now);
        self.nodes[node].gpus[gpu].arrive(tenant, self.now);
        self.score.outcome.traffic.changes += 1;
        self.rouse(node, gpu);
    }

    fn request(&mut self, number: usize) {
        let life = &mut self.lives[number];
        let piece = life.ask(self.now);
        if let Stage::Placed { id, node, gpu } = life.stage
            && self.nodes[node].gpus[gpu].request(id, piece, self.now)
        {
            self.score.outcome.traffic.changes += 1;
            self.rouse(node, gpu);
        } else {
            life.keep(piece);
        }
    }

    fn step(&mut self, node: usize, gpu: usize) {
        let place = node * self.setup.gpus_each + gpu;
        if self.slices[place] == Some(self.now) {
            self.slices[place] = None;
        }
        if let Some(done) = self.nodes[node].gpus[gpu].step(self.now) {
            self.score.outcome.traffic.changes += 1;
            self.done(done);
        }
        self.rouse(node, gpu);
    }

    /// Notes when a GPU has something to do next, unless that is noted.
    fn rouse(&mut self, node: usize, gpu: usize) {
        let next = self.nodes[node].gpus[gpu].next_at();
        let noted = &mut self.slices[node * self.setup.gpus_each + gpu];
        if let Some(at) = next.filter(|_| *noted != next) {
            *noted = next;
            self.agenda.note(at, Event::Slice(node, gpu));
        }
    }

    fn done(&mut self, done: Done) {
        let Some(number) = self.whose.get(&done.id).copied() else { return };
        let life = &mut self.lives[number];
        match life.answer() {
            Some(takes) => self.score.burst(life, done.due.is_some_and(|due| self.now > due), takes),
            None => self.score.task(life, self.now),
        }
        if done.left {
            self.leaves(number);
        }
    }

    /// Its engine tells of it: what was kept for it is free.
    fn leaves(&mut self, number: usize) {
        let before = std::mem::replace(&mut self.lives[number].stage, Stage::Gone);
        if let Stage::Placed { id, .. } = before {
            self.placer.release(id);
            self.whose.remove(&id);
        }
        self.there -= 1;
    }

    fn fails(&mut self, node: usize) {
        if self.nodes[node].is_alive {
            self.nodes[node].fail(self.now);
            self.note_in(NOTICED_AFTER, Event::Noticed(node));
            self.note_in(BACK_AFTER, Event::Back(node));
        }
    }

    /// Its engine says that it is down: all that was there is to be placed again, and begins anew.
    fn noticed(&mut self, lost: usize) {
        self.placer.engine(&self.nodes[lost].id, Engine::Down);
        for number in 0..self.lives.len() {
            let Stage::Placed { id, node, .. } = self.lives[number].stage else { continue };
            if node != lost {
                continue;
            }
            self.placer.release(id);
            self.whose.remove(&id);
            let life = &mut self.lives[number];
            life.stage = Stage::Waits;
            for takes in life.lose() {
                self.score.burst(life, true, takes);
            }
            self.score.outcome.displaced += 1;
            self.waiting.push(number);
        }
    }

    fn back(&mut self, node: usize) {
        self.nodes[node].is_alive = true;
        self.placer.engine(&self.nodes[node].id, Engine::Ready);
    }
}

/// Of one GPU its memory, who is there, how many wait, and who has work under way.
type News<'a> = (Option<Bytes>, &'a [PlacementId], u32, Vec<bool>);

/// What a report says but for time that passed.
fn news(report: &Report) -> Vec<News<'_>> {
    report.gpus.iter().map(news_of).collect()
}

fn news_of(gpu: &GpuReport) -> News<'_> {
    let under_way = gpu.loads.iter().map(|load| load.under_way.is_some()).collect();
    (gpu.memory_used_bytes, gpu.placed.as_slice(), gpu.queue, under_way)
}
