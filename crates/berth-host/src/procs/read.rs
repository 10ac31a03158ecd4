//! What the proc file system says about one process. Reading only: whether it is still the same process afterwards is
//! for the caller to check.

use std::fs;
use std::io;
use std::path::Path;

use berth_model::cgroup::tenant_of;
use berth_model::{ProcKey, ProcessFacts, Stat};

use super::users::Users;

/// Longest command kept, in characters: some programs carry kilobytes of arguments.
const COMMAND_CHARS: usize = 256;

#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("cannot read {file} of process {pid}: {source}")]
    Io { pid: u32, file: &'static str, source: io::Error },
    #[error("{file} of process {pid} does not read as proc(5) says: {text:?}")]
    Malformed { pid: u32, file: &'static str, text: String },
}

/// Everything the model wants to know about `pid`.
pub fn facts(proc_root: &Path, pid: u32, users: &mut Users) -> Result<ProcessFacts, ReadError> {
    let read = |file| read(proc_root, pid, file);
    let stat = read("stat")?;
    let start_ticks = start_ticks(&stat).ok_or_else(|| malformed(pid, "stat", &stat))?;
    let status = read("status")?;
    let uid = real_uid(&status).ok_or_else(|| malformed(pid, "status", &status))?;
    Ok(ProcessFacts {
        process: ProcKey { pid, start_ticks },
        tenant: tenant_of(&read("cgroup")?, uid),
        uid: Some(uid),
        user: users.name(uid),
        command: command(&read("cmdline")?).unwrap_or_else(|| comm(&stat)),
        started: Some(crate::clock::at_boot_ticks(crate::clock::BootTicks(start_ticks))),
    })
}

/// Only who `pid` is.
pub fn key(proc_root: &Path, pid: u32) -> Result<ProcKey, ReadError> {
    let stat = read(proc_root, pid, "stat")?;
    let start_ticks = start_ticks(&stat).ok_or_else(|| malformed(pid, "stat", &stat))?;
    Ok(ProcKey { pid, start_ticks })
}

fn malformed(pid: u32, file: &'static str, text: &str) -> ReadError {
    ReadError::Malformed { pid, file, text: text.chars().take(200).collect() }
}

/// Neither names nor arguments need to be UTF-8.
fn read(proc_root: &Path, pid: u32, file: &'static str) -> Result<String, ReadError> {
    let path = proc_root.join(pid.to_string()).join(file);
    let bytes = fs::read(path).map_err(|source| ReadError::Io { pid, file, source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn start_ticks(stat: &str) -> Option<u64> {
    Stat::parse(stat.as_bytes())?.start_ticks()
}

fn comm(stat: &str) -> String {
    Stat::parse(stat.as_bytes()).map_or_else(String::new, |stat| String::from_utf8_lossy(stat.name).into_owned())
}

/// The real user. The owner of the directory would be root for a process that dropped its privileges without exec.
fn real_uid(status: &str) -> Option<u32> {
    let ids = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    ids.split_ascii_whitespace().next()?.parse().ok()
}

/// Arguments with spaces between them, fit for one line of a terminal; `None` for kernel threads, which have none.
fn command(cmdline: &str) -> Option<String> {
    let joined = cmdline.trim_end_matches('\0').replace('\0', " ");
    let shown: String = joined.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMMAND_CHARS).collect();
    (!shown.trim().is_empty()).then_some(shown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use berth_model::TenantKey;
    use proptest::prelude::*;
    use tempfile::TempDir;

    fn stat_line(comm: &str, start_ticks: u64) -> String {
        format!(
            "77 ({comm}) S 1 77 77 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 {start_ticks} 2703360 229 18446744073709551615 1 1 0"
        )
    }

    fn fake_proc(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("77")).unwrap();
        for (name, text) in files {
            fs::write(root.path().join("77").join(name), text).unwrap();
        }
        root
    }

    fn users() -> Users {
        Users::new("/nonexistent/passwd")
    }

    #[test]
    fn a_process_is_described_from_its_files() {
        let stat = stat_line("python3", 4242);
        let root = fake_proc(&[
            ("stat", &stat),
            ("status", "Name:\tpython3\nUid:\t1000\t0\t0\t0\nGid:\t5\t5\t5\t5\n"),
            ("cgroup", "0::/team-a\n"),
            ("cmdline", "python3\0train.py\0--lr\0\0"),
        ]);
        let facts = facts(root.path(), 77, &mut users()).unwrap();
        assert_eq!(facts.process, ProcKey { pid: 77, start_ticks: 4242 });
        assert_eq!(facts.tenant, TenantKey::Cgroup { path: "/team-a".into() });
        assert_eq!((facts.uid, facts.user), (Some(1000), None));
        assert_eq!(facts.command, "python3 train.py --lr");
    }

    #[test]
    fn a_missing_file_is_told_by_name() {
        let root = fake_proc(&[("stat", &stat_line("x", 1))]);
        let error = facts(root.path(), 77, &mut users()).unwrap_err().to_string();
        assert!(error.contains("status of process 77"), "{error}");
    }

    #[test]
    fn a_malformed_file_is_told_by_name_and_text() {
        let root = fake_proc(&[("stat", "77 (x) S 1 2"), ("status", "Uid:\t0\t0\t0\t0\n")]);
        let error = facts(root.path(), 77, &mut users()).unwrap_err().to_string();
        assert!(error.contains("stat of process 77") && error.contains("77 (x) S 1 2"), "{error}");
    }

    #[test]
    fn without_arguments_the_name_stands_for_the_command() {
        assert_eq!(command(""), None);
        assert_eq!(command("\0\0"), None);
        assert_eq!(comm(&stat_line("kworker/0:1", 1)), "kworker/0:1");
    }

    #[test]
    fn a_command_fits_one_line_whatever_its_arguments_hold() {
        let shown = command(&format!("sh\0-c\0echo\x1b[31m\n{}", "x".repeat(1000))).unwrap();
        assert_eq!(shown.chars().count(), COMMAND_CHARS);
        assert!(shown.starts_with("sh -c echo [31m x"), "{shown}");
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,200}") {
            let _ = (start_ticks(&text), comm(&text), real_uid(&text), command(&text));
        }
    }
}
