//! A Docker engine of one test's own, which it may stop and start: in a mount namespace of its own, on the machine's cgroups or
//! where the unified hierarchy is all there is.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::Signal;
use tempfile::TempDir;

use super::cgroup::CgroupParent;
use super::engine::Engine;
use super::process::{Running, run, until};

const PRIVATE: &str = "mount --make-rprivate /";
const UNIFIED: &str = "mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup";

/// Which hierarchies the engine sees, and whoever else enters its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cgroups {
    /// As on this machine.
    OfTheMachine,
    Unified,
}

/// It ends when dropped, with its containers and mounts.
#[derive(Debug)]
pub struct OwnEngine {
    daemon: Option<Running>,
    options: Vec<String>,
    /// Keeps the mount namespace while the engine is down.
    namespace: Running,
    engine: Engine,
    /// After the engine, which has its containers in it.
    _parent: CgroupParent,
    dir: TempDir,
}

impl OwnEngine {
    /// `options`: further ones for `dockerd`. It has the image of `other`. `None` where there can be no such engine.
    pub fn start(other: &Engine, cgroups: Cgroups, options: &[&str]) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mounts = if cgroups == Cgroups::Unified { UNIFIED } else { PRIVATE };
        let possible = format!("{mounts} && command -v dockerd");
        let possible = Command::new("unshare").args(["-m", "sh", "-c", &possible]).env("PATH", path()).output();
        if !possible.is_ok_and(|output| output.status.success()) {
            return None;
        }
        // Short: a socket's path holds 107 bytes.
        let dir = tempfile::Builder::new().prefix("berth-own.").tempdir_in("/tmp").unwrap();
        let script = format!("{mounts} && echo ready && exec sleep infinity");
        let mut namespace = Command::new("unshare");
        namespace.args(["-m", "sh", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::piped());
        let mut namespace = Running::start(&mut namespace);
        assert_eq!(namespace.first_line().trim(), "ready");
        let engine = Engine::at(format!("unix://{}", dir.path().join("sock").display()), &other.image);
        let parent = CgroupParent::at(format!("/berth-own-{}-{number}", std::process::id()));
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut own = Self { daemon: None, options, namespace, engine, _parent: parent, dir };
        own.bring_up();
        other.copy_image_to(&own.engine);
        Some(own)
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where it keeps what it knows of its containers.
    pub fn data_root(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// As `systemctl stop docker` does.
    pub fn bring_down(&mut self) {
        let Some(mut daemon) = self.daemon.take() else { return };
        daemon.signal(Signal::TERM);
        daemon.wait();
    }

    pub fn bring_up(&mut self) {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let log = std::fs::File::options().create(true).append(true).open(at("log")).unwrap();
        let mut command = self.inside("dockerd");
        command.args([
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--cgroup-parent",
            self._parent.path(),
        ]);
        command.args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")]);
        command.args(["-H", &format!("unix://{}", at("sock"))]).args(&self.options);
        command.env("PATH", path()).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.daemon = Some(Running::start(&mut command));
        until("the engine to answer", || (self.engine.docker(&["version"]).code == 0).then_some(()));
    }

    /// A command in the engine's mount namespace.
    pub fn inside(&self, program: impl Into<PathBuf>) -> Command {
        let mut command = Command::new("nsenter");
        command.args(["-m", "-t", &self.namespace.pid().to_string()]).arg(program.into());
        command
    }
}

impl Drop for OwnEngine {
    fn drop(&mut self) {
        // Those that outlive the engine are in its namespace, which ends after it.
        let containers = self.engine.docker(&["ps", "--all", "--quiet"]).stdout;
        for container in containers.split_whitespace() {
            self.engine.docker(&["rm", "--force", container]);
        }
        self.bring_down();
    }
}

/// With where distributions keep `dockerd`.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

impl Engine {
    fn copy_image_to(&self, other: &Engine) {
        let script = r#"docker --host "$1" save "$3" | docker --host "$2" load"#;
        run(Command::new("sh").args(["-c", script, "sh", self.address(), other.address(), &self.image])).ok();
    }
}
