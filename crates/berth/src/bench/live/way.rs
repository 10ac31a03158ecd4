//! How the tenants of a cell come to the GPU: by themselves, one after another, under MPS, or under a daemon.

use std::str::FromStr;

use berth_model::hold::Means;
use berth_model::settings::PolicyName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// All at once, and nobody manages them.
    Unmanaged,
    /// Each starts when the one before it has ended.
    OneByOne,
    /// All at once, as clients of an MPS server.
    Mps,
    Managed(Managed),
}

/// By a daemon of the measurement's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Managed {
    pub policy: PolicyName,
    /// The only means it may hold by; `None`: all there are.
    pub alone: Option<Means>,
}

/// A way to be measured, as given on the command line: `NAME` or `NAME:ROUNDS`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Contender {
    pub way: Way,
    /// Not in more rounds than this.
    pub rounds: Option<u32>,
}

const fn alone(means: Means) -> Way {
    Way::Managed(Managed { policy: PolicyName::Fifo, alone: Some(means) })
}

const fn all_means(policy: PolicyName) -> Way {
    Way::Managed(Managed { policy, alone: None })
}

impl Way {
    /// Those that can be asked for, by name. The unmanaged one is always there.
    pub const NAMED: [(&'static str, Way); 8] = [
        ("fifo", all_means(PolicyName::Fifo)),
        ("paper", all_means(PolicyName::Paper)),
        ("off", all_means(PolicyName::Off)),
        ("gate", alone(Means::Gate)),
        ("lock", alone(Means::Lock)),
        ("freeze", alone(Means::Freeze)),
        ("mps", Way::Mps),
        ("one-by-one", Way::OneByOne),
    ];

    pub fn name(self) -> &'static str {
        let named = Self::NAMED.iter().find(|(_, way)| *way == self);
        named.map_or("unmanaged", |(name, _)| name)
    }
}

impl Contender {
    pub fn is_in(self, round: u32) -> bool {
        self.rounds.is_none_or(|rounds| round < rounds)
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rounds) = text.split_once(':').map_or((text, None), |(name, rounds)| (name, Some(rounds)));
        let found = Way::NAMED.iter().find(|(known, _)| *known == name);
        let Some((_, way)) = found else {
            let names: Vec<&str> = Way::NAMED.iter().map(|(name, _)| *name).collect();
            return Err(format!("`{name}` is none of {}", names.join(", ")));
        };
        let rounds = rounds.map(|text| match text.parse() {
            Ok(rounds) if rounds > 0 => Ok(rounds),
            _ => Err(format!("`{text}` is no number of rounds: write one from 1, such as `{name}:2`")),
        });
        Ok(Self { way: *way, rounds: rounds.transpose()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_asked_for_by_the_name_it_is_shown_by() {
        for (name, way) in Way::NAMED {
            assert_eq!(name.parse(), Ok(Contender { way, rounds: None }));
            assert_eq!(way.name(), name);
        }
        assert_eq!(Way::Unmanaged.name(), "unmanaged");
    }

    #[test]
    fn a_contender_may_be_in_the_first_rounds_only() {
        let gate: Contender = "gate:2".parse().unwrap();
        assert_eq!([0, 1, 2].map(|round| gate.is_in(round)), [true, true, false]);
        for wrong in ["gate:0", "gate:", "gate:x", "gates", "unmanaged"] {
            assert!(wrong.parse::<Contender>().is_err(), "{wrong}");
        }
    }
}
