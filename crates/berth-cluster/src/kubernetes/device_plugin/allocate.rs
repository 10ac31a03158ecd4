//! What a container gets that is given shares: the environment, device files or names of devices, and mounts. Pure but for the question
//! which device files there are.

use std::path::PathBuf;

use berth_model::GpuUuid;
use berth_model::taking_part::{PRELOAD_VARIABLE, SOCKET_VARIABLE, Share};

use super::nodes::Roots;
use super::shares::gpus_of;
use super::v1beta1::{CdiDevice, ContainerAllocateResponse, DeviceSpec, Mount};
use crate::kubernetes::cdi;

/// Read by NVIDIA's container runtime: which GPUs to bring in; [`NONE_OF_ITS`] brings in none, for who has them by another way.
const RUNTIME_BRINGS: &str = "NVIDIA_VISIBLE_DEVICES";
const NONE_OF_ITS: &str = "void";
/// Read by CUDA: which GPUs to use.
const CUDA_SEES: &str = "CUDA_VISIBLE_DEVICES";
/// By which runtimes learn of devices from kubelets that do not hand over their names.
const CDI_ANNOTATION: &str = "cdi.k8s.io/berth-gpu";

/// How GPUs get into containers here.
#[derive(Debug, Clone, Default)]
pub struct Ways {
    pub roots: Roots,
    /// By name, where a description was written for runtimes.
    pub by_cdi: bool,
    /// What every such container gets to see of the host, read-only, at the same path.
    pub mounts: Vec<PathBuf>,
    /// What those get that take part at the level of kernels; `None` where nobody can.
    pub share: Option<Share>,
    /// Everybody takes part.
    pub all_take_part: bool,
}

impl Ways {
    /// Whether it is worth asking who takes part.
    pub(super) fn asks_who_takes_part(&self) -> bool {
        self.share.is_some() && !self.all_take_part
    }

    pub(super) fn container(&self, shares: &[String], takes_part: bool) -> ContainerAllocateResponse {
        let mut given = self.gpus(shares);
        if let Some(share) = self.share.as_ref().filter(|_| takes_part || self.all_take_part) {
            given.envs.insert(PRELOAD_VARIABLE.to_owned(), share.preload.clone());
            given.envs.insert(SOCKET_VARIABLE.to_owned(), share.socket.clone());
            given.mounts.extend(share.mounts.iter().map(|mount| Mount {
                container_path: mount.target.clone(),
                host_path: mount.source.display().to_string(),
                read_only: true,
            }));
        }
        given
    }

    fn gpus(&self, shares: &[String]) -> ContainerAllocateResponse {
        let gpus = gpus_of(shares);
        let files = self.roots.files(&gpus);
        let names: Vec<String> = gpus.iter().map(cdi::name_of).collect();
        let visible = gpus.iter().map(|gpu: &GpuUuid| gpu.0.as_str()).collect::<Vec<_>>().join(",");
        let by_cdi = self.by_cdi && !files.is_empty();
        let path = |path: &PathBuf| path.display().to_string();
        let device = |file: &PathBuf| DeviceSpec {
            container_path: path(file),
            host_path: path(file),
            permissions: "rw".to_owned(),
        };
        let mount = |dir: &PathBuf| Mount { container_path: path(dir), host_path: path(dir), read_only: true };
        let runtime_brings = if by_cdi { NONE_OF_ITS.to_owned() } else { visible.clone() };
        ContainerAllocateResponse {
            envs: [(RUNTIME_BRINGS, runtime_brings), (CUDA_SEES, visible)]
                .map(|(name, is)| (name.to_owned(), is))
                .into(),
            mounts: self.mounts.iter().map(mount).collect(),
            devices: if by_cdi { Vec::new() } else { files.iter().map(device).collect() },
            annotations: by_cdi.then(|| (CDI_ANNOTATION.to_owned(), names.join(","))).into_iter().collect(),
            cdi_devices: names.into_iter().filter(|_| by_cdi).map(|name| CdiDevice { name }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(dir: &std::path::Path, by_cdi: bool) -> Ways {
        let roots = Roots { driver: dir.join("gpus"), dev: dir.join("dev") };
        std::fs::create_dir_all(roots.driver.join("1")).unwrap();
        std::fs::create_dir_all(&roots.dev).unwrap();
        std::fs::write(roots.driver.join("1/information"), "GPU UUID: GPU-a\nDevice Minor: 0\n").unwrap();
        std::fs::write(roots.dev.join("nvidia0"), "").unwrap();
        Ways { roots, by_cdi, mounts: vec!["/opt/sim".into()], ..Ways::default() }
    }

    #[test]
    fn a_container_sees_each_of_its_gpus_once() {
        let dir = tempfile::tempdir().unwrap();
        let shares = ["GPU-a::0", "GPU-a::1", "GPU-b::0"].map(str::to_owned);
        let given = ways(dir.path(), false).container(&shares, true);
        assert_eq!(given.envs["NVIDIA_VISIBLE_DEVICES"], "GPU-a,GPU-b");
        assert_eq!(given.envs["CUDA_VISIBLE_DEVICES"], "GPU-a,GPU-b");
        let [device] = &given.devices[..] else { panic!("{given:?}") };
        assert_eq!(device.host_path, dir.path().join("dev/nvidia0").display().to_string());
        assert_eq!((given.mounts[0].host_path.as_str(), given.mounts[0].read_only), ("/opt/sim", true));
        assert!(given.cdi_devices.is_empty() && given.annotations.is_empty());
    }

    #[test]
    fn who_takes_part_gets_the_library_and_the_way_to_the_daemon_and_nobody_else_does() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::new("/run/berth/libberth_shim.so".as_ref(), "/run/berth/shim/shim.sock".as_ref());
        let ways = Ways { share: Some(share.clone()), ..ways(dir.path(), false) };
        let shares = ["GPU-a::0".to_owned()];
        let given = ways.container(&shares, true);
        assert_eq!(given.envs["LD_PRELOAD"], "/run/berth/$LIB/libberth_shim.so");
        assert_eq!(given.envs["BERTH_SHIM_SOCKET"], "/run/berth/shim/shim.sock");
        let mounts: Vec<_> = given.mounts.iter().map(|mount| (mount.host_path.as_str(), mount.read_only)).collect();
        let library = ("/run/berth/libberth_shim.so", true);
        assert_eq!(mounts, [("/opt/sim", true), library, library, library, ("/run/berth/shim", true)]);
        let other = ways.container(&shares, false);
        assert!(!other.envs.contains_key("LD_PRELOAD") && other.mounts.len() == 1, "{other:?}");
        let all = Ways { all_take_part: true, ..ways };
        assert_eq!((all.container(&shares, false), all.asks_who_takes_part()), (given, false));
    }

    #[test]
    fn where_runtimes_know_the_devices_they_are_told_names() {
        let dir = tempfile::tempdir().unwrap();
        let given = ways(dir.path(), true).container(&["GPU-a::0".to_owned()], true);
        assert!(given.devices.is_empty(), "each file is given once");
        assert_eq!(given.envs["NVIDIA_VISIBLE_DEVICES"], "void", "also where NVIDIA's runtime is the node's own");
        assert_eq!(given.envs["CUDA_VISIBLE_DEVICES"], "GPU-a");
        assert_eq!(given.cdi_devices[0].name, "berth.dev/gpu=GPU-a");
        assert_eq!(given.annotations["cdi.k8s.io/berth-gpu"], "berth.dev/gpu=GPU-a");
    }
}
