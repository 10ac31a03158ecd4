//! `berth docker-shim`: puts the stand-in for the docker client and the client's plugin where they are found, and takes them away.
//!
//! Both are links to this program under another name. What is not such a link is never touched.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Subcommand;

use crate::docker_cli::client::{self, Client};
use crate::docker_cli::{PLUGIN, STAND_IN};
use crate::out::{self, Stdout};

const EXAMPLES: &str = "\
Examples:
  berth docker-shim install
  docker run -dl 9 --gpus all IMAGE     nine seconds for each GPU task of it
  docker ps                             with their deadlines
  berth docker-shim remove

Without it `docker berth run --deadline 9s …` works once the plugin is there, and the label
`berth.deadline=9` always does.";

const INSTALL_EXAMPLES: &str = "\
Examples:
  berth docker-shim install
  berth docker-shim install --dir ~/bin     for one user, whose PATH has it first

Nothing is overwritten that is not berth's own. A second time changes nothing.";

const REMOVE_EXAMPLES: &str = "\
Examples:
  berth docker-shim remove
  berth docker-shim remove --dir ~/bin      where it was put";

const DEFAULT_DIR: &str = "/usr/local/bin";
const PLUGINS_OF_ALL: &str = "/usr/local/lib/docker/cli-plugins";

/// Give the `docker` command `-dl` for deadlines, and take it away again
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Put a `docker` that knows deadlines before the docker client, and `docker berth` into it
    #[command(after_help = INSTALL_EXAMPLES)]
    Install(Places),
    /// Take away what `install` has put there
    #[command(after_help = REMOVE_EXAMPLES)]
    Remove(Places),
}

#[derive(Debug, clap::Args)]
struct Places {
    /// Directory for `docker`, before that of the docker client in PATH [default: /usr/local/bin]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Directory for the client's plugin [default: /usr/local/lib/docker/cli-plugins for root, else ~/.docker/cli-plugins]
    #[arg(long, value_name = "DIR")]
    plugin_dir: Option<PathBuf>,
}

#[derive(Debug, thiserror::Error)]
enum ShimError {
    #[error("{} is there and is not berth's: it stays as it is{hint}", path.display())]
    Foreign { path: PathBuf, hint: &'static str },
    #[error("no home directory is known: name one with --plugin-dir")]
    NoHome,
}

const ANOTHER_DIR: &str = "; name a directory that comes before it in PATH with --dir";

/// What a place holds.
#[derive(Debug, PartialEq, Eq)]
enum There {
    Nothing,
    /// A link to this program.
    This,
    /// A link to another berth, or to one that is gone.
    OtherBerth,
    Foreign,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.action {
        Action::Install(places) => install(places)?,
        Action::Remove(places) => remove(places)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn install(places: &Places) -> Result<()> {
    let berth = std::env::current_exe().context("finding this program's own file")?;
    let (stand_in, plugin) = (stand_in(places), plugin(places)?);
    // Both are looked at before either is made: all or nothing.
    for (path, hint) in [(&stand_in, ANOTHER_DIR), (&plugin, "")] {
        if there(path, &berth) == There::Foreign {
            return Err(ShimError::Foreign { path: path.clone(), hint }.into());
        }
    }
    for (path, what) in [(&stand_in, "the docker command with -dl"), (&plugin, "its plugin: docker berth")] {
        let done = link(path, &berth).with_context(|| format!("linking {} to {}", path.display(), berth.display()))?;
        Stdout::line(&format!("{done} {} -> {}: {what}", path.display(), berth.display()))?;
    }
    warn_unless_found(&stand_in);
    Ok(())
}

fn remove(places: &Places) -> Result<()> {
    let berth = std::env::current_exe().context("finding this program's own file")?;
    for path in [stand_in(places), plugin(places)?] {
        let told = match there(&path, &berth) {
            There::This | There::OtherBerth => {
                fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
                "removed"
            }
            There::Nothing => "not there:",
            There::Foreign => "not berth's, left alone:",
        };
        Stdout::line(&format!("{told} {}", path.display()))?;
    }
    Ok(())
}

fn stand_in(places: &Places) -> PathBuf {
    places.dir.as_deref().unwrap_or(Path::new(DEFAULT_DIR)).join(STAND_IN)
}

fn plugin(places: &Places) -> Result<PathBuf, ShimError> {
    let dir = match &places.plugin_dir {
        Some(dir) => dir.clone(),
        None if rustix::process::geteuid().is_root() => PLUGINS_OF_ALL.into(),
        None => client::settings_dir().ok_or(ShimError::NoHome)?.join("cli-plugins"),
    };
    Ok(dir.join(PLUGIN))
}

fn there(path: &Path, berth: &Path) -> There {
    match fs::read_link(path) {
        Ok(target) if target == berth => There::This,
        Ok(target) if target.file_name() == Some("berth".as_ref()) => There::OtherBerth,
        Ok(_) => There::Foreign,
        Err(error) if error.kind() == io::ErrorKind::NotFound => There::Nothing,
        // A file, or what cannot be looked at.
        Err(_) => There::Foreign,
    }
}

/// What was done, in a word.
fn link(path: &Path, berth: &Path) -> io::Result<&'static str> {
    let done = match there(path, berth) {
        There::This => return Ok("was there:"),
        There::OtherBerth => {
            fs::remove_file(path)?;
            "replaced"
        }
        There::Nothing | There::Foreign => "made",
    };
    path.parent().map_or(Ok(()), fs::create_dir_all)?;
    // Fails where somebody has made a file of that name meanwhile.
    symlink(berth, path)?;
    Ok(done)
}

/// A stand-in that the shell does not find does nothing, and nobody would notice.
fn warn_unless_found(stand_in: &Path) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let first = std::env::split_paths(&path).map(|dir| dir.join(STAND_IN)).find(|path| client::is_program(path));
    match first {
        Some(first) if first == stand_in => {
            out::say("shells that have called docker before forget where it was by `hash -r`")
        }
        Some(first) => out::say(&format!("{} comes before it in PATH: `docker` is still that one", first.display())),
        None => out::say(&format!("PATH does not have {}: `docker` is not found there", stand_in.display())),
    }
    if let Err(error) = Client::find() {
        out::say(&error.to_string());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(dir: &Path) -> Places {
        Places { dir: Some(dir.join("bin")), plugin_dir: Some(dir.join("plugins")) }
    }

    fn links(dir: &Path) -> [Option<PathBuf>; 2] {
        ["bin/docker", "plugins/docker-berth"].map(|name| fs::read_link(dir.join(name)).ok())
    }

    #[test]
    fn what_is_put_there_is_taken_away_and_twice_is_once() {
        let dir = tempfile::tempdir().unwrap();
        let this = std::env::current_exe().ok();
        for _ in 0..2 {
            install(&places(dir.path())).unwrap();
            assert_eq!(links(dir.path()), [this.clone(), this.clone()]);
        }
        for _ in 0..2 {
            remove(&places(dir.path())).unwrap();
            assert_eq!(links(dir.path()), [None, None]);
        }
    }

    #[test]
    fn what_is_not_ours_stays_and_nothing_is_put_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("plugins")).unwrap();
        let foreign = dir.path().join("plugins/docker-berth");
        fs::write(&foreign, "mine").unwrap();
        let error = install(&places(dir.path())).unwrap_err().to_string();
        assert!(error.contains(foreign.to_str().unwrap()), "{error}");
        assert_eq!(links(dir.path()), [None, None]);
        remove(&places(dir.path())).unwrap();
        assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");

        fs::remove_file(&foreign).unwrap();
        symlink("/usr/bin/somebody", &foreign).unwrap();
        install(&places(dir.path())).unwrap_err();
        remove(&places(dir.path())).unwrap();
        assert_eq!(links(dir.path()), [None, Some("/usr/bin/somebody".into())]);
    }

    #[test]
    fn a_link_to_an_older_berth_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bin")).unwrap();
        symlink("/opt/gone/berth", dir.path().join("bin/docker")).unwrap();
        install(&places(dir.path())).unwrap();
        assert_eq!(links(dir.path())[0], std::env::current_exe().ok());
    }
}
