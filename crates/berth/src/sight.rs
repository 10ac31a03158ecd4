//! Seeing cgroups as the host does, which a daemon in a pod does not by itself. For every command that freezes or thaws, before it starts a
//! thread.

use berth_engine::describe;
use berth_host::freezer::{Hierarchies, see_as_the_host};
use berth_model::Settings;

/// What still cannot be reached is told, not refused: the GPUs can be observed all the same.
pub fn widen(settings: &Settings) {
    let proc_root = &settings.processes.proc_root;
    match see_as_the_host(proc_root) {
        Ok(true) => tracing::info!("in a container: cgroups are seen as the host sees them"),
        Ok(false) => {}
        Err(error) => tracing::debug!(error = describe(&error), "cgroups are seen from where this process is"),
    }
    if let Some(why) = Hierarchies::under(&settings.hold.cgroup_root).out_of_sight(proc_root) {
        tracing::warn!(%why, "no tenant can be frozen");
    }
}
