//! The sources of events: opened by the settings, each missing without harm to the others.

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::Sender;

use berth_host::connector::Connector;
use berth_host::docker::DockerSource;
use berth_host::probes::{self, Probes};
use berth_host::procs::Registry;
use berth_model::monitor::Wish;
use berth_model::settings::Mode;
use berth_model::snapshot::ProbeCounters;
use berth_model::{ContainerId, Event, Monitor, Settings, Source, SourceStatus};

use crate::StartError;
use crate::describe::describe;
use crate::kernels::Kernels;
use crate::sampler::Sampler;

/// All sources of a running loop. Fields end in this order: probes first, so that nothing is probed that nobody hears.
#[derive(Debug)]
pub(crate) struct Sources {
    probes: Option<Arc<Probes>>,
    _connector: Option<Connector>,
    sampler: Sampler,
    docker: Option<DockerSource>,
    names: Option<Box<dyn Names>>,
    registry: Registry,
}

/// Whoever tells of containers in place of Docker, by events, from a thread of its own. Its end is its drop.
pub trait Names: Send + std::fmt::Debug {
    /// Asks about a container. The answer comes as [`Event::Container`], or [`Event::ContainerGone`] if it knows of none. `false` if too
    /// many questions wait already: ask again later.
    fn describe(&self, id: ContainerId) -> bool;
}

impl Sources {
    /// Probes come before the first look, so that nobody slips in between unseen.
    pub fn start(
        settings: &Settings,
        names: Option<Box<dyn Names>>,
        event_tx: &Sender<Event>,
    ) -> Result<Self, StartError> {
        let proc_root = &settings.processes.proc_root;
        let registry = Registry::new(proc_root, event_tx.clone()).map_err(StartError::Processes)?;
        let probes = optional(Source::Probes, settings.probes.mode, event_tx, || {
            let options = probes::Options {
                libraries: settings.probes.libraries.clone(),
                proc_root: proc_root.clone(),
                ..Default::default()
            };
            let names = registry.clone();
            Probes::start(options, move |pid| names.resolve(pid), event_tx.clone())
        })?;
        if let Some(probes) = &probes {
            registry.route_exits(probes.behind());
        }
        let connector = optional(Source::ProcessEvents, connector_mode(settings, probes.is_some()), event_tx, || {
            Connector::start(event_tx.clone())
        })?;
        let docker = start_docker(settings, event_tx)?;
        let sampler = Sampler::start(settings.nvml.library.clone(), registry.clone(), event_tx.clone());
        let sampler = sampler.map_err(StartError::Thread)?;
        Ok(Self { probes: probes.map(Arc::new), _connector: connector, sampler, docker, names, registry })
    }

    /// Lets processes attach that take part at the level of kernels, where the settings say so. Not having it harms nobody.
    pub fn start_kernels(&self, settings: &Settings, event_tx: &Sender<Event>) -> Result<Option<Kernels>, StartError> {
        let (kernels, proc_root) = (&settings.kernels, &settings.processes.proc_root);
        if !kernels.enabled {
            return Ok(None);
        }
        let start = || Kernels::start(kernels, proc_root, self.registry.clone(), event_tx.clone());
        optional(Source::Shim, Mode::Auto, event_tx, start)
    }

    /// For those who hold tenants at their calls.
    pub fn probes(&self) -> Option<Arc<Probes>> {
        self.probes.clone()
    }

    /// Asks the engine about a container; `false` if its queue is full. Without an engine nothing is asked.
    pub fn describe(&self, id: ContainerId) -> bool {
        match (&self.names, &self.docker) {
            (Some(names), _) => names.describe(id),
            (None, Some(docker)) => docker.describe(id),
            (None, None) => true,
        }
    }

    pub fn look(&self, wish: Wish) {
        self.sampler.look(wish);
    }

    /// What the probes count; `None` without probes.
    pub fn probe_counters(&self) -> Option<ProbeCounters> {
        self.probes.as_ref().map(|probes| probes.counters())
    }

    /// Some events concern other sources: a process found on a GPU may use a library the probes do not know yet.
    pub fn note(&self, event: &Event) {
        if let (Some(probes), Event::Process(facts)) = (&self.probes, event) {
            probes.attach_process(facts.process.pid);
        }
    }
}

/// Puts the model's questions about containers. Those `describe` has no room for wait for the next time.
pub(crate) fn ask_names(monitor: &mut Monitor, describe: impl Fn(ContainerId) -> bool) {
    let mut waiting = 0_u32;
    for id in monitor.take_questions() {
        if !describe(id.clone()) {
            monitor.ask_again(&id);
            waiting += 1;
        }
    }
    if waiting > 0 {
        tracing::warn!(waiting, "too many questions to the container engine at once; they are asked again");
    }
}

/// Probes tell of newcomers what a started program only makes likely; beside them the connector would cost for nothing.
fn connector_mode(settings: &Settings, has_probes: bool) -> Mode {
    match settings.processes.connector {
        Mode::Auto if has_probes => Mode::Off,
        mode => mode,
    }
}

/// The engine tells its status by events; only a required one that is missing is an error, found out before the start.
fn start_docker(settings: &Settings, event_tx: &Sender<Event>) -> Result<Option<DockerSource>, StartError> {
    refuse_without_docker(settings)?;
    if settings.docker_mode() == Mode::Off {
        say(event_tx, Source::Docker, SourceStatus::Off);
        return Ok(None);
    }
    let started = DockerSource::start(&settings.docker.socket, event_tx.clone());
    started.map(Some).map_err(|error| required(Source::Docker, &error))
}

/// Blocks for as long as the engine takes to answer, if it is required.
pub(crate) fn refuse_without_docker(settings: &Settings) -> Result<(), StartError> {
    if settings.docker_mode() == Mode::Required {
        let available = berth_host::docker::available(&settings.docker.socket);
        available.map_err(|error| required(Source::Docker, &error))?;
    }
    Ok(())
}

/// Starts a source that the host may not offer; tells the loop how it went.
fn optional<T, E: Error>(
    source: Source,
    mode: Mode,
    event_tx: &Sender<Event>,
    start: impl FnOnce() -> Result<T, E>,
) -> Result<Option<T>, StartError> {
    if mode == Mode::Off {
        say(event_tx, source, SourceStatus::Off);
        return Ok(None);
    }
    match start() {
        Ok(started) => {
            say(event_tx, source, SourceStatus::Up);
            Ok(Some(started))
        }
        Err(error) if mode == Mode::Required => Err(required(source, &error)),
        Err(error) => {
            say(event_tx, source, SourceStatus::Down { reason: describe(&error) });
            Ok(None)
        }
    }
}

fn required(source: Source, error: &dyn Error) -> StartError {
    StartError::Required { name: source.as_str(), reason: describe(error) }
}

fn say(event_tx: &Sender<Event>, source: Source, status: SourceStatus) {
    // The receiver lives in the caller.
    let _ = event_tx.send(Event::Source { source, status });
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use berth_model::{ProcKey, ProcessFacts, Runtime, TenantKey, settings};

    use super::*;

    #[test]
    fn a_question_there_was_no_room_for_is_asked_again() {
        let mut monitor = Monitor::new(settings::Monitor::default());
        let ids = ["a", "b"].map(|letter| ContainerId(letter.repeat(64)));
        for (pid, id) in (1..).zip(&ids) {
            monitor.apply(Event::Process(ProcessFacts {
                process: ProcKey { pid, start_ticks: 1 },
                tenant: TenantKey::Container { runtime: Runtime::Docker, id: id.clone() },
                uid: None,
                user: None,
                command: String::new(),
                started: None,
            }));
        }
        let asked = RefCell::new(Vec::new());
        let with_room_for = |most: usize| {
            let asked = &asked;
            move |id| {
                let has_room = asked.borrow().len() < most;
                if has_room {
                    asked.borrow_mut().push(id);
                }
                has_room
            }
        };
        ask_names(&mut monitor, with_room_for(1));
        assert_eq!(*asked.borrow(), ids[..1]);
        ask_names(&mut monitor, with_room_for(9));
        ask_names(&mut monitor, with_room_for(9));
        assert_eq!(*asked.borrow(), ids, "each once");
    }
}
