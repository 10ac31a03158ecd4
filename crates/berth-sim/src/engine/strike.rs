//! Faults taking effect.

use berth_proto::sim::{Reply, cu};

use crate::fault::{Fault, NoSuchTarget};

use super::Engine;
use super::context::Phase;

impl Engine {
    /// Whether there is something for the fault to strike. A process is there from its first call to its end.
    pub(super) fn find_target(&self, fault: Fault) -> Result<(), NoSuchTarget> {
        match fault {
            Fault::GpuLost { gpu } if gpu as usize >= self.gpus.len() => {
                Err(NoSuchTarget::Gpu { gpu, there: (0..).take(self.gpus.len()).collect() })
            }
            Fault::KernelFault { pid } if !self.processes.contains_key(&pid) => {
                Err(NoSuchTarget::Process { pid, there: self.processes.keys().copied().collect() })
            }
            Fault::GpuLost { .. } | Fault::KernelFault { .. } | Fault::Nvml { .. } | Fault::NoPermission => Ok(()),
        }
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::GpuLost { gpu } => self.lose_gpu(gpu as usize),
            Fault::Nvml { area, code } => {
                self.nvml_faults.codes.insert(area, code);
            }
            Fault::NoPermission => self.nvml_faults.no_permission = true,
            Fault::KernelFault { pid } => {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.faulty = true;
                }
            }
        }
    }

    /// Every call on the GPU, waiting or to come, fails; contexts under way never come to be.
    fn lose_gpu(&mut self, index: usize) {
        let Some(gpu) = self.gpus.get_mut(index) else { return };
        gpu.lost = true;
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
