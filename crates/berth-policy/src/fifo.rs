//! berth's own policy: fair by owner, then the shortest first, then first come, first served; only computing is exclusive.
//!
//! It is the turns of [`crate::turns`] and nothing else: no tenant has a claim beyond its place in line.

use berth_model::Mono;

use crate::settings::FifoSettings;
use crate::turns::{Rota, Unclaimed};
use crate::view::View;
use crate::{Policy, Verdict};

#[derive(Debug)]
pub struct Fifo(Rota<Unclaimed>);

impl Fifo {
    pub fn new(settings: FifoSettings) -> Self {
        Self(Rota::new(settings, Unclaimed))
    }
}

impl Policy for Fifo {
    fn name(&self) -> &'static str {
        "fifo"
    }

    fn queues_for_memory(&self) -> bool {
        true
    }

    fn decide(&mut self, view: &View, now: Mono) -> Verdict {
        self.0.decide(view, now)
    }
}
