//! Reports out of the status of `gpunodes.berth.dev`: only what is signed by the node, and new, is believed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use berth_model::Mono;
use berth_model::cluster::{NodeId, Report, Stamp};

use super::gpunode::{GpuNode, Status};
use super::watch::Follow;
use crate::frame::{self, ClusterKey, Fresh, Told};
use crate::placer::Placer;

/// What nodes say of themselves.
pub(super) struct Reports {
    placer: Arc<Placer>,
    key: ClusterKey,
    stale_after: Duration,
}

impl Reports {
    pub fn new(placer: Arc<Placer>, key: ClusterKey, stale_after: Duration) -> Self {
        Self { placer, key, stale_after }
    }

    fn read(&self, node: &NodeId, status: &Status, now_ms: u64, last: Option<Stamp>) -> Result<Told<Report>, String> {
        let fresh = Fresh::Unasked { now_ms, stale_after: self.stale_after, last };
        let frame = status.frame_bytes().ok_or("its frame is no Base64")?;
        frame::decode_report(&frame, node, &self.key.node(node), &fresh).map_err(|error| error.to_string())
    }

    /// Of any age: it changes seldom, and what a node once knew of an image is still so.
    fn read_pasts(&self, node: &NodeId, status: &Status, now_ms: u64) -> Option<frame::Pasts> {
        let fresh = Fresh::Unasked { now_ms, stale_after: Duration::MAX, last: None };
        let told = frame::decode_pasts(&status.pasts_bytes()?, node, &self.key.node(node), &fresh);
        told.inspect_err(|why| tracing::debug!(%node, %why, "its past is not believed")).ok().map(|told| told.what)
    }
}

impl Follow<GpuNode> for Reports {
    fn there(&mut self, object: GpuNode) {
        let Some(node) = object.meta.name.as_deref().and_then(|name| name.parse::<NodeId>().ok()) else { return };
        let Some(status) = object.status else { return };
        let now_ms = wall_ms();
        let last = self.placer.book().stamp(&node);
        let told = self.read(&node, &status, now_ms, last);
        if let Err(why) = &told {
            tracing::debug!(%node, why, "its report is not believed");
        }
        self.placer.has_heard(told.is_ok());
        let now = self.placer.now();
        let made = told.as_ref().map_or(now, |told| made(told, now_ms, now));
        let mut book = self.placer.book();
        book.reported(&node, told.map(|told| told.what), made);
        if book.wants_pasts(&node)
            && let Some(pasts) = self.read_pasts(&node, &status, now_ms)
        {
            book.pasts(&node, pasts.number, pasts.pasts);
        }
    }

    /// What was believed goes stale by itself.
    fn gone(&mut self, _: GpuNode) {}
}

/// The instant of the report on this placer's clock: as old as the node's clock or its own word says, whichever is older.
fn made(told: &Told<Report>, now_ms: u64, now: Mono) -> Mono {
    let age = Duration::from_millis(now_ms.saturating_sub(told.what.stamp.at_ms)).max(told.age);
    now.before(age)
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::encode_report;
    use crate::kubernetes::gpunode::encode;
    use crate::kubernetes::testing::{gpu, joins, placer, report};

    const MINUTE_MS: u64 = 60_000;

    fn key() -> ClusterKey {
        ClusterKey::new([7; 32])
    }

    /// What the placer makes of a status that `signer` signed for `of` and wrote into the object of `node-a`.
    fn told(signer: &ClusterKey, of: &str, at_ms: u64, spoil: impl Fn(&mut Vec<u8>)) -> Option<String> {
        let placer = placer();
        joins(&placer, "node-a", 80);
        let mut report = report(of, vec![gpu("GPU-x".to_owned(), 40)]);
        report.stamp = Stamp { started_ms: 2, number: 1, at_ms };
        let mut frame = encode_report(&report, Duration::ZERO, None, &signer.node(&report.node)).unwrap();
        spoil(&mut frame);
        let mut object = GpuNode::default();
        object.meta.name = Some("node-a".to_owned());
        object.status = Some(Status { frame: encode(&frame), ..Status::default() });
        Reports::new(Arc::clone(&placer), key(), Duration::from_secs(5)).there(object);
        let nodes = placer.nodes(&serde_json::from_str("{}").unwrap()).unwrap();
        let node = nodes.nodes.into_iter().next().unwrap();
        let is_taken = node.report.unwrap().gpus[0].uuid.0 == "GPU-x";
        assert_eq!(is_taken, node.refused.is_none());
        node.refused
    }

    #[test]
    fn a_fresh_report_of_the_node_itself_is_believed() {
        assert_eq!(told(&key(), "node-a", wall_ms(), |_| {}), None);
    }

    #[test]
    fn what_is_forged_foreign_cut_stale_or_of_the_future_is_not() {
        let now = wall_ms();
        for (refused, word) in [
            (told(&ClusterKey::new([8; 32]), "node-a", now, |_| {}), "signature"),
            (told(&key(), "node-b", now, |_| {}), "signature"),
            (told(&key(), "node-a", now, |frame| frame.truncate(frame.len() / 2)), "signature"),
            (told(&key(), "node-a", now, |frame| frame.clear()), "too short"),
            (told(&key(), "node-a", now - MINUTE_MS, |_| {}), "old"),
            (told(&key(), "node-a", now + MINUTE_MS, |_| {}), "ahead"),
        ] {
            let refused = refused.expect(word);
            assert!(refused.contains(word), "{word}: {refused}");
        }
    }
}
