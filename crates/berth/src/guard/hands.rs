//! What undoes holds here: everything this host may have used to make them, as far as it is there now.

use std::sync::Arc;
use std::time::Duration;

use berth_host::docker::Pauser;
use berth_host::driver::{Driver, DriverHands, Options, ParkOptions, Parking};
use berth_host::freezer::{Freezer, Hierarchies};
use berth_host::hands::{Hands, HostHands};
use berth_host::nvml::NvmlProbe;
use berth_model::Settings;
use berth_model::settings::Mode;

/// For the engine to answer; then the freezer is moved without it.
const ENGINE_WITHIN: Duration = Duration::from_secs(1);

/// What is missing is left out: it may not have been used. A step that needs it says so when it fails.
pub fn hands(settings: &Settings) -> Arc<dyn Hands> {
    let proc_root = &settings.processes.proc_root;
    let freezer =
        Freezer::new(proc_root, Hierarchies::under(&settings.hold.cgroup_root), settings.hold.freeze_within.get());
    let mut hands = HostHands::new(proc_root, Arc::new(freezer));
    if settings.docker.mode != Mode::Off {
        hands = hands.with_docker(Pauser::new(&settings.docker.socket, ENGINE_WITHIN));
    }
    if let Some(driver) = driver(settings) {
        hands = hands.with_driver(Arc::new(driver));
    }
    Arc::new(hands)
}

fn driver(settings: &Settings) -> Option<DriverHands> {
    let options = Options { proc_root: settings.processes.proc_root.clone(), ..Options::default() };
    let opened = Driver::open(&settings.hold.driver, options);
    let driver = opened.inspect_err(|error| tracing::debug!(%error, "no driver")).ok()?;
    let parking = parking(settings, &driver);
    Some(DriverHands { driver, parking, lock_timeout: settings.hold.lock_within.get() })
}

/// Restoring looks at the GPU's free memory first.
fn parking(settings: &Settings, driver: &Driver) -> Option<Parking> {
    let probe = NvmlProbe::open(&settings.nvml.library).inspect_err(|error| tracing::debug!(%error, "no NVML")).ok()?;
    Some(Parking::new(driver.clone(), Box::new(probe), ParkOptions::default()))
}
