//! Who plays: tenants as they are found on a shared GPU server, and when each enters.

use std::time::Duration;

use crate::stage::Launch;

/// One part of the play.
#[derive(Debug)]
pub struct Cue {
    pub enters: Duration,
    pub name: &'static str,
    pub owner: &'static str,
    /// What the audience is told about it.
    pub what: &'static str,
    args: &'static [&'static str],
}

impl Cue {
    pub fn launch(&self) -> Launch {
        Launch {
            name: self.name.to_owned(),
            owner: Some(self.owner.to_owned()),
            args: self.args.iter().map(|arg| (*arg).to_owned()).collect(),
            ..Launch::default()
        }
    }
}

/// On two simulated RTX 3090 of 24 GB. In order of entry.
pub const CAST: &[Cue] = &[
    Cue {
        enters: Duration::ZERO,
        name: "notebook",
        owner: "ada",
        what: "holds 6 GiB and computes nothing",
        args: &["load", "hold", "--alloc-bytes", "6GiB", "--hold", "15s"],
    },
    Cue {
        enters: Duration::from_millis(1_000),
        name: "trainer",
        owner: "grace",
        what: "computes all the time",
        args: &["load", "--size", "6144", "--repeats", "8"],
    },
    Cue {
        enters: Duration::from_millis(2_000),
        name: "server",
        owner: "linus",
        what: "answers small requests on the other GPU",
        args: &["load", "light", "--device", "1", "--size", "1536", "--period", "60ms", "--repeats", "200"],
    },
    Cue {
        enters: Duration::from_millis(4_500),
        name: "sweep-1",
        owner: "alan",
        what: "comes three times, in the trainer's way",
        args: &["load", "--size", "4096", "--tasks", "3", "--task-gap", "500ms"],
    },
    Cue {
        enters: Duration::from_millis(6_000),
        name: "sweep-2",
        owner: "alan",
        what: "in everybody's way",
        args: &["load", "--size", "5120", "--repeats", "2"],
    },
    Cue {
        enters: Duration::from_millis(8_000),
        name: "too-big",
        owner: "barbara",
        what: "asks for 20 GiB that are not there",
        args: &["load", "hold", "--alloc-bytes", "20GiB", "--hold", "5s"],
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cast_enters_in_order_and_nobody_twice() {
        assert!(CAST.is_sorted_by_key(|cue| cue.enters));
        let mut names: Vec<_> = CAST.iter().map(|cue| cue.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CAST.len());
    }
}
