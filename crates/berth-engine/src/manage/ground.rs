//! What the host offers a manager besides hands: where tenants stand, and evidence of what they do.

use std::collections::BTreeSet;
use std::path::PathBuf;

use berth_model::ProcKey;
use berth_model::hold::{Grip, Means};
use berth_store::Kept;

/// Where a tenant stands on the host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Place {
    /// Directory of its own cgroup in the hierarchy that can freeze it; `None` for those without one.
    pub cgroup: Option<PathBuf>,
    /// A shell would see one of its processes stop.
    pub has_terminal: bool,
}

pub(crate) trait Ground: Send {
    fn place(&self, processes: &BTreeSet<ProcKey>) -> Place;

    /// What can be done here to a tenant at this place.
    fn offered(&self, place: &Place) -> BTreeSet<Means>;

    /// From now on, or no longer, tell when calls of the process that wait for the GPU return. Does not wait.
    fn watch_drains(&self, process: ProcKey, is_watched: bool);

    /// What of a record is still true.
    fn verified(&self, kept: &Kept) -> Grip;
}
