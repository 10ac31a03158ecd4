//! Values of the model in words, for lines and screens.

pub mod deadline;
pub mod hold;
pub mod kernels;
pub mod watch;

use berth_model::fields::elapsed;
use berth_model::{Change, Evidence, Moment, ProcessKind, Source, SourceStatus};

pub fn source(source: Source) -> &'static str {
    match source {
        Source::Nvml => "NVML",
        Source::Docker => "Docker",
        Source::Kubernetes => "Kubernetes",
        Source::ProcessEvents => "process events",
        Source::Probes => "probes",
        Source::Shim => "kernel-level socket",
    }
}

pub fn evidence(evidence: Evidence) -> &'static str {
    match evidence {
        Evidence::Probe => "seen by a probe",
        Evidence::Look => "found by a look",
        Evidence::Process => "there before berth looked",
    }
}

pub fn process_kind(kind: ProcessKind) -> &'static str {
    match kind {
        ProcessKind::Compute => "compute",
        ProcessKind::Graphics => "graphics",
        ProcessKind::MpsServer => "MPS server",
        ProcessKind::MpsClient => "MPS client",
    }
}

fn moment(moment: Moment) -> &'static str {
    match moment {
        Moment::DeviceOpen => "opened the device",
        Moment::ContextReady => "has a context",
        Moment::FirstAllocation => "took its first memory",
        Moment::FirstLaunch => "launched its first kernel",
        Moment::ContextGone => "gave up a context",
    }
}

fn by(uid: Option<u32>) -> String {
    uid.map(|uid| format!(", by {}", hold::user(uid))).unwrap_or_default()
}

pub fn change(change: &Change) -> String {
    match change {
        Change::TaskStarted { task, name, evidence: how, .. } => {
            format!("{name}: task {} started ({})", task.0, evidence(*how))
        }
        #[expect(clippy::cast_precision_loss, reason = "shown to a tenth of a second")]
        Change::TaskEnded { task, name, nanos, .. } => {
            format!("{name}: task {} ended after {}", task.0, elapsed(*nanos as f64 / 1e9))
        }
        Change::MomentSeen { name, process, moment: what, .. } => {
            format!("{name}: process {} {}", process.pid, moment(*what))
        }
        Change::TenantHeld { name, means, by_uid, reason, .. } => {
            format!("{name}: held ({}{}): {reason}", means.as_str(), by(*by_uid))
        }
        Change::TenantReleased { name, by_uid: None, reason, .. } => format!("{name}: released: {reason}"),
        Change::TenantReleased { name, by_uid, reason, .. } => format!("{name}: released{}: {reason}", by(*by_uid)),
        Change::TenantWouldBeHeld { name, means, reason, .. } => {
            format!("{name}: would be held ({}; dry run): {reason}", means.as_str())
        }
        Change::TenantWouldBeReleased { name, reason, .. } => format!("{name}: would be released (dry run): {reason}"),
        Change::HoldGone { name, reason, .. } => format!("{name}: its hold is gone: {reason}, nothing was touched"),
        Change::HoldFailed { name, message, .. } => format!("{name}: could not be held or released: {message}"),
        Change::UnitJudged { name, unit, deadline, verdict, float_nanos, why, .. } => {
            format!("{name}: {} {}", unit.as_str(), deadline::judged(*deadline, *verdict, *float_nanos, why.as_deref()))
        }
        Change::DeadlineEndangered { name, deadline, reason, .. } => {
            format!("{name}: will probably miss its deadline of {deadline}: {reason}")
        }
        Change::DeadlineOutOfBounds { name, asked, counts, bound, .. } => {
            format!("{name}: a deadline of {asked} is not allowed, {counts} counts (`{bound}`)")
        }
        Change::DeadlineChanged { name, deadline, by_uid, .. } => {
            let what =
                deadline.map_or_else(|| "has no deadline now".to_owned(), |it| format!("has a deadline of {it} now"));
            format!("{name}: {what}{}", by(Some(*by_uid)))
        }
        Change::Found { name, kind, .. } => format!("{name}: {}", watch::begun(*kind)),
        Change::FoundNoMore { name, kind, .. } => format!("{name}: {}", watch::over(*kind)),
        Change::GpuLost { gpu, reason } => format!("GPU {gpu} is lost: {reason}"),
        Change::KernelLevel { name, news, .. } => kernels::news(name, news),
        Change::PolicyChosen(chosen) => kernels::chosen(chosen),
        Change::GpuBack { gpu } => format!("GPU {gpu} is back"),
        Change::SourceChanged { source: which, status } => match status {
            SourceStatus::Up => format!("{}: up", source(*which)),
            SourceStatus::Off => format!("{}: switched off", source(*which)),
            SourceStatus::Down { reason } => format!("{}: down, {reason}", source(*which)),
        },
    }
}
