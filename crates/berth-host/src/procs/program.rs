//! Whether a process runs a program that the host's administrator has installed: its name is what anybody can take.
//!
//! The file that runs, which the kernel tells, is called so, is the one that the host has at that path, and neither it nor its directory is anybody's to
//! write but root's (or that of the user the daemon runs as). A process in a container has another root, and one in a mount namespace of its own may
//! have another file at that path. What a user has the real program do by its environment is not seen.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// `false` also where it cannot be told.
pub fn is_of_host(proc_root: &Path, pid: u32, name: &str) -> bool {
    look(proc_root, pid, name).unwrap_or_else(|error| {
        tracing::debug!(pid, %error, "cannot tell which program it runs");
        false
    })
}

fn look(proc_root: &Path, pid: u32, name: &str) -> io::Result<bool> {
    let own = proc_root.join(pid.to_string());
    let path = fs::read_link(own.join("exe"))?;
    let Some(dir) = path.parent().filter(|_| path.file_name().is_some_and(|file| file == name)) else {
        return Ok(false);
    };
    let host = host_root(proc_root);
    let there = |path: &Path| fs::metadata(host.join(path.strip_prefix("/").unwrap_or(path)));
    let (runs, installed) = (fs::metadata(own.join("exe"))?, there(&path)?);
    let is_in_host = is_same(&fs::metadata(own.join("root"))?, &fs::metadata(&host)?);
    Ok(is_in_host && is_same(&runs, &installed) && is_safe(&installed) && is_safe(&there(dir)?))
}

/// As the first process has it; a daemon that may not look at that one is in no container of its own.
fn host_root(proc_root: &Path) -> PathBuf {
    let first = proc_root.join("1/root");
    if fs::metadata(&first).is_ok() { first } else { PathBuf::from("/") }
}

fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn is_safe(of: &Metadata) -> bool {
    let owners = [0, rustix::process::geteuid().as_raw()];
    owners.contains(&of.uid()) && of.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    use tempfile::TempDir;

    use super::*;
    use crate::testing::skip;

    const NAME: &str = "some-server";

    /// A program of that name in a directory of its own.
    fn installed() -> (TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        fs::copy("/bin/sleep", &path).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        (dir, path.canonicalize().unwrap())
    }

    struct Running(Child);

    impl Running {
        fn start(command: &mut Command) -> Self {
            Self(command.arg("60").stdin(Stdio::null()).spawn().unwrap())
        }

        fn is_of_host(&self) -> bool {
            is_of_host(Path::new("/proc"), self.0.id(), NAME)
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn a_program_is_the_host_s_while_nobody_else_may_write_it_or_put_another_in_its_place() {
        let (dir, path) = installed();
        let running = Running::start(&mut Command::new(&path));
        assert!(running.is_of_host());
        for changed in [path.as_path(), dir.path()] {
            let before = fs::metadata(changed).unwrap().permissions();
            fs::set_permissions(changed, PermissionsExt::from_mode(0o777)).unwrap();
            assert!(!running.is_of_host(), "{}", changed.display());
            fs::set_permissions(changed, before).unwrap();
        }
        assert!(running.is_of_host());
        fs::rename(&path, dir.path().join("another")).unwrap();
        assert!(!running.is_of_host(), "it is called something else");
    }

    #[test]
    fn what_a_process_calls_itself_says_nothing() {
        let named = Running::start(Command::new("/bin/sleep").arg0(format!("/usr/bin/{NAME}")));
        assert!(!named.is_of_host());
    }

    #[test]
    fn another_file_at_that_path_in_a_mount_namespace_of_its_own_is_not_it() {
        let (_dir, path) = installed();
        let mounts = format!("mount --bind /bin/sleep {0} && exec {0} \"$1\"", path.display());
        let script = ["--mount", "sh", "-c", &mounts, "sh"];
        let can = Command::new("unshare").args(script).arg("0").stderr(Stdio::null()).status();
        if !can.is_ok_and(|status| status.success()) {
            return skip("another_file_at_that_path_in_a_mount_namespace_of_its_own_is_not_it", "no mount namespaces");
        }
        let running = Running::start(Command::new("unshare").args(script));
        let exe = PathBuf::from(format!("/proc/{}/exe", running.0.id()));
        crate::testing::eventually("it runs", || fs::read_link(&exe).is_ok_and(|exe| exe == path));
        assert!(!running.is_of_host());
    }

    #[test]
    fn one_that_has_another_root_is_not_the_host_s() {
        // Its own files as a root: a program that needs no libraries is not at hand, so the process is a description of one.
        let (dir, path) = installed();
        let proc_root = dir.path().join("proc");
        let own = proc_root.join("7");
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(proc_root.join("1")).unwrap();
        std::os::unix::fs::symlink("/", proc_root.join("1/root")).unwrap();
        std::os::unix::fs::symlink(&path, own.join("exe")).unwrap();
        for (root, expected) in [(Path::new("/"), true), (dir.path(), false)] {
            let _ = fs::remove_file(own.join("root"));
            std::os::unix::fs::symlink(root, own.join("root")).unwrap();
            assert_eq!(is_of_host(&proc_root, 7, NAME), expected, "{}", root.display());
        }
    }
}
