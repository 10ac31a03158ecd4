//! `docker service create` with a place: which flags are berth's, what they ask of the placer, and what the client is started with.
//!
//! Pure. The user's own flags go through as they are, behind those that say where: a constraint on the node, the GPUs as variables, and
//! labels by which the placer knows the service again. A place is for one container, so more replicas are refused; and the service is made
//! without any: the placer starts it when it has seen that the place is still there, however long the client took.

use std::ffi::OsString;

use berth_cluster::swarm::{constraint, labels};
use berth_model::Deadline;
use berth_model::cluster::PLACEMENT_LABEL;
use berth_model::cluster::api::{PlaceRequest, Reserved};
use berth_model::deadline::{InvalidDeadline, LABEL as DEADLINE_LABEL, TAKES_LABEL, UNIT_LABEL, Unit};
use berth_model::quantity::{Bytes, InvalidBytes};

use super::flags::{Flag, FlagSet, Standing, Takes};

/// Written by berth, and by nobody else.
const OWN_LABELS: [&str; 10] = [
    PLACEMENT_LABEL,
    DEADLINE_LABEL,
    UNIT_LABEL,
    labels::MEMORY,
    TAKES_LABEL,
    labels::NODE,
    labels::GPUS,
    labels::PENDING,
    labels::REPLICAS,
    labels::START,
];

/// A service that is to be made once.
#[derive(Debug, PartialEq)]
pub struct Creation {
    pub request: PlaceRequest,
    /// Tell of every node.
    pub explains: bool,
    pub is_help: bool,
    pub name: Option<String>,
    has_detach: bool,
    has_restart: bool,
    /// Behind `service create`, without berth's flags.
    args: Vec<OsString>,
}

/// What `berth run` adds to a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As `docker service create` makes it.
    Service,
    /// It runs once. The client does not wait for it: what ends within five seconds is never stable to it.
    OneShot,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WrongService {
    #[error("unknown flag: {token} (flags are those of 'docker service create' and berth's own: see --help)")]
    Unknown { token: String },
    #[error("flag needs an argument: --{flag}")]
    Missing { flag: &'static str },
    #[error("invalid argument {value:?} for \"--{flag}\" flag: {why}")]
    Deadline { flag: &'static str, value: String, why: InvalidDeadline },
    #[error("invalid argument {value:?} for \"--memory\" flag: {why}")]
    Memory { value: String, why: InvalidBytes },
    #[error("invalid argument {value:?} for \"--unit\" flag: `task` or `burst`")]
    Unit { value: String },
    #[error("invalid argument {value:?} for \"--gpus\" flag: how many, from 1 to 64")]
    Gpus { value: String },
    #[error("--{flag} {value}: each container has a place of its own; create one service for each")]
    Several { flag: &'static str, value: String },
    #[error("{what} is what placing decides: leave it to berth")]
    Ours { what: String },
    #[error("an image is missing")]
    NoImage,
}

/// Whether `--cluster` is among the flags behind `berth run`, and not the image's own.
pub fn is_for_cluster(args: &[OsString], flags: &FlagSet) -> bool {
    let tokens: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let (flags, mut at) = (with_ours(flags), 0);
    while let Standing::Flag(flag) = flags.standing(&tokens, at) {
        if flag.is("cluster", None) {
            return true;
        }
        at += flag.tokens;
    }
    false
}

/// `args`: what stands behind `service create`, whose flags are `flags`, or behind `berth run`.
pub fn read(args: &[OsString], flags: &FlagSet) -> Result<Creation, WrongService> {
    let tokens: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let flags = with_ours(flags);
    let mut creation = Creation::empty();
    let mut at = 0;
    loop {
        match flags.standing(&tokens, at) {
            Standing::Unknown => return Err(WrongService::Unknown { token: tokens[at].clone() }),
            Standing::Operand(end) => {
                creation.args.extend_from_slice(&args[at..]);
                creation.request.image = tokens.get(end).cloned();
                break;
            }
            Standing::Flag(flag) => {
                if !creation.take(&flag)? {
                    creation.note(&flag)?;
                    creation.args.extend_from_slice(&args[at..at + flag.tokens]);
                }
                at += flag.tokens;
            }
        }
    }
    match creation.request.image {
        None if !creation.is_help => Err(WrongService::NoImage),
        _ => Ok(creation),
    }
}

fn with_ours(flags: &FlagSet) -> FlagSet {
    let values = ["deadline", "memory", "takes", "unit", "gpus"];
    let flags = values.iter().fold(flags.clone(), |flags, name| flags.with(name, None, Takes::Value));
    // The client's help does not tell of its own flag.
    ["cluster", "explain", "help"].iter().fold(flags, |flags, name| flags.with(name, None, Takes::Nothing))
}

impl Creation {
    fn empty() -> Self {
        let request = PlaceRequest {
            deadline: None,
            unit: Unit::Task,
            memory_bytes: None,
            gpus: 1,
            image: None,
            takes: None,
            constraints: Vec::new(),
            detail: false,
        };
        Self {
            request,
            explains: false,
            is_help: false,
            name: None,
            has_detach: false,
            has_restart: false,
            args: Vec::new(),
        }
    }

    /// Whether the flag is berth's.
    fn take(&mut self, flag: &Flag<'_>) -> Result<bool, WrongService> {
        let value = |name: &'static str| flag.value.ok_or(WrongService::Missing { flag: name });
        let request = &mut self.request;
        if flag.is("cluster", None) {
        } else if flag.is("explain", None) {
            (self.explains, request.detail) = (true, true);
        } else if flag.is("deadline", None) {
            request.deadline = Some(duration("deadline", value("deadline")?)?);
        } else if flag.is("takes", None) {
            request.takes = Some(duration("takes", value("takes")?)?);
        } else if flag.is("memory", None) {
            request.memory_bytes = Some(memory(value("memory")?)?);
        } else if flag.is("unit", None) {
            request.unit = unit(value("unit")?)?;
        } else if flag.is("gpus", None) {
            request.gpus = gpus(value("gpus")?)?;
        } else if flag.is("replicas", None) {
            // One it is; there are none before the placer starts it.
            let value = value("replicas")?;
            return if value == "1" { Ok(true) } else { Err(several("replicas", value)) };
        } else {
            return Ok(false);
        }
        Ok(true)
    }

    /// What a flag of the client's means for placing.
    fn note(&mut self, flag: &Flag<'_>) -> Result<(), WrongService> {
        let value = flag.value.unwrap_or_default();
        self.is_help |= flag.is("help", None);
        self.has_detach |= flag.is("detach", Some('d'));
        self.has_restart |= flag.is("restart-condition", None);
        if flag.is("name", None) {
            self.name = Some(value.to_owned());
        } else if flag.is("constraint", None) {
            self.request.constraints.push(value.to_owned());
        } else if flag.is("mode", None) && value != "replicated" {
            return Err(several("mode", value));
        } else if flag.is("env", Some('e')) {
            ours("the variable", value, &labels::VARIABLES)?;
        } else if flag.is("label", Some('l')) || flag.is("container-label", None) {
            ours("the label", value, &OWN_LABELS)?;
        }
        Ok(())
    }

    /// The client's arguments behind `service create`.
    pub fn placed(&self, reserved: &Reserved, kind: Kind) -> Vec<OsString> {
        let (id, choice) = (reserved.placement, &reserved.choice);
        let mut args = vec![format!("--constraint={}", constraint(choice))];
        args.extend(labels::VARIABLES.map(|name| format!("--env={name}={}", labels::gpus(choice))));
        let pair = |flag: &str, (name, value): (&str, String)| format!("--{flag}={name}={value}");
        args.extend(labels::of_service(&self.request, id, choice).into_iter().map(|label| pair("label", label)));
        args.push(pair("label", (labels::START, labels::BY_PLACER.to_owned())));
        args.push("--replicas=0".to_owned());
        let container = labels::of_container(&self.request, id).into_iter();
        args.extend(container.map(|label| pair("container-label", label)));
        if self.name.is_none() {
            args.push(format!("--name=berth-{id}"));
        }
        if kind == Kind::OneShot && !self.has_restart {
            args.push("--restart-condition=none".to_owned());
        }
        if kind == Kind::OneShot && !self.has_detach {
            args.push("--detach".to_owned());
        }
        args.into_iter().map(OsString::from).chain(self.args.iter().cloned()).collect()
    }
}

fn duration(flag: &'static str, value: &str) -> Result<Deadline, WrongService> {
    value.parse().map_err(|why| WrongService::Deadline { flag, value: value.to_owned(), why })
}

fn memory(value: &str) -> Result<Bytes, WrongService> {
    value.parse().map_err(|why| WrongService::Memory { value: value.to_owned(), why })
}

fn unit(value: &str) -> Result<Unit, WrongService> {
    let unit = [Unit::Task, Unit::Burst].into_iter().find(|unit| unit.as_str() == value);
    unit.ok_or_else(|| WrongService::Unit { value: value.to_owned() })
}

fn gpus(value: &str) -> Result<u32, WrongService> {
    let most = u32::try_from(berth_model::cluster::report::MOST_GPUS).unwrap_or(u32::MAX);
    let gpus = value.parse().ok().filter(|gpus| (1..=most).contains(gpus));
    gpus.ok_or_else(|| WrongService::Gpus { value: value.to_owned() })
}

fn several(flag: &'static str, value: &str) -> WrongService {
    WrongService::Several { flag, value: value.to_owned() }
}

/// A variable or a label that berth itself gives.
fn ours(what: &str, value: &str, names: &[&str]) -> Result<(), WrongService> {
    let name = value.split_once('=').map_or(value, |(name, _)| name);
    match names.contains(&name) {
        true => Err(WrongService::Ours { what: format!("{what} {name}") }),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use berth_model::cluster::{Choice, PlacementId, Refusals};
    use berth_model::id::GpuUuid;

    use super::*;

    fn flags() -> FlagSet {
        let values = ["name", "constraint", "replicas", "mode", "mount", "container-label", "restart-condition"];
        let flags = values.iter().fold(FlagSet::default(), |flags, name| flags.with(name, None, Takes::Value));
        flags.with("env", Some('e'), Takes::Value).with("label", Some('l'), Takes::Value).with(
            "detach",
            Some('d'),
            Takes::Nothing,
        )
    }

    fn reading(line: &str) -> Result<Creation, WrongService> {
        read(&line.split(' ').map(OsString::from).collect::<Vec<_>>(), &flags())
    }

    #[test]
    fn cluster_is_a_flag_wherever_it_stands_before_the_image() {
        let is_it = |line: &str| is_for_cluster(&line.split(' ').map(OsString::from).collect::<Vec<_>>(), &flags());
        for line in ["--cluster image", "--deadline 9s --cluster image", "-d --name=a --cluster --gpus 2 image"] {
            assert!(is_it(line), "{line}");
        }
        for line in ["image --cluster", "-d image --cluster", "--name --cluster image", "-- --cluster"] {
            assert!(!is_it(line), "{line}");
        }
    }

    fn reserved() -> Reserved {
        let choice = Choice { node: "abc".parse().unwrap(), gpus: vec![GpuUuid("GPU-1".into())] };
        let refusals = Refusals::default();
        Reserved { placement: PlacementId(0xfeed), choice, name: None, candidates: 1, refusals }
    }

    #[test]
    fn berth_s_flags_become_a_request_and_the_others_stay_as_they_are() {
        let line = "--cluster -e A=B --deadline 9s --memory=20GiB --constraint node.labels.rack==a --unit burst --takes 2s \
                    --gpus 2 image --deadline 5s";
        let creation = reading(line).unwrap();
        let request = &creation.request;
        assert_eq!(request.deadline, "9s".parse().ok());
        assert_eq!((request.memory_bytes, request.gpus), (Some(Bytes(20 << 30)), 2));
        assert_eq!((request.unit, request.takes), (Unit::Burst, "2s".parse().ok()));
        assert_eq!(
            (request.image.as_deref(), &request.constraints[..]),
            (Some("image"), &["node.labels.rack==a".to_owned()][..])
        );
        let expected: Vec<OsString> =
            "-e A=B --constraint node.labels.rack==a image --deadline 5s".split(' ').map(OsString::from).collect();
        assert_eq!(creation.args, expected, "what stands behind the image is the container's");
    }

    #[test]
    fn the_place_goes_before_the_user_s_own_flags() {
        let line = |kind, line: &str| {
            let args = reading(line).unwrap().placed(&reserved(), kind);
            args.iter().map(|arg| arg.to_str().unwrap().to_owned()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            line(Kind::OneShot, "--deadline 9s -e A=B image cmd"),
            "--constraint=node.id==abc --env=NVIDIA_VISIBLE_DEVICES=GPU-1 --env=CUDA_VISIBLE_DEVICES=GPU-1 \
             --label=berth.placement=000000000000feed --label=berth.deadline=9s --label=berth.node=abc \
             --label=berth.gpus=GPU-1 --label=berth.start=placer --replicas=0 --container-label=berth.placement=000000000000feed \
             --container-label=berth.deadline=9s --name=berth-000000000000feed --restart-condition=none --detach \
             -e A=B image cmd"
        );
        let own = line(Kind::OneShot, "--name x -d --restart-condition any image");
        assert!(own.ends_with("--name x -d --restart-condition any image") && !own.contains("none"), "{own}");
        assert!(!line(Kind::Service, "--replicas 1 image").contains("--replicas 1"), "the placer starts it");
        let service = line(Kind::Service, "image");
        assert!(!service.contains("--detach") && !service.contains("restart"), "{service}");
    }

    #[test]
    fn what_cannot_be_placed_as_asked_is_refused_and_nothing_is_made() {
        for (line, told) in [
            ("--replicas 3 image", "--replicas 3: each container has a place of its own"),
            ("--mode global image", "--mode global"),
            ("--mode=replicated-job image", "--mode replicated-job"),
            ("-e NVIDIA_VISIBLE_DEVICES=all image", "the variable NVIDIA_VISIBLE_DEVICES is what placing decides"),
            ("--env CUDA_VISIBLE_DEVICES image", "CUDA_VISIBLE_DEVICES"),
            ("--container-label berth.deadline=9 image", "the label berth.deadline"),
            ("-l berth.placement=x image", "the label berth.placement"),
            ("--label berth.pending=x image", "the label berth.pending"),
            ("--deadline never image", "\"--deadline\" flag"),
            ("--memory 20 image", "20GiB"),
            ("--unit day image", "`task` or `burst`"),
            ("--gpus 0 image", "1 to 64"),
            ("--gpus 9999 image", "1 to 64"),
            ("--what image", "unknown flag: --what"),
            ("--deadline", "flag needs an argument: --deadline"),
            ("--deadline 9s", "an image is missing"),
        ] {
            let error = reading(line).unwrap_err().to_string();
            assert!(error.contains(told), "{line}: {error}");
        }
        assert!(reading("--replicas 1 --mode replicated -l owner=ada image").is_ok());
        assert!(reading("--help").unwrap().is_help);
    }
}
