//! The library as a whole: opening it, numbering its GPUs, and opening it again after a GPU or the driver went away.

use std::path::{Path, PathBuf};
use std::time::Duration;

use berth_model::{BandwidthUse, Bytes, GpuIndex, GpuInfo, GpuUuid, Mono};
use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError as Code;

use super::device::Watched;
use super::sys::{self, Buffers};
use super::{GpuLook, GpuProbe, Look, NvmlError, RawReading};

/// NVML notices that a GPU is back only when it is initialised anew, which blocks: tried rarely, and ever more rarely.
const REOPEN_FIRST: Duration = Duration::from_secs(2);
const REOPEN_LAST: Duration = Duration::from_secs(60);

/// The driver's library, open.
#[derive(Debug)]
pub struct NvmlProbe {
    library: PathBuf,
    state: State,
    gpus: Vec<Watched>,
    reopen: Reopen,
    buffers: Buffers,
}

#[derive(Debug)]
enum State {
    Open(Box<Nvml>),
    /// The driver went away and has not come back.
    Closed {
        reason: String,
    },
}

/// When to open the library again.
#[derive(Debug, Default)]
struct Reopen {
    /// `None` while every GPU answers.
    due: Option<(Mono, Duration)>,
}

// === impl NvmlProbe ===

impl NvmlProbe {
    /// Loads and initialises `library`, a path or a name the loader finds. Blocks while the driver wakes its GPUs.
    pub fn open(library: &Path) -> Result<NvmlProbe, NvmlError> {
        Ok(NvmlProbe {
            state: State::Open(load(library)?),
            library: library.to_owned(),
            gpus: Vec::new(),
            reopen: Reopen::default(),
            buffers: Buffers::default(),
        })
    }

    /// The driver's version, such as `580.159`; `None` if it does not say.
    pub fn driver_version(&self) -> Option<String> {
        match &self.state {
            State::Open(nvml) => nvml.sys_driver_version().ok(),
            State::Closed { .. } => None,
        }
    }

    fn reopen(&mut self) {
        tracing::info!(library = %self.library.display(), "a GPU does not answer: initialising NVML again");
        self.forget_counters();
        // The old session must end first: while one is left, initialising again changes nothing.
        self.state = State::Closed { reason: "NVML is being initialised again".into() };
        match load(&self.library) {
            Ok(nvml) => {
                self.find_again(&listed(&nvml));
                self.state = State::Open(nvml);
            }
            Err(error) => self.state = State::Closed { reason: error.to_string() },
        }
    }

    fn forget_counters(&mut self) {
        if let State::Open(nvml) = &self.state {
            self.gpus.iter_mut().for_each(|gpu| gpu.forget_counters(nvml));
        }
    }

    /// GPUs the driver lists are found by uuid, wherever they are now. Where it lists one that was not there before, and
    /// all that it lists answer, it has other hardware than it had: those it no longer lists are replaced, not lost.
    fn find_again(&mut self, listed: &[Option<GpuUuid>]) {
        for gpu in self.gpus.iter_mut().filter(|gpu| gpu.uuid.is_some()) {
            let position = (0..).zip(listed).find(|(_, uuid)| **uuid == gpu.uuid);
            gpu.position = position.map(|(position, _)| position);
        }
        self.find_unknown(listed);
        let is_new = |uuid: &GpuUuid| self.gpus.iter().all(|gpu| gpu.uuid.as_ref() != Some(uuid));
        if listed.iter().all(Option::is_some) && listed.iter().flatten().any(is_new) {
            self.gpus.retain(|gpu| gpu.position.is_some());
        }
    }

    /// GPUs that have never answered are known by their place alone, unless a known one is there now.
    fn find_unknown(&mut self, listed: &[Option<GpuUuid>]) {
        let known: Vec<GpuUuid> = self.gpus.iter().filter_map(|gpu| gpu.uuid.clone()).collect();
        for gpu in self.gpus.iter_mut().filter(|gpu| gpu.uuid.is_none()) {
            let place = (0..).zip(listed).find(|(position, _)| *position == gpu.index.0);
            let free = place.filter(|(_, uuid)| uuid.as_ref().is_none_or(|uuid| !known.contains(uuid)));
            gpu.position = free.as_ref().map(|(position, _)| *position);
            gpu.uuid = free.and_then(|(_, uuid)| uuid.clone());
        }
    }
}

impl GpuProbe for NvmlProbe {
    fn inventory(&mut self) -> Result<Vec<GpuInfo>, NvmlError> {
        self.forget_counters();
        if let State::Closed { .. } = self.state {
            self.state = State::Open(load(&self.library)?);
        }
        let State::Open(nvml) = &self.state else { return Ok(Vec::new()) };
        let count = nvml.device_count().map_err(|source| NvmlError::Call { call: "nvmlDeviceGetCount", source })?;
        let (mut infos, mut watched) = (Vec::new(), Vec::new());
        for position in 0..count {
            match describe(nvml, position) {
                Ok(info) => {
                    watched.push(Watched::new(&info));
                    infos.push(info);
                }
                // Looks will tell that it is lost, and why.
                Err(_) => watched.push(Watched::unknown(GpuIndex(position))),
            }
        }
        self.gpus = watched;
        Ok(infos)
    }

    fn look(&mut self, per_process_core: bool) -> Look {
        let mut look = Look::begin();
        if self.reopen.is_due(look.at) {
            self.reopen();
            look = Look::begin();
        }
        for gpu in &mut self.gpus {
            let reading = match &self.state {
                State::Open(nvml) => gpu.read(nvml, look.at, per_process_core, &mut self.buffers),
                State::Closed { reason } => RawReading::Lost { reason: reason.clone() },
            };
            look.gpus.push(GpuLook { index: gpu.index, reading });
        }
        let is_any_lost = look.gpus.iter().any(|gpu| matches!(gpu.reading, RawReading::Lost { .. }));
        self.reopen.note(is_any_lost, look.at);
        look
    }

    fn bandwidth(&mut self) -> Vec<BandwidthUse> {
        let State::Open(nvml) = &self.state else { return Vec::new() };
        self.gpus.iter_mut().filter_map(|gpu| gpu.bandwidth(nvml)).collect()
    }
}

fn load(library: &Path) -> Result<Box<Nvml>, NvmlError> {
    let missing = sys::missing_symbol(library).map_err(|reason| NvmlError::from_load(library, reason))?;
    if let Some(symbol) = missing {
        return Err(NvmlError::NotNvml { library: library.to_owned(), symbol });
    }
    let nvml = Nvml::builder().lib_path(library.as_os_str()).init();
    nvml.map(Box::new).map_err(|source| NvmlError::from_init(library, source))
}

/// In the driver's order; `None` for a GPU that does not answer.
fn listed(nvml: &Nvml) -> Vec<Option<GpuUuid>> {
    let count = nvml.device_count().unwrap_or(0);
    let uuid = |position| nvml.device_by_index(position)?.uuid();
    (0..count).map(|position| uuid(position).ok().map(GpuUuid)).collect()
}

/// Fails only for a GPU that a look would call lost.
fn describe(nvml: &Nvml, position: u32) -> Result<GpuInfo, Code> {
    let device = nvml.device_by_index(position)?;
    let mig = device.mig_mode().ok().map(|mode| mode.current == 1);
    Ok(GpuInfo {
        index: GpuIndex(position),
        uuid: GpuUuid(device.uuid()?),
        name: device.name().unwrap_or_else(|_| "GPU of unknown name".to_owned()),
        memory_total: device.memory_info().ok().map(|memory| Bytes(memory.total)),
        mig,
    })
}

// === impl Reopen ===

impl Reopen {
    fn is_due(&self, now: Mono) -> bool {
        self.due.is_some_and(|(at, _)| now >= at)
    }

    fn note(&mut self, is_any_lost: bool, now: Mono) {
        self.due = match self.due {
            _ if !is_any_lost => None,
            None => Some((now + REOPEN_FIRST, REOPEN_FIRST)),
            Some((at, delay)) if now >= at => {
                let delay = (delay * 2).min(REOPEN_LAST);
                Some((now + delay, delay))
            }
            waiting => waiting,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter per GPU in the driver's order; `?` does not answer.
    fn uuids(letters: &str) -> Vec<Option<GpuUuid>> {
        letters.chars().map(|c| (c != '?').then(|| GpuUuid(c.into()))).collect()
    }

    /// What is watched after `known` was and the driver lists `listed`.
    fn found_of(known: &str, listed: &str) -> Vec<Watched> {
        let watched = |(index, uuid)| {
            let mut gpu = Watched::unknown(GpuIndex(index));
            gpu.uuid = uuid;
            gpu
        };
        let mut probe = NvmlProbe {
            library: PathBuf::new(),
            state: State::Closed { reason: String::new() },
            gpus: (0..).zip(uuids(known)).map(watched).collect(),
            reopen: Reopen::default(),
            buffers: Buffers::default(),
        };
        probe.find_again(&uuids(listed));
        probe.gpus
    }

    /// Index and present position of what is watched, after A and B were.
    fn found(listed: &str) -> Vec<(u32, Option<u32>)> {
        found_of("AB", listed).iter().map(|gpu| (gpu.index.0, gpu.position)).collect()
    }

    #[test]
    fn a_gpu_that_never_answered_is_whoever_answers_in_its_place_and_was_not_known() {
        let found = |listed| {
            let gpus = found_of("?B", listed);
            let brief = |gpu: &Watched| (gpu.index.0, gpu.position, gpu.uuid.as_ref().map(|uuid| uuid.0.clone()));
            gpus.iter().map(brief).collect::<Vec<_>>()
        };
        let (a, b) = (Some("A".to_owned()), Some("B".to_owned()));
        assert_eq!(found("AB"), [(0, Some(0), a.clone()), (1, Some(1), b.clone())], "it has come back");
        assert_eq!(found("A?"), [(0, Some(0), a.clone()), (1, None, b.clone())], "and the other is lost now");
        assert_eq!(found("?B"), [(0, Some(0), None), (1, Some(1), b.clone())], "it is lost still");
        assert_eq!(found("B"), [(0, None, None), (1, Some(0), b.clone())], "another is in its place");
        assert_eq!(found("BA"), [(1, Some(0), b.clone())], "an inventory will name the newcomer");
        assert_eq!(found(""), [(0, None, None), (1, None, b)], "all are lost");
    }

    #[test]
    fn gpus_are_found_again_by_uuid_and_are_lost_or_replaced_where_they_are_not() {
        assert_eq!(found("BA"), [(0, Some(1)), (1, Some(0))], "the order may change");
        assert_eq!(found("ABC"), [(0, Some(0)), (1, Some(1))], "an inventory will name the newcomer");
        assert_eq!(found("B"), [(0, None), (1, Some(0))], "lost");
        assert_eq!(found("?B"), [(0, None), (1, Some(1))], "lost");
        assert_eq!(found("CB"), [(1, Some(1))], "replaced");
        assert_eq!(found("CD"), [], "replaced");
        assert_eq!(found("?BC"), [(0, None), (1, Some(1))], "the silent one may still be the lost one");
        assert_eq!(found(""), [(0, None), (1, None)], "lost");
    }

    fn at(seconds: u64) -> Mono {
        Mono(seconds * 1_000_000_000)
    }

    #[test]
    fn a_lost_gpu_is_sought_ever_more_rarely_and_forgotten_when_back() {
        let mut reopen = Reopen::default();
        let mut sought = Vec::new();
        for second in 0..300 {
            if reopen.is_due(at(second)) {
                sought.push(second);
            }
            reopen.note(true, at(second));
        }
        assert_eq!(sought, [2, 6, 14, 30, 62, 122, 182, 242]);
        reopen.note(false, at(300));
        assert!(!reopen.is_due(at(10_000)));
    }
}
