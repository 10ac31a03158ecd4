//! What is written is read, whatever happens in between; what gets old gets less and says the same.

use std::collections::BTreeMap;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};

use berth_model::watch::series::{Bucket, Key, Metric, Of, Owner, SeriesQuery, SeriesTold};
use berth_model::{GpuUuid, TenantKey};
use proptest::prelude::*;

use super::append::Appender;
use super::compact::{Content, compact, content};
use super::frame::Record;
use super::segment::{self, Segment, Tier};
use super::upkeep::upkeep;
use super::{Limits, Series, SeriesError, latest, read};
use crate::place::Place;

const HOUR: i64 = 3_600_000;

pub fn key(uid: u32) -> Key {
    let owner = Owner::new(None, vec![Some(uid)]);
    let of = Of::tenant(TenantKey::User { uid }, &format!("user-{uid}"), owner);
    Key { of, gpu: Some(GpuUuid("GPU-1".into())), metric: Metric::CorePct }
}

fn any_value() -> impl Strategy<Value = f64> {
    prop_oneof![any::<i32>().prop_map(f64::from), -1e12..1e12_f64]
}

fn any_bucket(width_ms: u32) -> impl Strategy<Value = Bucket> {
    (any::<i32>(), 1..1_000_u64, any_value(), any_value()).prop_map(move |(at_ms, count, one, other)| Bucket {
        at_ms: i64::from(at_ms),
        width_ms,
        count,
        sum: one + other,
        min: one.min(other),
        max: one.max(other),
    })
}

pub fn any_record() -> impl Strategy<Value = Record> {
    let values = prop::collection::vec((any::<u32>(), any_value()), 0..20);
    prop_oneof![
        any::<i64>().prop_map(|from_ms| Record::Begins { from_ms }),
        (any::<u32>(), any::<u32>()).prop_map(|(id, uid)| Record::Names { id, key: Box::new(key(uid)) }),
        (any::<i64>(), values).prop_map(|(at_ms, values)| Record::Points { at_ms, values }),
        (any::<u32>(), prop::collection::vec(any_bucket(60_000), 0..10)).prop_map(|(id, buckets)| Record::Buckets {
            id,
            width_ms: 60_000,
            buckets
        }),
    ]
}

fn home() -> (tempfile::TempDir, PathBuf) {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("series");
    (parent, dir)
}

/// Small enough for much to happen.
fn small() -> Limits {
    Limits { segment_bytes: 600, ..Limits::default() }
}

fn open(dir: &Path, limits: Limits) -> Appender {
    Appender::open(dir, limits, Path::new("/proc")).unwrap()
}

fn all(dir: &Path) -> SeriesTold {
    read(dir, &SeriesQuery::default(), &|_| true).unwrap()
}

/// How many values, and their sum.
fn weight(told: &SeriesTold) -> (u64, f64) {
    let values = || told.lines.iter().flat_map(|line| &line.values);
    (values().map(|value| value.count).sum(), values().map(|value| value.sum).sum())
}

#[test]
fn what_is_written_is_read_by_whose_it_is_and_when_it_was() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, small());
    for second in 0..200 {
        appender.append(second * 1_000, vec![(key(1), 1.0), (key(2), 2.0)]).unwrap();
    }
    assert!(segment::list(appender.place()).unwrap().segments.len() > 3, "over several segments");
    assert_eq!(weight(&all(&dir)), (400, 600.0));
    let query = SeriesQuery {
        whom: Some("user-2".into()),
        from_ms: Some(10_000),
        until_ms: Some(30_000),
        step_ms: Some(10_000),
        ..SeriesQuery::default()
    };
    let told = read(&dir, &query, &|_| true).unwrap();
    assert_eq!(told.lines.len(), 1);
    let counts: Vec<_> = told.lines[0].values.iter().map(|value| (value.at_ms, value.count, value.sum)).collect();
    assert_eq!(counts, [(10_000, 10, 20.0), (20_000, 10, 20.0)]);
}

#[test]
fn who_may_not_see_a_series_is_told_nothing_of_it() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, small());
    appender.append(0, vec![(key(1), 1.0), (key(2), 2.0)]).unwrap();
    let only_second = |one: &Key| *one == key(2);
    for whom in [None, Some("user-1".to_owned()), Some("user:1".to_owned()), Some("1".to_owned())] {
        let told = read(&dir, &SeriesQuery { whom, ..SeriesQuery::default() }, &only_second).unwrap();
        assert!(told.lines.iter().all(|line| line.key == key(2)), "{told:?}");
    }
}

#[test]
fn a_directory_nobody_has_written_to_is_empty() {
    let (_parent, dir) = home();
    assert_eq!(all(&dir), SeriesTold::default());
}

#[test]
fn a_second_writer_is_refused() {
    let (_parent, dir) = home();
    let _first = open(&dir, small());
    let second = Appender::open(&dir, small(), Path::new("/proc"));
    assert!(matches!(second, Err(SeriesError::InUse { .. })));
}

/// The device that is always full stands for a disk that is.
#[test]
fn a_full_disk_costs_what_came_while_it_was_full_and_nothing_else() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, Limits::default());
    appender.append(0, vec![(key(1), 1.0)]).unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let real = appender.swap_file(full);
    assert!(appender.append(1, vec![(key(1), 10.0), (key(2), 10.0)]).is_err());
    assert!(appender.append(2, vec![(key(2), 10.0)]).is_err());
    appender.swap_file(real);
    appender.append(3, vec![(key(2), 100.0)]).unwrap();
    assert_eq!((weight(&all(&dir)), all(&dir).damaged), ((2, 101.0), 0), "what named it is written again");
}

#[test]
fn part_of_a_record_left_by_a_failed_write_is_cut_before_the_next() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, Limits::default());
    appender.append(0, vec![(key(1), 1.0)]).unwrap();
    let file = dir.join(Segment { number: 1, tier: Tier::Points }.name());
    let whole = fs::metadata(&file).unwrap().len();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let real = appender.swap_file(full);
    assert!(appender.append(1, vec![(key(1), 10.0)]).is_err());
    fs::write(&file, [fs::read(&file).unwrap(), vec![0xb5, 0x7e, 9]].concat()).unwrap();
    appender.swap_file(real);
    appender.append(2, vec![(key(1), 100.0)]).unwrap();
    let told = all(&dir);
    assert_eq!((weight(&told), told.damaged), ((2, 101.0), 0));
    assert!(fs::metadata(&file).unwrap().len() > whole);
}

#[test]
fn too_many_series_are_told_together_and_lose_nothing() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, Limits { most_series: 10, ..Limits::default() });
    for uid in 0..1_000 {
        appender.append(i64::from(uid), vec![(key(uid), 1.0)]).unwrap();
    }
    let told = all(&dir);
    assert_eq!((told.lines.len(), weight(&told)), (11, (1_000, 1_000.0)));
}

#[test]
fn a_clock_that_was_set_back_or_far_ahead_begins_another_segment() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, Limits::default());
    for at_ms in [1_000, 0, 7 * HOUR] {
        assert!(appender.append(at_ms, vec![(key(1), 1.0)]).unwrap());
    }
    assert!(!appender.append(7 * HOUR + 1, vec![(key(1), 1.0)]).unwrap());
    assert_eq!(weight(&all(&dir)), (4, 4.0));
}

/// An hour of seconds in segments of ten minutes.
fn an_hour(dir: &Path, limits: &Limits) -> Appender {
    let mut appender = open(dir, limits.clone());
    for second in 0..3_600 {
        let value = f64::from(u32::try_from(second % 7).unwrap());
        appender.append(second * 1_000, vec![(key(1), value), (key(2), 1.0)]).unwrap();
    }
    appender
}

#[test]
fn older_values_become_minutes_then_hours_then_nothing() {
    let (_parent, dir) = home();
    let limits = Limits {
        segment_ms: 600_000,
        points_ms: HOUR,
        minutes_ms: 10 * HOUR,
        keep_ms: 100 * HOUR,
        ..Limits::default()
    };
    let appender = an_hour(&dir, &limits);
    let before = weight(&all(&dir));
    let size = |dir: &Path| fs::read_dir(dir).unwrap().map(|one| one.unwrap().metadata().unwrap().len()).sum::<u64>();
    let fine = size(&dir);
    let last = appender.growing();
    for (now, tier) in [(2 * HOUR, Tier::Minutes), (12 * HOUR, Tier::Hours)] {
        let stock = upkeep(appender.place(), &limits, now, last).unwrap();
        assert!(!stock.has_more);
        let listed = segment::list(appender.place()).unwrap();
        assert!(listed.segments.iter().all(|one| one.tier == tier || one.number == last), "{listed:?}");
        assert_eq!(weight(&all(&dir)), before, "nothing is lost or doubled");
    }
    assert!(size(&dir) * 5 < fine, "{fine} bytes became {}", size(&dir));
    upkeep(appender.place(), &limits, 200 * HOUR, last).unwrap();
    assert_eq!(segment::list(appender.place()).unwrap().segments.len(), 1, "the one that grows stays");
}

#[test]
fn the_oldest_go_when_there_is_no_room() {
    let (_parent, dir) = home();
    let limits = Limits { segment_ms: 600_000, segment_bytes: 4_000, most_bytes: 24 << 10, ..Limits::default() };
    let appender = an_hour(&dir, &limits);
    let stock = upkeep(appender.place(), &limits, HOUR, appender.growing()).unwrap();
    assert!(stock.bytes <= limits.most_bytes, "{stock:?}");
    let told = all(&dir);
    let instants: Vec<i64> = told.lines[0].values.iter().map(|value| value.at_ms).collect();
    assert_eq!(instants.last(), Some(&3_599_000));
    assert!(instants.windows(2).all(|pair| pair[1] - pair[0] == 1_000), "what is left has no gaps");
}

#[test]
fn a_kill_between_the_new_file_and_the_old_one_s_end_leaves_each_value_once() {
    let (_parent, dir) = home();
    let limits = Limits { segment_ms: 600_000, points_ms: 0, ..Limits::default() };
    let appender = an_hour(&dir, &limits);
    let before = weight(&all(&dir));
    let first = Segment { number: 1, tier: Tier::Points };
    let old = fs::read(dir.join(first.name())).unwrap();
    upkeep(appender.place(), &limits, 2 * HOUR, appender.growing()).unwrap();
    fs::write(dir.join(first.name()), &old).unwrap();
    fs::write(dir.join("compact.new"), &old[..old.len() / 2]).unwrap();
    assert_eq!(weight(&all(&dir)), before);
    upkeep(appender.place(), &limits, 2 * HOUR, appender.growing()).unwrap();
    assert!(!dir.join(first.name()).exists());
    assert_eq!(weight(&all(&dir)), before);
}

#[test]
fn an_answer_is_of_a_bounded_size_and_has_the_newest() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, Limits::default());
    for at_ms in 0..60_000 {
        appender.append(at_ms, vec![(key(1), 1.0)]).unwrap();
    }
    let told = all(&dir);
    assert_eq!((told.is_cut, told.lines[0].values.len()), (true, 50_000));
    assert_eq!(told.lines[0].values.last().unwrap().at_ms, 59_999);
    let coarse = SeriesQuery { step_ms: Some(1_000), ..SeriesQuery::default() };
    let told = read(&dir, &coarse, &|_| true).unwrap();
    assert_eq!((told.is_cut, weight(&told).0), (false, 60_000));
}

#[test]
fn the_thread_writes_what_it_is_handed_and_counts_it() {
    let (_parent, dir) = home();
    let series = Series::open(&dir, small(), Path::new("/proc")).unwrap();
    let writer = series.writer();
    for second in 0..100 {
        writer.write(second * 1_000, vec![(key(1), 1.0)]);
        writer.flush();
    }
    let health = writer.health();
    assert_eq!((health.written, health.lost), (100, 0));
    assert!(health.segments > 1 && health.bytes > 0);
    drop((writer, series));
    assert_eq!(weight(&all(&dir)), (100, 100.0));
}

fn sums(lines: &BTreeMap<Key, Vec<Bucket>>) -> BTreeMap<Metric, (u64, f64)> {
    let mut sums: BTreeMap<Metric, (u64, f64)> = BTreeMap::new();
    for (key, values) in lines {
        let sum = sums.entry(key.metric).or_default();
        values.iter().for_each(|value| *sum = (sum.0 + value.count, sum.1 + value.sum));
    }
    sums
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whole numbers, so that their sum does not depend on the order.
    #[test]
    fn values_put_together_keep_their_sums_counts_and_ends(
        points in prop::collection::vec((0_u32..6, 0_i64..10 * HOUR, -1_000_i32..1_000), 1..200),
        most in 1_usize..8,
        widths in prop::sample::subsequence(vec![1_000_u32, 60_000, 3_600_000], 1..=3),
    ) {
        let mut lines: BTreeMap<Key, Vec<Bucket>> = BTreeMap::new();
        for (uid, at_ms, value) in points {
            lines.entry(key(uid)).or_default().push(Bucket::point(at_ms, f64::from(value)));
        }
        let ends = |lines: &BTreeMap<Key, Vec<Bucket>>| {
            let all = || lines.values().flatten();
            (all().map(|one| one.min).fold(f64::MAX, f64::min), all().map(|one| one.max).fold(f64::MIN, f64::max))
        };
        let mut now = Content { lines: lines.clone(), damaged: 0 };
        for width_ms in widths {
            let bytes = compact(now, width_ms, most).unwrap();
            now = content(&bytes);
            prop_assert_eq!(now.damaged, 0);
            prop_assert!(now.lines.len() <= most + 1);
            prop_assert_eq!(sums(&now.lines), sums(&lines));
            prop_assert_eq!(ends(&now.lines), ends(&lines));
            let is_whole = |one: &Bucket| one.width_ms == width_ms && one.at_ms % i64::from(width_ms) == 0;
            prop_assert!(now.lines.values().flatten().all(is_whole));
        }
    }

    /// The machine may stop at any byte of the newest segment: what was written before is there, in order, and nothing else.
    #[test]
    fn a_file_cut_anywhere_reads_as_a_beginning_of_what_was_written(cut: prop::sample::Index) {
        let (_parent, dir) = home();
        let mut appender = open(&dir, Limits::default());
        for second in 0..40 {
            appender.append(second * 1_000, vec![(key(u32::try_from(second % 5).unwrap()), 1.0)]).unwrap();
        }
        drop(appender);
        let file = dir.join(Segment { number: 1, tier: Tier::Points }.name());
        let bytes = fs::read(&file).unwrap();
        fs::write(&file, &bytes[..cut.index(bytes.len())]).unwrap();
        let told = all(&dir);
        let mut instants: Vec<i64> = told.lines.iter().flat_map(|line| line.values.iter().map(|one| one.at_ms)).collect();
        instants.sort_unstable();
        let expected: Vec<i64> = (0..).map(|second| second * 1_000).take(instants.len()).collect();
        prop_assert_eq!(&instants, &expected);
        prop_assert_eq!(told.damaged, 0, "the end of a file is no damage");
        // The next daemon goes on beside it.
        open(&dir, Limits::default()).append(99_000, vec![(key(9), 1.0)]).unwrap();
        prop_assert_eq!(weight(&all(&dir)).0, instants.len() as u64 + 1);
        prop_assert!(Place::open(&dir).is_ok());
    }
}

#[test]
fn of_each_series_the_latest_are_read_however_many_another_has() {
    let (_parent, dir) = home();
    let mut appender = open(&dir, small());
    appender.append(0, vec![(key(1), 0.0)]).unwrap();
    for second in 1..500 {
        appender.append(second * 1_000, vec![(key(2), 1.0), (key(3), 1.0)]).unwrap();
    }
    assert!(segment::list(appender.place()).unwrap().segments.len() > 3, "over several segments");
    let told = latest(&dir, 20, 400_000, &|of| *of != key(3)).unwrap();
    let instants = |of: &Key| {
        let line = told.iter().find(|line| line.key == *of).unwrap();
        line.values.iter().map(|value| value.at_ms / 1_000).collect::<Vec<_>>()
    };
    assert_eq!((told.len(), instants(&key(1)), instants(&key(2))), (2, vec![0], (380..400).collect()));
    assert_eq!(latest(Path::new("/nowhere/at/all"), 20, 0, &|_| true).unwrap(), []);
}
