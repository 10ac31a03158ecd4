//! How long units of each workload computed before: what the next is expected to take.
//!
//! Pure: records in, a spread out. Judged units tell it best, as if each had been alone; of tasks that had no deadline their own figure
//! stands in until there are any.

use std::collections::{BTreeMap, VecDeque};

use berth_model::Evidence;
use berth_model::control::Candidate;
use berth_model::deadline::{Spread, Unit};
use berth_model::history::{Happening, Judgement, Record, Workload};

/// Units a spread is made of.
const LAST: usize = 32;
/// Workloads kept, each with its units; of more, the one that was noted longest ago is forgotten.
const MOST: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Spreads {
    kinds: BTreeMap<(Workload, Unit), Kind>,
    count: u64,
}

#[derive(Debug, Default)]
struct Kind {
    judged: VecDeque<f64>,
    tasks: VecDeque<f64>,
    /// Of judged ones also the time they took in all, without what others cost them.
    runs: VecDeque<f64>,
    newest: u64,
}

impl Spreads {
    pub fn note(&mut self, record: &Record) {
        match &record.what {
            Happening::Judged(judgement) => self.judged(judgement),
            Happening::Task(story) if story.end.is_some() && story.start_evidence != Evidence::Process => {
                if let Some(active) = story.spent.active_seconds {
                    self.add(&story.workload, Unit::Task, |kind| &mut kind.tasks, active);
                }
            }
            _ => {}
        }
    }

    pub fn judged(&mut self, judgement: &Judgement) {
        if let Some(active) = judgement.active_seconds {
            self.add(&judgement.workload, judgement.unit, |kind| &mut kind.judged, active);
            if let Some(seconds) = judgement.seconds {
                let run = (seconds - judgement.held_seconds - judgement.contended_seconds).max(active);
                self.add(&judgement.workload, judgement.unit, |kind| &mut kind.runs, run);
            }
        }
    }

    /// `None` if nothing like it was seen.
    pub fn of(&self, workload: &Workload, unit: Unit) -> Option<Spread> {
        Spread::of(self.kinds.get(&(workload.clone(), unit))?.active())
    }

    /// GPU time that units took of whatever is like the candidate, and how long they took in all; nothing where it is not said what
    /// it is.
    pub fn like(&self, candidate: &Candidate) -> (Option<Spread>, Option<Spread>) {
        let Candidate { image, command, owner, unit, .. } = candidate;
        if image.is_none() && command.is_none() {
            return (None, None);
        }
        let is_like = |workload: &Workload| {
            image.as_ref().is_none_or(|image| workload.image.as_ref() == Some(image))
                && command.as_ref().is_none_or(|command| workload.command == *command)
                && owner.as_ref().is_none_or(|owner| workload.owner.as_ref() == Some(owner))
        };
        let kinds = || self.kinds.iter().filter(|((workload, of), _)| of == unit && is_like(workload));
        let active = Spread::of(kinds().flat_map(|(_, kind)| kind.active()));
        (active, Spread::of(kinds().flat_map(|(_, kind)| kind.runs.iter().copied())))
    }

    fn add(&mut self, workload: &Workload, unit: Unit, which: fn(&mut Kind) -> &mut VecDeque<f64>, active: f64) {
        if workload.command.is_empty() {
            return;
        }
        self.count += 1;
        let kind = self.kinds.entry((workload.clone(), unit)).or_default();
        kind.newest = self.count;
        let last = which(kind);
        last.push_back(active);
        if last.len() > LAST {
            last.pop_front();
        }
        if self.kinds.len() > MOST {
            let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.newest).map(|(key, _)| key.clone());
            oldest.map(|key| self.kinds.remove(&key));
        }
    }
}

impl Kind {
    fn active(&self) -> impl Iterator<Item = f64> {
        let from = if self.judged.is_empty() { &self.tasks } else { &self.judged };
        from.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(owner: &str, image: &str, command: &str) -> Workload {
        Workload { owner: Some(owner.into()), image: Some(image.into()), command: command.into() }
    }

    fn candidate(image: Option<&str>, command: Option<&str>, owner: Option<&str>) -> Candidate {
        let text = |text: Option<&str>| text.map(str::to_owned);
        let deadline = "9s".parse().unwrap();
        let (image, command, owner) = (text(image), text(command), text(owner));
        Candidate { deadline, unit: Unit::Task, image, command, owner, takes: None, gpu: None }
    }

    #[test]
    fn what_is_like_a_candidate_is_found_by_whatever_is_said_of_it() {
        let mut spreads = Spreads::default();
        let mut noted = |owner, image, command, active| {
            spreads.add(&workload(owner, image, command), Unit::Task, |kind| &mut kind.tasks, active);
        };
        noted("ada", "a:1", "train", 1.0);
        noted("ada", "a:1", "test", 2.0);
        noted("eve", "a:1", "train", 3.0);
        noted("eve", "b:1", "train", 4.0);
        let most = |image, command, owner| {
            spreads.like(&candidate(image, command, owner)).0.map(|takes| (takes.units, takes.most_seconds))
        };
        assert_eq!(most(Some("a:1"), None, None), Some((3, 3.0)));
        assert_eq!(most(Some("a:1"), Some("train"), None), Some((2, 3.0)));
        assert_eq!(most(Some("a:1"), Some("train"), Some("ada")), Some((1, 1.0)));
        assert_eq!(most(None, Some("train"), None), Some((3, 4.0)));
        assert_eq!((most(Some("c:1"), None, None), most(None, None, Some("ada"))), (None, None));
        let bursts = Candidate { unit: Unit::Burst, ..candidate(Some("a:1"), None, None) };
        assert_eq!(spreads.like(&bursts), (None, None));
    }
}
