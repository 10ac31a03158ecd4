//! Reading: values of a stretch of time, beside whoever writes. One segment at a time is in memory, and an answer of a bounded size.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use berth_model::watch::series::{Bucket, Key, Line, SeriesQuery, SeriesTold};

use super::append::path;
use super::compact::content;
use super::{SeriesError, segment};
use crate::place::{Place, PlaceError};

/// Values in an answer; of more, the newest.
const MOST_VALUES: usize = 50_000;

type Lines = BTreeMap<Key, BTreeMap<(i64, u32), Bucket>>;

/// Answers a query with what `may_see` lets through: of those who are called so, or where nobody is, of those who may be meant. A
/// directory that nobody has written to is empty.
pub fn read(dir: &Path, query: &SeriesQuery, may_see: &dyn Fn(&Key) -> bool) -> Result<SeriesTold, SeriesError> {
    let place = match Place::open(dir) {
        Err(PlaceError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Ok(SeriesTold::default());
        }
        place => place?,
    };
    let segments = segment::list(&place).map_err(|source| SeriesError::List { path: dir.to_owned(), source })?.segments;
    let (mut lines, mut perhaps, mut damaged, mut is_cut) = (Lines::new(), Lines::new(), 0, false);
    for segment in segments.into_iter().rev() {
        let bytes =
            segment.bytes(&place).map_err(|source| SeriesError::Read { path: path(&place, segment), source })?;
        let Some(bytes) = bytes else { continue };
        let content = content(&bytes);
        damaged += content.damaged;
        for (key, values) in content.lines.into_iter().filter(|(key, _)| may_see(key)) {
            match query.meant(&key) {
                Some(true) => add(&mut lines, key, &values, query),
                Some(false) => add(&mut perhaps, key, &values, query),
                None => {}
            }
        }
        is_cut = cut(&mut lines) | cut(&mut perhaps);
        if is_cut {
            break;
        }
    }
    let told = if lines.is_empty() { perhaps } else { lines };
    let lines = told.into_iter().map(|(key, values)| Line { key, values: values.into_values().collect() }).collect();
    Ok(SeriesTold { lines, is_cut, damaged })
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
