//! One look, for a view without a daemon.
//!
//! Nothing was watched before, so a task's start is that of its process, and says so.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use berth_host::clock;
use berth_host::docker::DockerSource;
use berth_host::nvml::{GpuProbe, Listings, NvmlProbe};
use berth_host::procs::Registry;
use berth_model::settings::Mode;
use berth_model::{ContainerId, Event, Monitor, Settings, Snapshot, Source, SourceStatus};

use crate::StartError;
use crate::describe::describe;
use crate::sources::refuse_without_docker;

/// How long to wait for the container engine's answers.
const NAMES_WITHIN: Duration = Duration::from_secs(2);

/// The host as one look shows it. An engine that is required and missing is an error, as for a daemon; a driver that
/// does not answer is told in the snapshot's sources.
pub fn sample_once(settings: &Settings) -> Result<Snapshot, StartError> {
    refuse_without_docker(settings)?;
    let (event_tx, event_rx) = mpsc::channel();
    let registry = Registry::new(&settings.processes.proc_root, event_tx.clone()).map_err(StartError::Processes)?;
    let mut monitor = Monitor::new(settings.monitor.clone());
    let status = match look(settings, &registry, &event_tx) {
        Ok(()) => SourceStatus::Up,
        Err(error) => SourceStatus::Down { reason: describe(&error) },
    };
    let _ = event_tx.send(Event::Source { source: Source::Nvml, status });
    take_in(&mut monitor, &event_rx);
    if settings.docker.mode == Mode::Off {
        monitor.apply(Event::Source { source: Source::Docker, status: SourceStatus::Off });
    } else if !monitor.take_questions().is_empty()
        && let Ok(docker) = DockerSource::start(&settings.docker.socket, event_tx)
    {
        await_names(&mut monitor, &docker, &event_rx);
    }
    Ok(monitor.snapshot(&clock::anchor()))
}

fn look(
    settings: &Settings,
    registry: &Registry,
    event_tx: &mpsc::Sender<Event>,
) -> Result<(), berth_host::nvml::NvmlError> {
    let mut probe = NvmlProbe::open(&settings.nvml.library)?;
    let _ = event_tx.send(Event::Gpus(probe.inventory()?));
    let sample = probe.look(true).resolve(registry, &mut Listings::default());
    let _ = event_tx.send(Event::Sample(sample));
    Ok(())
}

fn take_in(monitor: &mut Monitor, event_rx: &Receiver<Event>) {
    for event in event_rx.try_iter() {
        monitor.apply(event);
    }
}

/// Asks for every name once the engine is there, and waits for all answers or until it is known to be away.
fn await_names(monitor: &mut Monitor, docker: &DockerSource, event_rx: &Receiver<Event>) {
    let deadline = Instant::now() + NAMES_WITHIN;
    let mut open: Option<BTreeSet<ContainerId>> = None;
    while open.as_ref().is_none_or(|open| !open.is_empty()) {
        let Ok(event) = event_rx.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { return };
        let is_away = matches!(event, Event::Source { source: Source::Docker, status: SourceStatus::Down { .. } });
        let is_there = matches!(event, Event::Source { source: Source::Docker, status: SourceStatus::Up });
        let answered = match &event {
            Event::Container(facts) => Some(facts.id.clone()),
            Event::ContainerGone { id } => Some(id.clone()),
            _ => None,
        };
        monitor.apply(event);
        if is_away {
            return;
        }
        if is_there {
            // The monitor has all its questions back: what was asked of an engine that was not there is not answered.
            let asked = monitor.take_questions().into_iter().filter(|id| docker.describe(id.clone()));
            open = Some(asked.collect());
        }
        if let (Some(open), Some(id)) = (&mut open, answered) {
            open.remove(&id);
        }
    }
}
