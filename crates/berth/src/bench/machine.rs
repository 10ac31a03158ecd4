//! On what was measured.

use anyhow::Context as _;
use berth_host::clock;
use berth_model::Snapshot;
use serde::Serialize;

use crate::stage::Stage;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub gpu: String,
    pub simulated: bool,
    pub kernel: String,
    pub cpus: usize,
    /// What the tenants were.
    pub tenants: String,
    pub started_at: String,
}

impl Machine {
    #[cfg(test)]
    pub fn example() -> Self {
        Self {
            gpu: "NVIDIA H200".into(),
            simulated: false,
            kernel: "6.18".into(),
            cpus: 16,
            tenants: "Docker containers".into(),
            started_at: "2026-01-01T00:00:00Z".into(),
        }
    }

    /// Asks the stage's first GPU for its name.
    pub fn of(stage: &Stage) -> anyhow::Result<Self> {
        let snapshot: Snapshot = crate::engine::sample_once(&stage.settings())?;
        let gpu = snapshot.gpus.first().context("no GPU answers")?;
        let name = gpu.name.clone().context("the first GPU is lost")?;
        let simulated = stage.is_simulated();
        let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Ok(Self {
            gpu: if simulated { format!("{name} (simulated)") } else { name },
            simulated,
            kernel: kernel.trim().to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, usize::from),
            tenants: stage.ground().to_owned(),
            started_at: clock::anchor().wall.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        })
    }

    pub fn to_text(&self) -> String {
        format!("{} · {} · {} CPUs · Linux {}", self.gpu, self.tenants, self.cpus, self.kernel)
    }
}
