//! Faults taking effect.

use berth_proto::sim::{Reply, cu};

use crate::fault::Fault;

use super::Engine;
use super::context::Phase;
use super::gpu::DriverLock;

impl Engine {
    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::GpuLost { gpu } => self.lose_gpu(gpu as usize),
            Fault::Nvml { area, code } => {
                self.nvml_faults.codes.insert(area, code);
            }
            Fault::NoPermission => self.nvml_faults.no_permission = true,
            Fault::KernelFault { pid } => self.processes.entry(pid).or_default().faulty = true,
        }
    }

    /// Every call on the GPU, waiting or to come, fails; contexts under way never come to be.
    fn lose_gpu(&mut self, index: usize) {
        let Some(gpu) = self.gpus.get_mut(index) else { return };
        gpu.lost = true;
        gpu.driver = DriverLock::default();
        gpu.set_blocked(self.now, false);
        let contexts: Vec<u64> =
            self.contexts.iter().filter(|(_, context)| context.gpu == index).map(|(id, _)| *id).collect();
        for id in contexts {
            let Some(context) = self.contexts.get(&id) else { continue };
            let pid = context.pid;
            match context.phase {
                Phase::Opening(ticket) | Phase::Creating(ticket) | Phase::Finishing(ticket) => {
                    self.remove_context(id);
                    self.complete(pid, ticket, Reply::Error(cu::UNKNOWN));
                }
                Phase::Ready | Phase::Closing => self.break_context(id, cu::UNKNOWN),
                Phase::Dying(_) => self.remove_context(id),
            }
            self.fail_operation(pid);
        }
    }
}
