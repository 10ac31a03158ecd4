//! Reading, beside whoever writes: values of a stretch of time, or the latest of each series. One segment at a time is in memory, and an
//! answer of a bounded size.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use berth_model::watch::series::{Bucket, Key, Line, SeriesQuery, SeriesTold};

use super::append::path;
use super::compact::{Content, content};
use super::{SeriesError, segment};
use crate::place::{Place, PlaceError};

/// Values in an answer; of more, the newest.
const MOST_VALUES: usize = 50_000;

/// Values of [`latest`] in all; of more, the newest.
const MOST_LATEST: usize = 500_000;

type Lines = BTreeMap<Key, BTreeMap<(i64, u32), Bucket>>;

/// Answers a query with what `may_see` lets through: of those who are called so, or where nobody is, of those who may be meant. A
/// directory that nobody has written to is empty.
pub fn read(dir: &Path, query: &SeriesQuery, may_see: &dyn Fn(&Key) -> bool) -> Result<SeriesTold, SeriesError> {
    let (mut lines, mut perhaps, mut damaged, mut is_cut) = (Lines::new(), Lines::new(), 0, false);
    newest_first(dir, |content| {
        damaged += content.damaged;
        for (key, values) in content.lines.into_iter().filter(|(key, _)| may_see(key)) {
            match query.meant(&key) {
                Some(true) => add(&mut lines, key, &values, query),
                Some(false) => add(&mut perhaps, key, &values, query),
                None => {}
            }
        }
        is_cut = cut(&mut lines) | cut(&mut perhaps);
        !is_cut
    })?;
    let told = if lines.is_empty() { perhaps } else { lines };
    let lines = told.into_iter().map(|(key, values)| Line { key, values: values.into_values().collect() }).collect();
    Ok(SeriesTold { lines, is_cut, damaged })
}

/// The latest `most` values of each series that is `wanted`, before that instant; oldest first. One with many values takes no room from others.
pub fn latest(dir: &Path, most: usize, until_ms: i64, wanted: &dyn Fn(&Key) -> bool) -> Result<Vec<Line>, SeriesError> {
    let (mut lines, mut room) = (BTreeMap::<Key, Vec<Bucket>>::new(), MOST_LATEST);
    newest_first(dir, |content| {
        for (key, mut values) in content.lines.into_iter().filter(|(key, _)| wanted(key)) {
            values.retain(|value| value.at_ms < until_ms);
            values.sort_by_key(|value| std::cmp::Reverse(value.at_ms));
            let line = lines.entry(key).or_default();
            values.truncate((most - line.len()).min(room));
            room -= values.len();
            line.append(&mut values);
        }
        room > 0
    })?;
    let told = lines.into_iter().filter(|(_, values)| !values.is_empty()).map(|(key, mut values)| {
        values.sort_by_key(|value| value.at_ms);
        Line { key, values }
    });
    Ok(told.collect())
}

/// What each segment says, until `take` has enough. A directory that nobody has written to is empty.
fn newest_first(dir: &Path, mut take: impl FnMut(Content) -> bool) -> Result<(), SeriesError> {
    let place = match Place::open(dir) {
        Err(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(()),
        place => place?,
    };
    let segments = segment::list(&place).map_err(|source| SeriesError::List { path: dir.to_owned(), source })?.segments;
    for segment in segments.into_iter().rev() {
        let bytes =
            segment.bytes(&place).map_err(|source| SeriesError::Read { path: path(&place, segment), source })?;
        if bytes.is_some_and(|bytes| !take(content(&bytes))) {
            break;
        }
    }
    Ok(())
}

fn add(lines: &mut Lines, key: Key, values: &[Bucket], query: &SeriesQuery) {
    let mut asked = values.iter().filter(|value| query.covers(value)).peekable();
    if asked.peek().is_none() {
        return;
    }
    let line = lines.entry(key).or_default();
    for value in asked {
        let wide = value.widened(query.step_ms.unwrap_or(0));
        line.entry((wide.at_ms, wide.width_ms)).and_modify(|sum| sum.add(&wide)).or_insert(wide);
    }
}

/// Leaves the newest; `true` if there were more.
fn cut(lines: &mut Lines) -> bool {
    let mut instants: Vec<i64> = lines.values().flat_map(|line| line.keys().map(|(at_ms, _)| *at_ms)).collect();
    if instants.len() <= MOST_VALUES {
        return false;
    }
    instants.sort_unstable();
    let oldest = instants[instants.len() - MOST_VALUES];
    for line in lines.values_mut() {
        line.retain(|(at_ms, _), _| *at_ms >= oldest);
    }
    lines.retain(|_, line| !line.is_empty());
    true
}
