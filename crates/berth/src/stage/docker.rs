//! Tenants as Docker containers, from an image without files: the host's own `/usr` is mounted read-only.
//!
//! No registry is asked. The image is links and empty directories, so that any program of this host runs in it with the
//! libraries it was built for.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use berth_model::{ContainerId, ProcKey, Runtime, Settings, TenantKey};
use bollard::errors::Error;
use bollard::models::{ContainerCreateBody, DeviceMapping, HostConfig};
use bollard::query_parameters::{
    CreateContainerOptions, CreateImageOptions, ListContainersOptions, ListImagesOptions, RemoveContainerOptions,
    RemoveImageOptions,
};
use bollard::{API_DEFAULT_VERSION, Docker, body_full};
use futures_util::TryStreamExt as _;

use super::{Ground, StageId, Start, Started};

const TIMEOUT_SECONDS: u64 = 30;
/// On every container of a stage: the stage's name, and the process it lives in, by pid and start.
const STAGE_LABEL: &str = "berth.stage";
const PID_LABEL: &str = "berth.stage.pid";
const START_LABEL: &str = "berth.stage.start_ticks";
const PROGRAM: &str = "/berth";

#[derive(Debug)]
pub struct DockerGround {
    runtime: tokio::runtime::Runtime,
    docker: Docker,
    socket: PathBuf,
    id: StageId,
    /// What the containers' names begin with.
    prefix: String,
    image: String,
}

impl DockerGround {
    pub const WHAT: &str = "Docker containers";

    pub fn open(socket: &Path, id: &StageId) -> anyhow::Result<Self> {
        // The client tells one that may not be used from one that is not there no better than "not found".
        UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let address = socket.to_str().context("the socket's path is not UTF-8")?;
        let docker = runtime.block_on(async {
            let docker = Docker::connect_with_unix(address, TIMEOUT_SECONDS, API_DEFAULT_VERSION)?;
            docker.negotiate_version().await
        })?;
        let (image, prefix) = (format!("{id}:local"), id.name.clone());
        let ground = Self { runtime, docker, socket: socket.into(), id: id.clone(), prefix, image };
        ground.remove_left_behind().context("looking for containers and images of an earlier run")?;
        ground.import_image().context("importing an empty image")?;
        Ok(ground)
    }

    fn import_image(&self) -> anyhow::Result<()> {
        let (repo, tag) = self.image.split_once(':').unwrap_or((&self.image, "local"));
        let options = CreateImageOptions {
            from_src: Some("-".into()),
            repo: Some(repo.into()),
            tag: Some(tag.into()),
            ..Default::default()
        };
        let body = body_full(empty_root()?.into());
        let import = self.docker.create_image(Some(options), Some(body), None);
        self.runtime.block_on(import.try_collect::<Vec<_>>())?;
        Ok(())
    }

    /// Containers of stages of this name, each with its stage.
    fn containers(&self) -> anyhow::Result<Vec<(String, Option<StageId>)>> {
        let filters = [("label".to_owned(), vec![format!("{STAGE_LABEL}={}", self.id.name)])].into();
        let options = ListContainersOptions { all: true, filters: Some(filters), ..Default::default() };
        let found = self.runtime.block_on(self.docker.list_containers(Some(options)))?;
        let stage = |labels: HashMap<String, String>| self.stage_of(&labels);
        Ok(found.into_iter().filter_map(|found| Some((found.id?, found.labels.and_then(stage)))).collect())
    }

    fn stage_of(&self, labels: &HashMap<String, String>) -> Option<StageId> {
        let pid = labels.get(PID_LABEL)?.parse().ok()?;
        let start_ticks = labels.get(START_LABEL)?.parse().ok()?;
        Some(StageId { name: self.id.name.clone(), process: ProcKey { pid, start_ticks } })
    }

    /// Images of stages of this name that were killed.
    fn images_left_behind(&self) -> anyhow::Result<Vec<String>> {
        let filters = [("reference".to_owned(), vec![format!("{}-*", self.id.name)])].into();
        let options = ListImagesOptions { filters: Some(filters), ..Default::default() };
        let found = self.runtime.block_on(self.docker.list_images(Some(options)))?;
        let is_left = |tag: &String| StageId::parse(&self.id.name, tag).is_some_and(|id| id.is_over());
        Ok(found.into_iter().flat_map(|image| image.repo_tags).filter(is_left).collect())
    }

    /// Removes what stages left that were killed.
    fn remove_left_behind(&self) -> anyhow::Result<()> {
        for (id, _) in self.containers()?.into_iter().filter(|(_, stage)| stage.as_ref().is_none_or(StageId::is_over)) {
            self.remove(&id)?;
        }
        for image in self.images_left_behind()? {
            self.remove_image(&image)?;
        }
        Ok(())
    }

    /// As many as can be: one that cannot does not keep the others.
    fn remove_own(&self) {
        let found = self.containers().unwrap_or_default();
        for (id, _) in found.into_iter().filter(|(_, stage)| stage.as_ref() == Some(&self.id)) {
            let _ = self.remove(&id);
        }
    }

    fn remove(&self, id: &str) -> anyhow::Result<()> {
        let options = RemoveContainerOptions { force: true, ..Default::default() };
        match self.runtime.block_on(self.docker.remove_container(id, Some(options))) {
            Ok(()) => Ok(()),
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn remove_image(&self, image: &str) -> anyhow::Result<()> {
        let options = RemoveImageOptions { force: true, ..Default::default() };
        match self.runtime.block_on(self.docker.remove_image(image, Some(options), None)) {
            Ok(_) => Ok(()),
            // Another stage was quicker.
            Err(Error::DockerResponseServerError { status_code: 404 | 409, .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the container; its name and id. Where another stage of this name is at work, or anybody else has taken the
    /// name, this stage's containers are named with its pid from now on: only the engine can tell, in the act.
    fn create(&mut self, start: &Start) -> anyhow::Result<(String, String)> {
        let own_prefix = format!("{}-{}", self.id.name, self.id.process.pid);
        loop {
            let name = format!("{}-{}", self.prefix, start.name);
            let options = CreateContainerOptions { name: Some(name.clone()), ..Default::default() };
            match self.runtime.block_on(self.docker.create_container(Some(options), self.body(start))) {
                Ok(created) => return Ok((name, created.id)),
                Err(Error::DockerResponseServerError { status_code: 409, .. }) if self.prefix != own_prefix => {
                    self.prefix.clone_from(&own_prefix);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn body(&self, start: &Start) -> ContainerCreateBody {
        let mut labels = HashMap::from([
            (STAGE_LABEL.to_owned(), self.id.name.clone()),
            (PID_LABEL.to_owned(), self.id.process.pid.to_string()),
            (START_LABEL.to_owned(), self.id.process.start_ticks.to_string()),
        ]);
        labels.extend(start.labels.iter().cloned());
        if let Some(owner) = start.owner {
            labels.insert("berth.owner".into(), owner.into());
        }
        let mut binds = vec![
            "/usr:/usr:ro".to_owned(),
            format!("{}:{PROGRAM}:ro", start.program.display()),
            format!("{0}:{0}", start.out.display()),
        ];
        binds.extend(start.sim.map(|dir| format!("{0}:{0}:ro", dir.display())));
        let host = HostConfig {
            binds: Some(binds),
            network_mode: Some("none".into()),
            devices: start.sim.is_none().then(gpu_devices),
            ipc_mode: start.shares_ipc.then(|| "host".to_owned()),
            ..Default::default()
        };
        ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: Some(vec![PROGRAM.into()]),
            cmd: Some(start.args.clone()),
            env: Some(vec![format!("LD_LIBRARY_PATH={}", start.library_dir.display())]),
            labels: Some(labels),
            host_config: Some(host),
            ..Default::default()
        }
    }
}

impl Ground for DockerGround {
    fn what(&self) -> &'static str {
        Self::WHAT
    }

    fn start(&mut self, start: &Start) -> anyhow::Result<Started> {
        let (name, id) = self.create(start)?;
        self.runtime.block_on(self.docker.start_container(&id, None))?;
        let key = TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(id.clone()) };
        Ok(Started { handle: id, name, key: Some(key) })
    }

    fn exit_code(&mut self, handle: &str) -> anyhow::Result<Option<i32>> {
        let inspected = self.runtime.block_on(self.docker.inspect_container(handle, None))?;
        let Some(state) = inspected.state else { bail!("the engine tells no state of {handle}") };
        let code = state.exit_code.unwrap_or_default();
        Ok((state.running == Some(false)).then(|| i32::try_from(code).unwrap_or(i32::MAX)))
    }

    fn end(&mut self, handle: &str) -> anyhow::Result<()> {
        self.remove(handle)
    }

    fn settings(&self, settings: &mut Settings) {
        settings.docker.socket.clone_from(&self.socket);
    }
}

impl Drop for DockerGround {
    fn drop(&mut self) {
        // Best effort: the next stage of this name removes what is left.
        self.remove_own();
        let _ = self.remove_image(&self.image);
    }
}

/// The device files of the host's GPUs.
fn gpu_devices() -> Vec<DeviceMapping> {
    let is_gpu = |name: &str| {
        let rest = name.strip_prefix("nvidia");
        rest.is_some_and(|rest| matches!(rest, "ctl" | "-uvm") || rest.parse::<u32>().is_ok())
    };
    let names = std::fs::read_dir("/dev").into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| is_gpu(name));
    let device = |name: String| DeviceMapping {
        path_on_host: Some(format!("/dev/{name}")),
        path_in_container: Some(format!("/dev/{name}")),
        cgroup_permissions: Some("rwm".into()),
    };
    names.map(device).collect()
}

/// An image as a tar archive: what a program expects to find around a mounted `/usr`.
fn empty_root() -> std::io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    for name in ["usr", "etc", "dev", "proc", "sys", "run", "tmp", "var"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Directory);
        header.set_mode(0o755);
        header.set_size(0);
        archive.append_data(&mut header, name, std::io::empty())?;
    }
    for name in ["bin", "lib", "lib64", "sbin"] {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        archive.append_link(&mut header, name, format!("usr/{name}"))?;
    }
    archive.into_inner()
}
