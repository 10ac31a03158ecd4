//! What the monitor said, and when it was heard.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use berth_api::{Client, Followed};
use berth_host::clock;
use berth_model::deadline::{Deadline, Verdict};
use berth_model::{Change, Moment, Mono, TaskId, TenantKey};
use serde::Serialize;

use super::truth::Stay;
use crate::live::runtime;

/// How far a report may be from the truth and still speak of it.
const REACH: Duration = Duration::from_secs(3);

/// One thing the monitor told.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    pub tenant: TenantKey,
    pub what: What,
    /// When it happened, by the monitor.
    pub at: Mono,
    /// When a follower of the event stream was told.
    pub heard: Mono,
    /// Which task began or ended.
    pub task: Option<TaskId>,
    /// What became of a unit that was judged.
    pub judged: Option<Judged>,
}

/// A unit's verdict, as it was told.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Judged {
    /// The one it was judged by.
    pub deadline: Deadline,
    pub verdict: Verdict,
    /// What was left until then.
    pub float_s: Option<f64>,
}

impl Report {
    /// The monitor's date against the true one.
    pub fn error_ms(&self, truth: u64) -> f64 {
        millis_after(self.at.0, truth)
    }

    /// From the true instant until a follower of the event stream was told.
    pub fn told_after_ms(&self, truth: u64) -> f64 {
        millis_after(self.heard.0, truth)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum What {
    Moment(Moment),
    TaskStarted,
    TaskEnded,
    UnitJudged,
}

/// Listens to a daemon's event stream until dropped.
#[derive(Debug)]
pub struct Listener {
    reports: Arc<Mutex<Vec<Report>>>,
    stop: Arc<tokio::sync::Notify>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Listener {
    /// Returns once the stream is open, so that nothing after it is missed.
    pub fn start(client: Client) -> anyhow::Result<Self> {
        let runtime = runtime()?;
        let mut follow = client.follow(None);
        let first = runtime.block_on(follow.next());
        let Followed::Connected = first else { anyhow::bail!("the daemon's event stream did not open: {first:?}") };
        let (reports, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(tokio::sync::Notify::new()));
        let (kept, stopped) = (reports.clone(), stop.clone());
        let listen = async move {
            loop {
                let followed = tokio::select! {
                    followed = follow.next() => followed,
                    () = stopped.notified() => return,
                };
                if let Followed::Change(notice) = followed {
                    let report = report(notice.change, clock::now());
                    kept.lock().unwrap_or_else(PoisonError::into_inner).extend(report);
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name("bench-listener".into())
            .spawn(move || runtime.block_on(listen))
            .context("starting a thread")?;
        Ok(Self { reports, stop, thread: Some(thread) })
    }

    pub fn take(&self) -> Vec<Report> {
        std::mem::take(&mut *self.reports.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn report(change: Change, heard: Mono) -> Option<Report> {
    let mut judged = None;
    let (tenant, what, at, task) = match change {
        Change::MomentSeen { tenant, moment, at, .. } => (tenant, What::Moment(moment), at, None),
        Change::TaskStarted { task, tenant, at, .. } => (tenant, What::TaskStarted, at, Some(task)),
        Change::TaskEnded { task, tenant, at, .. } => (tenant, What::TaskEnded, at, Some(task)),
        Change::UnitJudged { tenant, deadline, verdict, float_nanos, at, .. } => {
            judged = Some(Judged { deadline, verdict, float_s: float_nanos.map(|nanos| nanos as f64 / 1e9) });
            (tenant, What::UnitJudged, at, None)
        }
        Change::TenantHeld { .. }
        | Change::TenantReleased { .. }
        | Change::TenantWouldBeHeld { .. }
        | Change::TenantWouldBeReleased { .. }
        | Change::HoldGone { .. }
        | Change::HoldFailed { .. }
        | Change::DeadlineEndangered { .. }
        | Change::DeadlineOutOfBounds { .. }
        | Change::DeadlineChanged { .. }
        | Change::Found { .. }
        | Change::FoundNoMore { .. }
        | Change::GpuLost { .. }
        | Change::KernelLevel { .. }
        | Change::PolicyChosen(_)
        | Change::GpuBack { .. }
        | Change::SourceChanged { .. } => return None,
    };
    Some(Report { tenant, what, at, heard, task, judged })
}

/// For each true instant the report that speaks of it, if any: in order of time, each report used once, and the nearest
/// within reach taken.
pub fn pair<'a>(reports: &'a [Report], tenant: &TenantKey, what: What, truth: &[u64]) -> Vec<Option<&'a Report>> {
    let mut left: Vec<&Report> = reports.iter().filter(|r| r.tenant.is(tenant) && r.what == what).collect();
    let mut paired = Vec::new();
    for at in truth {
        let nearest = left.iter().enumerate().min_by_key(|(_, report)| report.at.0.abs_diff(*at));
        let within = nearest.filter(|(_, report)| u128::from(report.at.0.abs_diff(*at)) <= REACH.as_nanos());
        let index = within.map(|(index, _)| index);
        paired.push(index.map(|index| left.remove(index)));
    }
    paired
}

/// For each true instant the first report told after it and before the next one. Instants in order of time.
pub fn first_told<'a>(reports: &'a [Report], tenant: &TenantKey, what: What, truth: &[u64]) -> Vec<Option<&'a Report>> {
    let of_tenant: Vec<&Report> = reports.iter().filter(|r| r.tenant.is(tenant) && r.what == what).collect();
    let ends = truth.iter().copied().skip(1).chain([u64::MAX]);
    let first = |(from, to): (&u64, u64)| {
        let between = of_tenant.iter().filter(|report| (*from..to).contains(&report.heard.0));
        between.min_by_key(|report| report.heard.0).copied()
    };
    truth.iter().zip(ends).map(first).collect()
}

/// True instants of one moment over all stays.
pub fn instants(stays: &[Stay], moment: Moment) -> Vec<u64> {
    stays.iter().filter_map(|stay| stay.moments.get(&moment).copied()).collect()
}

/// Signed: a date before the true instant is negative.
#[expect(clippy::cast_precision_loss, reason = "differences of a few seconds")]
pub fn millis_after(later: u64, earlier: u64) -> f64 {
    (i128::from(later) - i128::from(earlier)) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(uid: u32) -> TenantKey {
        TenantKey::User { uid }
    }

    fn at(tenant_uid: u32, seconds: u64) -> Report {
        let at = Mono(seconds * 1_000_000_000);
        Report { tenant: tenant(tenant_uid), what: What::TaskStarted, at, heard: at, task: None, judged: None }
    }

    #[test]
    fn reports_are_paired_with_the_nearest_truth_of_their_own_tenant() {
        let reports = [at(1, 10), at(2, 20), at(1, 30)];
        let truth = [9_900_000_000, 20_000_000_000, 30_100_000_000];
        let paired: Vec<_> =
            pair(&reports, &tenant(1), What::TaskStarted, &truth).into_iter().map(|r| r.cloned()).collect();
        assert_eq!(paired, [Some(at(1, 10)), None, Some(at(1, 30))]);
    }

    #[test]
    fn a_newcomer_is_told_of_after_it_came_and_before_the_next_did() {
        let reports = [at(1, 8), at(2, 11), at(1, 13), at(1, 14)];
        let truth = [10, 12, 20].map(|seconds| seconds * 1_000_000_000);
        let told: Vec<_> = first_told(&reports, &tenant(1), What::TaskStarted, &truth);
        assert_eq!(told, [None, Some(&at(1, 13)), None]);
    }

    #[test]
    fn no_report_is_used_twice() {
        let reports = [at(1, 10)];
        let paired = pair(&reports, &tenant(1), What::TaskStarted, &[10_000_000_000, 10_000_000_001]);
        assert_eq!(paired.iter().flatten().count(), 1);
    }
}
