//! systemd with berth installed, in a root of its own that `scripts/systemd-root.sh` boots; and the ways to ask it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use berth_model::Settings;

use super::cgroup::Cgroup;
use super::host::Host;
use super::process::{BERTH, Run, Running, run, until};
use super::skip_unprepared;
use super::view::View;

const SYSTEMD: &str = "/lib/systemd/systemd";
const BOOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/systemd-root.sh");

/// Which of systemd's managers runs the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// Process 1 of its own pid namespace.
    System,
    /// Root's own, in the pid namespace of the test.
    User,
}

/// Ended with all its units when dropped.
#[derive(Debug)]
pub struct Systemd {
    manager: Manager,
    process: Running,
    /// Its pid as the test sees it.
    pid: u32,
    /// All its units are in here.
    cgroup: Cgroup,
}

impl Systemd {
    /// `None`, said loudly, where systemd is not installed. `shared`: what is inside at the same path, beside the host's
    /// directory and the binary's. `settings` become the ones in /etc; socket, table, journal and history are those of an installation.
    pub fn boot(test: &str, host: &Host, manager: Manager, mut settings: Settings, shared: &[&Path]) -> Option<Self> {
        if !Path::new(SYSTEMD).exists() {
            skip_unprepared(test, &format!("{SYSTEMD} is not there (scripts/setup-tests.sh installs it)"));
            return None;
        }
        let own = Settings::default();
        (settings.api, settings.table, settings.history) = (own.api, own.table, own.history);
        settings.hold.journal = own.hold.journal;
        let config = host.write_config("installed", &settings);
        let (root, cgroup) = (host.file("root"), Cgroup::make("systemd"));
        std::fs::create_dir(&root).unwrap();
        let mut command = Command::new(BOOT);
        command.arg(if manager == Manager::System { "system" } else { "user" });
        command.arg(BERTH).arg(config).arg(root).arg(cgroup.dir());
        command.arg(host.dir()).arg(Path::new(BERTH).parent().unwrap()).args(shared);
        command.stdin(Stdio::null()).stdout(host.log("systemd")).stderr(host.log("systemd"));
        let process = Running::start(&mut command);
        let pid = process.pid();
        let mut systemd = Self { manager, process, pid, cgroup };
        systemd.wait_until_booted();
        Some(systemd)
    }

    fn wait_until_booted(&mut self) {
        until("systemd to have booted", || {
            assert!(self.process.is_running(), "systemd ended");
            if self.manager == Manager::System {
                self.pid = child_of(self.process.pid())?;
            }
            let told = self.systemctl(&["is-system-running"]).stdout;
            ["running", "degraded"].contains(&told.trim()).then_some(())
        });
    }

    /// A command in its namespaces.
    pub fn run(&self, program: &str, args: &[&str]) -> Run {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.pid)).arg("--mount");
        if self.manager == Manager::System {
            command.arg("--pid");
        }
        command.arg(program).args(args);
        // Its root is not that of the machine's process 1, which systemd's tools would take for a chroot.
        run(command.env("SYSTEMD_IGNORE_CHROOT", "1").env("XDG_RUNTIME_DIR", "/run").env("LC_ALL", "C.UTF-8"))
    }

    /// One of its tools, told which manager is meant.
    pub fn tool(&self, program: &str, args: &[&str]) -> Run {
        let manager = if self.manager == Manager::System { "--system" } else { "--user" };
        self.run(program, &[&[manager, "--no-pager"], args].concat())
    }

    pub fn systemctl(&self, args: &[&str]) -> Run {
        self.tool("systemctl", args)
    }

    /// Of `berth.service`.
    pub fn property(&self, name: &str) -> String {
        self.property_of("berth.service", name)
    }

    pub fn property_of(&self, unit: &str, name: &str) -> String {
        self.systemctl(&["show", unit, "--value", "--property", name]).ok().trim().to_owned()
    }

    /// Pid of the daemon as the test sees it, once there is one.
    pub fn daemon_pid(&self) -> u32 {
        let slice = if self.manager == Manager::System { "system.slice" } else { "app.slice" };
        let procs = self.cgroup.dir().join(slice).join("berth.service/cgroup.procs");
        // Its guard is there too.
        let is_daemon = |pid: &u32| {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            command.split(|byte| *byte == 0).any(|word| word == b"daemon")
        };
        until("the daemon's process", || {
            let pids = std::fs::read_to_string(&procs).ok()?;
            pids.lines().filter_map(|line| line.parse().ok()).find(is_daemon)
        })
    }

    /// A path inside, as the test finds it.
    pub fn path(&self, inside: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{inside}", self.pid))
    }

    /// Of the unit's daemon, once it has looked.
    pub fn view(&self) -> View {
        let view = View::of(&self.path("/run/berth/berth.sock"));
        until("the daemon's first look", || view.has_looked().then_some(()));
        view
    }
}

impl Drop for Systemd {
    fn drop(&mut self) {
        self.process.kill();
        self.cgroup.clear();
    }
}

fn child_of(parent: u32) -> Option<u32> {
    let is_child = |pid: &u32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let told = status.lines().find_map(|line| line.strip_prefix("PPid:"));
        told.is_some_and(|told| told.trim() == parent.to_string())
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(is_child)
}
