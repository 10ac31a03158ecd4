//! The closed set of things that can happen, and of changes that follow.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::deadline::{Deadline, Unit, Verdict};
use crate::hold::{Means, Signal, Step};
use crate::id::{ContainerId, GpuIndex, GpuUuid, ProcKey, TaskId, TenantKey};
use crate::kernels::{KernelNews, PolicyChosen};
use crate::quantity::{Bytes, Percent};
use crate::time::Mono;
use crate::watch;

/// Everything the loop reacts to. Mechanisms produce these; nothing else changes the model.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The GPUs of this host, in full; replaces what was known.
    Gpus(Vec<GpuInfo>),
    /// Facts about a process. Comes before the first event that names it.
    Process(ProcessFacts),
    Sample(Sample),
    /// What kernels used of the memory's bandwidth, of GPUs that count it.
    Bandwidth(Vec<BandwidthUse>),
    /// A probe saw a process pass one of the moments of its stay.
    Moment {
        process: ProcKey,
        moment: Moment,
        at: Mono,
    },
    /// The gate stopped a process at a driver call, before anything was submitted.
    Halted {
        process: ProcKey,
        call: HaltedCall,
        at: Mono,
    },
    /// A call that waits for the GPU has returned: nothing the process submitted before it runs any more.
    Drained {
        process: ProcKey,
        at: Mono,
    },
    /// A process that is watched for [`Event::Drained`] has launched, for the first time since it was watched or since then.
    Launched {
        process: ProcKey,
        at: Mono,
    },
    ProcessExited {
        process: ProcKey,
        at: Mono,
    },
    /// A step of a hold has ended.
    Step {
        tenant: TenantKey,
        step: Step,
        /// `Err`: why it did not happen. It may have happened in part; steps can be repeated.
        outcome: Result<(), StepFailure>,
        at: Mono,
    },
    Container(Box<ContainerFacts>),
    /// The engine no longer has this container.
    ContainerGone {
        id: ContainerId,
    },
    /// The engine paused a container or let it go on, at whose wish it does not say. A container that ended is not paused.
    Paused {
        id: ContainerId,
        paused: bool,
        at: Mono,
    },
    /// Someone sends a container a signal through its engine, to stop it as a rule.
    Signalled {
        id: ContainerId,
        /// `None` if the engine does not say.
        signal: Option<Signal>,
        at: Mono,
    },
    /// The engine has begun to check a container's health by a command inside, or is done with that. One that could not begin is
    /// never over.
    HealthCheck {
        id: ContainerId,
        is_over: bool,
        at: Mono,
    },
    /// Something began that may use a GPU soon (a container, a program): worth a closer look.
    Stirred {
        source: Source,
        at: Mono,
    },
    Source {
        source: Source,
        status: SourceStatus,
    },
    /// Something happened to a tenant at the level of kernels.
    Kernels {
        tenant: TenantKey,
        news: KernelNews,
        at: Mono,
    },
    /// `auto` has put another policy in place on a GPU.
    PolicyChosen(Box<PolicyChosen>),
    /// Somebody asks something of the loop: it changes nothing by itself, and makes the loop turn.
    Asked,
}

/// Where a process stands that the gate stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "lowercase")]
pub enum HaltedCall {
    /// The making of its first context.
    Context,
    Launch,
    /// An allocation of more than it was allowed to take.
    Allocation {
        bytes: Bytes,
    },
}

/// Why a step of a hold did not happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepFailure {
    /// What was attempted and what the system said.
    pub message: String,
    /// Trying again may help: a timeout, a race with someone else.
    pub is_passing: bool,
}

/// What does not change about a GPU while it is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInfo {
    pub index: GpuIndex,
    pub uuid: GpuUuid,
    pub name: String,
    pub memory_total: Option<Bytes>,
    /// Multi-instance mode is on: its instances are not told apart yet, so tenants on it are shown by GPU only.
    pub mig: Option<bool>,
}

/// One look at all GPUs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    /// When the look began: what happened later is not in it.
    pub at: Mono,
    /// How long it took; the driver may keep one waiting.
    pub took: Duration,
    /// CPU time it took: what looking costs.
    pub cpu: Duration,
    pub gpus: Vec<GpuSample>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct GpuSample {
    pub index: GpuIndex,
    pub reading: GpuReading,
}

#[derive(Debug, Clone, PartialEq)]
pub enum GpuReading {
    Ok {
        memory_used: Option<Bytes>,
        /// Less than what is not used: the driver keeps some that is neither.
        memory_free: Option<Bytes>,
        /// Up to about 200 ms old by the driver's doing.
        core: Option<Percent>,
        /// `Err`: why the list could not be read this time, which says nothing about who is on the GPU.
        processes: Result<Vec<GpuProcess>, String>,
    },
    /// The driver no longer answers for this GPU.
    Lost { reason: String },
}

/// A mean over some time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BandwidthUse {
    pub gpu: GpuIndex,
    /// Of all there is, 0 to 1.
    pub share: f64,
    pub since: Mono,
    pub until: Mono,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuProcess {
    pub process: ProcKey,
    pub kind: ProcessKind,
    pub memory: Option<Bytes>,
    /// `None` unless the driver tells processes apart (it does not under MPS).
    pub core: Option<Percent>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProcessKind {
    Compute,
    Graphics,
    /// The MPS control server: computes on behalf of its clients.
    MpsServer,
    MpsClient,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessFacts {
    pub process: ProcKey,
    pub tenant: TenantKey,
    /// Owner of the process on the host; `None` if it was gone before it could be read.
    pub uid: Option<u32>,
    /// `uid`'s name, where the host knows one.
    pub user: Option<String>,
    pub command: String,
    /// When the process was started, to a clock tick; `None` if unreadable.
    pub started: Option<Mono>,
}

/// The moments of a process's stay on a GPU that probes see exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Moment {
    DeviceOpen,
    ContextReady,
    FirstAllocation,
    FirstLaunch,
    /// A context was destroyed; the process may have others.
    ContextGone,
}

/// How a task's start is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Evidence {
    /// A probe saw it: exact.
    Probe,
    /// A look found it: late by up to the interval between looks.
    Look,
    /// It was there before berth looked: the start of its process, so early by what the process did first.
    Process,
}

/// What an engine says about one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerFacts {
    pub id: ContainerId,
    pub name: String,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    /// Who started it, where a label or the engine says so.
    pub owner: Option<String>,
    pub started_at: Option<Timestamp>,
    /// `None` if the engine does not check its health. It suspends the checks while it holds the container paused, and only then.
    pub health: Option<HealthChecks>,
    /// `None` if it may stand still for ever.
    pub endurance: Option<Endurance>,
    pub stop: Stop,
}

/// How an engine checks the health of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HealthChecks {
    /// From the end of one to the beginning of the next, at the shortest.
    pub every: Duration,
    /// A check that takes longer has failed.
    pub within: Duration,
}

/// How long a container can stand still before its engine, which knows of no pause, takes it for dead and kills it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endurance {
    /// At most so long.
    pub still: Duration,
    /// It has to go on for this long for the engine to see that it is alive.
    pub breath: Duration,
}

/// How an engine stops a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    pub signal: Signal,
    /// How long the container has after that signal before it is killed, unless whoever stops it says otherwise.
    pub kills_after: Duration,
}

/// As engines do unless they are told otherwise.
impl Default for Stop {
    fn default() -> Self {
        Self { signal: Signal::TERM, kills_after: Duration::from_secs(10) }
    }
}

/// Where events come from; each can be missing without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Nvml,
    Docker,
    /// Tells of the pods of this node, in place of Docker.
    Kubernetes,
    ProcessEvents,
    Probes,
    /// Processes that take part at the level of kernels attach to it.
    Shim,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum SourceStatus {
    Up,
    /// Not there; `reason` says why and how to get it.
    Down {
        reason: String,
    },
    /// Not used: by the settings, or because a better source is there.
    Off,
}

/// What a person or another program may want to be told about. A GPU that is back under its index is the lost one, or
/// another in its place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    TaskStarted {
        task: TaskId,
        tenant: TenantKey,
        name: String,
        at: Mono,
        evidence: Evidence,
    },
    TaskEnded {
        task: TaskId,
        tenant: TenantKey,
        name: String,
        at: Mono,
        nanos: u64,
    },
    MomentSeen {
        tenant: TenantKey,
        name: String,
        process: ProcKey,
        moment: Moment,
        at: Mono,
    },
    /// A tenant is kept off the GPUs now, confirmed; `by_uid` is the user who decided, none for a policy.
    TenantHeld {
        tenant: TenantKey,
        name: String,
        means: Means,
        by_uid: Option<u32>,
        reason: String,
        at: Mono,
    },
    /// Nothing keeps it off any more.
    TenantReleased {
        tenant: TenantKey,
        name: String,
        by_uid: Option<u32>,
        reason: String,
        at: Mono,
    },
    /// Dry run: a policy would keep it off the GPUs from now on; nothing is done.
    TenantWouldBeHeld {
        tenant: TenantKey,
        name: String,
        means: Means,
        reason: String,
        at: Mono,
    },
    /// Dry run: a policy would let it on again.
    TenantWouldBeReleased {
        tenant: TenantKey,
        name: String,
        reason: String,
        at: Mono,
    },
    /// A hold was on record of which nothing is there any more: it was neither undone nor touched.
    HoldGone {
        tenant: TenantKey,
        name: String,
        reason: String,
        at: Mono,
    },
    /// What was wanted of a tenant did not come about. A hold is then undone; a release goes on being tried.
    HoldFailed {
        tenant: TenantKey,
        name: String,
        message: String,
        at: Mono,
    },
    /// A unit of work that had a deadline is over.
    UnitJudged {
        tenant: TenantKey,
        name: String,
        unit: Unit,
        deadline: Deadline,
        verdict: Verdict,
        /// What was left until it was due, below zero where it was late.
        float_nanos: Option<i64>,
        /// Why it was late, in words.
        why: Option<String>,
        at: Mono,
    },
    /// A unit of work will probably miss its deadline, or cannot meet it; `reason` says why. Told once per unit, before it does.
    DeadlineEndangered {
        tenant: TenantKey,
        name: String,
        unit: Unit,
        deadline: Deadline,
        due: Mono,
        reason: String,
        at: Mono,
    },
    /// A deadline is outside the bounds of the settings: another counts in its place.
    DeadlineOutOfBounds {
        tenant: TenantKey,
        name: String,
        asked: Deadline,
        counts: Deadline,
        bound: String,
        at: Mono,
    },
    /// The deadline that counts for a tenant is another now; `None`: it has none.
    DeadlineChanged {
        tenant: TenantKey,
        name: String,
        deadline: Option<Deadline>,
        by_uid: u32,
        at: Mono,
    },
    /// Something happened to a tenant at the level of kernels.
    KernelLevel {
        tenant: TenantKey,
        name: String,
        #[serde(flatten)]
        news: KernelNews,
        at: Mono,
    },
    /// `auto` has put another policy in place on a GPU.
    PolicyChosen(Box<PolicyChosen>),
    /// Something of a tenant is not as it should be; what exactly is for its owner and administrators.
    Found {
        tenant: TenantKey,
        name: String,
        kind: watch::Kind,
        /// When it began, as far as is known.
        since: Mono,
        at: Mono,
    },
    /// It is as it should be again, or has become usual.
    FoundNoMore {
        tenant: TenantKey,
        name: String,
        kind: watch::Kind,
        at: Mono,
    },
    GpuLost {
        gpu: GpuIndex,
        reason: String,
    },
    GpuBack {
        gpu: GpuIndex,
    },
    SourceChanged {
        source: Source,
        status: SourceStatus,
    },
}

impl Source {
    /// As in JSON and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Source::Nvml => "nvml",
            Source::Docker => "docker",
            Source::Kubernetes => "kubernetes",
            Source::ProcessEvents => "process_events",
            Source::Probes => "probes",
            Source::Shim => "shim",
        }
    }
}

impl Moment {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Moment::DeviceOpen => "device_open",
            Moment::ContextReady => "context_ready",
            Moment::FirstAllocation => "first_allocation",
            Moment::FirstLaunch => "first_launch",
            Moment::ContextGone => "context_gone",
        }
    }
}

impl Evidence {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Evidence::Probe => "probe",
            Evidence::Look => "look",
            Evidence::Process => "process",
        }
    }
}

impl SourceStatus {
    /// As in JSON.
    pub fn as_str(&self) -> &'static str {
        match self {
            SourceStatus::Up => "up",
            SourceStatus::Down { .. } => "down",
            SourceStatus::Off => "off",
        }
    }

    pub fn reason(&self) -> Option<&str> {
        match self {
            SourceStatus::Down { reason } => Some(reason),
            SourceStatus::Up | SourceStatus::Off => None,
        }
    }
}

impl Change {
    /// Which change it is, as in JSON.
    pub fn kind(&self) -> &'static str {
        match self {
            Change::TaskStarted { .. } => "task_started",
            Change::TaskEnded { .. } => "task_ended",
            Change::MomentSeen { .. } => "moment_seen",
            Change::TenantHeld { .. } => "tenant_held",
            Change::TenantReleased { .. } => "tenant_released",
            Change::TenantWouldBeHeld { .. } => "tenant_would_be_held",
            Change::TenantWouldBeReleased { .. } => "tenant_would_be_released",
            Change::HoldGone { .. } => "hold_gone",
            Change::HoldFailed { .. } => "hold_failed",
            Change::UnitJudged { .. } => "unit_judged",
            Change::DeadlineEndangered { .. } => "deadline_endangered",
            Change::DeadlineOutOfBounds { .. } => "deadline_out_of_bounds",
            Change::DeadlineChanged { .. } => "deadline_changed",
            Change::KernelLevel { .. } => "kernel_level",
            Change::PolicyChosen(_) => "policy_chosen",
            Change::Found { .. } => "found",
            Change::FoundNoMore { .. } => "found_no_more",
            Change::GpuLost { .. } => "gpu_lost",
            Change::GpuBack { .. } => "gpu_back",
            Change::SourceChanged { .. } => "source_changed",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::KernelPolicyName;

    fn json(value: &impl Serialize) -> serde_json::Value {
        serde_json::to_value(value).unwrap()
    }

    #[test]
    fn names_are_those_of_the_json() {
        use Moment::{ContextGone, ContextReady, DeviceOpen, FirstAllocation, FirstLaunch};
        for moment in [DeviceOpen, ContextReady, FirstAllocation, FirstLaunch, ContextGone] {
            assert_eq!(json(&moment), moment.as_str());
        }
        for evidence in [Evidence::Probe, Evidence::Look, Evidence::Process] {
            assert_eq!(json(&evidence), evidence.as_str());
        }
        for source in
            [Source::Nvml, Source::Docker, Source::Kubernetes, Source::ProcessEvents, Source::Probes, Source::Shim]
        {
            assert_eq!(json(&source), source.as_str());
        }
        for status in [SourceStatus::Up, SourceStatus::Down { reason: "no socket".into() }, SourceStatus::Off] {
            assert_eq!(json(&status)["status"], status.as_str());
        }
    }

    #[test]
    fn kinds_of_changes_are_those_of_the_json() {
        let (task, name, at, gpu) = (TaskId(1), String::from("a"), Mono(1), GpuIndex(0));
        let tenant = TenantKey::User { uid: 0 };
        let process = ProcKey { pid: 1, start_ticks: 1 };
        let deadline: Deadline = "9".parse().unwrap();
        let changes = [
            Change::TaskStarted { task, tenant: tenant.clone(), name: name.clone(), at, evidence: Evidence::Look },
            Change::TaskEnded { task, tenant: tenant.clone(), name: name.clone(), at, nanos: 1 },
            Change::MomentSeen { tenant: tenant.clone(), name: name.clone(), process, moment: Moment::FirstLaunch, at },
            Change::TenantHeld {
                tenant: tenant.clone(),
                name: name.clone(),
                means: Means::Gate,
                by_uid: None,
                reason: "`b` computes".into(),
                at,
            },
            Change::TenantReleased {
                tenant: tenant.clone(),
                name: name.clone(),
                by_uid: Some(0),
                reason: "its turn".into(),
                at,
            },
            Change::TenantWouldBeHeld {
                tenant: tenant.clone(),
                name: name.clone(),
                means: Means::Gate,
                reason: "`b` computes".into(),
                at,
            },
            Change::TenantWouldBeReleased { tenant: tenant.clone(), name: name.clone(), reason: "its turn".into(), at },
            Change::HoldGone { tenant: tenant.clone(), name: name.clone(), reason: "it has ended".into(), at },
            Change::HoldFailed { tenant: tenant.clone(), name: name.clone(), message: "no".into(), at },
            Change::UnitJudged {
                tenant: tenant.clone(),
                name: name.clone(),
                unit: Unit::Task,
                deadline,
                verdict: Verdict::Miss,
                float_nanos: Some(-1),
                why: None,
                at,
            },
            Change::DeadlineEndangered {
                tenant: tenant.clone(),
                name: name.clone(),
                unit: Unit::Task,
                deadline,
                due: at,
                reason: "it waits".into(),
                at,
            },
            Change::DeadlineOutOfBounds {
                tenant: tenant.clone(),
                name: name.clone(),
                asked: deadline,
                counts: deadline,
                bound: "everybody 1s..".into(),
                at,
            },
            Change::DeadlineChanged {
                tenant: tenant.clone(),
                name: name.clone(),
                deadline: Some(deadline),
                by_uid: 0,
                at,
            },
            Change::Found { tenant: tenant.clone(), name: name.clone(), kind: watch::Kind::Starvation, since: at, at },
            Change::FoundNoMore { tenant: tenant.clone(), name: name.clone(), kind: watch::Kind::Starvation, at },
            Change::KernelLevel { tenant, name, news: KernelNews::LeadLost { gpu: None, for_seconds: 5 }, at },
            Change::PolicyChosen(Box::new(PolicyChosen {
                gpu: Some(gpu),
                gpu_uuid: GpuUuid("GPU-0".into()),
                policy: KernelPolicyName::Slo,
                before: KernelPolicyName::Hybrid,
                is_try: false,
                reason: "it keeps more".into(),
                measured: vec![],
                at,
            })),
            Change::GpuLost { gpu, reason: "gone".into() },
            Change::GpuBack { gpu },
            Change::SourceChanged { source: Source::Nvml, status: SourceStatus::Up },
        ];
        for change in changes {
            assert_eq!(json(&change)["change"], change.kind());
        }
    }
}
