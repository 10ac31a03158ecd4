//! Whose turn it is.
//!
//! Of the units that contend for a GPU one at a time has the turn there and runs freely. It keeps the turn as long as nobody wants
//! it; it yields to a unit that stands at a launch as soon as it is quiet, and at its next launch once its quantum is over.
//! A unit has the turn on all its GPUs or on none. One that is brief beside those that compute ([`super::length`]) has it beside
//! theirs, and where its briefness is known before it stands at a launch it is not made to stand there at all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use berth_model::{GpuIndex, Mono};

use super::book::Book;
use super::claim;
use super::round::Round;
use super::unit::{Unit, UnitName};
use crate::Reason;
use crate::settings::FifoSettings;

/// Who is soon even is not looked at sooner than this: what little is left may be the same at each look.
const SOON: Duration = Duration::from_millis(1);

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Turns {
    turns: BTreeMap<UnitName, Turn>,
    /// Behind whom a unit was standing when last asked; by name, since that one may be gone by now.
    behind: BTreeMap<UnitName, String>,
    /// Units without a turn that may launch all the same, and beside whom; by name, as above.
    beside: BTreeMap<UnitName, String>,
}

#[derive(Debug, Clone, PartialEq)]
struct Turn {
    /// When it was given or, once it computes, since when it does.
    since: Mono,
    reason: Reason,
    stage: Stage,
    /// Given beside another's, for as long as it is brief.
    is_beside: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Given to one that is not at a launch yet: whoever is may take it.
    InAdvance,
    /// Released, and not seen computing yet.
    Given,
    /// Has computed since.
    Taken,
    /// Its quantum is over: it is gated again, and what it has submitted runs on.
    Over { at: Mono },
}

impl Turns {
    /// Takes in what those that have the turn have done with it, and takes it from those whose time is over.
    pub fn follow(&mut self, units: &[Unit<'_>], book: &mut Book, settings: &FifoSettings, now: Mono) {
        let round = Round { units, settings, now };
        self.turns.retain(|name, _| units.iter().any(|unit| unit.contends() && unit.name == *name));
        self.part_rivals(&round, book);
        for unit in units {
            let had_its_time = self.had_its_time(unit, &round, book);
            let Some(turn) = self.turns.get_mut(&unit.name) else { continue };
            if unit.busy_since.is_some() && matches!(turn.stage, Stage::InAdvance | Stage::Given) {
                (turn.stage, turn.since) = (Stage::Taken, now);
            }
            match turn.stage {
                Stage::Taken if had_its_time == Some(true) && unit.is_movable => turn.stage = Stage::Over { at: now },
                Stage::Over { .. } if had_its_time.is_none() => turn.stage = Stage::Taken,
                Stage::Over { .. } if unit.busy_since.is_none() && unit.standing_since.is_some() => {
                    self.take_from(unit, now, book);
                }
                _ => {}
            }
        }
    }

    /// Gives the turns that are free. `units` are in the order of the host.
    pub fn assign(&mut self, units: &[Unit<'_>], book: &mut Book, settings: &FifoSettings, now: Mono) {
        let round = Round { units, settings, now };
        self.give_to_busy(&round, book);
        let reserved = self.give_to_standing(&round, book);
        self.give_in_advance(&round, book, &reserved);
        let waiting = round.standing().filter(|unit| !self.has_turn(unit));
        let behind = waiting.filter_map(|unit| Some((unit.name.clone(), self.blocker(unit, &round, book)?.title())));
        self.behind = behind.collect();
        self.beside = round
            .contenders()
            .filter_map(|unit| Some((unit.name.clone(), self.may_join(unit, &round, book)?)))
            .collect();
    }

    /// Why a unit runs freely, or why it may not.
    pub fn freedom(&self, unit: &Unit<'_>, units: &[Unit<'_>], now: Mono) -> Result<Reason, Reason> {
        let turn = self.turns.get(&unit.name);
        match turn {
            _ if !unit.contends() => Ok(Reason::NoContention),
            Some(Turn { stage: Stage::Over { at }, since, .. }) => {
                let mut rivals = units.iter().filter(|other| other.standing_since.is_some());
                let claimed = rivals.find_map(|other| claim::against(unit, other, now));
                Err(claimed.unwrap_or(Reason::QuantumOver { after: at.since(*since) }))
            }
            Some(turn) => Ok(turn.reason.clone()),
            None => match self.beside.get(&unit.name) {
                Some(who) => Ok(Reason::BriefBeside { who: who.clone() }),
                None => self.rival(unit, units, now).map_or(Ok(Reason::NoContention), Err),
            },
        }
    }

    /// The unit for which another waits, of those that have the turn or compute.
    pub fn ahead_of<'r, 'a>(&self, unit: &Unit<'_>, units: &'r [Unit<'a>]) -> Option<&'r Unit<'a>> {
        let rivals = || units.iter().filter(|other| other.contends() && unit.meets(other).is_some());
        let holds = |other: &&Unit<'_>| self.has_turn(other);
        rivals()
            .find(|other| holds(other) && other.busy_since.is_some())
            .or_else(|| rivals().find(|other| other.busy_since.is_some()))
            .or_else(|| rivals().find(holds))
            .or_else(|| rivals().find(|other| other.standing_since.is_some()))
    }

    pub fn has_turn(&self, unit: &Unit<'_>) -> bool {
        self.turns.contains_key(&unit.name)
    }

    fn is_in_advance(&self, unit: &Unit<'_>) -> bool {
        self.turns.get(&unit.name).is_some_and(|turn| turn.stage == Stage::InAdvance)
    }

    /// For how long a unit has computed in its turn.
    pub fn ran(&self, unit: &Unit<'_>, now: Mono) -> Duration {
        let turn = self.turns.get(&unit.name).filter(|turn| matches!(turn.stage, Stage::Taken | Stage::Over { .. }));
        turn.map(|turn| now.since(turn.since)).unwrap_or_default()
    }

    /// Whether a unit that stands is to be waited with: it has no turn, or none that it can use.
    fn waits(&self, unit: &Unit<'_>) -> bool {
        self.turns.get(&unit.name).is_none_or(|turn| matches!(turn.stage, Stage::Over { .. }))
    }

    /// When the turns must be looked at again, if nothing happens before.
    pub fn again_at(&self, units: &[Unit<'_>], book: &Book, settings: &FifoSettings, now: Mono) -> Vec<Mono> {
        let round = Round { units, settings, now };
        let waits = |unit: &&Unit<'_>| self.waits(unit);
        let bounds = round
            .standing()
            .filter(waits)
            .filter_map(|unit| Some(unit.standing_since? + round.last_resort(self.blocker(unit, &round, book))));
        let stages = units.iter().flat_map(|unit| self.next_stage(unit, &round, book));
        let idle = units.iter().filter_map(|unit| Some(unit.quiet_since? + settings.idle.get()));
        let brief = round.standing().filter(waits).filter_map(|unit| {
            let blocker = self.blocker(unit, &round, book).filter(|other| other.busy_since.is_some())?;
            Some(now + unit.length.until_brief_beside(&blocker.length)?)
        });
        bounds.chain(stages).chain(idle).chain(brief).filter(|at| *at > now).collect()
    }
}

impl Turns {
    fn next_stage(&self, unit: &Unit<'_>, round: &Round<'_, '_>, book: &Book) -> Vec<Mono> {
        let Some(turn) = self.turns.get(&unit.name) else { return Vec::new() };
        let settings = round.settings;
        match turn.stage {
            Stage::InAdvance | Stage::Taken if unit.busy_since.is_none() => {
                let rivals = round.standing().filter(|other| other.meets(unit).is_some());
                let ends = |other| Some(unit.quiet_since? + round.linger(unit, other, book));
                rivals.filter_map(ends).collect()
            }
            Stage::InAdvance | Stage::Taken => {
                let waiting = || round.standing().filter(|other| other.meets(unit).is_some() && !self.has_turn(other));
                let over = waiting().map(|other| turn.since + round.may_keep(unit, other, book));
                let left = waiting().map(|other| round.until_even(unit, other, book)).filter(|left| !left.is_zero());
                let even = left.map(|left| round.now + left.max(SOON));
                over.chain(even)
                    .chain([turn.since + settings.slice.get(), turn.since + settings.quantum.get()])
                    .collect()
            }
            Stage::Given => vec![turn.since + settings.settle.get()],
            Stage::Over { at } => vec![at + settings.settle.get()],
        }
    }

    /// Whether a unit that has the turn has had enough of it for those who wait; `None` if nobody does.
    fn had_its_time(&self, unit: &Unit<'_>, round: &Round<'_, '_>, book: &Book) -> Option<bool> {
        let turn = self.turns.get(&unit.name)?;
        let ran = round.now.since(turn.since);
        let waiting = round.standing().filter(|other| other.meets(unit).is_some() && !self.has_turn(other));
        waiting.map(|other| ran >= round.may_keep(unit, other, book)).max()
    }

    /// Of those that have the turn and have become rivals since, the ones that do not compute lose it, and who has it beside
    /// another and is no longer brief; if none computes, all but the first that got it.
    fn part_rivals(&mut self, round: &Round<'_, '_>, book: &mut Book) {
        let uses = |unit: &Unit<'_>, turn: &Turn| {
            unit.busy_since.is_some() || matches!(turn.stage, Stage::Given | Stage::Over { .. })
        };
        let holders = round.contenders().filter_map(|unit| Some((self.turns.get(&unit.name)?, unit)));
        let mut holders: Vec<_> = holders.map(|(turn, unit)| (!uses(unit, turn), turn.since, unit)).collect();
        holders.sort_by_key(|(is_unused, since, unit)| (*is_unused, *since, unit.name.clone()));
        let mut kept: Vec<&Unit<'_>> = Vec::new();
        for (is_unused, _, unit) in holders {
            let is_beside = self.turns.get(&unit.name).is_some_and(|turn| turn.is_beside);
            let hosts = round.hosts(unit, book);
            let in_the_way = |other: &&Unit<'_>| {
                let is_unwanted = is_unused || is_beside && round.is_apart(unit, other, &hosts, book);
                is_unwanted && other.meets(unit).is_some()
            };
            if kept.iter().any(in_the_way) {
                self.take_from(unit, round.now, book);
            } else {
                kept.push(unit);
            }
        }
    }

    /// Who computes has the turn, given or not, unless another one computes too and has it.
    fn give_to_busy(&mut self, round: &Round<'_, '_>, book: &mut Book) {
        let mut busy: Vec<&Unit<'_>> = round.contenders().filter(|unit| unit.busy_since.is_some()).collect();
        busy.sort_by_key(|unit| unit.busy_since);
        for unit in busy {
            let holders = self.holders(unit, round);
            let is_kept = |holder: &&Unit<'_>| {
                self.turns.get(&holder.name).is_some_and(|turn| !yields(turn, holder, unit, round, book))
            };
            if self.has_turn(unit) || holders.iter().any(is_kept) {
                continue;
            }
            holders.iter().for_each(|holder| self.take_from(holder, round.now, book));
            self.give(unit, Stage::Taken, Reason::ItsTurn, round.now);
        }
    }

    /// In order, to those who stand at a launch. Returns the GPUs that are kept for those who could not have it.
    fn give_to_standing(&mut self, round: &Round<'_, '_>, book: &mut Book) -> BTreeSet<GpuIndex> {
        let mut reserved = BTreeSet::new();
        for unit in round.standing() {
            let Some(since) = unit.standing_since.filter(|_| self.waits(unit)) else { continue };
            let waited = round.now.since(since);
            let blocker = self.blocker(unit, round, book);
            if waited >= round.last_resort(blocker) {
                self.give(unit, Stage::Given, Reason::WaitedLongest { waited }, round.now);
            } else if self.has_turn(unit) {
                // It stands because its quantum is over, and something it has submitted still runs.
            } else if blocker.is_none()
                && let Some(host) = round.hosts(unit, book).first()
            {
                self.give(unit, Stage::Given, Reason::BriefBeside { who: host.title() }, round.now);
            } else if blocker.is_none() && reserved.is_disjoint(&unit.gpus) {
                let holders = self.holders(unit, round);
                let before =
                    holders.first().map(|holder| holder.title()).or_else(|| self.behind.get(&unit.name).cloned());
                holders.iter().for_each(|holder| self.take_from(holder, round.now, book));
                let reason = claim::of(unit, round).or_else(|| before.map(|who| Reason::OtherIsDone { who }));
                self.give(unit, Stage::Given, reason.unwrap_or(Reason::ItsTurn), round.now);
            } else if waited >= round.settings.quantum.get() {
                reserved.extend(unit.gpus.iter().copied());
            }
        }
        reserved
    }

    /// To one that is still loading, where nobody computes or stands at a launch: it need not stop at its own. Failing
    /// that, to one that is quiet.
    fn give_in_advance(&mut self, round: &Round<'_, '_>, book: &mut Book, reserved: &BTreeSet<GpuIndex>) {
        let is_still = |unit: &&Unit<'_>| unit.busy_since.is_none() && unit.standing_since.is_none();
        let (loading, other): (Vec<_>, Vec<_>) = round.contenders().filter(is_still).partition(|unit| unit.is_loading);
        for unit in loading.iter().chain(other.iter().filter(|unit| unit.quiet_since.is_some())) {
            let mut rivals = round.contenders().filter(|other| other.meets(unit).is_some());
            let is_wanted = rivals.any(Unit::wants);
            let holders = self.holders(unit, round);
            let has_less = |holder: &Unit<'_>| unit.claim < holder.claim && self.is_in_advance(holder);
            let gives_way = |holder: &&Unit<'_>| unit.is_loading && (round.is_idle(holder) || has_less(holder));
            if self.has_turn(unit) || is_wanted || !reserved.is_disjoint(&unit.gpus) || !holders.iter().all(gives_way) {
                continue;
            }
            holders.iter().for_each(|holder| self.take_from(holder, round.now, book));
            let is_alone = !round.contenders().any(|other| other.meets(unit).is_some());
            let reason = if is_alone { Reason::NoContention } else { Reason::ItsTurn };
            self.give(unit, Stage::InAdvance, reason, round.now);
        }
    }

    fn give(&mut self, unit: &Unit<'_>, stage: Stage, reason: Reason, now: Mono) {
        let is_beside = matches!(reason, Reason::BriefBeside { .. });
        self.turns.insert(unit.name.clone(), Turn { since: now, reason, stage, is_beside });
    }

    /// Who had it in advance has not had it.
    fn take_from(&mut self, unit: &Unit<'_>, now: Mono, book: &mut Book) {
        let turn = self.turns.remove(&unit.name);
        if turn.is_some_and(|turn| turn.stage != Stage::InAdvance) {
            unit.members.iter().for_each(|tenant| book.record(&tenant.key).served = Some(now));
        }
    }

    /// Rivals of a unit that have the turn.
    fn holders<'r, 'a>(&self, unit: &Unit<'_>, round: &Round<'r, 'a>) -> Vec<&'r Unit<'a>> {
        let rivals = round.contenders().filter(|other| other.meets(unit).is_some());
        rivals.filter(|other| self.has_turn(other)).collect()
    }

    /// The first rival that keeps a unit from having the turn now.
    fn blocker<'r, 'a>(&self, unit: &Unit<'_>, round: &Round<'r, 'a>, book: &Book) -> Option<&'r Unit<'a>> {
        let keeps = |other: &Unit<'_>| match self.turns.get(&other.name) {
            Some(turn) => !yields(turn, other, unit, round, book),
            None => other.busy_since.is_some(),
        };
        let hosts = round.hosts(unit, book);
        let mut rivals = round.contenders().filter(|other| other.meets(unit).is_some());
        rivals.find(|other| keeps(other) && (other.busy_since.is_none() || round.is_apart(unit, other, &hosts, book)))
    }

    /// Beside whom a unit without a turn may launch without being stopped first: it is brief beside all that compute, stand at
    /// a launch or have the turn.
    fn may_join(&self, unit: &Unit<'_>, round: &Round<'_, '_>, book: &Book) -> Option<String> {
        let wants = |other: &&Unit<'_>| other.wants() || self.has_turn(other);
        if self.has_turn(unit) || unit.standing_since.is_some() {
            return None;
        }
        let hosts = round.hosts(unit, book);
        let rivals = || round.contenders().filter(|other| other.meets(unit).is_some()).filter(wants);
        let is_free = rivals().all(|other| !round.is_apart(unit, other, &hosts, book));
        hosts.first().copied().or_else(|| rivals().next()).filter(|_| is_free).map(Unit::title)
    }

    fn rival(&self, unit: &Unit<'_>, units: &[Unit<'_>], now: Mono) -> Option<Reason> {
        let other = self.ahead_of(unit, units)?;
        let (gpu, who) = (unit.meets(other)?, other.title());
        let claimed = claim::against(unit, other, now);
        Some(match (claimed, other.busy_since) {
            (Some(reason), _) => reason,
            (None, Some(_)) => Reason::OtherComputes { gpu, who },
            (None, None) => Reason::OtherIsFirst { gpu, who },
        })
    }
}

/// Whether a unit that has the turn leaves it to another that wants to compute.
fn yields(turn: &Turn, unit: &Unit<'_>, to: &Unit<'_>, round: &Round<'_, '_>, book: &Book) -> bool {
    let settled = |since: Mono| round.now.since(since) >= round.settings.settle.get();
    match (turn.stage, unit.busy_since) {
        // Part of a gang stands and the rest waits for that part on the GPU: it will not come to rest by itself.
        (Stage::Over { at }, Some(_)) => unit.standing_since.is_some() && settled(at),
        (_, Some(_)) => false,
        // Who stands still for a lock or a freeze may be far from its launch yet.
        (Stage::InAdvance, None) if unit.is_loading => {
            to.is_at_launch || to.busy_since.is_some() || to.standing_since.is_none_or(settled)
        }
        (Stage::InAdvance, None) => true,
        (Stage::Given, None) => settled(turn.since),
        (Stage::Over { .. }, None) => true,
        (Stage::Taken, None) => unit.quiet_since.is_none_or(|quiet| round.now >= quiet + round.linger(unit, to, book)),
    }
}
