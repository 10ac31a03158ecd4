//! The docker client behind the stand-in: finding it, asking it, and becoming it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::command::Verb;
use super::flags::FlagSet;
use super::help;
use super::image;
use super::kernel_level::{Image, Offer, Preload};
use super::plan::Asks;
use super::ps::SetDeadline;
use super::set;
use crate::cli::Global;

/// Names the client where it is not to be searched for.
pub const OVERRIDE: &str = "BERTH_DOCKER";
/// How often a stand-in has become a client on the way here.
const DEPTH: &str = "BERTH_DOCKER_DEPTH";
/// Scripts that are called `docker` and call `docker` may stand in between; more than this many is a circle.
const DEEPEST: u32 = 8;
/// Searched behind `PATH`.
const USUAL_PLACES: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// How an engine is reached, which is not to be when only help is wanted.
const OF_THE_ENGINE: [&str; 4] = ["DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"];
/// What the client tells its plugins and is not for another client.
const FOR_PLUGINS: [&str; 2] = ["DOCKER_CLI_PLUGIN_SOCKET", "DOCKER_CLI_PLUGIN_ORIGINAL_CLI_COMMAND"];

#[derive(Debug, thiserror::Error)]
pub enum NoClient {
    #[error("no docker client in PATH: this is berth's stand-in, which passes commands on to it")]
    NotFound,
    #[error("{} is not a docker client that can be started ({OVERRIDE} names it)", path.display())]
    Override { path: PathBuf },
    #[error("the docker client {} leads back to berth's stand-in for it", path.display())]
    Circle { path: PathBuf },
}

#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    depth: u32,
    /// Where berth's own settings are.
    global: Global,
}

impl Client {
    pub fn find() -> Result<Self, NoClient> {
        let depth = std::env::var(DEPTH).ok().and_then(|depth| depth.parse().ok()).unwrap_or(0);
        let path = match std::env::var_os(OVERRIDE).filter(|path| !path.is_empty()).map(PathBuf::from) {
            Some(path) if is_client(&path) => path,
            Some(path) => return Err(NoClient::Override { path }),
            None => in_places(&searched()).ok_or(NoClient::NotFound)?,
        };
        if depth >= DEEPEST {
            return Err(NoClient::Circle { path });
        }
        Ok(Self { path, depth, global: Global::default() })
    }

    /// With other settings of berth's than those of this host.
    pub fn by(self, global: Global) -> Self {
        Self { global, ..self }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Becomes the client, under the name this process was called by; returns only if that fails.
    pub fn become_it(&self, name: &OsStr, args: &[OsString]) -> io::Error {
        self.command(name, args).exec()
    }

    /// What it prints; its other streams are those of this process.
    pub fn output(&self, name: &OsStr, args: &[OsString]) -> io::Result<Output> {
        self.command(name, args).stdin(Stdio::inherit()).stderr(Stdio::inherit()).output()
    }

    /// A command that is to be waited for; its streams are those of this process.
    pub fn child(&self, args: &[OsString]) -> Command {
        self.command("docker".as_ref(), args)
    }

    /// The flags of `service create`; `None` if its help cannot be read.
    pub fn service_flags(&self) -> Option<FlagSet> {
        self.flags_of(&["service", "create"])
    }

    /// No engine is asked, which could be far away: the client is told of one that is not there.
    fn flags_of(&self, words: &[&str]) -> Option<FlagSet> {
        let words: Vec<OsString> = words.iter().chain(&["--help"]).map(OsString::from).collect();
        let mut command = self.command("docker".as_ref(), &words);
        OF_THE_ENGINE.iter().for_each(|name| without(&mut command, name));
        command.env("DOCKER_HOST", "unix:///dev/null").stdin(Stdio::null());
        let output = command.output().ok().filter(|output| output.status.success())?;
        help::flags(&String::from_utf8_lossy(&output.stdout))
    }

    fn command(&self, name: &OsStr, args: &[OsString]) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(name).args(args).env(DEPTH, (self.depth + 1).to_string());
        FOR_PLUGINS.iter().for_each(|name| without(&mut command, name));
        command
    }
}

impl Asks for Client {
    fn flags(&self, of: Verb) -> Option<FlagSet> {
        self.flags_of(&[if of == Verb::Create { "create" } else { "run" }])
    }

    fn formats_ps(&self, config: Option<&str>) -> bool {
        let dir = config.map(PathBuf::from).or_else(settings_dir);
        let text = dir.and_then(|dir| fs::read_to_string(dir.join("config.json")).ok()).unwrap_or_default();
        // Settings that cannot be read are none to the client either.
        let settings: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        settings["psFormat"].as_str().is_some_and(|format| !format.is_empty())
    }

    fn set_deadlines(&self) -> Vec<SetDeadline> {
        set::deadlines(&self.global)
    }

    fn kernel_level(&self) -> Result<Offer, String> {
        set::kernel_level(&self.global)
    }

    fn image(&self, globals: &[OsString], name: &str) -> Option<Image> {
        image::look(self, globals, name)
    }

    fn preload(&self, said: &Preload) -> Option<String> {
        image::preload(said)
    }
}

fn without(command: &mut Command, variable: &str) {
    command.env_remove(variable);
}

/// The client's own directory of settings.
pub fn settings_dir() -> Option<PathBuf> {
    let named = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    named("DOCKER_CONFIG").or_else(|| Some(named("HOME")?.join(".docker")))
}

fn searched() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(USUAL_PLACES.map(PathBuf::from)).collect()
}

fn in_places(places: &[PathBuf]) -> Option<PathBuf> {
    places.iter().filter(|place| place.is_absolute()).map(|place| place.join("docker")).find(|path| is_client(path))
}

fn is_client(path: &Path) -> bool {
    is_program(path) && !is_berth(path)
}

/// Whether a shell would start it.
pub fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

/// Whether it is this program, or another build of it.
fn is_berth(path: &Path) -> bool {
    let file = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let is_this = file(path).is_some_and(|found| file(Path::new("/proc/self/exe")) == Some(found));
    is_this || fs::canonicalize(path).is_ok_and(|path| path.file_name() == Some("berth".as_ref()))
}
