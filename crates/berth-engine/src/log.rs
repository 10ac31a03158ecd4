//! Changes in the log, each with fields of its own, so that logs can be searched by tenant, task or GPU.
//!
//! The names are those of the JSON events, except for what a log does better: a tenant is one word, a duration is in
//! seconds, and the time of the change is that of the line. What somebody may have to see to is a warning; what happens
//! with every process is for those who look closely, so that the log of a busy host grows with its tasks alone.

use std::time::Duration;

use berth_model::deadline::Unit;
use berth_model::{Change, SourceStatus};
use tracing::{debug, info, warn};

/// One line per change.
pub(crate) fn log_change(change: &Change) {
    let kind = change.kind();
    match change {
        Change::TaskStarted { task, tenant, name, evidence, .. } => {
            info!(change = kind, task = task.0, %tenant, name, evidence = evidence.as_str(), "a task started");
        }
        Change::TaskEnded { task, tenant, name, nanos, .. } => {
            let seconds = Duration::from_nanos(*nanos).as_secs_f64();
            info!(change = kind, task = task.0, %tenant, name, seconds, "a task ended");
        }
        Change::MomentSeen { tenant, name, process, moment, .. } => {
            debug!(change = kind, %tenant, name, pid = process.pid, moment = moment.as_str(), "a probe saw a moment");
        }
        Change::TenantHeld { tenant, name, means, by_uid, reason, .. } => {
            info!(change = kind, %tenant, name, means = means.as_str(), by_uid, reason, "a tenant is held");
        }
        Change::TenantReleased { tenant, name, by_uid, reason, .. } => {
            info!(change = kind, %tenant, name, by_uid, reason, "a tenant is released");
        }
        Change::TenantWouldBeHeld { tenant, name, means, reason, .. } => {
            info!(change = kind, %tenant, name, means = means.as_str(), reason, "dry run: a tenant would be held");
        }
        Change::TenantWouldBeReleased { tenant, name, reason, .. } => {
            info!(change = kind, %tenant, name, reason, "dry run: a tenant would be released");
        }
        Change::HoldGone { tenant, name, reason, .. } => {
            info!(change = kind, %tenant, name, reason, "of a hold on record nothing is left; nothing was touched");
        }
        Change::HoldFailed { tenant, name, message, .. } => {
            warn!(change = kind, %tenant, name, message, "a hold or a release failed");
        }
        Change::UnitJudged { .. } => log_judged(change),
        Change::DeadlineEndangered { tenant, name, unit, deadline, reason, .. } => {
            warn!(change = kind, %tenant, name, unit = unit.as_str(), %deadline, reason, "a deadline will probably be missed");
        }
        Change::DeadlineOutOfBounds { tenant, name, asked, counts, bound, .. } => {
            warn!(change = kind, %tenant, name, %asked, %counts, bound, "a deadline is outside the bounds");
        }
        Change::DeadlineChanged { tenant, name, deadline, by_uid, .. } => {
            let deadline = deadline.map_or_else(|| "none".to_owned(), |deadline| deadline.to_string());
            info!(change = kind, %tenant, name, deadline, by_uid, "a deadline has changed");
        }
        Change::Found { tenant, name, kind: what, .. } => {
            warn!(change = kind, %tenant, name, what = what.as_str(), "something is not as it should be");
        }
        Change::FoundNoMore { tenant, name, kind: what, .. } => {
            info!(change = kind, %tenant, name, what = what.as_str(), "it is as it should be again");
        }
        Change::GpuLost { gpu, reason } => warn!(change = kind, gpu = gpu.0, reason, "a GPU is lost"),
        Change::KernelLevel { tenant, name, news, .. } => {
            info!(change = kind, %tenant, name, ?news, "at the level of kernels");
        }
        Change::PolicyChosen(chosen) => {
            let (policy, before) = (chosen.policy.as_str(), chosen.before.as_str());
            let (gpu, reason) = (chosen.gpu.map(|gpu| gpu.0), &chosen.reason);
            info!(change = kind, gpu, uuid = %chosen.gpu_uuid, policy, before, reason, "auto chose another policy");
        }
        Change::GpuBack { gpu } => info!(change = kind, gpu = gpu.0, "a GPU is back"),
        Change::SourceChanged { source, status } => {
            let (source, word) = (source.as_str(), status.as_str());
            match status {
                SourceStatus::Down { reason } => {
                    warn!(change = kind, source, status = word, reason, "a source is missing");
                }
                SourceStatus::Up | SourceStatus::Off => info!(change = kind, source, status = word, "a source changed"),
            }
        }
    }
}

/// A task is one line, as its end is; bursts may be many in a second.
fn log_judged(change: &Change) {
    let Change::UnitJudged { tenant, name, unit, deadline, verdict, float_nanos, why, .. } = change else { return };
    let (kind, verdict) = (change.kind(), verdict.as_str());
    #[expect(clippy::cast_precision_loss, reason = "exact to a microsecond for a year")]
    let float_seconds = float_nanos.map(|nanos| nanos as f64 / 1e9);
    match unit {
        Unit::Task => {
            info!(change = kind, %tenant, name, unit = "task", %deadline, verdict, float_seconds, why, "a task was judged");
        }
        Unit::Burst => {
            debug!(change = kind, %tenant, name, unit = "burst", %deadline, verdict, float_seconds, why, "a burst was judged");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use berth_model::deadline::Verdict;
    use berth_model::{Deadline, Evidence, GpuIndex, Moment, Mono, ProcKey, Source, SourceStatus, TaskId, TenantKey};
    use serde_json::{Value, json};

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The fields of the JSON log line of a change.
    fn logged(change: &Change) -> Value {
        line(change).1
    }

    fn level(change: &Change) -> String {
        line(change).0
    }

    /// Level and fields.
    fn line(change: &Change) -> (String, Value) {
        let written = Written::default();
        let writer = written.clone();
        let subscriber = tracing_subscriber::fmt().json().with_max_level(tracing::Level::TRACE);
        let subscriber = subscriber.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(subscriber, || log_change(change));
        let line: Value = serde_json::from_slice(&written.0.lock().unwrap()).unwrap();
        let mut fields = line["fields"].clone();
        fields.as_object_mut().unwrap().remove("message").unwrap();
        (line["level"].as_str().unwrap().to_owned(), fields)
    }

    fn tenant() -> (TenantKey, String) {
        (TenantKey::User { uid: 1000 }, "ada".into())
    }

    #[test]
    fn changes_of_a_task_are_found_by_tenant_and_task() {
        let ((tenant, name), task, at) = (tenant(), TaskId(3), Mono(5));
        let started = Change::TaskStarted { task, tenant, name, at, evidence: Evidence::Probe };
        assert_eq!(
            logged(&started),
            json!({"change": "task_started", "task": 3, "tenant": "user:1000", "name": "ada", "evidence": "probe"})
        );
        let (tenant, name) = self::tenant();
        let ended = Change::TaskEnded { task, tenant, name, at, nanos: 1_500_000_000 };
        assert_eq!(
            logged(&ended),
            json!({"change": "task_ended", "task": 3, "tenant": "user:1000", "name": "ada", "seconds": 1.5})
        );
        let (tenant, name) = self::tenant();
        let process = ProcKey { pid: 77, start_ticks: 1 };
        let seen = Change::MomentSeen { tenant, name, process, moment: Moment::FirstLaunch, at };
        assert_eq!(
            logged(&seen),
            json!({"change": "moment_seen", "tenant": "user:1000", "name": "ada", "pid": 77, "moment": "first_launch"})
        );
    }

    fn judged(unit: Unit, verdict: Verdict) -> Change {
        let ((tenant, name), deadline, at) = (tenant(), "9s".parse().unwrap(), Mono(5));
        let (float_nanos, why) = match verdict {
            Verdict::Miss => (Some(-1_500_000_000), Some("it was held".into())),
            _ => (None, None),
        };
        Change::UnitJudged { tenant, name, unit, deadline, verdict, float_nanos, why, at }
    }

    #[test]
    fn what_became_of_deadlines_is_found_by_tenant_verdict_and_unit() {
        assert_eq!(
            logged(&judged(Unit::Task, Verdict::Miss)),
            json!({"change": "unit_judged", "tenant": "user:1000", "name": "ada", "unit": "task", "deadline": "9s",
                   "verdict": "miss", "float_seconds": -1.5, "why": "it was held"})
        );
        assert_eq!(
            logged(&judged(Unit::Burst, Verdict::Unknown)),
            json!({"change": "unit_judged", "tenant": "user:1000", "name": "ada", "unit": "burst", "deadline": "9s",
                   "verdict": "unknown"})
        );
    }

    #[test]
    fn a_deadline_in_danger_or_out_of_bounds_is_a_warning_and_bursts_do_not_fill_the_log() {
        let levels = [Unit::Task, Unit::Burst].map(|unit| level(&judged(unit, Verdict::Miss)));
        assert_eq!(levels, ["INFO", "DEBUG"]);
        let (deadline, at): (Deadline, _) = ("9s".parse().unwrap(), Mono(5));
        let (tenant, name) = tenant();
        let reason = "it goes on and has 1.0s".to_owned();
        let endangered =
            Change::DeadlineEndangered { tenant, name, unit: Unit::Task, deadline, due: Mono(9), reason, at };
        let (tenant, name) = self::tenant();
        let (asked, bound) = ("1s".parse().unwrap(), "everybody 9s..".to_owned());
        let out = Change::DeadlineOutOfBounds { tenant, name, asked, counts: deadline, bound, at };
        let (tenant, name) = self::tenant();
        let changed = Change::DeadlineChanged { tenant, name, deadline: None, by_uid: 0, at };
        assert_eq!([level(&endangered), level(&out), level(&changed)], ["WARN", "WARN", "INFO"]);
        assert_eq!((&logged(&changed)["deadline"], &logged(&out)["asked"]), (&json!("none"), &json!("1s")));
    }

    #[test]
    fn changes_of_the_host_are_found_by_gpu_and_source() {
        let gpu = GpuIndex(1);
        let lost = Change::GpuLost { gpu, reason: "XID 79".into() };
        assert_eq!(logged(&lost), json!({"change": "gpu_lost", "gpu": 1, "reason": "XID 79"}));
        assert_eq!(logged(&Change::GpuBack { gpu }), json!({"change": "gpu_back", "gpu": 1}));
        let status = |status| Change::SourceChanged { source: Source::Docker, status };
        assert_eq!(
            logged(&status(SourceStatus::Down { reason: "no socket".into() })),
            json!({"change": "source_changed", "source": "docker", "status": "down", "reason": "no socket"})
        );
        assert_eq!(
            logged(&status(SourceStatus::Up)),
            json!({"change": "source_changed", "source": "docker", "status": "up"})
        );
    }

    #[test]
    fn what_an_operator_must_see_to_is_a_warning_and_what_each_process_does_is_for_debugging() {
        let gpu = GpuIndex(1);
        assert_eq!(level(&Change::GpuLost { gpu, reason: "XID 79".into() }), "WARN");
        assert_eq!(level(&Change::GpuBack { gpu }), "INFO");
        let source = |status| level(&Change::SourceChanged { source: Source::Nvml, status });
        let down = SourceStatus::Down { reason: "no driver".into() };
        assert_eq!([source(down), source(SourceStatus::Up), source(SourceStatus::Off)], ["WARN", "INFO", "INFO"]);
        let ((tenant, name), task, at) = (tenant(), TaskId(3), Mono(5));
        let (process, moment) = (ProcKey { pid: 77, start_ticks: 1 }, Moment::FirstLaunch);
        let seen = Change::MomentSeen { tenant: tenant.clone(), name: name.clone(), process, moment, at };
        assert_eq!(level(&seen), "DEBUG");
        assert_eq!(level(&Change::TaskStarted { task, tenant, name, at, evidence: Evidence::Probe }), "INFO");
    }
}
