//! What berth writes down.
//!
//! [`Entry`] is one held tenant as the journal keeps it: enough to undo the hold without the daemon that made it.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use berth_model::hold::{Grip, Want};
use berth_model::{ContainerId, TenantKey};
use serde::{Deserialize, Serialize};

/// One tenant that is held, or about to be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    pub tenant: TenantKey,
    /// What people call it.
    pub name: String,
    /// Everything that may have been done to it.
    pub grip: Grip,
    pub want: Want,
    /// Directory of the cgroup that can be frozen; `None` where it has none of its own.
    pub cgroup: Option<PathBuf>,
    pub container: Option<ContainerId>,
}
