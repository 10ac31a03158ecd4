//! A user without any rights, with a home of its own.

use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::host::Host;
use super::process::{BERTH, run};

const UID: u32 = 65_534;
const LIBRARIES: [&str; 2] = ["libberth_sim_cuda.so", "libberth_sim_nvml.so"];

#[derive(Debug)]
pub struct Nobody {
    program: PathBuf,
    home: PathBuf,
}

impl Nobody {
    /// The build may be out of that user's reach: it gets a copy.
    pub fn on(host: &Host) -> Self {
        let (bin, home) = (host.file("bin"), host.file("nobody"));
        std::fs::create_dir(&bin).unwrap();
        std::fs::create_dir(&home).unwrap();
        chown(&home, Some(UID), Some(UID)).unwrap();
        let built = Path::new(BERTH);
        // Not copied by this process: a child that another test starts meanwhile would have the copy open for writing, and
        // nobody could execute it.
        let files = LIBRARIES.map(|name| built.with_file_name(name));
        run(Command::new("install").arg("--mode=755").arg(built).args(files).arg(&bin)).ok();
        Self { program: bin.join("berth"), home }
    }

    /// Its own: what it makes is made here.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// The binary as this user.
    pub fn berth(&self, args: &[&str]) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", &UID.to_string(), "--regid", &UID.to_string(), "--clear-groups"]);
        command.arg(&self.program).args(args).current_dir(&self.home);
        for name in ["HOME", "XDG_RUNTIME_DIR", "TMPDIR"] {
            command.env(name, &self.home);
        }
        command
    }
}
