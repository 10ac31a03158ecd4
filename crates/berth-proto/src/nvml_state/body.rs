//! The snapshot's values and the order of their words.

/// GPUs the file has room for.
pub const MAX_GPUS: usize = 16;
/// Processes listed per GPU; more are left out.
pub const MAX_PROCESSES: usize = 256;

/// How long work may be done before it is counted as traffic: a window, and time to publish it.
pub const TRAFFIC_LAG_US: u64 = 300_000;

/// Words of text: zero-terminated UTF-8 in the words' bytes.
const NAME: usize = 12;
const UUID: usize = 6;
const BUS_ID: usize = 4;
const VERSION_TEXT: usize = 4;

pub(super) const HOST_WORDS: usize = 5 + VERSION_TEXT + Area::COUNT;
const GPU_HEAD_WORDS: usize = NAME + UUID + BUS_ID + 12;
const PROCESS_WORDS: usize = 4;
pub(super) const GPU_WORDS: usize = GPU_HEAD_WORDS + MAX_PROCESSES * PROCESS_WORDS;

/// Parts of NVML that can be made to fail alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    Init,
    Device,
    Memory,
    Utilisation,
    ProcessList,
    ProcessUtilisation,
}

impl Area {
    pub const COUNT: usize = 6;
}

/// What holds for all GPUs. Words: GPU count, CUDA version, process-list cost (2), MPS, driver version (4), faults (6).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Host {
    pub gpu_count: u32,
    /// As `cuDriverGetVersion` says it.
    pub cuda_version: u32,
    pub driver_version: String,
    /// The process list takes `base + quadratic · n²` nanoseconds for n processes; the reader spends it.
    pub process_list_base_ns: u64,
    pub process_list_quadratic_ns: f64,
    /// Processes share the GPU through the MPS server.
    pub mps: bool,
    /// What each area of NVML answers instead of working, by [`Area`]; 0 is nothing.
    pub faults: [u32; Area::COUNT],
}

impl Host {
    pub fn fault(&self, area: Area) -> Option<u32> {
        let code = self.faults[area as usize];
        (code != 0).then_some(code)
    }

    /// How long the process list takes with `processes` in it.
    pub fn process_list_ns(&self, processes: usize) -> f64 {
        let n = processes as f64;
        self.process_list_base_ns as f64 + self.process_list_quadratic_ns * n * n
    }

    fn write(&self, out: &mut Sink<'_>) {
        out.u64(self.gpu_count.into());
        out.u64(self.cuda_version.into());
        out.u64(self.process_list_base_ns);
        out.u64(self.process_list_quadratic_ns.to_bits());
        out.u64(self.mps.into());
        out.text(&self.driver_version, VERSION_TEXT);
        self.faults.iter().for_each(|code| out.u64((*code).into()));
    }

    pub(super) fn from_words(words: &[u64; HOST_WORDS]) -> Self {
        let mut from = Source { words };
        Self {
            gpu_count: from.u32(),
            cuda_version: from.u32(),
            process_list_base_ns: from.u64(),
            process_list_quadratic_ns: f64::from_bits(from.u64()),
            mps: from.u64() != 0,
            driver_version: from.text(VERSION_TEXT),
            faults: std::array::from_fn(|_| from.u32()),
        }
    }
}

/// One GPU. Words: name (12), UUID (6), PCI bus id (4), total, used, reserved, utilisation (2), traffic (2), lost, SMs, compute
/// capability (2), process count, then each process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpu {
    pub name: String,
    /// `GPU-xxxxxxxx-…`.
    pub uuid: String,
    /// `00000000:3B:00.0`.
    pub pci_bus_id: String,
    pub total_bytes: u64,
    pub used_bytes: u64,
    /// Part of `used_bytes` that belongs to no process.
    pub reserved_bytes: u64,
    pub gpu_pct: u32,
    pub memory_pct: u32,
    /// Time in which all of the memory's bandwidth was used, since the start, and up to when that is counted: in microseconds, the
    /// latter since the epoch. What comes after it is counted within [`TRAFFIC_LAG_US`].
    pub traffic_us: u64,
    pub traffic_at_us: u64,
    /// Every call on this GPU answers "GPU is lost".
    pub lost: bool,
    pub sm_count: u32,
    pub compute_capability: (u32, u32),
    pub processes: Vec<Process>,
}

/// One process on a GPU. Words: pid, bytes (all ones: unknown), SM percent, time of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// `None`: the reader may not know.
    pub used_bytes: Option<u64>,
    pub sm: Option<SmSample>,
}

/// A process's share of the SMs over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SmSample {
    pub pct: u32,
    /// End of the window, in microseconds since the epoch.
    pub at_us: u64,
}

impl Gpu {
    fn write(&self, out: &mut Sink<'_>) {
        out.text(&self.name, NAME);
        out.text(&self.uuid, UUID);
        out.text(&self.pci_bus_id, BUS_ID);
        out.u64(self.total_bytes);
        out.u64(self.used_bytes);
        out.u64(self.reserved_bytes);
        out.u64(self.gpu_pct.into());
        out.u64(self.memory_pct.into());
        out.u64(self.traffic_us);
        out.u64(self.traffic_at_us);
        out.u64(self.lost.into());
        out.u64(self.sm_count.into());
        out.u64(self.compute_capability.0.into());
        out.u64(self.compute_capability.1.into());
        let listed = &self.processes[..self.processes.len().min(MAX_PROCESSES)];
        out.u64(listed.len() as u64);
        listed.iter().for_each(|process| process.write(out));
        out.skip((MAX_PROCESSES - listed.len()) * PROCESS_WORDS);
    }

    pub(super) fn from_words(words: &[u64; GPU_WORDS]) -> Self {
        let mut from = Source { words };
        let mut gpu = Self {
            name: from.text(NAME),
            uuid: from.text(UUID),
            pci_bus_id: from.text(BUS_ID),
            total_bytes: from.u64(),
            used_bytes: from.u64(),
            reserved_bytes: from.u64(),
            gpu_pct: from.u32(),
            memory_pct: from.u32(),
            traffic_us: from.u64(),
            traffic_at_us: from.u64(),
            lost: from.u64() != 0,
            sm_count: from.u32(),
            compute_capability: (from.u32(), from.u32()),
            processes: Vec::new(),
        };
        let listed = usize::try_from(from.u64()).unwrap_or(usize::MAX).min(MAX_PROCESSES);
        gpu.processes = (0..listed).map(|_| Process::read(&mut from)).collect();
        gpu
    }
}

impl Process {
    fn write(&self, out: &mut Sink<'_>) {
        out.u64(self.pid.into());
        out.u64(self.used_bytes.unwrap_or(u64::MAX));
        // A time of 0 is no sample: nothing was measured in 1970.
        out.u64(self.sm.map_or(0, |sample| sample.pct.into()));
        out.u64(self.sm.map_or(0, |sample| sample.at_us));
    }

    fn read(from: &mut Source<'_>) -> Self {
        let (pid, bytes, pct, at_us) = (from.u32(), from.u64(), from.u32(), from.u64());
        Self {
            pid,
            used_bytes: (bytes != u64::MAX).then_some(bytes),
            sm: (at_us != 0).then_some(SmSample { pct, at_us }),
        }
    }
}

/// The body's words as far as there are GPUs; those beyond [`MAX_GPUS`] are left out.
pub(super) fn encode(host: &Host, gpus: &[Gpu]) -> Vec<u64> {
    let mut words = Vec::with_capacity(HOST_WORDS + gpus.len() * GPU_WORDS);
    let mut out = Sink { words: &mut words };
    host.write(&mut out);
    gpus.iter().take(MAX_GPUS).for_each(|gpu| gpu.write(&mut out));
    words
}

struct Sink<'a> {
    words: &'a mut Vec<u64>,
}

impl Sink<'_> {
    fn u64(&mut self, value: u64) {
        self.words.push(value);
    }

    fn skip(&mut self, words: usize) {
        self.words.resize(self.words.len() + words, 0);
    }

    /// Cut to fit, always with a zero at the end.
    fn text(&mut self, text: &str, words: usize) {
        let mut end = text.len().min(words * 8 - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let mut bytes = text.as_bytes()[..end].to_vec();
        bytes.resize(words * 8, 0);
        let (chunks, _) = bytes.as_chunks::<8>();
        self.words.extend(chunks.iter().map(|chunk| u64::from_le_bytes(*chunk)));
    }
}

struct Source<'a> {
    words: &'a [u64],
}

impl Source<'_> {
    fn u64(&mut self) -> u64 {
        match self.words.split_first() {
            Some((first, rest)) => {
                self.words = rest;
                *first
            }
            None => 0,
        }
    }

    /// A word that does not fit was never written by our writer; it reads as the largest value.
    fn u32(&mut self) -> u32 {
        u32::try_from(self.u64()).unwrap_or(u32::MAX)
    }

    fn text(&mut self, words: usize) -> String {
        let bytes: Vec<u8> = (0..words).flat_map(|_| self.u64().to_le_bytes()).collect();
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}
