//! What a node remembers, as the body of a frame.

use berth_model::cluster::report::MOST_PASTS;
use berth_model::cluster::{Past, Stamp};
use berth_model::deadline::{Spread, Unit};

use super::bytes::{Reader, Writer};
use super::report::node_id;
use super::{FrameError, Pasts};

/// Of an image's name.
const MOST_IMAGE: usize = 512;
/// Length of an image, unit, which spreads follow.
const LEAST_PAST: usize = 4;

const HAS_TAKES: u8 = 1;
const HAS_RUN: u8 = 1 << 1;

pub(super) fn write(pasts: &Pasts, to: &mut Writer) -> Result<(), FrameError> {
    to.text(pasts.node.as_str(), berth_model::cluster::NodeId::LONGEST, "node")?;
    write_stamp(&pasts.stamp, to)?;
    to.u32(pasts.number);
    to.count(pasts.pasts.len(), MOST_PASTS, "images")?;
    pasts.pasts.iter().try_for_each(|past| write_past(past, to))
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<Pasts, FrameError> {
    let node = node_id(from)?;
    let stamp = read_stamp(from)?;
    let number = from.u32("number of pasts")?;
    let count = from.count(MOST_PASTS, LEAST_PAST, "images")?;
    let pasts = (0..count).map(|_| read_past(from)).collect::<Result<_, _>>()?;
    Ok(Pasts { node, stamp, number, pasts })
}

fn write_past(past: &Past, to: &mut Writer) -> Result<(), FrameError> {
    to.text(image(&past.image)?, MOST_IMAGE, "image")?;
    write_unit(past.unit, to);
    to.u8(if past.takes.is_some() { HAS_TAKES } else { 0 } | if past.run.is_some() { HAS_RUN } else { 0 });
    let spreads = past.takes.iter().chain(&past.run);
    spreads.into_iter().try_for_each(|spread| write_spread(spread, to))
}

fn read_past(from: &mut Reader<'_>) -> Result<Past, FrameError> {
    let image = image(from.text(MOST_IMAGE, "image")?)?.to_owned();
    let unit = read_unit(from)?;
    let flags = from.flags(HAS_TAKES | HAS_RUN, "past")?;
    let mut spread = |flag: u8| (flags & flag != 0).then(|| read_spread(from)).transpose();
    Ok(Past { image, unit, takes: spread(HAS_TAKES)?, run: spread(HAS_RUN)? })
}

/// Whether its image's name can be told at all: engines take almost anything.
pub(super) fn is_tellable(past: &Past) -> bool {
    past.image.len() <= MOST_IMAGE && image(&past.image).is_ok()
}

fn image(text: &str) -> Result<&str, FrameError> {
    let is_right = !text.is_empty() && !text.chars().any(char::is_control);
    is_right.then_some(text).ok_or(FrameError::Impossible { what: "image" })
}

pub(super) fn write_stamp(stamp: &Stamp, to: &mut Writer) -> Result<(), FrameError> {
    checked(stamp)?;
    to.u64(stamp.started_ms);
    to.u64(stamp.number);
    to.u64(stamp.at_ms);
    Ok(())
}

pub(super) fn read_stamp(from: &mut Reader<'_>) -> Result<Stamp, FrameError> {
    let started_ms = from.u64("stamp")?;
    let stamp = Stamp { started_ms, number: from.u64("stamp")?, at_ms: from.u64("stamp")? };
    checked(&stamp)?;
    Ok(stamp)
}

fn checked(stamp: &Stamp) -> Result<(), FrameError> {
    if stamp.number > 0 { Ok(()) } else { Err(FrameError::Impossible { what: "stamp" }) }
}

pub(super) fn write_unit(unit: Unit, to: &mut Writer) {
    to.u8(match unit {
        Unit::Task => 0,
        Unit::Burst => 1,
    });
}

pub(super) fn read_unit(from: &mut Reader<'_>) -> Result<Unit, FrameError> {
    match from.u8("unit")? {
        0 => Ok(Unit::Task),
        1 => Ok(Unit::Burst),
        _ => Err(FrameError::Impossible { what: "unit" }),
    }
}

pub(super) fn write_spread(spread: &Spread, to: &mut Writer) -> Result<(), FrameError> {
    let spread = sound(*spread)?;
    to.u32(spread.units);
    to.seconds(spread.median_seconds, "spread")?;
    to.seconds(spread.p90_seconds, "spread")?;
    to.seconds(spread.most_seconds, "spread")
}

pub(super) fn read_spread(from: &mut Reader<'_>) -> Result<Spread, FrameError> {
    let units = from.u32("spread")?;
    let (median_seconds, p90_seconds) = (from.seconds("spread")?, from.seconds("spread")?);
    sound(Spread { units, median_seconds, p90_seconds, most_seconds: from.seconds("spread")? })
}

fn sound(spread: Spread) -> Result<Spread, FrameError> {
    spread.is_possible().then_some(spread).ok_or(FrameError::Impossible { what: "spread" })
}
