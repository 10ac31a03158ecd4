//! The journal as its users see it, and what is left of it after a crash.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use berth_model::hold::Grip;
use proptest::prelude::*;

use super::*;
use crate::testing::{any_entry, entry};

const PROC: &str = "/proc";
const AT_ONCE: Duration = Duration::ZERO;

struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("holds")
    }

    fn open(&self) -> (Journal, Found) {
        Journal::open(&self.path(), Role::Daemon, AT_ONCE, Path::new(PROC)).unwrap()
    }

    fn entries(&self) -> Vec<Entry> {
        let found = read(&self.path(), Path::new(PROC)).unwrap();
        assert!(found.unusable.is_empty(), "{:?}", found.unusable);
        found.entries.into_iter().map(|kept| kept.entry).collect()
    }
}

#[test]
fn what_was_written_last_is_found_by_the_next_daemon_and_what_was_removed_is_not() {
    let host = Host::new();
    let (journal, _) = host.open();
    let again = Entry { reason: "another".into(), ..entry("/a") };
    for entry in [&entry("/a"), &entry("/b"), &again] {
        journal.write(entry).unwrap();
    }
    journal.remove(&entry("/b").tenant).unwrap();
    journal.remove(&entry("/never").tenant).unwrap();
    drop(journal);
    let (journal, found) = host.open();
    assert_eq!(found.entries.iter().map(|kept| &kept.entry).collect::<Vec<_>>(), [&again]);
    // It goes on in the same file.
    journal.write(&entry("/a")).unwrap();
    journal.write(&entry("/c")).unwrap();
    assert_eq!(host.entries(), [entry("/a"), entry("/c")]);
    journal.remove(&entry("/a").tenant).unwrap();
    journal.remove(&entry("/c").tenant).unwrap();
    assert!(journal.is_empty() && host.entries().is_empty());
}

#[test]
fn a_second_daemon_is_refused_and_told_who_has_the_journal() {
    let host = Host::new();
    let (_journal, _) = host.open();
    let refused = Journal::open(&host.path(), Role::Daemon, Duration::from_secs(60), Path::new(PROC)).unwrap_err();
    let pid = std::process::id();
    assert!(refused.to_string().contains(&format!("the daemon (process {pid})")), "{refused}");
}

#[test]
fn who_has_the_journal_is_told_without_touching_its_lock() {
    let host = Host::new();
    let holder = || holder(&host.path(), Path::new(PROC)).unwrap();
    assert_eq!(holder(), None);
    let (journal, _) = host.open();
    assert_eq!(holder(), Some(Holder::own(Role::Daemon, Path::new(PROC))));
    assert!(!journal.is_awaited());
    drop(journal);
    assert_eq!(holder(), None);
    fs::write(host.path().join("lock"), "daemon 4194305 7").unwrap();
    assert_eq!(holder(), None, "one that died has nothing");
    fs::write(host.path().join("lock"), "\u{7}").unwrap();
    assert_eq!(holder(), None);
    // Killed, and nobody has asked how it ended.
    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let start = live::start_ticks(Path::new(PROC), child.id()).unwrap();
    fs::write(host.path().join("lock"), format!("daemon {} {start}", child.id())).unwrap();
    assert_eq!(holder().map(|holder| holder.pid), Some(child.id()));
    child.kill().unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while holder().is_some() {
        assert!(std::time::Instant::now() < deadline, "it counts as alive");
        std::thread::yield_now();
    }
    child.wait().unwrap();
}

#[test]
fn a_guard_waits_for_its_dying_daemon_and_leaves_another_daemon_its_journal() {
    let host = Host::new();
    let (journal, _) = host.open();
    journal.write(&entry("/a")).unwrap();
    let own = Holder::own(Role::Daemon, Path::new(PROC)).process();
    let other = ProcKey { start_ticks: own.start_ticks + 1, ..own };
    let patience = Duration::from_secs(30);
    let refused = Journal::take_over(&host.path(), other, patience, Path::new(PROC)).unwrap_err();
    assert!(matches!(refused, JournalError::InUse { .. }), "{refused}");
    let guard = std::thread::spawn({
        let path = host.path();
        move || Journal::take_over(&path, own, patience, Path::new(PROC)).unwrap().1.entries.len()
    });
    while !journal.is_awaited() {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(journal);
    assert_eq!(guard.join().unwrap(), 1);
}

#[test]
fn a_guard_takes_over_when_the_daemon_ends_and_makes_room_for_the_next() {
    let host = Host::new();
    let (journal, _) = host.open();
    journal.write(&entry("/a")).unwrap();
    drop(journal);
    let (journal, found) = Journal::open(&host.path(), Role::Guard, AT_ONCE, Path::new(PROC)).unwrap();
    let guard = std::thread::spawn(move || {
        while !journal.is_awaited() {
            std::thread::sleep(Duration::from_millis(1));
        }
        found.entries.len()
    });
    let (_, found) = Journal::open(&host.path(), Role::Daemon, Duration::from_secs(30), Path::new(PROC)).unwrap();
    assert_eq!((guard.join().unwrap(), found.entries.len()), (1, 1));
}

#[test]
fn what_a_dead_daemon_signed_keeps_nobody_out() {
    let host = Host::new();
    drop(host.open());
    fs::write(host.path().join("lock"), "daemon 1 1").unwrap();
    // The lock is held by someone who has not signed yet.
    let file = fs::File::open(host.path().join("lock")).unwrap();
    file.lock().unwrap();
    let waiting = std::thread::spawn({
        let path = host.path();
        move || Journal::open(&path, Role::Daemon, Duration::from_secs(30), Path::new(PROC)).map(drop)
    });
    while !lock::is_awaited(&Place::open(&host.path()).unwrap()).unwrap() {
        std::thread::sleep(Duration::from_millis(1));
    }
    file.unlock().unwrap();
    waiting.join().unwrap().unwrap();
}

#[test]
fn unreadable_files_are_told_and_set_aside_and_those_of_an_earlier_boot_removed() {
    let host = Host::new();
    let (journal, _) = host.open();
    journal.write(&entry("/a")).unwrap();
    drop(journal);
    fs::write(host.path().join("7.hold"), "nonsense").unwrap();
    fs::write(host.path().join("8.hold"), record::encode(&entry("/b"), "earlier").unwrap()).unwrap();
    fs::write(host.path().join("9.new"), "{").unwrap();
    fs::create_dir(host.path().join("10.hold")).unwrap();
    fs::copy(host.path().join("1.hold"), host.path().join("copy.hold")).unwrap();

    let (journal, found) = host.open();
    let names = |found: &Found| {
        let mut names: Vec<String> =
            found.unusable.iter().map(|file| file.path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&found), ["10.hold", "7.hold", "copy.hold"]);
    assert_eq!((found.entries.len(), found.outdated), (1, 1));
    for (name, is_there) in [("7.hold", false), ("7.hold.unreadable", true), ("8.hold", false), ("9.new", false)] {
        assert_eq!(host.path().join(name).exists(), is_there, "{name}");
    }
    let set_aside: Vec<PathBuf> =
        read(&host.path(), Path::new(PROC)).unwrap().set_aside.into_iter().map(|file| file.path).collect();
    assert_eq!(set_aside, [host.path().join("7.hold.unreadable")], "it goes on being told");
    journal.write(&entry("/c")).unwrap();
    assert!(host.path().join("11.hold").exists(), "numbers of files that are there are not used again");
}

#[test]
fn a_hold_that_cannot_be_written_down_is_an_error_and_the_record_before_it_stands() {
    let host = Host::new();
    let (journal, _) = host.open();
    journal.write(&entry("/a")).unwrap();
    // Takes the place of the file that would be written.
    fs::create_dir(host.path().join("1.new")).unwrap();
    let more = Entry { reason: "more".into(), ..entry("/a") };
    let error = journal.write(&more).unwrap_err();
    assert!(error.to_string().contains("cgroup:/a"), "{error}");
    let elsewhere = Entry { cgroup: Some(OsStr::from_bytes(b"/\xff").into()), ..entry("/a") };
    assert!(journal.write(&elsewhere).is_err(), "a path that cannot be written");
    assert_eq!(host.entries(), [entry("/a")]);
}

#[test]
fn a_journal_that_was_never_made_is_empty() {
    let host = Host::new();
    assert!(host.entries().is_empty());
}

/// What a writer does to the directory, so that it can be ended between any two of these.
#[derive(Debug, Clone)]
enum Op {
    Write(Box<Entry>),
    Remove(usize),
}

/// One tenant's records over time; `None` before the first and after a removal.
type History = BTreeMap<TenantKey, Vec<Option<Grip>>>;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Killed in the middle of a write (any number of its bytes are there) or just after it: the next one finds for every
    /// tenant the last record that was confirmed, or the one that was being written, whole.
    #[test]
    fn whenever_it_is_killed_each_tenant_has_its_last_record_or_the_one_under_way(
        ops in prop::collection::vec(
            prop_oneof![4 => any_entry().prop_map(|entry| Op::Write(Box::new(entry))), 1 => (0_usize..4).prop_map(Op::Remove)], 1..12),
        cut in any::<prop::sample::Index>(),
        is_renamed: bool,
    ) {
        let host = Host::new();
        let (journal, _) = host.open();
        let (last, before) = ops.split_last().unwrap();
        let mut history = History::new();
        for op in before {
            apply(&journal, op, &mut history);
        }
        crash(&host, &journal, last, cut, is_renamed);
        drop(journal);
        let (_, found) = host.open();
        prop_assert!(found.unusable.is_empty(), "{:?}", found.unusable);
        let found: BTreeMap<TenantKey, Entry> = found.entries.into_iter().map(|kept| (kept.entry.tenant.clone(), kept.entry)).collect();
        for (tenant, records) in &history {
            let confirmed = records.last().unwrap();
            let under_way = match last {
                Op::Write(entry) if entry.tenant == *tenant && is_renamed => Some(Some(entry.grip.clone())),
                _ => None,
            };
            let now = found.get(tenant).map(|entry| entry.grip.clone());
            prop_assert_eq!(&now, under_way.as_ref().unwrap_or(confirmed));
        }
    }
}

fn apply(journal: &Journal, op: &Op, history: &mut History) {
    match op {
        Op::Write(entry) => {
            journal.write(entry).unwrap();
            history.entry(entry.tenant.clone()).or_default().push(Some(entry.grip.clone()));
        }
        Op::Remove(which) => {
            let Some((tenant, records)) = history.iter_mut().nth(*which) else { return };
            journal.remove(tenant).unwrap();
            records.push(None);
        }
    }
}

/// The last operation as far as it came: part of the file that is to be renamed, or all of it and the rename.
fn crash(host: &Host, journal: &Journal, op: &Op, cut: prop::sample::Index, is_renamed: bool) {
    let Op::Write(entry) = op else { return };
    if is_renamed {
        return journal.write(entry).unwrap();
    }
    let bytes = record::encode(entry, &journal.boot).unwrap();
    fs::write(host.path().join("99.new"), &bytes[..cut.index(bytes.len())]).unwrap();
}
