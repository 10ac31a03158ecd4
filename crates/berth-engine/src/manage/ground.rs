//! What the host offers a manager besides hands: where tenants stand, and evidence of what they do.

use std::collections::BTreeSet;
use std::path::PathBuf;

use berth_model::hold::{Grip, Means, Signal};
use berth_model::{Bytes, GpuIndex, ProcKey};
use berth_store::Kept;

/// Where a tenant stands on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Directory of its own cgroup in the hierarchy that can freeze it; `None` for those without one.
    pub cgroup: Option<PathBuf>,
    /// Someone would see one of its processes stop.
    pub shows_stops: bool,
}

pub(crate) trait Ground: Send {
    fn place(&self, processes: &BTreeSet<ProcKey>) -> Place;

    /// Whether a terminal or a parent would see one of these processes stop, as far as can be told now. Those are never
    /// stopped by a signal from now on.
    fn shows_stops(&self, processes: &BTreeSet<ProcKey>) -> bool;

    /// What can be done here to a tenant at this place.
    fn offered(&self, place: &Place) -> BTreeSet<Means>;

    /// From now on, or no longer, tell when calls of the process that wait for the GPU return. Does not wait.
    fn watch_drains(&self, process: ProcKey, is_watched: bool);

    /// Whether these processes of a tenant can be parked as things are, or why not; `None` if that is not known yet. Does not wait:
    /// what is not known, or was asked long ago, is found out for the next time.
    fn can_park(&self, processes: &BTreeSet<ProcKey>) -> Option<Result<(), String>>;

    /// From now on the process allocates out of this GPU's pool, or freely. Does not wait.
    fn limit(&self, process: ProcKey, pool: Option<GpuIndex>);

    /// What has been taken out of a GPU's pool since the start. Does not wait.
    fn taken(&self, gpu: GpuIndex) -> Bytes;

    /// What that may come to. Does not wait.
    fn allow(&self, gpu: GpuIndex, ceiling: Bytes);

    /// A signal that waits for one of the tenant's processes, or for one they descend from, and that somebody sent it to be acted on.
    /// Reads a few files.
    fn awaited_signal(&self, place: &Place, processes: &BTreeSet<ProcKey>) -> Option<Signal>;

    /// What of a record is still true.
    fn verified(&self, kept: &Kept) -> Grip;
}
