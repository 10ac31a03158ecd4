//! What reports cost a cluster of any size: measured here for one report, times how many there are.
//!
//! A question and its answer are measured as they are in the product: a node's listener and the placer's asking, over TCP on this machine,
//! each on a thread of its own whose CPU time the kernel counts. Applying a report to the list is measured by `berth bench nodes`. How often
//! there is news to push comes from the simulated run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use berth_cluster::frame::{ClusterKey, KEY_BYTES, NodeKey};
use berth_cluster::node::{self, Counters, Facts, Listener, PastsReply};
use berth_model::cluster::{Report, Strategy};
use serde::Serialize;

use crate::bench::nodes::cell::Cell;
use crate::bench::nodes::wire::Wire;
use crate::cluster_sim::Outcome;
use crate::live;

const SIZES: [u32; 4] = [100, 1_000, 10_000, 100_000];
const QUESTIONS: u32 = 2_000;
const TURNS: usize = 2_000;
/// Nodes of the list to which a report is applied.
const LISTED: usize = 1_000;
/// Of a question and its answer beside the frame, as the kernel counts it on the loopback: ten packets with handshake, headers of HTTP and the end.
const AROUND_BYTES: f64 = 871.0;
/// One that pushes is heard at least this often, or it would be taken for dead.
const HEARTBEAT_SECONDS: f64 = 2.5;
/// One that pushes sends at most this often.
const PUSHES_PER_SECOND: f64 = 10.0;
/// Around a frame on a connection that stays open: a packet each way.
const AROUND_PUSH_BYTES: f64 = 132.0;

/// What one report costs, and how many there are.
#[derive(Debug, Clone, Serialize)]
pub struct Costs {
    pub frame_bytes: f64,
    /// CPU time of the placer for one question: connecting, asking, checking and reading the answer.
    pub placer_us: f64,
    /// The same of the node.
    pub node_us: f64,
    /// Checking and reading a frame alone.
    pub read_us: f64,
    /// Applying one to the list.
    pub apply_us: f64,
    /// One choice.
    pub choice_us: f64,
    /// Questions to one node in a second, and changes there.
    pub asked_per_second: f64,
    pub changes_per_second: f64,
    pub sizes: Vec<Size>,
}

/// A cluster of so many nodes.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Size {
    pub nodes: u32,
    pub asked: Flow,
    pub pushed: Flow,
}

/// What comes to the placer in a second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Flow {
    pub reports: f64,
    pub bytes: f64,
    /// CPU time of the placer, in percent of one core.
    pub core_pct: f64,
}

impl Costs {
    pub fn measure(outcome: &Outcome) -> Result<Self> {
        let wire = Wire::measure(TURNS, 1).context("writing a report")?;
        let cell = Cell::measure(Strategy::Fit, LISTED, TURNS, 1);
        let (placer_us, node_us) = question()?;
        let node_seconds = outcome.nodes as f64 * outcome.seconds.max(f64::MIN_POSITIVE);
        let mut costs = Self {
            frame_bytes: wire.frame_bytes.p50,
            placer_us,
            node_us,
            read_us: wire.read_us.p50,
            apply_us: cell.applied_ns.p50 / 1e3,
            choice_us: cell.choice_us.p50,
            asked_per_second: outcome.traffic.reports as f64 / node_seconds,
            changes_per_second: outcome.traffic.changes as f64 / node_seconds,
            sizes: Vec::new(),
        };
        costs.sizes = SIZES.map(|nodes| costs.size(nodes)).to_vec();
        Ok(costs)
    }

    fn size(&self, nodes: u32) -> Size {
        let pushes = self.changes_per_second.clamp(1.0 / HEARTBEAT_SECONDS, PUSHES_PER_SECOND);
        let flow = |each: f64, bytes: f64, us: f64| {
            let reports = f64::from(nodes) * each;
            Flow { reports, bytes: reports * bytes, core_pct: reports * us / 1e4 }
        };
        Size {
            nodes,
            asked: flow(self.asked_per_second, self.frame_bytes + AROUND_BYTES, self.placer_us + self.apply_us),
            pushed: flow(pushes, self.frame_bytes + AROUND_PUSH_BYTES, self.read_us + self.apply_us),
        }
    }

    pub fn to_text(&self) -> String {
        let rows = self.sizes.iter().map(|size| {
            let of = |flow: Flow| {
                [format!("{:.0}", flow.reports), format!("{:.2}", flow.bytes / 1e6), format!("{:.1}", flow.core_pct)]
            };
            [size.nodes.to_string()].into_iter().chain(of(size.asked)).chain(of(size.pushed)).collect()
        });
        let headings = ["NODES", "ASKED/s", "MB/s", "CORE %", "PUSHED/s", "MB/s", "CORE %"];
        format!(
            "one report    {:.0} bytes; a question costs the placer {:.0} µs and the node {:.0} µs; reading it {:.1} µs, applying it {:.2} µs\n\
             one choice    {:.1} µs\n\
             one node      asked {:.2} times a second, {:.2} changes\n\n{}",
            self.frame_bytes,
            self.placer_us,
            self.node_us,
            self.read_us,
            self.apply_us,
            self.choice_us,
            self.asked_per_second,
            self.changes_per_second,
            crate::bench::contention::report::grid(&headings, rows.collect())
        )
    }
}

/// A node that always says the same.
struct Same(Report);

impl Facts for Same {
    fn report(&self) -> Option<(Report, Duration)> {
        Some((self.0.clone(), Duration::ZERO))
    }

    fn pasts(&self, reply: PastsReply) {
        reply(Vec::new());
    }
}

/// CPU time of one question in microseconds: of who asks, and of the node.
fn question() -> Result<(f64, f64)> {
    let report = Wire::example(1);
    let key = ClusterKey::new([7; KEY_BYTES]).node(&report.node);
    let listener = Listener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let address = listener.address();
    let (end_tx, end_rx) = tokio::sync::oneshot::channel();
    let (cpu_tx, cpu_rx) = mpsc::channel();
    let (served, served_key) = (report.clone(), key.clone());
    let serving = std::thread::Builder::new().name("berth-node".into()).spawn(move || {
        let node = served.node.clone();
        let serve = listener.serve(node, served_key, Arc::new(Same(served)), Arc::new(Counters::default()));
        let spent = live::runtime().and_then(|runtime| {
            runtime.block_on(async {
                tokio::select! { _ = serve => {} _ = end_rx => {} }
            });
            thread_cpu()
        });
        // Who asks has gone.
        let _ = cpu_tx.send(spent);
    })?;
    let placer = asked(address, &report, &key);
    let _ = end_tx.send(());
    let node = cpu_rx.recv().context("waiting for the node")??;
    serving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let each = |spent: Duration| spent.as_secs_f64() * 1e6 / f64::from(QUESTIONS);
    Ok((each(placer?), each(node)))
}

fn asked(address: SocketAddr, report: &Report, key: &NodeKey) -> Result<Duration> {
    let before = thread_cpu()?;
    live::runtime()?.block_on(async {
        for _ in 0..QUESTIONS {
            node::ask(address, &report.node, key, Duration::from_secs(5)).await.context("asking a node")?;
        }
        anyhow::Ok(())
    })?;
    Ok(thread_cpu()?.saturating_sub(before))
}

/// What this thread has had so far.
fn thread_cpu() -> Result<Duration> {
    let path = "/proc/thread-self/schedstat";
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let nanos = text.split_whitespace().next().context("empty schedstat")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn costs(changes_per_second: f64) -> Costs {
        Costs {
            frame_bytes: 500.0,
            placer_us: 90.0,
            node_us: 60.0,
            read_us: 5.0,
            apply_us: 1.0,
            choice_us: 3.0,
            asked_per_second: 1.0,
            changes_per_second,
            sizes: Vec::new(),
        }
    }

    #[test]
    fn asking_costs_by_the_question_and_pushing_by_the_change() {
        let Size { asked, pushed, .. } = costs(0.5).size(10_000);
        assert_eq!((asked.reports, pushed.reports), (10_000.0, 5_000.0));
        // 91 µs, 10,000 times a second.
        assert!((asked.core_pct - 91.0).abs() < 1e-9 && (pushed.core_pct - 3.0).abs() < 1e-9, "{asked:?} {pushed:?}");
    }

    #[test]
    fn one_that_has_no_news_is_heard_all_the_same_and_one_with_many_not_each_time() {
        assert_eq!(costs(0.0).size(100).pushed.reports, 40.0);
        assert_eq!(costs(500.0).size(100).pushed.reports, 1_000.0);
    }

    #[test]
    fn a_question_is_asked_and_answered_and_costs_both_something() {
        let (placer_us, node_us) = question().unwrap();
        assert!(placer_us > 0.0 && node_us > 0.0);
    }
}
