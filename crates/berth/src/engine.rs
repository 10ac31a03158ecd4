//! The one place where commands meet the engine.

use std::sync::Arc;

use anyhow::{Context, Result};
use berth_engine::{Engine, Publish};
use berth_model::{Change, Settings, Snapshot};

/// The host's daemon: also writes the task table in shared memory.
pub fn for_daemon(
    settings: &Settings,
    publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static,
) -> Result<Engine> {
    Engine::start(settings, Publish::WithTable, publish).context("starting to watch the GPUs")
}

/// A view of its own, beside a daemon or without one: writes nothing anywhere.
pub fn for_view(settings: &Settings, publish: impl FnMut(Arc<Snapshot>, &[Change]) + Send + 'static) -> Result<Engine> {
    Engine::start(settings, Publish::SnapshotsOnly, publish).context("starting to watch the GPUs")
}

/// One look, without a daemon.
pub fn sample_once(settings: &Settings) -> Result<Snapshot> {
    berth_engine::sample_once(settings).context("looking at the GPUs")
}
