//! What becomes of segments as time goes on: old ones are put together, the oldest removed. The one that grows is left alone.

use std::io;

use super::append::path;
use super::compact::{compact, content};
use super::segment::{self, Segment, Tier};
use super::{Limits, SeriesError};
use crate::place::Place;

/// A file of any length takes so much of a disk.
const LEAST_ON_DISK: u64 = 4 << 10;
/// Segments put together at a time: values wait meanwhile.
const MOST_AT_ONCE: usize = 8;
const SCRATCH: &str = "compact.new";

/// What there is afterwards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stock {
    pub segments: u64,
    pub bytes: u64,
    /// Segments that had to wait for the next turn.
    pub has_more: bool,
}

/// Segments from the number `growing` on are not touched.
pub fn upkeep(place: &Place, limits: &Limits, now_ms: i64, growing: u64) -> Result<Stock, SeriesError> {
    let listed = segment::list(place).map_err(|source| SeriesError::List { path: place.path().to_owned(), source })?;
    for replaced in listed.replaced {
        remove(place, replaced)?;
    }
    let (mut kept, mut done, mut has_more) = (Vec::new(), 0, false);
    for segment in listed.segments {
        let fate = if segment.number >= growing { Fate::Stay } else { fate(place, limits, now_ms, segment)? };
        match fate {
            Fate::Go => remove(place, segment)?,
            Fate::Become(_) if done >= MOST_AT_ONCE => {
                has_more = true;
                kept.push(segment);
            }
            Fate::Become(tier) => {
                done += 1;
                kept.extend(become_coarser(place, limits, segment, tier)?);
            }
            Fate::Stay => kept.push(segment),
        }
    }
    let stock = fit(place, limits, kept, growing)?;
    Ok(Stock { has_more, ..stock })
}

enum Fate {
    Stay,
    Become(Tier),
    Go,
}

fn fate(place: &Place, limits: &Limits, now_ms: i64, segment: Segment) -> Result<Fate, SeriesError> {
    let Some(from_ms) = from_ms(place, segment).map_err(|source| read(place, segment, source))? else {
        return Ok(Fate::Go);
    };
    // Of its last value.
    let age = now_ms.saturating_sub(from_ms).saturating_sub(limits.segment_ms);
    let tier = match age {
        age if age >= limits.keep_ms => return Ok(Fate::Go),
        age if age >= limits.minutes_ms => Tier::Hours,
        age if age >= limits.points_ms => Tier::Minutes,
        _ => Tier::Points,
    };
    Ok(if tier > segment.tier { Fate::Become(tier) } else { Fate::Stay })
}

/// By its first record, or where that is damaged by its first value; `None` if nothing in it can be read.
fn from_ms(place: &Place, segment: Segment) -> io::Result<Option<i64>> {
    if let Some(from_ms) = segment.begins_ms(place)? {
        return Ok(Some(from_ms));
    }
    let bytes = segment.bytes(place)?.unwrap_or_default();
    Ok(content(&bytes).lines.values().flatten().map(|value| value.at_ms).min())
}

/// Nothing is left of one in which nothing can be read.
fn become_coarser(
    place: &Place,
    limits: &Limits,
    segment: Segment,
    tier: Tier,
) -> Result<Option<Segment>, SeriesError> {
    let bytes = segment.bytes(place).map_err(|source| read(place, segment, source))?.unwrap_or_default();
    let coarser = Segment { tier, ..segment };
    let compacted = compact(content(&bytes), tier.width_ms(), limits.most_series);
    if let Some(bytes) = &compacted {
        let written = place.replace_for_good(&coarser.name(), SCRATCH, bytes);
        written.map_err(|source| SeriesError::Write { path: path(place, coarser), source })?;
    }
    remove(place, segment)?;
    Ok(compacted.map(|_| coarser))
}

/// Removes the oldest until the rest has room, and the newest can grow.
fn fit(place: &Place, limits: &Limits, segments: Vec<Segment>, growing: u64) -> Result<Stock, SeriesError> {
    let mut stock = Stock::default();
    let mut room = limits.most_bytes.saturating_sub(limits.segment_bytes);
    for segment in segments.into_iter().rev() {
        let length = segment.length(place).map_err(|source| read(place, segment, source))?.max(LEAST_ON_DISK);
        if segment.number < growing && length > room {
            room = 0;
            remove(place, segment)?;
            continue;
        }
        room -= if segment.number < growing { length } else { 0 };
        stock.segments += 1;
        stock.bytes += length;
    }
    Ok(stock)
}

fn remove(place: &Place, segment: Segment) -> Result<(), SeriesError> {
    place.remove(&segment.name()).map_err(|source| SeriesError::Write { path: path(place, segment), source })
}

fn read(place: &Place, segment: Segment, source: io::Error) -> SeriesError {
    SeriesError::Read { path: path(place, segment), source }
}
