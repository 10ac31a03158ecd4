//! A GPU (and the machine around it) as data: a handful of parameters, never a value per case.
//!
//! The built-in profiles are the files in `profiles/`; any other can be loaded from a path. Unknown keys are refused,
//! so that a misspelt parameter cannot silently keep its old value. Units are in the names: `_gbps` is 10⁹ bytes per
//! second, `_mib` is 2²⁰ bytes.

use std::path::{Path, PathBuf};

use serde::Deserialize;

const BUILTIN: [(&str, &str); 3] = [
    ("rtx3090", include_str!("../../../profiles/rtx3090.toml")),
    ("a100", include_str!("../../../profiles/a100.toml")),
    ("h200", include_str!("../../../profiles/h200.toml")),
];

/// Far above any GPU, far below where bytes overflow.
const MAX_MEMORY_MIB: u64 = 1 << 40;

/// Keys whose value is divided by, or without which there is no GPU.
const POSITIVE: [&str; 16] = [
    "gpu.sm_count",
    "gpu.blocks_per_sm",
    "gpu.max_threads_per_sm",
    "gpu.memory_mib",
    "compute.gflops",
    "compute.bandwidth_gbps",
    "compute.memory_sms",
    "compute.slice_us",
    "copy.h2d_process_gbps",
    "copy.h2d_engine_gbps",
    "copy.d2h_process_gbps",
    "copy.d2h_engine_gbps",
    "checkpoint.save_gbps",
    "checkpoint.restore_gbps",
    "nvml.utilisation_window_ms",
    "host.init_gbps",
];

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub gpu: Gpu,
    pub compute: Compute,
    pub copy: Copy,
    pub context: Context,
    pub mps: Mps,
    pub checkpoint: Checkpoint,
    pub nvml: Nvml,
    pub host: Host,
}

/// What the device says about itself.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Gpu {
    pub name: String,
    pub sm_count: u32,
    /// Thread blocks one SM holds at a time; a grid with fewer than `sm_count * blocks_per_sm` leaves room for others.
    pub blocks_per_sm: u32,
    pub max_threads_per_sm: u32,
    pub compute_capability: (u32, u32),
    pub memory_mib: u64,
    /// Memory in use when no process is there.
    pub reserved_mib: u64,
}

/// Kernels. Alone, one takes `launch_us + max(flops / rate, bytes / bandwidth)`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compute {
    /// Rate at which plain FP32 code (no tiling, no tensor cores) really runs, not the data-sheet peak.
    pub gflops: f64,
    /// Device memory bandwidth a kernel can draw.
    pub bandwidth_gbps: f64,
    /// Part of the SMs that is enough for the whole bandwidth, (0, 1].
    pub memory_sms: f64,
    /// Fixed part of each kernel.
    pub launch_us: f64,
    /// Fixed part of a kernel in a graph.
    pub graph_node_us: f64,
    /// How long one process keeps the SMs while another is waiting for them.
    pub slice_us: f64,
    /// What is lost at each change from one process to another.
    pub switch_us: f64,
}

/// The two copy engines. A copy from or to pageable memory is bound by its process, many of them by the engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Copy {
    pub h2d_process_gbps: f64,
    pub h2d_engine_gbps: f64,
    pub d2h_process_gbps: f64,
    pub d2h_engine_gbps: f64,
    /// Fixed part of each copy.
    pub latency_us: f64,
}

/// The life of a context: alone, ready after
/// `wake_ms + create_open_ms + create_serial_ms + create_blocking_ms + create_finish_ms`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// Device memory a context holds by itself, from being listed until its end.
    pub memory_mib: u64,
    /// From the first call to a GPU on which nobody has a context until it is running.
    pub wake_ms: f64,
    /// From there, or from the first call, until NVML lists the process.
    pub create_open_ms: f64,
    /// The driver works on all contexts that come or go by turns; in this part of it kernels run on.
    pub create_serial_ms: f64,
    /// By turns as well, and no kernel runs meanwhile.
    pub create_blocking_ms: f64,
    /// The rest until the context is ready.
    pub create_finish_ms: f64,
    /// As at creation: by turns.
    pub teardown_serial_ms: f64,
    /// As at creation: no kernel runs meanwhile.
    pub teardown_blocking_ms: f64,
    /// How many turns of the driver a process that computes takes up, a context being one. Without meaning under MPS.
    pub compute_weight: f64,
    /// Spread of each part but the waking, either way, drawn from the seed.
    pub jitter_pct: f64,
}

/// What is different when all processes share one context through MPS: nothing is switched, and coming and going, by turns as in
/// [`Context`], take other times.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mps {
    pub create_serial_ms: f64,
    pub create_blocking_ms: f64,
    pub teardown_serial_ms: f64,
    pub teardown_blocking_ms: f64,
}

/// The driver's lock on another process, and moving its memory out and in.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Lock or unlock when nothing runs.
    pub lock_us: f64,
    pub save_base_ms: f64,
    pub save_gbps: f64,
    pub restore_base_ms: f64,
    pub restore_gbps: f64,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nvml {
    /// Utilisation is a mean over windows this long and is refreshed at their ends only.
    pub utilisation_window_ms: u64,
    /// The process list takes `base + quadratic · n²` for n processes.
    pub process_list_base_us: f64,
    pub process_list_quadratic_us: f64,
}

/// The machine around the GPU, as the workload sees it: used by [`crate::scenario`], not by the engine.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// From `exec` to the program's first instruction of its own.
    pub process_start_ms: f64,
    /// Rate at which one process fills its input arrays.
    pub init_gbps: f64,
}

#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("no built-in profile {name:?} (there are: {})", builtin_names().join(", "))]
    Unknown { name: String },
    #[error("read profile {path}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("parse profile {origin}")]
    Parse { origin: String, source: Box<toml::de::Error> },
    #[error("profile {origin}: {key} is {value}, must be {must}")]
    Value { origin: String, key: String, value: f64, must: &'static str },
}

pub fn builtin_names() -> Vec<&'static str> {
    BUILTIN.iter().map(|(name, _)| *name).collect()
}

impl Profile {
    pub fn builtin(name: &str) -> Result<Profile, ProfileError> {
        let (_, text) = BUILTIN
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ProfileError::Unknown { name: name.into() })?;
        Profile::parse(name, text)
    }

    pub fn load(path: &Path) -> Result<Profile, ProfileError> {
        let text = std::fs::read_to_string(path).map_err(|source| ProfileError::Read { path: path.into(), source })?;
        Profile::parse(&path.display().to_string(), &text)
    }

    /// `origin` names the text in errors.
    pub fn parse(origin: &str, text: &str) -> Result<Profile, ProfileError> {
        let unreadable = |source| ProfileError::Parse { origin: origin.into(), source: Box::new(source) };
        let profile: Profile = toml::from_str(text).map_err(unreadable)?;
        check_numbers(origin, &toml::from_str(text).map_err(unreadable)?)?;
        profile.check(origin)?;
        Ok(profile)
    }

    /// How long NVML's process list takes with `processes` in it; the caller's library spends it.
    pub fn process_list_ns(&self, processes: usize) -> u64 {
        let n = processes as f64;
        crate::engine::nanos((self.nvml.process_list_base_us + self.nvml.process_list_quadratic_us * n * n) * 1e3)
    }

    fn check(&self, origin: &str) -> Result<(), ProfileError> {
        let refuse =
            |key: &str, value, must| Err(ProfileError::Value { origin: origin.into(), key: key.into(), value, must });
        if self.context.jitter_pct > 100.0 {
            return refuse("context.jitter_pct", self.context.jitter_pct, "100 or less");
        }
        if self.compute.memory_sms > 1.0 {
            return refuse("compute.memory_sms", self.compute.memory_sms, "1 or less");
        }
        if self.gpu.memory_mib > MAX_MEMORY_MIB {
            return refuse("gpu.memory_mib", self.gpu.memory_mib as f64, "at most 1 EiB");
        }
        if self.gpu.reserved_mib.saturating_add(self.context.memory_mib) >= self.gpu.memory_mib {
            return refuse("gpu.memory_mib", self.gpu.memory_mib as f64, "above the reserve plus one context");
        }
        Ok(())
    }
}

/// Every number of a profile is finite and not negative; what is divided by is not zero either.
fn check_numbers(origin: &str, sections: &toml::Table) -> Result<(), ProfileError> {
    let keys = sections.iter().filter_map(|(section, keys)| Some((section, keys.as_table()?)));
    for (section, (key, value)) in keys.flat_map(|(section, keys)| keys.iter().map(move |entry| (section, entry))) {
        let Some(value) = value.as_float().or_else(|| value.as_integer().map(|value| value as f64)) else { continue };
        let key = format!("{section}.{key}");
        let (allowed, must) =
            if POSITIVE.contains(&key.as_str()) { (value > 0.0, "above 0") } else { (value >= 0.0, "0 or more") };
        if !(allowed && value.is_finite()) {
            return Err(ProfileError::Value { origin: origin.into(), key, value, must });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_that_must_be_positive_exists() {
        for (_, text) in BUILTIN {
            let sections: toml::Table = toml::from_str(text).unwrap();
            for name in POSITIVE {
                let (section, key) = name.split_once('.').unwrap();
                assert!(sections[section].get(key).is_some(), "{name}");
            }
        }
    }
}
