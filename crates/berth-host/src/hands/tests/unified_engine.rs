//! The claims about a real engine once more, with one that runs where the unified hierarchy is all there is.
//!
//! It is started for this test in a mount namespace of its own, whatever hierarchies the machine has.

use std::path::PathBuf;
use std::process::Stdio;

use super::*;
use crate::testing::{skip, skip_unprepared};

const INSIDE: &str = "BERTH_TEST_UNIFIED_ENGINE";
const MOUNTS: &str = "mount --make-rprivate / && umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup";

/// The engine; it ends with this, and its mounts with it.
struct Engine {
    dir: tempfile::TempDir,
    daemon: Child,
}

/// The cgroup its containers are in, at the root of the unified hierarchy.
fn parent() -> String {
    format!("berth-test-{}", std::process::id())
}

impl Engine {
    fn start() -> Engine {
        let dir = tempfile::Builder::new().prefix("berth-v2.").tempdir_in("/tmp").unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let script = format!("{MOUNTS} && exec dockerd \"$@\"");
        let daemon = Command::new("unshare")
            .args(["-m", "sh", "-c", &script, "dockerd", "--bridge=none", "--iptables=false", "--ip6tables=false"])
            .args(["--data-root", &at("data"), "--exec-root", &at("exec"), "--pidfile", &at("pid")])
            .args(["--cgroup-parent", &format!("/{}", parent())])
            .args(["-H", &format!("unix://{}", at("sock"))])
            .env("PATH", path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let engine = Engine { dir, daemon };
        eventually("the engine answers", || engine.docker(&["version"]).output().unwrap().status.success());
        engine
    }

    fn host(&self) -> String {
        format!("unix://{}", self.dir.path().join("sock").display())
    }

    fn docker(&self, args: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["30", "docker", "-H", &self.host()]).args(args);
        command
    }

    /// Brings an image over from another engine.
    fn load(&self, from: &str, image: &str) {
        let mut saving =
            Command::new("docker").args(["-H", from, "save", image]).stdout(Stdio::piped()).spawn().unwrap();
        let loaded = self.docker(&["load"]).stdin(saving.stdout.take().unwrap()).output().unwrap();
        assert!(saving.wait().unwrap().success() && loaded.status.success(), "{loaded:?}");
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        kill_process(Pid::from_child(&self.daemon), Signal::TERM).unwrap();
        self.daemon.wait().unwrap();
        // The engine leaves it; what is not empty is for a person to see.
        if let Some(unified) = Hierarchies::under(Path::new(CGROUP)).v2 {
            let _ = std::fs::remove_dir(unified.join(parent()));
        }
    }
}

/// With where distributions keep `dockerd`.
fn path() -> String {
    format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default())
}

#[test]
fn all_of_it_holds_with_an_engine_on_the_unified_hierarchy() {
    const TEST: &str = "all_of_it_holds_with_an_engine_on_the_unified_hierarchy";
    if std::env::var_os(INSIDE).is_some() {
        let hierarchies = Hierarchies::under(Path::new(CGROUP));
        assert_eq!(hierarchies, Hierarchies { v1: None, v2: Some(PathBuf::from(CGROUP)) });
        return;
    }
    let (Ok(host), Ok(image)) = (std::env::var("BERTH_TEST_DOCKER"), std::env::var("BERTH_TEST_IMAGE")) else {
        let missing = "BERTH_TEST_DOCKER and BERTH_TEST_IMAGE name no engine and image (make test sets them)";
        return skip_unprepared(TEST, missing);
    };
    let possible = format!("{MOUNTS} && command -v dockerd");
    let possible = Command::new("unshare").args(["-m", "sh", "-c", &possible]).env("PATH", path()).output();
    if !possible.is_ok_and(|output| output.status.success()) {
        return skip(TEST, "there is no dockerd, or it cannot have a mount namespace with the unified hierarchy");
    }
    let engine = Engine::start();
    engine.load(&host, &image);
    let tests = Command::new("nsenter")
        .args(["-m", "-t", &engine.daemon.id().to_string()])
        .arg(std::env::current_exe().unwrap())
        .args(["hands::tests::", "docker::tests::a_real_engine"])
        .env(INSIDE, "1")
        .env("BERTH_TEST_DOCKER", engine.host())
        .output()
        .unwrap();
    assert!(tests.status.success(), "{}", String::from_utf8_lossy(&tests.stdout));
}
