//! A simulated GPU in a process of its own, ended with the stage.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};

use super::wait_until;

const READY_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct SimGpu {
    dir: PathBuf,
    server: Child,
}

impl SimGpu {
    pub fn start(dir: &Path, profile: &str, gpus: u32, time_scale: Option<u32>, mps: bool) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let log = dir.with_extension("log");
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.args([
            "sim",
            "serve",
            "--until-stdin-closes",
            "--profile",
            profile,
            "--gpus",
            &gpus.to_string(),
            "--dir",
        ]);
        command.arg(dir);
        if let Some(scale) = time_scale {
            command.args(["--time-scale", &scale.to_string()]);
        }
        if mps {
            command.arg("--mps");
        }
        command.stdin(Stdio::piped()).stdout(File::create(&log)?).stderr(File::create(&log)?);
        let server = command.spawn().context("starting the simulated GPU")?;
        let mut sim = Self { dir: dir.into(), server };
        wait_until("the simulated GPU", READY_WITHIN, || {
            if let Some(status) = sim.server.try_wait()? {
                bail!("the simulated GPU ended ({status}): {}", std::fs::read_to_string(&log)?.trim());
            }
            Ok(sim.dir.join("gpu.sock").exists() && sim.dir.join("nvml.state").exists())
        })?;
        Ok(sim)
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn library(&self, name: &str) -> PathBuf {
        self.dir.join("lib").join(name)
    }
}

impl Drop for SimGpu {
    fn drop(&mut self) {
        // Closing its input is the request to end; it has no state worth waiting for.
        drop(self.server.stdin.take());
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
