//! The history on real files: crashes, damage, rotation, others in the way, disks that are full or read-only.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use berth_model::deadline::{Left, Open, Tally, Unit};
use berth_model::history::{Happening, Judgement, LeftOpen, Query, Record, Spent, TaskStory, Told, Workload};
use berth_model::snapshot::TaskEnd;
use berth_model::{ContainerId, Evidence, Mono, Runtime, TaskId, TenantKey};
use proptest::prelude::*;
use rustix::process::geteuid;

use super::testing::{at, record, released};
use super::*;

const PROC: &str = "/proc";
const MIB: u64 = 1 << 20;

fn open(dir: &Path) -> Result<(History, Vec<Record>), HistoryError> {
    let mut found = Vec::new();
    let history = History::open(dir, 64 * MIB, Path::new(PROC), |record| found.push(record))?;
    Ok((history, found))
}

/// Written and closed.
fn write(dir: &Path, records: &[Record]) {
    let (history, _) = open(dir).unwrap();
    records.iter().for_each(|record| history.writer().write(record.clone()));
}

fn all(dir: &Path) -> Told {
    read(dir, &Query { limit: usize::MAX, ..Query::default() }).unwrap()
}

fn segment(dir: &Path) -> PathBuf {
    dir.join(segments::name(1))
}

fn five() -> Vec<Record> {
    (0..5).map(|second| released(second, &format!("turn {second}"))).collect()
}

fn home() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("lib/history");
    (parent, dir)
}

#[test]
fn what_was_written_is_there_for_the_next_daemon_and_told_newest_first() {
    let (_parent, dir) = home();
    write(&dir, &five());
    let (_history, found) = open(&dir).unwrap();
    assert_eq!(found, five());
    let mut told = all(&dir);
    told.records.reverse();
    assert_eq!(told, Told { records: five(), is_cut: false, damaged: 0 });
}

#[test]
fn a_history_nobody_has_written_is_empty() {
    let (_parent, dir) = home();
    assert_eq!(all(&dir), Told::default());
    assert!(!dir.exists(), "reading makes nothing");
}

#[test]
fn a_query_is_answered_by_name_time_and_number() {
    let (_parent, dir) = home();
    let quoted = "say \"hi\"\\ü";
    let of = |second, name: &str| record(second, name, Happening::HoldFailed { message: "no".into() });
    write(&dir, &[of(1, "job"), of(2, quoted), of(3, "job"), of(4, "jobs"), of(5, "job")]);
    let ask = |whom: &str, since, limit| {
        let query = Query { whom: Some(whom.into()), since: Some(at(since)), limit };
        let told = read(&dir, &query).unwrap();
        (told.records.iter().map(|record| record.at).collect::<Vec<_>>(), told.is_cut)
    };
    assert_eq!(ask("job", 0, 9), (vec![at(5), at(3), at(1)], false));
    assert_eq!(ask("/job", 2, 9), (vec![at(5), at(3)], false));
    assert_eq!(ask("cgroup:/jobs", 0, 9), (vec![at(4)], false));
    assert_eq!(ask("job", 0, 2), (vec![at(5), at(3)], true));
    assert_eq!(ask(quoted, 0, 9), (vec![at(2)], false));
    assert_eq!(ask("nobody", 0, 9), (vec![], false));
}

#[test]
fn who_is_called_so_is_told_of_and_only_where_nobody_is_whose_id_begins_so() {
    let (_parent, dir) = home();
    let of = |second, id: &str, name: &str| {
        let tenant = TenantKey::Container { runtime: Runtime::Docker, id: ContainerId(id.into()) };
        Record { tenant, name: name.into(), ..released(second, "its turn") }
    };
    write(&dir, &[of(1, "4e3c", "e2"), of(2, "e21a", "b"), of(3, "e21a", "b"), of(4, "e2ff", "c")]);
    let ask = |whom: &str, limit| {
        let told = read(&dir, &Query { whom: Some(whom.into()), since: None, limit }).unwrap();
        (told.records.iter().map(|record| record.at).collect::<Vec<_>>(), told.is_cut)
    };
    assert_eq!(ask("e2", 9), (vec![at(1)], false));
    assert_eq!(ask("e2", 1), (vec![at(1)], false), "those who may be meant take no room");
    assert_eq!(ask("e21", 9), (vec![at(3), at(2)], false));
    assert_eq!(ask("e21", 1), (vec![at(3)], true));
}

#[test]
fn a_line_torn_by_a_crash_is_cut_off_and_the_next_is_whole() {
    let (_parent, dir) = home();
    write(&dir, &five());
    let whole = fs::read(segment(&dir)).unwrap();
    for torn in [whole.len() - 1, whole.len() - 30] {
        fs::write(segment(&dir), &whole[..torn]).unwrap();
        assert_eq!(all(&dir).records.len(), 4, "a reader does not see what is being written");
        write(&dir, &[released(9, "after")]);
        let told = all(&dir);
        assert_eq!((told.records.len(), told.damaged, &told.records[0]), (5, 0, &released(9, "after")));
    }
}

#[test]
fn damage_in_the_middle_costs_only_the_lines_it_hit() {
    let (_parent, dir) = home();
    write(&dir, &five());
    let mut bytes = fs::read(segment(&dir)).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 3].fill(0);
    fs::write(segment(&dir), bytes).unwrap();
    let told = all(&dir);
    assert_eq!((told.records.len(), told.damaged), (4, 1));
    let (_history, found) = open(&dir).unwrap();
    assert_eq!(found.len(), 4);
}

#[test]
fn garbage_for_a_segment_is_damage_and_no_obstacle() {
    let (_parent, dir) = home();
    write(&dir, &five());
    let noise: Vec<u8> = (0..100_000_u32).map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()[1]).collect();
    fs::write(dir.join(segments::name(2)), noise).unwrap();
    write(&dir, &[released(9, "after")]);
    let told = all(&dir);
    assert_eq!(told.records.len(), 6);
    assert!(told.damaged > 0);
}

#[test]
fn segments_of_another_format_are_neither_read_nor_removed() {
    let (_parent, dir) = home();
    write(&dir, &five());
    fs::write(dir.join("0000000009.v2.jsonl"), "theirs").unwrap();
    write(&dir, &five());
    assert_eq!((all(&dir).records.len(), all(&dir).damaged), (10, 0));
    assert!(dir.join("0000000009.v2.jsonl").exists());
}

#[test]
fn it_takes_no_more_room_than_it_may_and_the_oldest_goes_first() {
    let (_parent, dir) = home();
    let mut appender = append::Appender::open(&dir, MIB, Path::new(PROC)).unwrap();
    let reason = "x".repeat(1_000);
    for second in 0..3_000 {
        let mut lines = Vec::new();
        assert!(line::encode(&released(second, &reason), &mut lines));
        appender.append(&lines).unwrap();
        let sizes = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
        assert!(sizes.sum::<u64>() <= MIB);
    }
    drop(appender);
    let told = all(&dir);
    let seconds: Vec<i64> = told.records.iter().map(|record| record.at.duration_since(at(0)).as_secs()).collect();
    assert_eq!(seconds.first(), Some(&2_999));
    assert!(seconds.len() > 500 && seconds.windows(2).all(|pair| pair[0] == pair[1] + 1), "without gaps");
    // A daemon that starts is given the newest, whatever there is in all.
    assert_eq!(open(&dir).unwrap().1.last(), Some(&released(2_999, &reason)));
}

#[test]
fn a_second_daemon_is_refused_by_name_and_the_first_writes_on() {
    let (_parent, dir) = home();
    let (first, _) = open(&dir).unwrap();
    let error = open(&dir).unwrap_err();
    assert!(matches!(error, HistoryError::InUse { .. }), "{error}");
    let told = error.to_string();
    let own = std::process::id().to_string();
    assert!(told.contains(dir.to_str().unwrap()) && told.contains(&own) && told.contains("history.dir"), "{told}");
    first.writer().write(released(1, "still here"));
    drop(first);
    assert_eq!(all(&dir).records, [released(1, "still here")]);
}

#[test]
fn a_directory_of_somebody_else_is_refused() {
    if !geteuid().is_root() {
        eprintln!("SKIPPED a_directory_of_somebody_else_is_refused: only root can give files away");
        return;
    }
    let (_parent, dir) = home();
    write(&dir, &five());
    std::os::unix::fs::chown(&dir, Some(1234), None).unwrap();
    let error = open(&dir).unwrap_err();
    assert!(matches!(&error, HistoryError::Place(PlaceError::Foreign { uid: 1234, .. })), "{error}");
    assert!(check(&dir).is_err() && read(&dir, &Query::default()).is_err());
}

#[test]
fn a_file_in_the_directory_s_place_is_told_by_path() {
    let parent = tempfile::tempdir().unwrap();
    let path = parent.path().join("history");
    fs::File::create(&path).unwrap().write_all(b"mine").unwrap();
    let error = open(&path).unwrap_err();
    assert!(format!("{error}: {}", std::error::Error::source(&error).unwrap()).contains(path.to_str().unwrap()));
    assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
}

#[test]
fn whether_it_could_be_kept_is_found_out_without_making_anything() {
    let (parent, dir) = home();
    assert!(check(&dir).unwrap().contains("will be made"));
    assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    write(&dir, &five());
    assert!(check(&dir).unwrap().contains("1 KiB in"), "{:?}", check(&dir));
}

#[test]
fn a_disk_on_which_nothing_more_finds_room_is_told_as_full() {
    let Some(disk) = Mount::new("a_disk_on_which_nothing_more_finds_room_is_told_as_full", "size=8k,mode=700") else {
        return;
    };
    let told = check(disk.0.path()).unwrap_err();
    assert!(matches!(told, HistoryError::Full { .. }), "{told}");
    disk.remount("size=1m");
    assert!(check(disk.0.path()).is_ok());
}

/// A file system of its own, for as long as it lives. `None`, said loudly, where this user may not mount.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(test: &str, options: &str) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("mount").args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(dir.path()).output();
        if done.is_ok_and(|output| output.status.success()) {
            return Some(Self(dir));
        }
        eprintln!("SKIPPED {test}: this user may not mount a file system");
        None
    }

    fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        assert!(Command::new("mount").args(["-o", &options]).arg(self.0.path()).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_full_disk_costs_records_and_nothing_else() {
    let Some(disk) = Mount::new("a_full_disk_costs_records_and_nothing_else", "size=64k") else { return };
    let dir = disk.0.path().join("history");
    let mut appender = append::Appender::open(&dir, 64 * MIB, Path::new(PROC)).unwrap();
    let mut lines = Vec::new();
    assert!(line::encode(&released(1, &"x".repeat(3_000)), &mut lines));
    let mut written = 0;
    let error = loop {
        match appender.append(&lines) {
            Ok(()) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the disk is never full");
    };
    assert!(
        matches!(&error, HistoryError::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull),
        "{error:?}"
    );
    assert!(error.to_string().contains(segment(&dir).to_str().unwrap()), "{error}");
    assert_eq!((all(&dir).records.len(), all(&dir).damaged), (written, 0), "no part of a line is left");
    disk.remount("size=128k");
    appender.append(&lines).unwrap();
    assert_eq!((all(&dir).records.len(), all(&dir).damaged), (written + 1, 0));
}

#[test]
fn a_read_only_file_system_is_told_before_and_at_the_start() {
    let Some(disk) = Mount::new("a_read_only_file_system_is_told_before_and_at_the_start", "size=1m") else { return };
    let dir = disk.0.path().join("history");
    write(&dir, &five());
    disk.remount("ro");
    for error in [open(&dir).unwrap_err(), check(&dir).unwrap_err(), check(&disk.0.path().join("other")).unwrap_err()] {
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("Read-only file system"), "{error}: {source}");
    }
    assert_eq!(all(&dir).records.len(), 5, "what is there can be read");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Wherever a crash, a disk or a hand has been: nothing is told that was not written, in another order or twice, and the
    /// next record is there.
    #[test]
    fn whatever_happened_to_the_file_what_is_told_was_written(
        cut: prop::sample::Index,
        hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
    ) {
        let (_parent, dir) = home();
        write(&dir, &five());
        let mut bytes = fs::read(segment(&dir)).unwrap();
        bytes.truncate(cut.index(bytes.len() + 1));
        for (at, value) in hits.into_iter().filter(|_| !bytes.is_empty()).collect::<Vec<_>>() {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        fs::write(segment(&dir), bytes).unwrap();
        write(&dir, &[released(9, "after")]);
        let mut told = all(&dir).records;
        prop_assert_eq!(told.first(), Some(&released(9, "after")));
        told.remove(0);
        told.reverse();
        let mut written = five().into_iter();
        prop_assert!(told.iter().all(|record| written.any(|one| one == *record)), "{:?}", told);
    }
}

/// Under way for some seconds.
fn task(number: u64, end: Option<TaskEnd>) -> Record {
    let story = TaskStory {
        task_id: TaskId(number),
        workload: Workload { owner: None, image: None, command: "python".into() },
        gpus: vec![],
        started_at: at(0),
        start_evidence: Evidence::Probe,
        seconds: 2.5,
        spent: Spent::default(),
        peak_memory_bytes: None,
        end,
        left: None,
    };
    record(3, "a", Happening::Task(story))
}

#[test]
fn tasks_under_way_outlive_a_daemon_that_could_not_tell_of_their_end_and_no_others() {
    let (_parent, dir) = home();
    let (history, _) = open(&dir).unwrap();
    assert_eq!(history.left_open, []);
    history.writer().keep_open(vec![task(1, None), task(2, None), task(3, None)]);
    history.writer().keep_open(vec![task(2, None), task(3, None)]);
    // Killed before it could say that this one is no longer under way.
    history.writer().write(task(3, Some(TaskEnd::Exited)));
    drop(history);
    let (history, found) = open(&dir).unwrap();
    assert_eq!((history.left_open.as_slice(), found.len()), (&[task(2, None)][..], 1));
    assert_eq!(history.left_units, history.left_open);
    history.writer().keep_open(vec![]);
    drop(history);
    assert_eq!(open(&dir).unwrap().0.left_open, []);
}

#[test]
fn units_of_tasks_that_were_lost_sight_of_may_go_on_and_those_of_tasks_that_ended_do_not() {
    let (_parent, dir) = home();
    let (history, _) = open(&dir).unwrap();
    history.writer().write(task(1, None));
    history.writer().write(task(2, Some(TaskEnd::Left)));
    history.writer().keep_open(vec![task(1, None), task(2, None)]);
    drop(history);
    let (history, _) = open(&dir).unwrap();
    assert_eq!((history.left_open.len(), history.left_units.as_slice()), (0, &[task(1, None)][..]));
}

/// A tenant that serves, with a burst that began at this second and was heard of two seconds later.
fn serving(second: i64) -> Record {
    let open = Open::new(Unit::Burst, Mono(5_000_000_000), Evidence::Probe);
    let left = Left {
        processes: [].into(),
        heard: Mono(7_000_000_000),
        deadline: Some("9".parse().unwrap()),
        serves: true,
        open: Some(open),
    };
    let mut task = task(1, None);
    task.at = at(second + 2);
    let Happening::Task(story) = &mut task.what else { panic!("{task:?}") };
    story.left = Some(Box::new(LeftOpen { boot: "4f0c".into(), left }));
    task
}

/// Of the same tenant, ended at this second.
fn judged(second: i64) -> Record {
    let judgement = Judgement {
        task_id: TaskId(1),
        workload: Workload { owner: None, image: None, command: "python".into() },
        unit: Unit::Burst,
        deadline: "9".parse().unwrap(),
        started_at: at(second - 1),
        due_at: at(second + 8),
        seconds: Some(1.0),
        float_seconds: Some(8.0),
        deadline_hit: Some(true),
        active_seconds: Some(1.0),
        held_seconds: 0.0,
        contended_seconds: 0.0,
        why: None,
        unwritten: Tally::default(),
    };
    record(second, "a", Happening::Judged(judgement))
}

#[test]
fn a_burst_that_was_judged_after_it_was_last_heard_of_is_not_under_way() {
    for (ended, is_under_way) in [(99, true), (103, false)] {
        let (_parent, dir) = home();
        let (history, _) = open(&dir).unwrap();
        history.writer().keep_open(vec![serving(100)]);
        history.writer().write(judged(ended));
        drop(history);
        let (history, _) = open(&dir).unwrap();
        let [Record { what: Happening::Task(story), .. }] = &history.left_units[..] else { panic!("it may go on") };
        let left = &story.left.as_ref().unwrap().left;
        assert_eq!((left.serves, left.open.is_some()), (true, is_under_way), "ended at {ended}");
    }
}

#[test]
fn what_began_before_an_earlier_unit_was_given_up_is_still_under_way() {
    for (started, is_under_way) in [(99, true), (100, false)] {
        let (_parent, dir) = home();
        let (history, _) = open(&dir).unwrap();
        history.writer().keep_open(vec![serving(100)]);
        let mut lost = judged(130);
        let Happening::Judged(judgement) = &mut lost.what else { panic!("{lost:?}") };
        *judgement = Judgement { started_at: at(started), seconds: None, float_seconds: None, ..judgement.clone() };
        history.writer().write(lost);
        drop(history);
        let (history, _) = open(&dir).unwrap();
        let [Record { what: Happening::Task(story), .. }] = &history.left_units[..] else { panic!("it may go on") };
        assert_eq!(story.left.as_ref().unwrap().left.open.is_some(), is_under_way, "started at {started}");
    }
}

#[test]
fn of_tasks_under_way_a_damaged_line_costs_only_itself_and_a_file_in_the_way_nothing_else() {
    let (_parent, dir) = home();
    let (history, _) = open(&dir).unwrap();
    history.writer().keep_open(vec![task(1, None), task(2, None)]);
    drop(history);
    let file = dir.join("open.v1.jsonl");
    let mut bytes = fs::read(&file).unwrap();
    bytes[20] ^= 1;
    fs::write(&file, &bytes).unwrap();
    assert_eq!(open(&dir).unwrap().0.left_open, [task(2, None)]);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    let (history, _) = open(&dir).unwrap();
    history.writer().keep_open(vec![task(1, None)]);
    history.writer().write(task(1, Some(TaskEnd::Left)));
    drop(history);
    assert_eq!(all(&dir).records.len(), 1);
}
