//! A manager with this host's own means, as the settings ask for them.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use berth_host::docker::Pauser;
use berth_host::driver::{self, Driver, DriverHands};
use berth_host::freezer::{Freezer, Hierarchies};
use berth_host::hands::HostHands;
use berth_host::probes::Probes;
use berth_model::hold::{Grip, Means};
use berth_model::settings::{Mode, PolicyName};
use berth_model::{Event, Mono, ProcKey, Settings};
use berth_policy::fifo::Fifo;
use berth_policy::paper::Paper;
use berth_policy::{FifoSettings, PaperSettings, Policy};
use berth_store::{Journal, Kept, Role};

use super::ground::{Ground, Place};
use super::{Manager, Parts};
use crate::{StartError, describe};

/// For a guard at work on the journal of the daemon before to finish.
const JOURNAL_PATIENCE: Duration = Duration::from_secs(10);
/// For the Docker Engine to answer.
const ENGINE_WITHIN: Duration = Duration::from_secs(5);

/// Why nobody can be held, where no policy is to hold anybody either; persons are then told so.
pub(crate) fn manager(
    settings: &Settings,
    probes: Option<Arc<Probes>>,
    event_tx: &Sender<Event>,
    now: Mono,
) -> Result<Result<Manager, String>, StartError> {
    let proc_root = &settings.processes.proc_root;
    let opened = Journal::open(&settings.hold.journal, Role::Daemon, JOURNAL_PATIENCE, proc_root);
    let (journal, left) = match opened {
        Ok(opened) => opened,
        Err(error) if settings.hold.policy == PolicyName::Off => {
            let reason = describe(&error);
            tracing::warn!(reason, "nobody can be held by this daemon");
            return Ok(Err(reason));
        }
        Err(error) => return Err(StartError::Journal(error)),
    };
    let hierarchies = Hierarchies::under(&settings.hold.cgroup_root);
    let freezer = Arc::new(Freezer::new(proc_root, hierarchies, settings.hold.freeze_within.get()));
    let mut hands = HostHands::new(proc_root, freezer.clone());
    if settings.docker.mode != Mode::Off {
        hands = hands.with_docker(Pauser::new(&settings.docker.socket, ENGINE_WITHIN));
    }
    if let Some(probes) = &probes {
        hands = hands.with_gate(probes.clone());
    }
    let driver = open_driver(settings);
    let has_driver = driver.is_some();
    if let Some(driver) = driver {
        hands = hands.with_driver(Arc::new(driver));
    }
    let drains = probes.map(start_drains).transpose().map_err(StartError::Thread)?;
    let ground = HostGround { proc_root: proc_root.clone(), freezer, drains, has_driver };
    let parts = Parts {
        policy: settings.hold.policy,
        policies: Box::new(policy),
        hands: Arc::new(hands),
        journal,
        ground: Box::new(ground),
        event_tx: event_tx.clone(),
    };
    Ok(Ok(Manager::new(parts, left, now)))
}

fn policy(name: PolicyName) -> Option<Box<dyn Policy>> {
    match name {
        PolicyName::Off => None,
        PolicyName::Fifo => Some(Box::new(Fifo::new(FifoSettings::default()))),
        PolicyName::Paper => Some(Box::new(Paper::new(PaperSettings::default()))),
    }
}

fn open_driver(settings: &Settings) -> Option<DriverHands> {
    let options = driver::Options { proc_root: settings.processes.proc_root.clone(), ..Default::default() };
    match Driver::open(&settings.hold.driver, options) {
        Ok(driver) => Some(DriverHands { driver, parking: None, lock_timeout: settings.hold.lock_within.get() }),
        Err(error) => {
            tracing::info!(reason = describe(&error), "processes cannot be locked here");
            None
        }
    }
}

/// Attaching takes milliseconds, so a thread does it. It ends with the sender.
fn start_drains(probes: Arc<Probes>) -> std::io::Result<Sender<(ProcKey, bool)>> {
    let (tx, rx) = mpsc::channel::<(ProcKey, bool)>();
    std::thread::Builder::new().name("berth-drains".into()).spawn(move || {
        for (process, is_watched) in rx {
            if let Err(error) = probes.watch_drains(process, is_watched) {
                tracing::debug!(%process, error = describe(&error), "the end of its computing will not be seen");
            }
        }
    })?;
    Ok(tx)
}

struct HostGround {
    proc_root: PathBuf,
    freezer: Arc<Freezer>,
    /// `None` without probes.
    drains: Option<Sender<(ProcKey, bool)>>,
    has_driver: bool,
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
        Place { cgroup, has_terminal: processes.iter().any(|process| self.has_terminal(*process)) }
    }

    fn offered(&self, place: &Place) -> BTreeSet<Means> {
        let mut means = BTreeSet::new();
        if place.cgroup.is_some() {
            means.insert(Means::Freeze);
            if self.drains.is_some() && !place.has_terminal {
                means.insert(Means::Gate);
            }
        }
        if self.has_driver {
            means.insert(Means::Lock);
        }
        means
    }

    fn watch_drains(&self, process: ProcKey, is_watched: bool) {
        if let Some(drains) = &self.drains {
            // The thread ends only with this sender.
            let _ = drains.send((process, is_watched));
        }
    }

    fn verified(&self, kept: &Kept) -> Grip {
        kept.verified(&self.proc_root)
    }
}

impl HostGround {
    /// By field 7 of `/proc/PID/stat`, which comes after the name in brackets.
    fn has_terminal(&self, process: ProcKey) -> bool {
        let stat = fs::read_to_string(self.proc_root.join(process.pid.to_string()).join("stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(4).is_some_and(|terminal| terminal != "0")
    }
}
