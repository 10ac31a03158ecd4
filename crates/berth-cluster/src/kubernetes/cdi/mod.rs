//! A description of this node's GPUs by the Container Device Interface: a file from which container runtimes learn what a device is.
//!
//! With it the kubelet hands a name to the runtime in place of device files and variables. Written whole under another name and moved into
//! place, so that nobody reads half of it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use berth_model::GpuUuid;
use serde::Serialize;

/// Of the interface whose fields are used.
const VERSION: &str = "0.5.0";
/// Vendor and class of the devices.
pub const KIND: &str = "berth.dev/gpu";
const FILE: &str = "berth.dev-gpu.json";

#[derive(Debug, thiserror::Error)]
#[error("cannot write `{path}`")]
pub struct CdiError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

/// How one GPU gets into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CdiGpu {
    pub uuid: GpuUuid,
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    cdi_version: &'static str,
    kind: &'static str,
    devices: Vec<Device>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    container_edits: Edits,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    device_nodes: Vec<BTreeMap<&'static str, PathBuf>>,
}

/// The device's full name, as a runtime is told it.
pub fn name_of(gpu: &GpuUuid) -> String {
    format!("{KIND}={gpu}")
}

/// Writes the description into `dir`, which is made if it is missing. A GPU whose files nobody knows is left out: a device that changes
/// nothing is none.
pub fn write(dir: &Path, gpus: &[CdiGpu]) -> Result<PathBuf, CdiError> {
    let path = dir.join(FILE);
    let failed = |source| CdiError { path: path.clone(), source };
    let device = |gpu: &CdiGpu| {
        let nodes = gpu.files.iter().map(|file| BTreeMap::from([("path", file.clone())])).collect();
        Device { name: gpu.uuid.to_string(), container_edits: Edits { device_nodes: nodes } }
    };
    let spec = Spec {
        cdi_version: VERSION,
        kind: KIND,
        devices: gpus.iter().filter(|gpu| !gpu.files.is_empty()).map(device).collect(),
    };
    let text = serde_json::to_vec_pretty(&spec).map_err(io::Error::other).map_err(failed)?;
    std::fs::create_dir_all(dir).map_err(failed)?;
    let new = dir.join(format!(".{FILE}.new"));
    std::fs::write(&new, text).map_err(failed)?;
    std::fs::rename(&new, &path).map_err(failed)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runtime_finds_each_gpu_by_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let gpu = CdiGpu { uuid: GpuUuid("GPU-a".into()), files: vec!["/dev/nvidia0".into(), "/dev/nvidiactl".into()] };
        let path = write(&dir.path().join("cdi"), &[gpu]).unwrap();
        let spec: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((&spec["cdiVersion"], &spec["kind"]), (&"0.5.0".into(), &"berth.dev/gpu".into()));
        let device = &spec["devices"][0];
        assert_eq!(name_of(&GpuUuid(device["name"].as_str().unwrap().into())), "berth.dev/gpu=GPU-a");
        assert_eq!(device["containerEdits"]["deviceNodes"][1]["path"], "/dev/nvidiactl");
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing else is left there");
    }
}
