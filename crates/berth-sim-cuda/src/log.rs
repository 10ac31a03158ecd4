//! Messages for whoever wonders why: silent unless `BERTH_SIM_LOG` is set.

use std::sync::OnceLock;

static ENABLED: OnceLock<bool> = OnceLock::new();

pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    if *ENABLED.get_or_init(|| std::env::var_os("BERTH_SIM_LOG").is_some()) {
        eprintln!("berth-sim-cuda[{}]: {what}", std::process::id());
    }
}
