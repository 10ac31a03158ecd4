//! `berth sim env`: what programs and containers need to find the simulated driver.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use berth_proto::sim_dir::{CUDA_SONAME, LIBRARIES, NVML_SONAME};

use crate::out::Stdout;

const EXAMPLES: &str = "\
Examples:
  eval \"$(berth sim env --dir /tmp/sim)\"
  docker run $(berth sim env --dir /tmp/sim --docker) IMAGE …
  berth $(berth sim env --dir /tmp/sim --berth) ps
  berth sim env --dir /tmp/sim";

/// Print how programs, containers and berth itself use a simulator
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The directory the simulator serves
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
    /// Options for `docker run` instead of a shell command
    #[arg(long, conflicts_with = "berth")]
    docker: bool,
    /// Options for berth itself, to watch the simulated GPUs
    #[arg(long)]
    berth: bool,
}

pub fn run(args: &Args) -> Result<()> {
    let dir =
        args.dir.canonicalize().with_context(|| format!("finding the simulator's directory {}", args.dir.display()))?;
    Stdout::line(&match (args.docker, args.berth) {
        (true, _) => docker(&dir),
        (_, true) => berth(&dir),
        _ => shell(&dir),
    })
}

fn shell(dir: &Path) -> String {
    format!("export LD_LIBRARY_PATH={}/{LIBRARIES}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}", quoted(dir))
}

/// Mounted at a path of its own, so that nothing of the image is hidden.
fn docker(dir: &Path) -> String {
    format!("-v {}:/berth-sim -e LD_LIBRARY_PATH=/berth-sim/{LIBRARIES}", quoted(dir))
}

/// The driver library is named too: probes watch it before its first user comes, and processes are locked and parked by it.
fn berth(dir: &Path) -> String {
    let library = |name| quoted(&dir.join(LIBRARIES).join(name));
    let (nvml, cuda) = (library(NVML_SONAME), library(CUDA_SONAME));
    format!("--set nvml.library={nvml} --set probes.libraries=[\"{cuda}\"] --set hold.driver={cuda}")
}

/// For a shell; plain paths stay as they are.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shell_line_survives_blanks_and_quotes_in_the_path() {
        let line = shell(Path::new("/tmp/it's mine")) + " && printf %s \"$LD_LIBRARY_PATH\"";
        let output =
            std::process::Command::new("sh").args(["-c", &line]).env_remove("LD_LIBRARY_PATH").output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "/tmp/it's mine/lib");
    }

    #[test]
    fn containers_get_the_directory_and_the_way_to_its_libraries() {
        assert_eq!(docker(Path::new("/run/sim")), "-v /run/sim:/berth-sim -e LD_LIBRARY_PATH=/berth-sim/lib");
        let expected = "--set nvml.library=/run/sim/lib/libnvidia-ml.so.1 \
                        --set probes.libraries=[\"/run/sim/lib/libcuda.so.1\"] \
                        --set hold.driver=/run/sim/lib/libcuda.so.1";
        assert_eq!(berth(Path::new("/run/sim")), expected);
    }
}
