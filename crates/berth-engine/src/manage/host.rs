//! A manager with this host's own means, as the settings ask for them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use berth_host::docker::Pauser;
use berth_host::driver::{self, Driver, DriverHands, ParkOptions, Parking};
use berth_host::freezer::{Freezer, Hierarchies};
use berth_host::hands::HostHands;
use berth_host::nvml::NvmlProbe;
use berth_host::probes::Probes;
use berth_host::procs::whose_stop_would_be_seen;
use berth_model::hold::{Grip, Means, Signal};
use berth_model::settings::{Mode, PolicyName};
use berth_model::{Bytes, Event, GpuIndex, Mono, ProcKey, Settings};
use berth_store::{Journal, Kept, Role};

use super::annals::{Annals, Unmanaged};
use super::checks::Checks;
use super::ground::{Ground, Place};
use super::rules::Rules;
use super::{Manager, Parts};
use crate::{Guarded, StartError, describe};

/// For a guard at work on the journal of the daemon before to finish.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(10);
/// For the Docker Engine to answer.
const ENGINE_WITHIN: Duration = Duration::from_secs(5);

/// Unmanaged where nobody can be held and no policy is to hold anybody either; persons are then told so.
pub(crate) fn manager(
    settings: &Settings,
    probes: Option<Arc<Probes>>,
    event_tx: &Sender<Event>,
    annals: Annals,
    guarded: Guarded,
    now: Mono,
) -> Result<Result<Manager, Unmanaged>, StartError> {
    let proc_root = &settings.processes.proc_root;
    let opened = Journal::open(&settings.hold.journal, Role::Daemon, JOURNAL_PATIENCE, proc_root);
    let (journal, left) = match opened {
        Ok(opened) => opened,
        Err(error) if settings.hold.policy == PolicyName::Off => {
            let reason = describe(&error);
            tracing::warn!(reason, "nobody can be held by this daemon");
            return Ok(Err(Unmanaged { reason, annals }));
        }
        Err(error) => return Err(StartError::Journal(error)),
    };
    let hierarchies = Hierarchies::under(&settings.hold.cgroup_root);
    let freezer = Arc::new(Freezer::new(proc_root, hierarchies, settings.hold.freeze_within.get()));
    let mut hands = HostHands::new(proc_root, freezer.clone());
    if settings.docker_mode() != Mode::Off {
        hands = hands.with_docker(Pauser::new(&settings.docker.socket, ENGINE_WITHIN));
    }
    if let Some(probes) = &probes {
        hands = hands.with_gate(probes.clone());
    }
    let driver = open_driver(settings);
    let driver = driver.map(Arc::new);
    let has_driver = driver.is_some();
    if let Some(driver) = &driver {
        hands = hands.with_driver(driver.clone());
    }
    let checks = driver.filter(|driver| driver.parking.is_some()).map(Checks::start).transpose();
    let checks = checks.map_err(StartError::Thread)?;
    let probes = probes.map(Watch::start).transpose().map_err(StartError::Thread)?;
    let ground = HostGround { proc_root: proc_root.clone(), freezer, probes, has_driver, checks };
    let parts = Parts {
        rules: Rules::of(settings),
        hands: Arc::new(hands),
        journal,
        ground: Box::new(ground),
        event_tx: event_tx.clone(),
        annals,
        guarded,
    };
    Ok(Ok(Manager::new(parts, left, now)))
}

fn open_driver(settings: &Settings) -> Option<DriverHands> {
    let options = driver::Options { proc_root: settings.processes.proc_root.clone(), ..Default::default() };
    match Driver::open(&settings.hold.driver, options) {
        Ok(driver) => {
            let parking = open_parking(settings, &driver);
            Some(DriverHands { driver, parking, lock_timeout: settings.hold.lock_within.get() })
        }
        Err(error) => {
            tracing::info!(reason = describe(&error), "processes cannot be locked here");
            None
        }
    }
}

/// It looks at the GPUs itself when somebody is moved: at the same ones.
fn open_parking(settings: &Settings, driver: &Driver) -> Option<Parking> {
    match NvmlProbe::open(&settings.nvml.library) {
        Ok(probe) => Some(Parking::new(driver.clone(), Box::new(probe), ParkOptions::default())),
        Err(error) => {
            tracing::info!(reason = describe(&error), "no GPU memory can be moved here");
            None
        }
    }
}

/// The probes, and a thread for what takes them milliseconds.
struct Watch {
    probes: Arc<Probes>,
    wish_tx: Sender<Wish>,
}

/// What is asked of the probes about one process.
#[derive(Debug, Clone, Copy)]
enum Wish {
    Drains(ProcKey, bool),
    Limit(ProcKey, Option<GpuIndex>),
}

impl Watch {
    /// The thread ends with this.
    fn start(probes: Arc<Probes>) -> std::io::Result<Watch> {
        let (wish_tx, wish_rx) = mpsc::channel();
        let asked = probes.clone();
        std::thread::Builder::new().name("berth-watch".into()).spawn(move || {
            for wish in wish_rx {
                let (process, granted) = match wish {
                    Wish::Drains(process, is_watched) => (process, asked.watch_drains(process, is_watched)),
                    Wish::Limit(process, pool) => (process, asked.limit_allocations(process, pool)),
                };
                if let Err(error) = granted {
                    tracing::debug!(%process, ?wish, error = describe(&error), "its calls will not be seen");
                }
            }
        })?;
        Ok(Watch { probes, wish_tx })
    }

    fn ask(&self, wish: Wish) {
        // The thread ends only with this sender.
        let _ = self.wish_tx.send(wish);
    }
}

struct HostGround {
    proc_root: PathBuf,
    freezer: Arc<Freezer>,
    probes: Option<Watch>,
    has_driver: bool,
    /// `None`: nothing can be parked here.
    checks: Option<Checks>,
}

impl Ground for HostGround {
    fn place(&self, processes: &BTreeSet<ProcKey>) -> Place {
        let cgroup = processes.iter().find_map(|process| match self.freezer.find(*process) {
            Ok(dir) => dir.map(|dir| dir.path().to_owned()),
            Err(error) => {
                tracing::debug!(%process, error = describe(&error), "it has no cgroup that could be frozen");
                None
            }
        });
        Place { cgroup, shows_stops: self.shows_stops(processes) }
    }

    fn shows_stops(&self, processes: &BTreeSet<ProcKey>) -> bool {
        let seen = whose_stop_would_be_seen(&self.proc_root, processes);
        if let Some(watch) = &self.probes {
            seen.iter().for_each(|process| watch.probes.keep_unseen(*process));
        }
        !seen.is_empty()
    }

    fn offered(&self, place: &Place) -> BTreeSet<Means> {
        let mut means = BTreeSet::new();
        if place.cgroup.is_some() {
            means.insert(Means::Freeze);
            let can_gate = |watch: &Watch| watch.probes.is_unseen() || !place.shows_stops;
            if self.probes.as_ref().is_some_and(can_gate) {
                means.insert(Means::Gate);
            }
        }
        if self.has_driver {
            means.insert(Means::Lock);
        }
        if self.checks.is_some() {
            means.insert(Means::Park);
        }
        means
    }

    fn watch_drains(&self, process: ProcKey, is_watched: bool) {
        if let Some(probes) = &self.probes {
            probes.ask(Wish::Drains(process, is_watched));
        }
    }

    fn can_park(&self, processes: &BTreeSet<ProcKey>) -> Option<Result<(), String>> {
        self.checks.as_ref()?.ask(processes)
    }

    fn limit(&self, process: ProcKey, pool: Option<GpuIndex>) {
        if let Some(probes) = &self.probes {
            probes.ask(Wish::Limit(process, pool));
        }
    }

    fn taken(&self, gpu: GpuIndex) -> Bytes {
        self.probes.as_ref().map_or(Bytes(0), |watch| watch.probes.taken(gpu))
    }

    fn allow(&self, gpu: GpuIndex, ceiling: Bytes) {
        let allowed = self.probes.as_ref().map(|watch| watch.probes.allow(gpu, ceiling));
        if let Some(Err(error)) = allowed {
            tracing::warn!(%gpu, error = describe(&error), "allocations are bounded as before");
        }
    }

    fn awaited_signal(&self, place: &Place, processes: &BTreeSet<ProcKey>) -> Option<Signal> {
        self.freezer.awaited_signal(place.cgroup.as_deref()?, processes)
    }

    fn verified(&self, kept: &Kept) -> Grip {
        kept.verified(&self.proc_root)
    }
}
