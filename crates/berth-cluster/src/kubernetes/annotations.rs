//! What a pod's annotations ask for, and what is wrong with those that cannot be read.
//!
//! Pure. The webhook tells people, the placer goes by it, and a node's daemon makes labels of it: all by this one reading.

use std::collections::BTreeMap;
use std::fmt;

use berth_model::cluster::report::MOST_GPUS;
use berth_model::deadline::{Deadline, Unit};
use berth_model::id::GpuUuid;
use berth_model::quantity::Bytes;
use berth_model::slo::{self, Slo};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

/// What all of ours begin with.
pub const PREFIX: &str = "berth.dev/";
/// How long a unit of work may take.
pub const DEADLINE: &str = "berth.dev/deadline";
/// What the deadline is for: `task` or `burst`.
pub const UNIT: &str = "berth.dev/unit";
/// GPU memory the pod needs, on each of its GPUs.
pub const MEMORY: &str = "berth.dev/memory";
/// GPU time a unit takes alone, where somebody knows better than the history of its image.
pub const TAKES: &str = "berth.dev/takes";
/// GPUs it needs on one node.
pub const GPUS: &str = "berth.dev/gpus";
/// Written by the placer before it binds: UUIDs with commas between them, which the device plugin gives to the pod.
pub const GPUS_CHOSEN: &str = "berth.dev/gpus-chosen";

/// Written by the placer on a pod that waits: when a node would take it, and the scheduler is to try it again.
pub const TRY_AGAIN: &str = "berth.dev/try-again";

/// Whether the pod may be held: `never` asks not to be.
pub const HOLD: &str = "berth.dev/hold";
/// Pods of one node with the same are held and let go together.
pub const GANG: &str = "berth.dev/gang";

/// Whether its kernels are to be ordered among those of others: `true` has the device plugin mount berth's library.
pub const KERNEL_LEVEL: &str = "berth.dev/kernel-level";
/// What goals begin with: `berth.dev/slo.latency` is the label `berth.slo.latency`.
const GOALS: &str = "berth.dev/slo.";

/// Those that say where a pod can go.
const ASKING: [&str; 5] = [DEADLINE, UNIT, MEMORY, TAKES, GPUS];
/// Those that a node's daemon takes for labels of the pod's containers: `berth.dev/hold` is `berth.hold`. Whose a container is, its namespace
/// says, and no annotation: anybody who may make a pod could name another.
/// So are goals ([`goals`]).
pub const LABELLED: [&str; 7] = [DEADLINE, UNIT, MEMORY, TAKES, HOLD, GANG, KERNEL_LEVEL];
/// Those that the placer writes.
const WRITTEN: [&str; 2] = [GPUS_CHOSEN, TRY_AGAIN];
/// What labels of goals begin with.
const SLO_PREFIX: &str = "berth.slo.";
/// Characters of a value that are shown.
const MOST_SHOWN: usize = 40;
/// Annotations with our prefix of one object from which on none is kept any more that means nothing.
const MOST_KEPT: usize = 32;

/// Annotations of one object that have our prefix: all that mean something, and a bounded number of others.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Annotations(BTreeMap<String, String>);

/// What is asked for; what is `None` may be anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asks {
    pub deadline: Option<Deadline>,
    pub unit: Option<Unit>,
    pub memory_bytes: Option<Bytes>,
    pub takes: Option<Deadline>,
    pub gpus: Option<u32>,
    /// Its kernels are to be ordered among those of others.
    pub kernel_level: Option<bool>,
}

/// Annotations that cannot be read, and for each what would be right. At least one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.join("; "))]
pub struct Unread(pub Vec<String>);

// === impl Annotations ===

impl Annotations {
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What is asked for.
    pub fn asks(&self) -> Result<Asks, Unread> {
        let (asks, problems) = self.each();
        if problems.is_empty() { Ok(asks) } else { Err(Unread(problems)) }
    }

    /// What can be read of it, where the rest cannot be refused any more.
    pub fn readable(&self) -> Asks {
        self.each().0
    }

    /// What can be read, and what is wrong with the rest.
    fn each(&self) -> (Asks, Vec<String>) {
        let mut problems = Vec::new();
        let asks = Asks {
            deadline: self.read(DEADLINE, deadline, &mut problems),
            unit: self.read(UNIT, unit, &mut problems),
            memory_bytes: self.read(MEMORY, memory, &mut problems),
            takes: self.read(TAKES, deadline, &mut problems),
            gpus: self.read(GPUS, gpus, &mut problems),
            kernel_level: self.read(KERNEL_LEVEL, yes_or_no, &mut problems),
        };
        let (_, wrong) = Slo::from_labels(&goals(&self.0).collect());
        problems.extend(wrong.iter().map(|wrong| wrong.to_string().replace(SLO_PREFIX, GOALS)));
        (asks, problems)
    }

    /// The GPUs the placer has chosen; `None` if it has not, or not in words of its own.
    pub fn chosen(&self) -> Option<Vec<GpuUuid>> {
        let is_uuid =
            |uuid: &str| !uuid.is_empty() && uuid.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        let gpus = self.get(GPUS_CHOSEN)?.split(',').map(|uuid| is_uuid(uuid).then(|| GpuUuid(uuid.to_owned())));
        gpus.take(MOST_GPUS).collect()
    }

    /// Names with our prefix that mean nothing.
    pub fn unknown(&self) -> impl Iterator<Item = String> {
        self.0.keys().filter(|name| !is_known(name)).map(|name| short(name))
    }

    /// Those of others cannot crowd out the ones that count.
    fn keeps(&self, name: &str) -> bool {
        is_known(name) || (name.starts_with(PREFIX) && self.0.len() < MOST_KEPT)
    }

    fn read<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>, problems: &mut Vec<String>) -> Option<T> {
        let text = self.get(name)?;
        // No value that means something is as long.
        let value = if text.len() > MOST_SHOWN {
            Err(format!("`{}` is longer than any value it may have", short(text)))
        } else {
            read(text)
        };
        value.map_err(|problem| problems.push(format!("{name}: {problem}"))).ok()
    }
}

impl FromIterator<(String, String)> for Annotations {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(annotations: I) -> Self {
        let mut kept = Self::default();
        for (name, value) in annotations {
            if kept.keeps(&name) {
                kept.0.insert(name, value);
            }
        }
        kept
    }
}

/// Others are read over, not kept: an object may have megabytes of them.
impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ours;
        impl<'de> Visitor<'de> for Ours {
            type Value = Annotations;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("annotations")
            }

            fn visit_unit<E>(self) -> Result<Annotations, E> {
                Ok(Annotations::default())
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Annotations, A::Error> {
                let mut kept = Annotations::default();
                while let Some(name) = map.next_key::<String>()? {
                    if kept.keeps(&name) {
                        kept.0.insert(name, map.next_value()?);
                    } else {
                        map.next_value::<IgnoredAny>()?;
                    }
                }
                Ok(kept)
            }
        }
        deserializer.deserialize_any(Ours)
    }
}

// === impl Asks ===

impl Asks {
    /// Nothing that matters to where a pod goes.
    pub fn is_nothing(&self) -> bool {
        let Asks { deadline, unit: _, memory_bytes, takes, gpus, kernel_level: _ } = self;
        deadline.is_none() && memory_bytes.is_none() && takes.is_none() && gpus.is_none()
    }
}

/// Labels of the goals among annotations.
pub fn goals(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (String, String)> {
    let label =
        |(name, value): (&String, &String)| Some((format!("{SLO_PREFIX}{}", name.strip_prefix(GOALS)?), value.clone()));
    annotations.iter().filter(|(_, value)| value.len() <= MOST_SHOWN).filter_map(label)
}

fn is_known(name: &str) -> bool {
    let is_goal = || slo::LABELS.iter().any(|(label, _)| Some(&label[SLO_PREFIX.len()..]) == name.strip_prefix(GOALS));
    ASKING.iter().chain(&LABELLED).chain(&WRITTEN).any(|known| *known == name) || is_goal()
}

fn yes_or_no(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| format!("`{text}` is neither `true` nor `false`"))
}

fn deadline(text: &str) -> Result<Deadline, String> {
    text.parse().map_err(|error: berth_model::deadline::InvalidDeadline| error.to_string())
}

/// What a deadline is for.
pub fn unit(text: &str) -> Result<Unit, String> {
    match text {
        "task" => Ok(Unit::Task),
        "burst" => Ok(Unit::Burst),
        _ => Err(format!("`{text}` is no unit of work: write `task` or `burst`")),
    }
}

/// An amount of memory with a unit of ours, or as Kubernetes writes them (`20Gi`, `500M`). A number alone would be so many bytes, which nobody means.
pub fn memory(text: &str) -> Result<Bytes, String> {
    let kubernetes = text.ends_with(['i', 'k', 'M', 'G', 'T']).then(|| format!("{text}B"));
    match kubernetes.as_deref().unwrap_or(text).parse::<Bytes>() {
        Ok(Bytes(0)) => Err(format!("`{text}` is no memory: leave it out, or write how much, such as `20Gi`")),
        Ok(bytes) => Ok(bytes),
        Err(_) => Err(format!(
            "`{text}` is not an amount of memory: write a whole number with a unit, such as `512Mi` or `20Gi`"
        )),
    }
}

/// A number of GPUs.
pub fn gpus(text: &str) -> Result<u32, String> {
    let count = text.parse().ok().filter(|count| (1..=MOST_GPUS).contains(&(*count as usize)));
    count.ok_or_else(|| format!("`{text}` is not a number of GPUs: write a whole number from 1 to {MOST_GPUS}"))
}

/// As much as anybody wants to read.
pub(crate) fn short(text: &str) -> String {
    if text.chars().count() <= MOST_SHOWN {
        return text.to_owned();
    }
    text.chars().take(MOST_SHOWN).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::time::Duration;

    fn of(annotations: &[(&str, &str)]) -> Annotations {
        annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn problem(name: &str, value: &str) -> String {
        of(&[(name, value)]).asks().unwrap_err().to_string()
    }

    #[test]
    fn everything_that_can_be_asked_for_is_read() {
        let asks = of(&[(DEADLINE, "9s"), (UNIT, "burst"), (MEMORY, "20Gi"), (TAKES, "1500ms"), (GPUS, "2")]);
        let asks = asks.asks().unwrap();
        assert_eq!(asks.deadline.unwrap().get(), Duration::from_secs(9));
        assert_eq!(asks.unit, Some(Unit::Burst));
        assert_eq!(asks.memory_bytes, Some(Bytes(20 << 30)));
        assert_eq!(asks.takes.unwrap().get(), Duration::from_millis(1500));
        assert_eq!(asks.gpus, Some(2));
    }

    #[test]
    fn goals_and_taking_part_at_the_level_of_kernels_are_read_and_judged() {
        let goals = of(&[(KERNEL_LEVEL, "true"), ("berth.dev/slo.latency", "p99:10ms"), ("berth.dev/slo.weight", "3")]);
        assert_eq!(goals.asks().unwrap().kernel_level, Some(true));
        assert_eq!(goals.unknown().count(), 0);
        assert_eq!(problem(KERNEL_LEVEL, "yes"), "berth.dev/kernel-level: `yes` is neither `true` nor `false`");
        let told = problem("berth.dev/slo.latency", "soon");
        assert!(told.contains("berth.dev/slo.latency") && told.contains("p99:10ms"), "{told}");
        assert!(problem("berth.dev/slo.latenzy", "p99:10ms").contains("berth.dev/slo.latenzy"));
    }

    #[test]
    fn memory_is_written_as_kubernetes_does_or_as_berth_does() {
        for (text, bytes) in [("20Gi", 20 << 30), ("20GiB", 20 << 30), ("512Mi", 512 << 20), ("3G", 3_000_000_000)] {
            assert_eq!(of(&[(MEMORY, text)]).asks().unwrap().memory_bytes, Some(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_name_its_value_and_what_would_be_right() {
        for (name, value, right) in [
            (DEADLINE, "-1", "more than 0"),
            (DEADLINE, "abc", "`9s`"),
            (DEADLINE, "1e99", "`9s`"),
            (DEADLINE, "9sec onds", "`9s`"),
            (DEADLINE, "99999999", "at most"),
            (DEADLINE, "", "`9s`"),
            (UNIT, "bursts", "`task` or `burst`"),
            (MEMORY, "0", "`20Gi`"),
            (MEMORY, "0Gi", "leave it out"),
            (MEMORY, "20", "with a unit"),
            (MEMORY, "20gb", "`512Mi`"),
            (MEMORY, "-1Gi", "`512Mi`"),
            (MEMORY, "99999999999Ti", "`512Mi`"),
            (TAKES, "soon", "`9s`"),
            (GPUS, "0", "1 to 64"),
            (GPUS, "65", "1 to 64"),
            (GPUS, "1.5", "whole number"),
        ] {
            let told = problem(name, value);
            assert!(told.starts_with(&format!("{name}: ")), "{told}");
            assert!(told.contains(&format!("`{value}`")) && told.contains(right), "{value}: {told}");
        }
    }

    #[test]
    fn all_problems_are_told_at_once() {
        let told = of(&[(DEADLINE, "abc"), (GPUS, "0")]).asks().unwrap_err();
        assert_eq!(told.0.len(), 2);
    }

    #[test]
    fn of_a_long_value_a_little_is_told() {
        assert!(problem(MEMORY, &"9".repeat(100_000)).len() < 200);
    }

    #[test]
    fn what_others_write_is_read_over() {
        let many: String = (0..100_000).map(|n| format!("\"berth.dev/x{n}\":\"\",\"other{n}\":\"x\",")).collect();
        let annotations: Annotations = serde_json::from_str(&format!("{{{many}\"a\":\"b\"}}")).unwrap();
        assert_eq!(annotations.0.len(), MOST_KEPT);
        assert_eq!(serde_json::from_str::<Annotations>("null").unwrap(), Annotations::default());
    }

    #[test]
    fn what_counts_is_not_crowded_out_by_what_means_nothing() {
        let counts = [(MEMORY, "not memory"), (DEADLINE, "1ms"), (GPUS_CHOSEN, "GPU-forged")];
        let others = (0..100).map(|n| (format!("berth.dev/a{n:02}"), String::new()));
        let all: Vec<_> = others.chain(counts.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
        let object = all.iter().map(|(name, value)| format!("{name:?}:{value:?}")).collect::<Vec<_>>().join(",");
        let sent: Annotations = serde_json::from_str(&format!("{{{object}}}")).unwrap();
        for annotations in [sent, all.into_iter().collect()] {
            assert!(counts.iter().all(|(name, value)| annotations.get(name) == Some(value)));
            assert_eq!(annotations.unknown().count(), MOST_KEPT);
        }
    }

    #[test]
    fn the_choice_is_read_as_it_is_written() {
        let chosen = of(&[(GPUS_CHOSEN, "GPU-a,GPU-b")]).chosen().unwrap();
        assert_eq!(chosen, ["GPU-a", "GPU-b"].map(|uuid| GpuUuid(uuid.to_owned())));
        for wrong in ["", "GPU-a,", "all", "GPU a", "../x"] {
            let chosen = of(&[(GPUS_CHOSEN, wrong)]).chosen();
            assert!(chosen.is_none() || wrong == "all", "{wrong}");
        }
    }

    #[test]
    fn a_name_that_means_nothing_is_told() {
        let written =
            [("berth.dev/deadlin", "9s"), (DEADLINE, "9s"), ("x", "y"), (HOLD, "never"), ("berth.dev/owner", "ada")];
        let names: Vec<_> = of(&written).unknown().collect();
        assert_eq!(names, ["berth.dev/deadlin", "berth.dev/owner"]);
    }

    proptest! {
        #[test]
        fn any_value_is_read_or_told(value in "\\PC{0,60}", name in 0..ASKING.len()) {
            match of(&[(ASKING[name], &value)]).asks() {
                Ok(asks) => prop_assert!(!asks.is_nothing() || asks.unit.is_some()),
                Err(unread) => prop_assert!(unread.to_string().len() < 500),
            }
        }
    }
}
