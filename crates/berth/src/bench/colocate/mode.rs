//! How server and trainer share the GPU.

use std::fmt;
use std::str::FromStr;

use berth_model::settings::KernelPolicyName;
use serde::{Serialize, Serializer};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// Each by itself: what the others are compared with.
    Alone,
    /// As the driver does it when nobody does anything.
    TimeSlicing,
    Mps(Mps),
    /// The trainer yields to the server through berth's library, without a daemon or a policy: what the mechanism alone gives.
    Links {
        /// Both are clients of an MPS server, too: their kernels can overlap.
        mps: bool,
    },
    Berth {
        policy: KernelPolicyName,
        /// As above.
        mps: bool,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mps {
    Plain,
    /// The server's kernels go first.
    Priority,
    /// The trainer gets half of the multiprocessors.
    Half,
}

/// What both programs find when they start. Modes of the same surroundings need no new ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Surroundings {
    Bare,
    Mps(Mps),
    Links { mps: bool },
    Berth { mps: bool },
}

impl Mode {
    /// All there are, in the order in which they are measured and shown.
    pub fn all() -> Vec<Self> {
        let policies = [KernelPolicyName::Slo, KernelPolicyName::Hybrid, KernelPolicyName::Jct];
        let berth = |mps| policies.map(|policy| Self::Berth { policy, mps });
        let others =
            [Self::Alone, Self::TimeSlicing, Self::Mps(Mps::Plain), Self::Mps(Mps::Priority), Self::Mps(Mps::Half)];
        let links = |mps| [Self::Links { mps }];
        let without = links(false).into_iter().chain(berth(false));
        others.into_iter().chain(without).chain(links(true)).chain(berth(true)).collect()
    }

    pub fn surroundings(self) -> Surroundings {
        match self {
            Self::Alone | Self::TimeSlicing => Surroundings::Bare,
            Self::Mps(mps) => Surroundings::Mps(mps),
            Self::Links { mps } => Surroundings::Links { mps },
            Self::Berth { mps, .. } => Surroundings::Berth { mps },
        }
    }

    /// Whether berth's library is in the programs.
    pub fn is_berth(self) -> bool {
        matches!(self, Self::Links { .. } | Self::Berth { .. })
    }
}

impl Surroundings {
    pub fn needs_mps(self) -> bool {
        matches!(self, Self::Mps(_) | Self::Links { mps: true } | Self::Berth { mps: true })
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alone => f.write_str("alone"),
            Self::TimeSlicing => f.write_str("time-slicing"),
            Self::Mps(Mps::Plain) => f.write_str("mps"),
            Self::Mps(Mps::Priority) => f.write_str("mps-priority"),
            Self::Mps(Mps::Half) => f.write_str("mps-half"),
            Self::Links { mps: false } => f.write_str("links"),
            Self::Links { mps: true } => f.write_str("mps-links"),
            Self::Berth { policy, mps: false } => write!(f, "berth-{}", policy.as_str()),
            Self::Berth { policy, mps: true } => write!(f, "berth-mps-{}", policy.as_str()),
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = Self::all();
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        let found = all.iter().zip(&names).find(|(_, name)| *name == text);
        found.map(|(mode, _)| *mode).ok_or_else(|| format!("`{text}` is none of {}", names.join(", ")))
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_is_asked_for_by_the_name_it_is_shown_by() {
        for mode in Mode::all() {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!("berth-off".parse::<Mode>().is_err());
    }

    #[test]
    fn modes_of_the_same_surroundings_follow_one_another() {
        let mut seen = Vec::new();
        for surroundings in Mode::all().into_iter().map(Mode::surroundings) {
            if seen.last() != Some(&surroundings) {
                assert!(!seen.contains(&surroundings), "{surroundings:?} would be set up twice");
                seen.push(surroundings);
            }
        }
    }
}
