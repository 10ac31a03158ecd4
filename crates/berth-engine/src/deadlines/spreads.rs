//! How long units of each workload computed before: what the next is expected to take.
//!
//! Pure: records in, a spread out. Judged units tell it best, as if each had been alone; of tasks that had no deadline their own figure
//! stands in until there are any.

use std::collections::{BTreeMap, VecDeque};

use berth_model::Evidence;
use berth_model::cluster::Past;
use berth_model::control::Candidate;
use berth_model::deadline::{Spread, Unit};
use berth_model::history::{Happening, Judgement, Record, Workload};

/// Units a spread is made of.
const LAST: usize = 32;
/// A figure that has moved by more than this share of what was last told is worth telling.
const WORTH_TELLING: f64 = 0.1;
/// Workloads kept, each with its units; of more, the one that was noted longest ago is forgotten.
const MOST: usize = 1_024;

#[derive(Debug, Default)]
pub(super) struct Spreads {
    kinds: BTreeMap<(Workload, Unit), Kind>,
    count: u64,
    /// See [`Spreads::number`].
    number: u32,
}

#[derive(Debug, Default)]
struct Kind {
    judged: VecDeque<Took>,
    tasks: VecDeque<Took>,
    newest: u64,
    /// As [`Spreads::number`] last counted it.
    told: Option<Spread>,
}

/// What one unit took, in seconds.
#[derive(Debug, Clone, Copy)]
struct Took {
    /// GPU time, as if alone.
    active: f64,
    /// From start to end, without what others cost it, and no less than `active`; only of judged ones, where their end was seen.
    run: Option<f64>,
}

impl Spreads {
    pub fn note(&mut self, record: &Record) {
        match &record.what {
            Happening::Judged(judgement) => self.judged(judgement),
            Happening::Task(story) if story.end.is_some() && story.start_evidence != Evidence::Process => {
                if let Some(active) = story.spent.active_seconds {
                    self.add(&story.workload, Unit::Task, |kind| &mut kind.tasks, Took { active, run: None });
                }
            }
            _ => {}
        }
    }

    pub fn judged(&mut self, judgement: &Judgement) {
        if let Some(active) = judgement.active_seconds {
            let run = |seconds: f64| (seconds - judgement.held_seconds - judgement.contended_seconds).max(active);
            let took = Took { active, run: judgement.seconds.map(run) };
            self.add(&judgement.workload, judgement.unit, |kind| &mut kind.judged, took);
        }
    }

    /// `None` if nothing like it was seen.
    pub fn of(&self, workload: &Workload, unit: Unit) -> Option<Spread> {
        Spread::of(self.kinds.get(&(workload.clone(), unit))?.took().map(|took| took.active))
    }

    /// GPU time that units took of whatever is like the candidate, and how long the same took in all: at least as much, and only where
    /// that is known of any. Nothing where it is not said what it is.
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
        let kinds = self.kinds.iter().filter(|((workload, of), _)| of == unit && is_like(workload));
        spreads(&kinds.flat_map(|(_, kind)| kind.took()).collect::<Vec<_>>())
    }

    /// Goes up when what is known has become another, as far as that matters to whoever expects something.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What is known of each image, the latest first, at most `most` of them.
    pub fn pasts(&self, most: usize) -> Vec<Past> {
        let mut images: BTreeMap<(&str, Unit), (u64, Vec<Took>)> = BTreeMap::new();
        for ((workload, unit), kind) in &self.kinds {
            let Some(image) = workload.image.as_deref() else { continue };
            let (newest, took) = images.entry((image, *unit)).or_default();
            *newest = kind.newest.max(*newest);
            took.extend(kind.took());
        }
        let mut images: Vec<_> = images.into_iter().collect();
        images.sort_by_key(|(_, (newest, _))| std::cmp::Reverse(*newest));
        let past = |((image, unit), (_, took)): ((&str, Unit), (u64, Vec<Took>))| {
            let (takes, run) = spreads(&took);
            Past { image: image.to_owned(), unit, takes, run }
        };
        images.into_iter().take(most).map(past).collect()
    }

    fn add(&mut self, workload: &Workload, unit: Unit, which: fn(&mut Kind) -> &mut VecDeque<Took>, took: Took) {
        // Who never computed, as one that crashed before it could, says nothing of how long computing takes.
        if workload.command.is_empty() || took.active <= 0.0 {
            return;
        }
        self.count += 1;
        let kind = self.kinds.entry((workload.clone(), unit)).or_default();
        kind.newest = self.count;
        let last = which(kind);
        last.push_back(took);
        if last.len() > LAST {
            last.pop_front();
        }
        if kind.is_news() {
            self.number = self.number.wrapping_add(1);
        }
        if self.kinds.len() > MOST {
            let oldest = self.kinds.iter().min_by_key(|(_, kind)| kind.newest).map(|(key, _)| key.clone());
            oldest.map(|key| self.kinds.remove(&key));
        }
    }
}

impl Kind {
    /// It is not what was last told; now it is.
    fn is_news(&mut self) -> bool {
        let now = Spread::of(self.took().map(|took| took.active));
        let has_moved = |one: f64, other: f64| (one - other).abs() > WORTH_TELLING * other;
        let is_news = now.zip(self.told).is_none_or(|(now, told)| {
            has_moved(now.median_seconds, told.median_seconds)
                || has_moved(now.p90_seconds, told.p90_seconds)
                || has_moved(now.most_seconds, told.most_seconds)
        });
        if is_news {
            self.told = now;
        }
        is_news
    }

    fn took(&self) -> impl Iterator<Item = Took> {
        let from = if self.judged.is_empty() { &self.tasks } else { &self.judged };
        from.iter().copied()
    }
}

/// GPU time they took, and how long in all: at least as much, and only where that is known of any.
fn spreads(took: &[Took]) -> (Option<Spread>, Option<Spread>) {
    let run = Spread::of(took.iter().map(|took| took.run.unwrap_or(took.active)));
    let run = run.filter(|_| took.iter().any(|took| took.run.is_some()));
    (Spread::of(took.iter().map(|took| took.active)), run)
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
            let took = Took { active, run: None };
            spreads.add(&workload(owner, image, command), Unit::Task, |kind| &mut kind.tasks, took);
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

    #[test]
    fn what_is_known_of_images_is_told_the_latest_first() {
        let mut spreads = Spreads::default();
        let mut noted = |owner, image, command, unit, active| {
            let took = Took { active, run: Some(active + 1.0) };
            spreads.add(&workload(owner, image, command), unit, |kind| &mut kind.judged, took);
        };
        noted("ada", "a:1", "train", Unit::Task, 1.0);
        noted("ada", "b:1", "serve", Unit::Burst, 0.5);
        noted("eve", "a:1", "test", Unit::Task, 3.0);
        let told = spreads.pasts(9);
        let images: Vec<_> = told.iter().map(|past| (past.image.as_str(), past.unit)).collect();
        assert_eq!(images, [("a:1", Unit::Task), ("b:1", Unit::Burst)]);
        let (takes, run) = (told[0].takes.unwrap(), told[0].run.unwrap());
        assert_eq!((takes.units, takes.most_seconds, run.most_seconds), (2, 3.0, 4.0), "of whoever ran it");
        assert_eq!(spreads.pasts(1).len(), 1);
    }

    #[test]
    fn only_what_has_become_another_is_news() {
        let mut spreads = Spreads::default();
        let mut noted = |active| {
            let took = Took { active, run: None };
            spreads.add(&workload("ada", "a:1", "x"), Unit::Burst, |kind| &mut kind.judged, took);
            spreads.number()
        };
        assert_eq!(noted(1.0), 1);
        assert_eq!([1.0, 1.05, 0.99].map(&mut noted), [1, 1, 1], "about the same");
        assert_eq!(noted(2.0), 2);
        assert_eq!((0..1_000).map(|_| noted(2.0)).last(), Some(3), "a server's thousand requests are no news");
    }

    #[test]
    fn what_they_took_in_all_is_told_of_the_same_units_and_is_never_less() {
        let mut spreads = Spreads::default();
        let mut noted = |command, which: fn(&mut Kind) -> &mut VecDeque<Took>, active, run| {
            spreads.add(&workload("ada", "a:1", command), Unit::Task, which, Took { active, run });
        };
        noted("long", |kind| &mut kind.tasks, 8.0, None);
        noted("short", |kind| &mut kind.judged, 1.0, Some(2.0));
        noted("short", |kind| &mut kind.judged, 1.0, None);
        let (takes, run) = spreads.like(&candidate(Some("a:1"), None, None));
        let (takes, run) = (takes.unwrap(), run.unwrap());
        assert_eq!((takes.units, run.units), (3, 3));
        assert_eq!((takes.most_seconds, run.most_seconds, run.median_seconds), (8.0, 8.0, 2.0));
        assert_eq!(spreads.like(&candidate(None, Some("long"), None)).1, None, "of none of them it is known");
    }
}
