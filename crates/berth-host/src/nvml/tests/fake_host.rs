//! The fake as a host of the contract's.

use std::process::{Child, Command};

use berth_model::{Bytes, GpuIndex};

use super::Host;
use crate::nvml::{FakeGpu, FakeProbe, GpuProbe};

/// Two fake GPUs, on which processes that do nothing are said to be.
pub struct FakeHost {
    probe: FakeProbe,
    children: Vec<Child>,
}

impl FakeHost {
    pub fn new() -> Self {
        Self { probe: FakeProbe::new(vec![FakeGpu::new(0), FakeGpu::new(1)]), children: Vec::new() }
    }

    pub fn change(&self, gpu: GpuIndex, change: impl FnOnce(&mut FakeGpu)) {
        self.probe.change(|gpus| change(gpus.iter_mut().find(|fake| fake.info.index == gpu).unwrap()));
    }
}

impl Host for FakeHost {
    fn probe(&mut self) -> Box<dyn GpuProbe> {
        Box::new(self.probe.clone())
    }

    fn occupy(&mut self, gpu: GpuIndex, memory: Bytes) -> u32 {
        let child = Command::new("sleep").arg("60").spawn().unwrap();
        let pid = child.id();
        self.children.push(child);
        self.change(gpu, |fake| fake.occupy(pid, memory));
        pid
    }

    fn vacate(&mut self, pid: u32) {
        self.probe.change(|gpus| gpus.iter_mut().for_each(|gpu| gpu.processes.retain(|process| process.pid != pid)));
        let child = self.children.iter_mut().find(|child| child.id() == pid).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn lose(&mut self, gpu: GpuIndex) {
        self.change(gpu, |fake| fake.lost = Some("fell off the bus".into()));
    }

    fn bring_back(&mut self, gpu: GpuIndex) {
        self.change(gpu, |fake| fake.lost = None);
    }

    fn replace_all(&mut self) {
        self.probe.change(|gpus| {
            for gpu in gpus {
                gpu.info.uuid.0 += "-another";
                gpu.processes.clear();
            }
        });
    }
}

impl Drop for FakeHost {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
