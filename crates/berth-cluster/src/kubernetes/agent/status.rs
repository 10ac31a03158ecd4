//! The node's report in the status of its `gpunodes.berth.dev`: when something has changed, at most once per `every`, and after
//! [`HEARTBEAT`] in any case, however seldom news may be told, so that a node that is well does not look like one that is gone.

use std::time::Duration;

use berth_model::Bytes;
use berth_model::cluster::report::{HEARTBEAT, MOST_LOADS};
use berth_model::cluster::{GpuReport, NodeId, Report};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use super::Reporting;
use super::calls::{CallError, Complaint, answered, in_full};
use crate::frame::{FrameError, NodeKey, Pasts, encode_pasts, encode_report};
use crate::kubernetes::gpunode::{GROUP, GpuNode, KIND, Status, VERSION, encode};

/// Who has written the object, in its managed fields.
const MANAGER: &str = "berth-node";
/// Letters of a frame that the definition of `gpunodes` has room for.
const LONGEST_FRAME: usize = 1 << 20;
/// Loads of a GPU that are told where all of them are too long, in turn.
const FEWER_LOADS: [usize; 4] = [MOST_LOADS, 64, 16, 0];
/// No loop turns faster.
const LEAST_TICK: Duration = Duration::from_millis(100);
/// Shown where there is nothing to show.
const NOTHING: &str = "-";
/// Memory that may come and go without being worth a report.
const MEMORY_STEP: u64 = 64 << 20;
/// Use of the cores that may.
const CORE_STEP: u8 = 10;
/// By how much what is due may shift: it is told from an instant that is known to a few milliseconds.
const DUE_STEP: f64 = 0.25;

/// Writes the status.
pub(super) struct Writer {
    api: Api<GpuNode>,
    node: NodeId,
    reporting: Reporting,
    written: Option<Written>,
    /// The node's object is there.
    is_made: bool,
    complaint: Complaint,
}

/// What was written last.
struct Written {
    gist: Gist,
    at: tokio::time::Instant,
    /// What the node remembers, as it is written, and its number.
    pasts: Option<(u32, String)>,
}

/// What of a report is news when it changes: what it says without the time that passes by itself.
#[derive(Debug, Clone, PartialEq)]
struct Gist(Vec<GpuGist>, u32);

#[derive(Debug, Clone, PartialEq)]
struct GpuGist {
    uuid: String,
    is_lost: bool,
    memory: [Option<u64>; 3],
    core: Option<u8>,
    counts: [u32; 3],
    /// Deadline in milliseconds, and when its unit is due, in steps.
    loads: Vec<(u64, Option<i64>)>,
    misses: usize,
    placed: Vec<u64>,
}

impl Writer {
    pub fn new(client: Client, node: NodeId, reporting: Reporting) -> Self {
        Self { api: Api::all(client), node, reporting, written: None, is_made: false, complaint: Complaint::default() }
    }

    /// Never ends.
    pub async fn keep_up(mut self) {
        let mut ticks = tokio::time::interval(self.reporting.every.clamp(LEAST_TICK, HEARTBEAT));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(report) = (self.reporting.report)() else { continue };
            let gist = Gist::of(&report);
            if !self.written.as_ref().is_none_or(|written| written.is_outdone(&gist, self.reporting.every)) {
                continue;
            }
            let written = self.write(&report, gist).await;
            self.tell(written);
        }
    }

    fn tell(&mut self, written: Result<(), WriteError>) {
        match written {
            Ok(()) if self.complaint.is_over() => tracing::info!(node = %self.node, "the node reports again"),
            Ok(()) => {}
            Err(error) if self.complaint.is_new(&error) => {
                tracing::warn!(node = %self.node, error = in_full(&error), "the node does not report");
            }
            Err(error) => tracing::debug!(node = %self.node, error = in_full(&error), "the node still does not report"),
        }
    }

    async fn write(&mut self, report: &Report, gist: Gist) -> Result<(), WriteError> {
        let pasts = self.pasts(report)?;
        let frame = frame(report, &self.reporting.key)?;
        let status = status(report, frame, pasts.as_ref().map(|(_, text)| text.clone()));
        if !self.is_made {
            self.make().await?;
        }
        let patch = Patch::Merge(json!({"status": status}));
        match answered(self.api.patch_status(self.node.as_str(), &PatchParams::default(), &patch)).await {
            Ok(_) => {
                self.written = Some(Written { gist, at: tokio::time::Instant::now(), pasts });
                Ok(())
            }
            Err(error) => {
                // Somebody may have deleted it.
                self.is_made = false;
                Err(error.into())
            }
        }
    }

    /// Signed anew only when they have changed: they are longer than a report.
    fn pasts(&self, report: &Report) -> Result<Option<(u32, String)>, WriteError> {
        let last = self.written.as_ref().and_then(|written| written.pasts.clone());
        if last.as_ref().is_some_and(|(number, _)| *number == report.pasts) {
            return Ok(last);
        }
        let pasts = (self.reporting.pasts)();
        if pasts.is_empty() {
            return Ok(None);
        }
        let pasts = Pasts { node: self.node.clone(), stamp: report.stamp, number: report.pasts, pasts };
        let frame = encode_pasts(&pasts, Duration::ZERO, None, &self.reporting.key)?;
        Ok(Some((report.pasts, encode(&frame))))
    }

    async fn make(&mut self) -> Result<(), WriteError> {
        let object = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"), "kind": KIND, "metadata": {"name": self.node.as_str()},
        });
        answered(self.api.patch(self.node.as_str(), &PatchParams::apply(MANAGER), &Patch::Apply(object))).await?;
        self.is_made = true;
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("signing the report")]
    Frame(#[from] FrameError),
    #[error("the report has {letters} letters, and its object room for {LONGEST_FRAME}")]
    TooLong { letters: usize },
    #[error("writing the report")]
    Call(#[from] CallError),
}

impl Written {
    /// There is news, and it may be told; or nothing has been told for long.
    fn is_outdone(&self, gist: &Gist, every: Duration) -> bool {
        let age = self.at.elapsed();
        // A tick may come a little early.
        age + LEAST_TICK >= HEARTBEAT || (self.gist != *gist && age + LEAST_TICK >= every)
    }
}

/// Signed, in letters. Where it would be too long, some of what is due on its GPUs is left out, and said to be.
fn frame(report: &Report, key: &NodeKey) -> Result<String, WriteError> {
    let mut letters = 0;
    for most in FEWER_LOADS {
        let text = encode(&encode_report(&with_loads(report, most), Duration::ZERO, None, key)?);
        if text.len() <= LONGEST_FRAME {
            return Ok(text);
        }
        letters = text.len();
    }
    Err(WriteError::TooLong { letters })
}

fn with_loads(report: &Report, most: usize) -> Report {
    let mut report = report.clone();
    for gpu in &mut report.gpus {
        gpu.has_more |= gpu.loads.len() > most;
        gpu.loads.truncate(most);
    }
    report
}

/// What goes with the frame is for people.
fn status(report: &Report, frame: String, pasts: Option<String>) -> Status {
    let free = report.gpus.iter().filter(|gpu| !gpu.is_lost).filter_map(GpuReport::free_bytes).max();
    let at = i64::try_from(report.stamp.at_ms).ok().and_then(|at| jiff::Timestamp::from_millisecond(at).ok());
    Status {
        frame,
        pasts,
        // Never empty: API servers of 1.20 take an empty text for null, and refuse it.
        memory_free: free.map_or_else(|| NOTHING.to_owned(), |free| free.to_string()),
        state: state(report).to_owned(),
        float: float(report),
        gpus: u32::try_from(report.gpus.len()).unwrap_or(u32::MAX),
        berth: report.berth.clone(),
        reported_at: at.map(|at| at.to_string()),
    }
}

/// By the rule of the paper: whether it would take anything, or why not.
fn state(report: &Report) -> &'static str {
    let all = |is_so: fn(&GpuReport) -> bool| report.gpus.iter().all(is_so);
    match () {
        () if report.gpus.is_empty() => "too-few-gpus",
        () if all(|gpu| gpu.is_lost) => "gpus-lost",
        () if report.gpus.iter().any(|gpu| gpu.missed_by_present > 0) => "missed",
        () if all(|gpu| gpu.core_pct.is_some_and(|core| core.get() == 100)) => "core-full",
        () if all(|gpu| gpu.free_bytes() == Some(Bytes(0))) => "memory-full",
        () => "placeable",
    }
}

/// What is left of all that is due, in seconds.
fn float(report: &Report) -> String {
    let due = report.gpus.iter().flat_map(|gpu| &gpu.loads).filter_map(|load| load.under_way);
    let left: Vec<f64> = due.map(|unit| unit.due_in_seconds).collect();
    if left.is_empty() { NOTHING.to_owned() } else { format!("{:.1}s", left.iter().sum::<f64>()) }
}

impl Gist {
    fn of(report: &Report) -> Self {
        // Instants by the node's own clock, which is the same from one report to the next.
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 fit for 285,000 years")]
        let now = report.stamp.at_ms as f64 / 1e3;
        Self(report.gpus.iter().map(|gpu| GpuGist::of(gpu, now)).collect(), report.pasts)
    }
}

impl GpuGist {
    fn of(gpu: &GpuReport, now_seconds: f64) -> Self {
        let memory = [gpu.memory_total_bytes, gpu.memory_used_bytes, Some(gpu.memory_promised_bytes)];
        let load = |load: &berth_model::cluster::LoadReport| {
            let due = load.under_way.map(|unit| steps(now_seconds + unit.due_in_seconds, DUE_STEP));
            (load.deadline_seconds.to_bits(), due)
        };
        Self {
            uuid: gpu.uuid.to_string(),
            is_lost: gpu.is_lost,
            memory: memory.map(|bytes| bytes.map(|bytes| bytes.0 / MEMORY_STEP)),
            core: gpu.core_pct.map(|core| core.get() / CORE_STEP),
            counts: [gpu.queue, gpu.others, gpu.missed_by_present],
            loads: gpu.loads.iter().map(load).collect(),
            misses: gpu.misses_ago_seconds.len(),
            placed: gpu.placed.iter().map(|placed| placed.0).collect(),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "rounded, and saturates at the ends")]
fn steps(value: f64, step: f64) -> i64 {
    (value / step).round() as i64
}

#[cfg(test)]
mod tests {
    use berth_model::cluster::LoadReport;
    use berth_model::cluster::report::UnderWay;
    use berth_model::cluster::{PlacementId, Stamp};
    use berth_model::deadline::Unit;
    use berth_model::{GpuUuid, Percent};

    use super::*;

    fn report(at_ms: u64, due_in_seconds: f64) -> Report {
        let under_way = Some(UnderWay { due_in_seconds, done_seconds: 1.0 });
        let load = LoadReport { unit: Unit::Task, deadline_seconds: 9.0, under_way, takes: None };
        let gpu = GpuReport {
            uuid: GpuUuid("GPU-0".into()),
            is_lost: false,
            memory_total_bytes: Some(Bytes(80 << 30)),
            memory_used_bytes: Some(Bytes(20 << 30)),
            memory_promised_bytes: Bytes(0),
            core_pct: Some(Percent::checked(50).unwrap()),
            queue: 0,
            others: 0,
            share: 0.9,
            loads: vec![load],
            has_more: false,
            missed_by_present: 0,
            misses_ago_seconds: vec![],
            past_float_seconds: 0.0,
            placed: vec![],
        };
        Report {
            node: "node-a".parse().unwrap(),
            stamp: Stamp { started_ms: 1, number: at_ms, at_ms },
            berth: "0.1.0".into(),
            policy: None,
            means: vec![],
            gpus: vec![gpu],
            pasts: 0,
        }
    }

    #[test]
    fn time_that_passes_by_itself_is_no_news() {
        assert_eq!(Gist::of(&report(1_000_000, 5.0)), Gist::of(&report(1_001_000, 4.0)));
    }

    #[test]
    fn a_new_unit_a_placement_and_memory_are_news() {
        let before = Gist::of(&report(1_000_000, 5.0));
        assert_ne!(before, Gist::of(&report(1_001_000, 9.0)), "another unit is under way");
        let changes: [fn(&mut GpuReport); 4] = [
            |gpu| gpu.placed.push(PlacementId(1)),
            |gpu| gpu.memory_used_bytes = Some(Bytes(21 << 30)),
            |gpu| gpu.is_lost = true,
            |gpu| gpu.queue = 1,
        ];
        for change in changes {
            let mut report = report(1_000_000, 5.0);
            change(&mut report.gpus[0]);
            assert_ne!(before, Gist::of(&report));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_may_seldom_tell_news_still_shows_that_it_lives() {
        let (gist, news) = (Gist::of(&report(1_000_000, 5.0)), Gist::of(&report(1_000_000, 9.0)));
        let written = Written { gist: gist.clone(), at: tokio::time::Instant::now(), pasts: None };
        let outdone = |gist: &Gist, every: u64| written.is_outdone(gist, Duration::from_secs(every));
        tokio::time::advance(Duration::from_secs(3)).await;
        assert_eq!((outdone(&gist, 1), outdone(&news, 1), outdone(&news, 60)), (false, true, false));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert!(outdone(&gist, 60), "as long as the placer believes it dead soon");
    }

    #[test]
    fn a_report_that_is_too_long_says_that_it_leaves_something_out() {
        let key = crate::frame::ClusterKey::new([7; 32]).node(&"node-a".parse().unwrap());
        let short = report(1_000_000, 1.0);
        assert_eq!(frame(&short, &key).unwrap(), encode(&encode_report(&short, Duration::ZERO, None, &key).unwrap()));
        let mut long = report(1_000_000, 1.0);
        let mut gpu = long.gpus.remove(0);
        gpu.loads = vec![gpu.loads[0]; MOST_LOADS];
        gpu.placed = (0..1024).map(PlacementId).collect();
        let gpus = (0..64).map(|number| GpuReport { uuid: GpuUuid(format!("GPU-{number}")), ..gpu.clone() });
        long.gpus = gpus.collect();
        assert!(encode(&encode_report(&long, Duration::ZERO, None, &key).unwrap()).len() > LONGEST_FRAME);
        let text = frame(&long, &key).unwrap();
        assert!(text.len() <= LONGEST_FRAME);
        assert!(with_loads(&long, 64).gpus.iter().all(|gpu| gpu.has_more && gpu.placed.len() == 1024));
    }

    #[test]
    fn no_text_of_a_status_is_empty() {
        let nothing = Report { gpus: vec![], ..report(0, 1.0) };
        let status = status(&nothing, encode(b"frame"), None);
        assert_eq!(
            (status.state.as_str(), status.float.as_str(), status.memory_free.as_str()),
            ("too-few-gpus", "-", "-")
        );
    }

    #[test]
    fn people_are_shown_the_free_memory_of_the_gpu_that_has_most() {
        let status = status(&report(0, 1.0), encode(b"frame"), None);
        assert_eq!((status.memory_free.as_str(), status.gpus), ("60.0 GiB", 1));
        assert_eq!(status.frame_bytes().unwrap(), b"frame");
        assert_eq!((status.state.as_str(), status.float.as_str()), ("placeable", "1.0s"));
    }
}
