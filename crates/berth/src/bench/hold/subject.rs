//! A workload on the stage, as the host sees it: its process, its cgroup, its container.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_host::hands::Subject;
use berth_load::{Event, Moment};
use berth_model::cgroup::tenant_of;
use berth_model::{ProcKey, TenantKey};

use super::Bench;
use super::lines::Lines;
use super::on_hold::{OnHold, ms_between};
use crate::stage::{Launch, Tenant};

const FOUND_WITHIN: Duration = Duration::from_secs(10);

pub struct Load {
    pub tenant: Tenant,
    pub process: ProcKey,
    pub lines: Lines,
    pub subject: Subject,
}

impl Load {
    /// Whatever it said before is forgotten, and it has said something since.
    pub fn until_running(&self) -> anyhow::Result<()> {
        self.lines.empty()?;
        self.lines.until("running", |lines| lines.first().map(drop))
    }

    /// When it says it went on after the release. It must not have said anything within the hold.
    pub fn running_since(&self, held_ns: u64, released_ns: u64) -> anyhow::Result<u64> {
        let running = self.lines.first_after(held_ns)?;
        if running.at.mono_ns < released_ns {
            let late = ms_between(held_ns, running.at.mono_ns);
            bail!("the tenant ran {late:.3} ms after its hold was confirmed: {:?}", running.event);
        }
        Ok(running.at.mono_ns)
    }
}

impl Bench<'_> {
    /// Starts `berth load` with these arguments. Returns when it has its context.
    pub fn load(&mut self, args: &[&str]) -> anyhow::Result<Load> {
        self.interrupt.check()?;
        self.launched += 1;
        let args = ["load"].iter().chain(args).map(|arg| (*arg).to_owned()).collect();
        let launch = Launch { name: format!("t{}", self.launched), args, ..Launch::default() };
        let tenant = self.stage.launch(&launch)?;
        let lines = Lines::new(&tenant.lines, self.interrupt);
        self.until_ready(&tenant, &lines)?;
        let key = tenant.key().context("a tenant that cannot be told from others")?.clone();
        let process = self.process_of(&key)?;
        let cgroup = self.host.freezer.find(process)?.map(|dir| dir.path().to_owned());
        let container = key.container_id().cloned().filter(|_| self.host.uses_docker);
        let subject = Subject { processes: [process].into(), ..Subject::new(key, cgroup, container) };
        Ok(Load { tenant, process, lines, subject })
    }

    fn until_ready(&mut self, tenant: &Tenant, lines: &Lines) -> anyhow::Result<()> {
        while !lines.read()?.iter().any(|line| matches!(line.event, Event::Moment { moment: Moment::ContextReady, .. }))
        {
            self.interrupt.check()?;
            if let Some(code) = self.stage.exit_code(tenant)? {
                bail!("the workload ended with {code} before it had a context");
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    pub fn end(&mut self, load: &Load) -> anyhow::Result<()> {
        self.stage.end(&load.tenant)
    }

    pub fn held(&self, load: &Load) -> OnHold<'_> {
        OnHold::new(&*self.host.hands, &self.host.journal, load.subject.clone(), load.process)
    }

    /// The one process of a tenant.
    fn process_of(&self, tenant: &TenantKey) -> anyhow::Result<ProcKey> {
        let deadline = Instant::now() + FOUND_WITHIN;
        loop {
            let pids = std::fs::read_dir(self.proc_root())?.flatten();
            let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
            let is_of_tenant = |pid: &u32| {
                let text = std::fs::read_to_string(self.proc_root().join(pid.to_string()).join("cgroup"));
                text.is_ok_and(|text| tenant_of(&text, 0) == *tenant)
            };
            let found: Vec<u32> = pids.filter(is_of_tenant).collect();
            if let [pid] = found[..] {
                return self.host.registry.resolve(pid).with_context(|| format!("process {pid} is gone"));
            }
            if Instant::now() > deadline {
                bail!("{tenant} has {} processes, not one", found.len());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
