//! The one place where commands meet the engine.

use std::sync::Arc;

use anyhow::{Context, Result};
use berth_engine::{Engine, Guarded, Publish};
use berth_model::{Change, Settings, Snapshot, Source, SourceStatus};

use crate::pods::Pods;

/// The host's daemon: also writes the task table in shared memory, and holds while it is guarded.
pub fn for_daemon(
    settings: &Settings,
    guarded: Guarded,
    pods: Option<Pods>,
    publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static,
) -> Result<Engine> {
    let names = |event_tx: &_| pods.and_then(|pods| pods.start(event_tx));
    Engine::start_with_names(settings, Publish::WithTable(guarded), names, once_looked(publish))
        .context("starting to watch the GPUs")
}

/// A view of its own, beside a daemon or without one: writes nothing anywhere.
pub fn for_view(settings: &Settings, publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static) -> Result<Engine> {
    Engine::start(settings, Publish::SnapshotsOnly, once_looked(publish)).context("starting to watch the GPUs")
}

/// One look, without a daemon.
pub fn sample_once(settings: &Settings) -> Result<Snapshot> {
    berth_engine::sample_once(settings).context("looking at the GPUs")
}

/// Keeps snapshots back until the GPUs were looked at, or cannot be: an empty host must not be taken for one that has
/// not been seen yet. Changes are kept, not lost.
fn once_looked(
    mut publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static,
) -> impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static {
    let mut kept = Some(Vec::new());
    move |snapshot, changes| match &mut kept {
        None => publish(snapshot, changes),
        Some(earlier) => {
            earlier.extend_from_slice(changes);
            if has_looked(&snapshot) {
                publish(snapshot, &kept.take().unwrap_or_default());
            }
        }
    }
}

/// Whether it is known which GPUs there are, or that none can be had.
pub fn has_looked(snapshot: &Snapshot) -> bool {
    let is_blind = |status: &SourceStatus| matches!(status, SourceStatus::Down { .. });
    snapshot.counters.samples > 0
        || snapshot.sources.iter().any(|view| view.source == Source::Nvml && is_blind(&view.status))
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use berth_model::GpuIndex;

    use super::*;
    use crate::testing::{empty, shared};

    fn published(snapshots: &[Snapshot]) -> Vec<usize> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&seen);
        let mut publish = once_looked(move |_, changes| sink.lock().unwrap().push(changes.len()));
        for snapshot in snapshots {
            publish(shared(snapshot.clone()), &[Change::GpuBack { gpu: GpuIndex(0) }]);
        }
        seen.lock().unwrap().clone()
    }

    #[test]
    fn nothing_is_shown_before_the_first_look_and_no_change_is_lost() {
        let unseen = empty();
        let mut seen = empty();
        seen.counters.samples = 1;
        assert_eq!(published(&[unseen.clone(), unseen.clone(), seen.clone(), unseen]), [3, 1]);
        assert_eq!(published(&[seen]), [1]);
    }

    #[test]
    fn a_driver_that_does_not_answer_is_shown_at_once() {
        let mut blind = empty();
        blind.sources[0].status = SourceStatus::Down { reason: "no driver".into() };
        assert_eq!(published(&[blind]), [1]);
    }
}
