//! What the simulated NVML says, as a file every process may map.
//!
//! One writer (the simulator's server), any number of readers (`libnvidia-ml.so.1` in any process). A reader never
//! waits for the writer and cannot make it wait: the body is guarded by a sequence lock, and a writer that died in the
//! middle is noticed by the reader running out of tries, one that died at rest by its heartbeat standing still.
//!
//! The file is little-endian 64-bit words:
//!
//! | word | what |
//! |---|---|
//! | 0 | magic, `"berthnvm"` |
//! | 1 | layout version |
//! | 2 | sequence: odd while the body is being written |
//! | 3 | heartbeat: `CLOCK_MONOTONIC` nanoseconds of the writer's last sign of life, 0 after it stopped |
//! | 4–7 | zero |
//! | 8– | body: [`Host`], then [`MAX_GPUS`] × [`Gpu`], as `body.rs` lays them out |

mod body;
mod lock;
mod sys;

use std::path::{Path, PathBuf};

pub use body::{Area, Gpu, Host, MAX_GPUS, MAX_PROCESSES, Process, SmSample, TRAFFIC_LAG_US};
use body::{GPU_WORDS, HOST_WORDS};
pub use lock::Busy;
use sys::Words;

/// The file's name in the simulator's directory.
pub const FILE_NAME: &str = "nvml.state";

/// A writer silent for longer is taken for dead.
pub const HEARTBEAT_LIMIT_NS: u64 = 3_000_000_000;

const MAGIC: u64 = u64::from_le_bytes(*b"berthnvm");
const VERSION: u64 = 2;
const SEQUENCE: usize = 2;
const HEARTBEAT: usize = 3;
const BODY: usize = 8;
const BODY_WORDS: usize = HOST_WORDS + MAX_GPUS * GPU_WORDS;
const FILE_WORDS: usize = BODY + BODY_WORDS;

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("map {path}")]
    Map { path: PathBuf, source: std::io::Error },
    #[error("{path} is not a snapshot of this simulator's NVML (layout version {VERSION})")]
    Foreign { path: PathBuf },
}

/// The writing side. Taking over an old file keeps its readers: they see the new body without mapping again.
#[derive(Debug)]
pub struct Writer {
    words: Words,
    /// The body as last published, to write only what is new.
    published: Vec<u64>,
}

impl Writer {
    pub fn create(path: &Path) -> Result<Self, StateError> {
        let words = Words::create(path, FILE_WORDS).map_err(|source| StateError::Map { path: path.into(), source })?;
        words.store(0, MAGIC);
        words.store(1, VERSION);
        Ok(Self { words, published: Vec::new() })
    }

    /// Publishes what is known now, if it is different. Says whether it was.
    pub fn publish(&mut self, host: &Host, gpus: &[Gpu]) -> bool {
        let body = body::encode(host, gpus);
        if body == self.published {
            return false;
        }
        lock::write(&self.words, SEQUENCE, BODY, &body);
        self.published = body;
        true
    }

    pub fn beat(&self, monotonic_ns: u64) {
        self.words.store(HEARTBEAT, monotonic_ns);
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.words.store(HEARTBEAT, 0);
    }
}

/// The reading side.
#[derive(Debug)]
pub struct Reader {
    words: Words,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let words = Words::open(path, FILE_WORDS).map_err(|source| StateError::Map { path: path.into(), source })?;
        if words.load(0) != MAGIC || words.load(1) != VERSION {
            return Err(StateError::Foreign { path: path.into() });
        }
        Ok(Self { words })
    }

    pub fn host(&self) -> Result<Host, Busy> {
        let mut words = [0; HOST_WORDS];
        lock::read(&self.words, SEQUENCE, BODY, &mut words)?;
        Ok(Host::from_words(&words))
    }

    /// The GPU at `index`, whether or not the host has that many.
    pub fn gpu(&self, index: usize) -> Result<Gpu, Busy> {
        let mut words = [0; GPU_WORDS];
        let start = BODY + HOST_WORDS + index.min(MAX_GPUS - 1) * GPU_WORDS;
        lock::read(&self.words, SEQUENCE, start, &mut words)?;
        Ok(Gpu::from_words(&words))
    }

    /// Whether the writer gave a sign of life lately.
    pub fn is_alive(&self, monotonic_ns: u64) -> bool {
        let beat = self.words.load(HEARTBEAT);
        beat != 0 && monotonic_ns.saturating_sub(beat) < HEARTBEAT_LIMIT_NS
    }
}

#[cfg(test)]
mod tests;
