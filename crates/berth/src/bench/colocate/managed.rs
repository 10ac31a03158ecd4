//! A daemon of the measurement's own, with the two programs as its tenants: a cgroup each, the server with a latency to keep.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_api::{KernelPolicyRequest, SloRequest, paths};
use berth_model::Snapshot;
use berth_model::control::SloStanding;
use berth_model::kernels::KernelCounters;
use berth_model::settings::{KernelPolicyName, KernelSettings};
use berth_proto::shim::SOCKET_NAME;

use super::Deeds;
use super::cgroups::Cgroups;
use crate::bench::daemon::Daemon;
use crate::interrupt::Interrupt;
use crate::live;
use crate::stage::Stage;

/// What the programs are called.
pub const SERVER: &str = "server";
pub const TRAINER: &str = "trainer";
const TAKE_PART_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Managed {
    daemon: Daemon,
    cgroups: Cgroups,
    socket: PathBuf,
}

impl Managed {
    pub fn start(stage: &Stage, kernels: &KernelSettings) -> anyhow::Result<Self> {
        let cgroups = Cgroups::make(&[SERVER, TRAINER]).context("a daemon tells programs apart by their cgroups")?;
        let mut settings = stage.settings();
        settings.kernels = kernels.clone();
        settings.kernels.enabled = true;
        settings.kernels.socket = stage.dir().join("kernels").join(SOCKET_NAME);
        let socket = settings.kernels.socket.clone();
        Ok(Self { daemon: Daemon::start(&settings, stage.dir())?, cgroups, socket })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub fn cgroup(&self, name: &str) -> PathBuf {
        self.cgroups.dir(name)
    }

    /// From now on by this policy. Fails unless both programs take part: otherwise something else would be measured.
    pub fn enter(
        &self,
        policy: KernelPolicyName,
        promised_ms: Option<f64>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        self.until_both_take_part(interrupt)?;
        let client = self.daemon.client();
        let runtime = live::runtime()?;
        let request = KernelPolicyRequest { policy, gpu: None };
        let _: KernelPolicyRequest =
            runtime.block_on(client.post(paths::KERNEL_POLICY, &request)).context("setting the policy")?;
        if let Some(ms) = promised_ms {
            let goals = BTreeMap::from([("latency".to_owned(), format!("p99:{:.0}us", ms * 1e3))]);
            let request = SloRequest { tenant: self.cgroups.tenant(SERVER), goals, ..SloRequest::default() };
            let _: SloStanding =
                runtime.block_on(client.post(paths::SLO, &request)).context("setting the server's goal")?;
        }
        Ok(())
    }

    /// Of all who take part, so far.
    pub fn deeds(&self) -> Option<Deeds> {
        let snapshot: Snapshot = live::ask(&self.daemon.client(), paths::SNAPSHOT).ok()?.ok()?;
        let level = snapshot.kernels?;
        let mut sum = KernelCounters::default();
        level.rows.iter().for_each(|row| sum.add(&row.counters));
        let KernelCounters { stops, stops_given_up, preempted, .. } = sum;
        Some(Deeds { stops, stops_given_up, preempted, leads_lost: level.totals.leads_lost })
    }

    fn until_both_take_part(&self, interrupt: &Interrupt) -> anyhow::Result<()> {
        let (client, deadline) = (self.daemon.client(), Instant::now() + TAKE_PART_WITHIN);
        loop {
            let snapshot: Snapshot = live::ask(&client, paths::SNAPSHOT)??;
            let here = snapshot.kernels.map_or(0, |level| level.rows.len());
            if here == 2 {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("{here} of 2 programs take part");
            }
            interrupt.sleep(Duration::from_millis(20))?;
        }
    }
}
