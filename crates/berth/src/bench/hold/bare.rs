//! What the kernel alone takes: the same effect without anything of berth's, on the same process.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use berth_host::freezer::{CgroupDir, Version};
use berth_model::{ProcKey, Stat};
use rustix::process::{Pid, Signal, kill_process};

use super::on_hold::Span;
use berth_host::clock;

const WITHIN: Duration = Duration::from_secs(30);

/// The files of one cgroup's freezer, open: a hold is one write and as many reads as it takes.
pub struct BareFreezer {
    told: File,
    answers: File,
    words: Words,
}

struct Words {
    freeze: &'static [u8],
    thaw: &'static [u8],
    frozen: &'static str,
}

impl BareFreezer {
    pub fn open(dir: &CgroupDir) -> anyhow::Result<BareFreezer> {
        let (told, answers, words) = match dir.version() {
            Version::V1 => {
                ("freezer.state", "freezer.state", Words { freeze: b"FROZEN", thaw: b"THAWED", frozen: "FROZEN" })
            }
            Version::V2 => ("cgroup.freeze", "cgroup.events", Words { freeze: b"1", thaw: b"0", frozen: "frozen 1" }),
        };
        let open = |name: &str, write: bool| {
            let path = dir.path().join(name);
            File::options().read(!write).write(write).open(&path).with_context(|| format!("opening {}", path.display()))
        };
        Ok(BareFreezer { told: open(told, true)?, answers: open(answers, false)?, words })
    }

    pub fn freeze(&self) -> anyhow::Result<Span> {
        let from_ns = clock::now().0;
        self.told.write_all_at(self.words.freeze, 0).context("freezing")?;
        let deadline = Instant::now() + WITHIN;
        let mut text = [0; 256];
        loop {
            let length = self.answers.read_at(&mut text, 0).context("reading a freezer")?;
            if std::str::from_utf8(&text[..length])?.contains(self.words.frozen) {
                return Ok(Span { from_ns, to_ns: clock::now().0 });
            }
            if Instant::now() > deadline {
                bail!("not frozen after {} s", WITHIN.as_secs());
            }
        }
    }

    /// When it was begun.
    pub fn thaw(&self) -> anyhow::Result<u64> {
        let from_ns = clock::now().0;
        self.told.write_all_at(self.words.thaw, 0).context("thawing")?;
        Ok(from_ns)
    }
}

/// From SIGSTOP by a plain system call until the kernel says that the process is stopped; it is continued afterwards.
pub fn stop(proc_root: &Path, process: ProcKey) -> anyhow::Result<Span> {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).context("a pid out of range")?;
    let from_ns = clock::now().0;
    kill_process(pid, Signal::STOP).context("stopping a process")?;
    let stopped = until_stopped(proc_root, process);
    kill_process(pid, Signal::CONT).context("continuing a process")?;
    Ok(Span { from_ns, to_ns: stopped? })
}

/// When the kernel said so.
pub fn until_stopped(proc_root: &Path, process: ProcKey) -> anyhow::Result<u64> {
    let path = proc_root.join(process.pid.to_string()).join("stat");
    let deadline = Instant::now() + WITHIN;
    loop {
        let stat = std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?;
        if Stat::parse(&stat).and_then(|stat| stat.state()) == Some('T') {
            return Ok(clock::now().0);
        }
        if Instant::now() > deadline {
            bail!("process {} is not stopped after {} s", process.pid, WITHIN.as_secs());
        }
    }
}
