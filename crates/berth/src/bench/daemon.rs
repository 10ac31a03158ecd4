//! A daemon in a process of its own, so that what it costs can be told from what the measurement costs. It ends with the
//! measurement, even if that is killed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_api::Client;
use berth_model::{Bytes, Settings};
use serde::Serialize;

const READY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Daemon {
    child: Child,
    socket: PathBuf,
}

/// What a process has used so far.
#[derive(Debug, Clone)]
pub struct Usage {
    at: Instant,
    /// CPU time by thread name; threads of one name are added up.
    threads: BTreeMap<String, Duration>,
}

/// What a process keeps in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Memory {
    pub resident_bytes: Bytes,
    /// Of pages that others have too, only its share.
    pub proportional_bytes: Bytes,
}

/// Percent of one core, by thread name.
pub type CpuPct = BTreeMap<String, f64>;

impl Daemon {
    /// Starts a daemon with these settings; files go to `dir`. Returns when it answers.
    pub fn start(settings: &Settings, dir: &Path) -> anyhow::Result<Self> {
        let (config, log) = (dir.join("berth.toml"), dir.join("daemon.log"));
        fs::write(&config, toml::to_string(settings)?)?;
        let output = File::create(&log)?;
        let child = Command::new(std::env::current_exe()?)
            .arg("--config")
            .arg(&config)
            .args(["daemon", "--until-stdin-closes"])
            .stdin(Stdio::piped())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("starting the daemon")?;
        let mut daemon = Self { child, socket: settings.api.socket.clone() };
        let client = daemon.client();
        let deadline = Instant::now() + READY_WITHIN;
        while crate::live::ask::<berth_model::Snapshot>(&client, berth_api::paths::SNAPSHOT)?.is_err() {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("the daemon ended ({status}): {}", fs::read_to_string(&log)?.trim());
            }
            if Instant::now() > deadline {
                bail!("the daemon does not answer; its log: {}", fs::read_to_string(&log)?.trim());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(daemon)
    }

    pub fn client(&self) -> Client {
        Client::new(&self.socket)
    }

    /// CPU time of its threads, in nanoseconds. What threads used that have ended since is not in it.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        let mut threads = BTreeMap::new();
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let thread = thread?.path();
            // A thread may end between being listed and being read.
            let (Ok(name), Ok(text)) =
                (fs::read_to_string(thread.join("comm")), fs::read_to_string(thread.join("schedstat")))
            else {
                continue;
            };
            let nanos = text.split_whitespace().next().context("empty schedstat")?.parse()?;
            *threads.entry(name.trim().to_owned()).or_default() += Duration::from_nanos(nanos);
        }
        Ok(Usage { at: Instant::now(), threads })
    }

    /// Used since `earlier`.
    pub fn cpu_pct_since(&self, earlier: &Usage) -> anyhow::Result<CpuPct> {
        let now = self.usage()?;
        let seconds = (now.at - earlier.at).as_secs_f64();
        let used = |(name, cpu): (String, Duration)| {
            let before = earlier.threads.get(&name).copied().unwrap_or_default();
            (name, 100.0 * cpu.saturating_sub(before).as_secs_f64() / seconds)
        };
        Ok(now.threads.into_iter().map(used).collect())
    }

    /// What it keeps in memory now.
    pub fn memory(&self) -> anyhow::Result<Memory> {
        let file = format!("/proc/{}/smaps_rollup", self.child.id());
        let text = fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let bytes = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name}"))?;
            anyhow::Ok(Bytes(line.trim().trim_end_matches("kB").trim().parse::<u64>()? * 1024))
        };
        Ok(Memory { resident_bytes: bytes("Rss:")?, proportional_bytes: bytes("Pss:")? })
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
