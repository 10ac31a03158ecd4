//! Goals and constraints as labels of a container, `berth.slo.*`.
//!
//! Every label is read or refused by itself: one that is wrong is told with what would be right, and the others count.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Latency, MemorySize, Share, Slo, Throughput, Weight};
use crate::quantity::Bytes;
use crate::time::Span;

/// What all of them begin with.
const PREFIX: &str = "berth.slo.";

/// Every label there is, and how its value is written.
pub const LABELS: [(&str, &str); 12] = [
    ("berth.slo.latency", "a percentile and a duration, such as `p99:10ms`"),
    ("berth.slo.throughput", "requests per second, such as `200/s`, or a share of its speed alone, such as `80%`"),
    ("berth.slo.availability", "a share of the time, such as `99.9%`"),
    ("berth.slo.completion", "`true` or `false`"),
    ("berth.slo.target", "a share of attainment above 0%, such as `99%`"),
    ("berth.slo.weight", "a whole number from 1 to 100"),
    ("berth.slo.reserve", "a share of the GPU above 0%, such as `25%`"),
    ("berth.slo.most", "a share of the GPU above 0%, such as `50%`"),
    ("berth.slo.memory", "an amount of memory, such as `8GiB`, or `auto` for what the like took before"),
    ("berth.slo.memory-reserve", "an amount of memory, such as `8GiB`, or `auto` for what the like took before"),
    ("berth.slo.copy", "bytes per second of copies, such as `2GiB/s`"),
    ("berth.slo.apart", "`true` or `false`"),
];

/// Shorter no request is, longer is a slip of the pen.
const SHORTEST: Duration = Duration::from_micros(1);
const LONGEST: Duration = Duration::from_secs(3_600);

/// Characters of a value that are shown.
const MOST_SHOWN: usize = 40;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSlo {
    #[error("`{key}={value}`: write {right}")]
    Value { key: String, value: String, right: &'static str },
    #[error("`{key}` is not known; there are {}", known())]
    Unknown { key: String },
    #[error("`berth.slo.reserve={reserve}` is above `berth.slo.most={most}`: no more than the latter can be reserved")]
    ReserveAboveMost { reserve: Share, most: Share },
    #[error(
        "`berth.slo.memory-reserve` is {reserve}, above `berth.slo.memory={}B`: no more than the latter can be reserved", most.0
    )]
    MemoryReserveAboveMemory { reserve: Bytes, most: Bytes },
}

impl Slo {
    /// What labels say. Other labels than `berth.slo.*` are not looked at.
    pub fn from_labels(labels: &BTreeMap<String, String>) -> (Slo, Vec<InvalidSlo>) {
        let mut slo = Slo::default();
        let own = labels.iter().filter(|(key, _)| key.starts_with(PREFIX));
        let mut wrong: Vec<InvalidSlo> = own.filter_map(|(key, value)| slo.set(key, value).err()).collect();
        wrong.extend(slo.settle());
        wrong.extend(slo.settle_memory());
        (slo, wrong)
    }

    /// Takes the value of one label.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), InvalidSlo> {
        let known = LABELS.iter().find(|(known, _)| *known == key);
        let Some((_, right)) = known else {
            return Err(InvalidSlo::Unknown { key: short(key) });
        };
        let read = self.read(key.trim_start_matches(PREFIX), value.trim());
        read.ok_or_else(|| InvalidSlo::Value { key: key.to_owned(), value: short(value), right })
    }

    fn read(&mut self, field: &str, value: &str) -> Option<()> {
        match field {
            "latency" => self.latency = Some(latency(value)?),
            "throughput" => self.throughput = Some(throughput(value)?),
            "availability" => self.availability = Some(some_share(value)?),
            "completion" => self.completion = value.parse().ok()?,
            "target" => self.target = Some(some_share(value)?),
            "weight" => self.weight = value.parse::<u32>().ok().and_then(|weight| Weight::try_from(weight).ok())?,
            "reserve" => self.reserve = Some(some_share(value)?),
            "most" => self.constraints.most = Some(some_share(value)?),
            "memory" => self.constraints.memory = Some(some_memory(value)?),
            "memory-reserve" => self.memory_reserve = Some(some_memory(value)?),
            "copy" => self.constraints.copy = Some(some_bytes(value.strip_suffix("/s")?)?),
            "apart" => self.constraints.apart = value.parse().ok()?,
            _ => return None,
        }
        Some(())
    }

    /// What is right by itself and wrong together: the limit goes before the wish.
    fn settle(&mut self) -> Option<InvalidSlo> {
        let (reserve, most) = (self.reserve?, self.constraints.most?);
        if reserve <= most {
            return None;
        }
        self.reserve = Some(most);
        Some(InvalidSlo::ReserveAboveMost { reserve, most })
    }

    /// As labels, in their order: what [`Slo::from_labels`] reads back.
    pub fn to_labels(&self) -> BTreeMap<String, String> {
        let Slo { latency, throughput, availability, completion, target, weight, reserve, memory_reserve, constraints } =
            self;
        let text = |value: Option<&dyn std::fmt::Display>| value.map(ToString::to_string);
        fn shown<T: std::fmt::Display>(value: &Option<T>) -> Option<&dyn std::fmt::Display> {
            value.as_ref().map(|value| value as &dyn std::fmt::Display)
        }
        let each = [
            ("latency", text(shown(latency))),
            ("throughput", text(shown(throughput))),
            ("availability", text(shown(availability))),
            ("completion", completion.then(|| "true".to_owned())),
            ("target", text(shown(target))),
            ("weight", (*weight != Weight::default()).then(|| weight.to_string())),
            ("reserve", text(shown(reserve))),
            ("most", text(shown(&constraints.most))),
            ("memory", text(shown(&constraints.memory))),
            ("memory-reserve", text(shown(memory_reserve))),
            ("copy", constraints.copy.map(|copy| format!("{}/s", copy.exactly()))),
            ("apart", constraints.apart.then(|| "true".to_owned())),
        ];
        each.into_iter().filter_map(|(field, value)| Some((format!("{PREFIX}{field}"), value?))).collect()
    }
}

fn latency(value: &str) -> Option<Latency> {
    let (percentile, within) = value.split_once(':')?;
    let percentile: Share = format!("{}%", percentile.strip_prefix('p')?).parse().ok()?;
    let within: Span = within.trim().parse().ok()?;
    let is_one = percentile > Share::NONE && percentile < Share::WHOLE;
    (is_one && (SHORTEST..=LONGEST).contains(&within.get())).then_some(Latency { percentile, within })
}

fn throughput(value: &str) -> Option<Throughput> {
    let Some(rate) = value.strip_suffix("/s") else {
        return some_share(value).map(Throughput::OfAlone);
    };
    let (whole, part) = rate.split_once('.').unwrap_or((rate, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) || part.len() > 3 {
        return None;
    }
    let rate = whole.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(format!("{part:0<3}").parse().ok()?)?;
    (rate > 0).then_some(Throughput::MilliPerSecond(rate))
}

fn some_share(value: &str) -> Option<Share> {
    value.parse().ok().filter(|share| *share > Share::NONE)
}

fn some_memory(value: &str) -> Option<MemorySize> {
    value.parse().ok().filter(|size| *size != MemorySize::Stated(Bytes(0)))
}

fn some_bytes(value: &str) -> Option<Bytes> {
    value.parse().ok().filter(|bytes| *bytes > Bytes(0))
}

fn short(text: &str) -> String {
    text.chars().take(MOST_SHOWN).collect()
}

fn known() -> String {
    let names = LABELS.map(|(key, _)| format!("`{key}`"));
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(labels: &[(&str, &str)]) -> (Slo, Vec<String>) {
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let (slo, wrong) = Slo::from_labels(&labels);
        (slo, wrong.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn labels_become_goals_and_constraints() {
        let (slo, wrong) = read(&[
            ("berth.slo.latency", "p99.9:10ms"),
            ("berth.slo.throughput", "12.5/s"),
            ("berth.slo.reserve", "25%"),
            ("berth.slo.most", "50%"),
            ("berth.slo.weight", "3"),
            ("berth.slo.memory", "8GiB"),
            ("berth.slo.memory-reserve", "auto"),
            ("berth.slo.copy", "2GB/s"),
            ("berth.slo.apart", "true"),
            ("com.example", "nothing of ours"),
        ]);
        assert_eq!(wrong, [""; 0]);
        assert_eq!(slo.latency.map(|latency| latency.to_string()).as_deref(), Some("p99.9:10ms"));
        assert_eq!(slo.throughput, Some(Throughput::MilliPerSecond(12_500)));
        assert_eq!(slo.target(), "99.9%".parse().unwrap());
        assert_eq!(slo.constraints.copy, Some(Bytes(2_000_000_000)));
        assert_eq!(slo.memory_reserve, Some(MemorySize::Learned));
        assert!(slo.promises() && slo.constraints.apart);
    }

    #[test]
    fn a_label_that_is_wrong_is_told_by_key_value_and_what_would_be_right_and_the_others_count() {
        let (slo, wrong) = read(&[
            ("berth.slo.latency", "10ms"),
            ("berth.slo.weight", "101"),
            ("berth.slo.latencyy", "p99:10ms"),
            ("berth.slo.throughput", "80%"),
        ]);
        assert_eq!(slo, Slo { throughput: Some(Throughput::OfAlone("80%".parse().unwrap())), ..Slo::default() });
        assert_eq!(wrong[0], "`berth.slo.latency=10ms`: write a percentile and a duration, such as `p99:10ms`");
        assert!(
            wrong[1].starts_with("`berth.slo.latencyy` is not known; there are `berth.slo.latency`, "),
            "{wrong:?}"
        );
        assert_eq!(wrong[2], "`berth.slo.weight=101`: write a whole number from 1 to 100");
    }

    #[test]
    fn values_nobody_could_keep_are_refused() {
        for (key, value) in [
            ("latency", "p100:10ms"),
            ("latency", "p0:10ms"),
            ("latency", "p99:0ms"),
            ("latency", "p99:10"),
            ("latency", "p99:2h"),
            ("throughput", "0/s"),
            ("throughput", "-1/s"),
            ("throughput", "1e9/s"),
            ("throughput", "0%"),
            ("availability", "0%"),
            ("reserve", "120%"),
            ("most", "0%"),
            ("memory", "0GiB"),
            ("memory-reserve", "0GiB"),
            ("memory-reserve", "Auto"),
            ("copy", "2GiB"),
            ("completion", "yes"),
        ] {
            let key = format!("berth.slo.{key}");
            let (slo, wrong) = read(&[(&key, value)]);
            assert_eq!(slo, Slo::default(), "{key}={value}");
            assert!(wrong[0].starts_with(&format!("`{key}={value}`: write ")), "{wrong:?}");
        }
    }

    #[test]
    fn no_more_is_reserved_than_a_tenant_may_have() {
        let (slo, wrong) = read(&[("berth.slo.reserve", "60%"), ("berth.slo.most", "50%")]);
        assert_eq!(slo.reserve, slo.constraints.most);
        assert!(wrong[0].contains("`berth.slo.reserve=60%` is above `berth.slo.most=50%`"), "{wrong:?}");
        let (slo, wrong) = read(&[("berth.slo.memory-reserve", "8GiB"), ("berth.slo.memory", "4GiB")]);
        assert_eq!(slo.memory_reserve, slo.constraints.memory);
        assert!(wrong[0].contains("`berth.slo.memory-reserve` is 8.0 GiB, above `berth.slo.memory="), "{wrong:?}");
    }

    #[test]
    fn memory_that_is_reserved_makes_nobody_yield() {
        assert!(!read(&[("berth.slo.memory-reserve", "8GiB")]).0.promises());
    }

    proptest! {
        #[test]
        fn goals_survive_being_written_as_labels_and_read(
            within in 1..3_600_000u64, rate in 1..10_000_000u64, share in 1..1_000_000u32, weight in 1..=100u32, flag: bool,
        ) {
            let share = Share::from_millionths(share);
            let slo = Slo {
                latency: share.map(|percentile| Latency { percentile, within: Span::from_millis(within) }),
                throughput: Some(Throughput::MilliPerSecond(rate)),
                availability: share,
                completion: flag,
                target: share,
                weight: Weight::try_from(weight).unwrap(),
                reserve: share,
                memory_reserve: Some(if flag { MemorySize::Learned } else { MemorySize::Stated(Bytes(rate)) }),
                constraints: super::super::Constraints { most: share, memory: Some(MemorySize::Stated(Bytes(rate))), copy: Some(Bytes(within)), apart: flag },
            };
            prop_assert_eq!(Slo::from_labels(&slo.to_labels()), (slo, Vec::new()));
        }
    }
}
