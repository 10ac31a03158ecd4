//! One look, for a view without a daemon.
//!
//! Nothing was watched before, so a task's start is that of its process, and says so.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use berth_host::clock;
use berth_host::docker::DockerSource;
use berth_host::nvml::{GpuProbe, Listings, NvmlProbe};
use berth_host::procs::Registry;
use berth_model::settings::Mode;
use berth_model::{Event, Monitor, Settings, Snapshot, Source, SourceStatus};

use crate::StartError;
use crate::sampler::describe;

/// How long to wait for the container engine's answers.
const NAMES_WITHIN: Duration = Duration::from_secs(2);

/// The host as one look shows it. A driver that does not answer is told in the snapshot's sources, not as an error.
pub fn sample_once(settings: &Settings) -> Result<Snapshot, StartError> {
    let (event_tx, event_rx) = mpsc::channel();
    let registry = Registry::new(&settings.processes.proc_root, event_tx.clone()).map_err(StartError::Processes)?;
    let mut monitor = Monitor::new(settings.monitor.clone());
    let status = match look(settings, &registry, &event_tx) {
        Ok(()) => SourceStatus::Up,
        Err(error) => SourceStatus::Down { reason: describe(&error) },
    };
    let _ = event_tx.send(Event::Source { source: Source::Nvml, status });
    take_in(&mut monitor, &event_rx);
    let questions = monitor.take_questions();
    if settings.docker.mode == Mode::Off {
        monitor.apply(Event::Source { source: Source::Docker, status: SourceStatus::Off });
    } else if !questions.is_empty()
        && let Ok(docker) = DockerSource::start(&settings.docker.socket, event_tx)
    {
        let asked = questions.into_iter().filter(|id| docker.describe(id.clone())).count();
        await_names(&mut monitor, &event_rx, asked);
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

/// Waits for as many answers as questions were asked, or until the engine is known to be away.
fn await_names(monitor: &mut Monitor, event_rx: &Receiver<Event>, mut open: usize) {
    let deadline = Instant::now() + NAMES_WITHIN;
    while open > 0 {
        let Ok(event) = event_rx.recv_timeout(deadline.saturating_duration_since(Instant::now())) else { return };
        let is_away = matches!(event, Event::Source { source: Source::Docker, status: SourceStatus::Down { .. } });
        if matches!(event, Event::Container(_) | Event::ContainerGone { .. }) {
            open -= 1;
        }
        monitor.apply(event);
        if is_away {
            return;
        }
    }
}
