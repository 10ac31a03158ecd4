//! The Docker engine that `make test` prepares, through its own command line as people use it.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use berth_load::{Edge, Event, Line, Phase};
use berth_model::{ContainerId, Runtime, TenantKey};

use super::host::Host;
use super::process::{BERTH, Run, run, until};
use super::skip_unprepared;

#[derive(Debug, Clone)]
pub struct Engine {
    address: String,
    pub image: String,
}

/// A container that is removed when dropped.
#[derive(Debug)]
pub struct Container {
    engine: Engine,
    pub id: String,
    pub name: String,
}

impl Engine {
    /// `None`, said loudly, where there is none to use.
    pub fn for_test(test: &str) -> Option<Self> {
        let (Ok(address), Ok(image)) = (std::env::var("BERTH_TEST_DOCKER"), std::env::var("BERTH_TEST_IMAGE")) else {
            skip_unprepared(test, "BERTH_TEST_DOCKER and BERTH_TEST_IMAGE name no engine and image (make test does)");
            return None;
        };
        Some(Self { address, image })
    }

    pub fn at(address: String, image: &str) -> Self {
        Self { address, image: image.to_owned() }
    }

    pub fn address(&self) -> &str {
        &self.address
    }

    pub fn socket(&self) -> PathBuf {
        self.address.strip_prefix("unix://").expect("the engine has a Unix socket").into()
    }

    pub fn docker(&self, args: &[&str]) -> Run {
        run(Command::new("docker").arg("--host").arg(&self.address).args(args))
    }

    /// One that somebody starts under this name, or has.
    pub fn named(&self, name: &str) -> Container {
        Container { engine: self.clone(), id: name.to_owned(), name: name.to_owned() }
    }

    /// `berth load` in a container that has the simulated driver, as `berth sim env --docker` says.
    pub fn run(&self, host: &Host, name: &str, options: &[&str], load: &[&str]) -> Container {
        self.run_command(host, name, options, &[&["/berth", "load"], load].concat())
    }

    /// The same by a script, which finds it at `/berth`.
    pub fn run_shell(&self, host: &Host, name: &str, options: &[&str], script: &str) -> Container {
        self.run_command(host, name, options, &["sh", "-c", script])
    }

    fn run_command(&self, host: &Host, name: &str, options: &[&str], command: &[&str]) -> Container {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("berth-e2e-{}-{count}-{name}", std::process::id());
        let driver = run(Command::new(BERTH).args(["sim", "env", "--docker", "--dir"]).arg(host.sim_dir())).ok();
        let program = format!("{BERTH}:/berth:ro");
        let mut args = vec!["run", "--detach", "--network", "none", "--name", &name, "--volume", &program];
        args.extend(driver.split_whitespace());
        args.extend(options);
        args.push(&self.image);
        args.extend(command);
        let id = self.docker(&args).ok().trim().to_owned();
        Container { engine: self.clone(), id, name }
    }
}

impl Container {
    pub fn key(&self) -> TenantKey {
        TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(self.id.clone()) }
    }

    /// Host pid of its first process.
    pub fn pid(&self) -> u32 {
        let told = self.engine.docker(&["inspect", "--format", "{{.State.Pid}}", &self.id]).ok();
        told.trim().parse().unwrap()
    }

    /// What the engine says of it, by a template of `docker inspect`; empty if it has none such any more.
    pub fn says(&self, template: &str) -> String {
        self.engine.docker(&["inspect", "--format", &format!("{{{{{template}}}}}"), &self.id]).stdout.trim().to_owned()
    }

    /// `docker ACTION` on it, as somebody does in the middle of things.
    pub fn docker(&self, action: &[&str]) -> Run {
        self.engine.docker(&[action, &[&self.id]].concat())
    }

    /// Directory of the cgroup by which its engine would pause it; it must run, if only in a shelter inside.
    pub fn freezer(&self) -> PathBuf {
        let cgroups = std::fs::read_to_string(format!("/proc/{}/cgroup", self.pid())).unwrap();
        let path = |start: &str| {
            let path = cgroups.lines().find_map(|line| line.split_once(start))?.1;
            Some(path.strip_suffix("/berth-shelter").unwrap_or(path).trim_start_matches('/'))
        };
        let root = PathBuf::from("/sys/fs/cgroup");
        match path(":freezer:") {
            Some(path) if root.join("freezer").exists() => root.join("freezer").join(path),
            _ => root.join(path("0::").unwrap()),
        }
    }

    /// What its workload has printed so far.
    pub fn log(&self) -> String {
        self.engine.docker(&["logs", &self.id]).ok()
    }

    pub fn lines(&self) -> usize {
        self.log().lines().count()
    }

    /// Waits until its workload has begun this phase, by what it prints.
    pub fn reaches(&self, wanted: Phase) {
        let is_it = |line: &str| {
            let line = serde_json::from_str::<Line>(line).map(|line| line.event);
            matches!(line, Ok(Event::Phase { phase, edge: Edge::Begin, .. }) if phase == wanted)
        };
        until(&format!("phase {wanted} of {}", self.name), || {
            self.engine.docker(&["logs", &self.id]).ok().lines().any(is_it).then_some(())
        });
    }

    pub fn rename(&mut self, name: &str) {
        self.engine.docker(&["rename", &self.id, name]).ok();
        name.clone_into(&mut self.name);
    }

    /// `docker rm -f`, as somebody does in the middle of things.
    pub fn remove(self) {
        drop(self);
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // Gone already, or nothing that could be done about it.
        self.engine.docker(&["rm", "--force", &self.id]);
    }
}
