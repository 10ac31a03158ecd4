//! Where a scenario's time goes, seen from the first GPU: every instant is counted once.

/// Nanoseconds; together the whole run. What is above `computing` is what sharing the GPU costs.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Spent {
    /// The SMs at work, as if alone: the sum over kernels of what each takes alone.
    pub computing_ns: f64,
    /// Lost to changing between processes, or left over by kernels too small for the GPU.
    pub switching_ns: f64,
    /// Kernels are there and stand still: somebody's context comes or goes.
    pub blocked_ns: f64,
    /// No kernel is there though somebody stands before one: from one's end to the next one's beginning.
    pub handover_ns: f64,
    /// No kernel is there and nobody has one ready.
    pub idle_ns: f64,
    /// Before the first kernel.
    pub start_ns: f64,
    /// After the last kernel.
    pub end_ns: f64,
}

/// What the GPU does between two instants.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    /// Part of the SMs at work.
    pub(super) load: f64,
    /// Part of the time in which contexts that come or go keep kernels from running.
    pub(super) blocked: f64,
    /// Somebody's kernel has been submitted and is not over.
    pub(super) has_kernel: bool,
    /// Somebody stands still before a kernel.
    pub(super) has_waiting: bool,
}

impl Spent {
    pub(super) fn count(&mut self, ns: u64, moment: Moment) {
        let ns = ns as f64;
        if moment.load > 0.0 || moment.has_kernel {
            self.close_gap();
            self.computing_ns += moment.load * ns;
            self.blocked_ns += moment.blocked * ns;
            // The parts are rounded; what is left of nothing is nothing.
            self.switching_ns += (1.0 - moment.load - moment.blocked).max(0.0) * ns;
        } else if self.computing_ns == 0.0 {
            self.start_ns += ns;
        } else if moment.has_waiting {
            self.close_gap();
            self.handover_ns += ns;
        } else {
            // Until a kernel follows it is the end.
            self.end_ns += ns;
        }
    }

    pub fn total_ns(&self) -> f64 {
        let lost = self.switching_ns + self.blocked_ns + self.handover_ns + self.idle_ns;
        self.computing_ns + lost + self.start_ns + self.end_ns
    }

    fn close_gap(&mut self) {
        self.idle_ns += std::mem::take(&mut self.end_ns);
    }
}
