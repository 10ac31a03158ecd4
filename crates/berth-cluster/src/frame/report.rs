//! A report as the body of a frame. What is checked when it is read is checked when it is written: what was made can be read.

use berth_model::cluster::report::{MOST_GPUS, MOST_LOADS, MOST_MISSES, MOST_PLACED, UnderWay};
use berth_model::cluster::{GpuReport, LoadReport, NodeId, PlacementId, Record, Report};
use berth_model::hold::Means;
use berth_model::settings::PolicyName;
use berth_model::{Bytes, GpuUuid, Percent};

use super::FrameError;
use super::bytes::{Reader, Writer};
use super::pasts::{read_spread, read_stamp, read_unit, write_spread, write_stamp, write_unit};

/// Of the daemon's version, and of a GPU's uuid.
const MOST_VERSION: usize = 64;
const MOST_UUID: usize = 96;
/// What a GPU and a tenant take at least.
const LEAST_GPU: usize = Record::BYTES + 64;
const LEAST_LOAD: usize = 10;

const MEANS: [Means; 4] = [Means::Freeze, Means::Lock, Means::Gate, Means::Park];
const POLICIES: [PolicyName; 4] = [PolicyName::Off, PolicyName::Fifo, PolicyName::Edf, PolicyName::Paper];

const IS_LOST: u8 = 1;
const HAS_TOTAL: u8 = 1 << 1;
const HAS_USED: u8 = 1 << 2;
const HAS_CORE: u8 = 1 << 3;
const HAS_MORE: u8 = 1 << 4;

const IS_UNDER_WAY: u8 = 1;
const HAS_TAKES: u8 = 1 << 1;

pub(super) fn write(report: &Report, to: &mut Writer) -> Result<(), FrameError> {
    report.check()?;
    to.text(report.node.as_str(), NodeId::LONGEST, "node")?;
    write_stamp(&report.stamp, to)?;
    to.text(version(&report.berth)?, MOST_VERSION, "version")?;
    let policy = report.policy.and_then(|policy| POLICIES.iter().position(|one| *one == policy));
    to.u8(policy.and_then(|at| u8::try_from(at + 1).ok()).unwrap_or(0));
    to.u8(MEANS.iter().enumerate().filter(|(_, one)| report.means.contains(one)).map(|(bit, _)| 1 << bit).sum());
    to.u32(report.pasts);
    to.count(report.gpus.len(), MOST_GPUS, "GPUs")?;
    report.gpus.iter().try_for_each(|gpu| write_gpu(gpu, to))
}

pub(super) fn read(from: &mut Reader<'_>) -> Result<Report, FrameError> {
    let node = node_id(from)?;
    let stamp = read_stamp(from)?;
    let berth = version(from.text(MOST_VERSION, "version")?)?.to_owned();
    let policy = match from.u8("policy")? {
        0 => None,
        number => Some(*POLICIES.get(usize::from(number) - 1).ok_or(FrameError::Impossible { what: "policy" })?),
    };
    let bits = from.flags((1 << MEANS.len()) - 1, "means")?;
    let means = MEANS.into_iter().enumerate().filter(|(bit, _)| bits & 1 << bit != 0).map(|(_, means)| means).collect();
    let pasts = from.u32("number of pasts")?;
    let count = from.count(MOST_GPUS, LEAST_GPU, "GPUs")?;
    let gpus: Vec<GpuReport> = (0..count).map(|_| read_gpu(from)).collect::<Result<_, _>>()?;
    let report = Report { node, stamp, berth, policy, means, gpus, pasts };
    report.check()?;
    Ok(report)
}

pub(super) fn node_id(from: &mut Reader<'_>) -> Result<NodeId, FrameError> {
    from.text(NodeId::LONGEST, "node")?.parse().map_err(|_| FrameError::Impossible { what: "node" })
}

fn write_gpu(gpu: &GpuReport, to: &mut Writer) -> Result<(), FrameError> {
    to.raw(&Record::of(gpu).to_bytes());
    to.text(&gpu.uuid.0, MOST_UUID, "uuid")?;
    let bit = |is: bool, flag: u8| if is { flag } else { 0 };
    to.u8(bit(gpu.is_lost, IS_LOST)
        | bit(gpu.memory_total_bytes.is_some(), HAS_TOTAL)
        | bit(gpu.memory_used_bytes.is_some(), HAS_USED)
        | bit(gpu.core_pct.is_some(), HAS_CORE)
        | bit(gpu.has_more, HAS_MORE));
    to.u64(gpu.memory_total_bytes.unwrap_or_default().0);
    to.u64(gpu.memory_used_bytes.unwrap_or_default().0);
    to.u64(gpu.memory_promised_bytes.0);
    to.u8(gpu.core_pct.unwrap_or_default().get());
    to.u32(gpu.queue);
    to.u32(gpu.others);
    to.seconds(gpu.share, "share")?;
    to.u32(gpu.missed_by_present);
    to.seconds(gpu.past_float_seconds, "float time")?;
    to.count(gpu.loads.len(), MOST_LOADS, "tenants with a deadline")?;
    gpu.loads.iter().try_for_each(|load| write_load(load, to))?;
    to.count(gpu.misses_ago_seconds.len(), MOST_MISSES, "misses")?;
    gpu.misses_ago_seconds.iter().try_for_each(|ago| to.seconds(*ago, "miss"))?;
    to.count(gpu.placed.len(), MOST_PLACED, "placements")?;
    gpu.placed.iter().for_each(|id| to.u64(id.0));
    Ok(())
}

fn read_gpu(from: &mut Reader<'_>) -> Result<GpuReport, FrameError> {
    let record = from.array::<{ Record::BYTES }>("record")?;
    let uuid = GpuUuid(from.text(MOST_UUID, "uuid")?.to_owned());
    let flags = from.flags(IS_LOST | HAS_TOTAL | HAS_USED | HAS_CORE | HAS_MORE, "GPU")?;
    let total = if_there(from.u64("memory")?, flags & HAS_TOTAL != 0, "memory")?;
    let used = if_there(from.u64("memory")?, flags & HAS_USED != 0, "memory")?;
    let promised = from.u64("memory")?;
    let core = if_there(from.u8("core")?.into(), flags & HAS_CORE != 0, "core")?;
    let gpu = GpuReport {
        uuid,
        is_lost: flags & IS_LOST != 0,
        memory_total_bytes: total.map(Bytes),
        memory_used_bytes: used.map(Bytes),
        memory_promised_bytes: Bytes(promised),
        core_pct: core.map(percent).transpose()?,
        queue: from.u32("queue")?,
        others: from.u32("others")?,
        share: from.seconds("share")?,
        missed_by_present: from.u32("misses")?,
        past_float_seconds: from.seconds("float time")?,
        loads: many(from, MOST_LOADS, LEAST_LOAD, "tenants with a deadline", read_load)?,
        has_more: flags & HAS_MORE != 0,
        misses_ago_seconds: many(from, MOST_MISSES, 8, "misses", |from| from.seconds("miss"))?,
        placed: many(from, MOST_PLACED, 8, "placements", |from| from.u64("placement").map(PlacementId))?,
    };
    if Record::of(&gpu).to_bytes() != record {
        return Err(FrameError::Impossible { what: "record" });
    }
    Ok(gpu)
}

fn write_load(load: &LoadReport, to: &mut Writer) -> Result<(), FrameError> {
    write_unit(load.unit, to);
    let under_way = if load.under_way.is_some() { IS_UNDER_WAY } else { 0 };
    to.u8(under_way | if load.takes.is_some() { HAS_TAKES } else { 0 });
    to.seconds(load.deadline_seconds, "deadline")?;
    if let Some(UnderWay { due_in_seconds, done_seconds }) = load.under_way {
        to.seconds(due_in_seconds, "due")?;
        to.seconds(done_seconds, "time done")?;
    }
    load.takes.as_ref().map_or(Ok(()), |takes| write_spread(takes, to))
}

fn read_load(from: &mut Reader<'_>) -> Result<LoadReport, FrameError> {
    let unit = read_unit(from)?;
    let flags = from.flags(IS_UNDER_WAY | HAS_TAKES, "tenant")?;
    let deadline_seconds = from.seconds("deadline")?;
    let under_way = match flags & IS_UNDER_WAY {
        0 => None,
        _ => Some(UnderWay { due_in_seconds: from.seconds("due")?, done_seconds: from.seconds("time done")? }),
    };
    let takes = (flags & HAS_TAKES != 0).then(|| read_spread(from)).transpose()?;
    Ok(LoadReport { unit, deadline_seconds, under_way, takes })
}

fn is(is_right: bool, what: &'static str) -> Result<(), FrameError> {
    if is_right { Ok(()) } else { Err(FrameError::Impossible { what }) }
}

/// It is shown to people.
fn version(text: &str) -> Result<&str, FrameError> {
    is(text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '), "version")?;
    Ok(text)
}

/// What is said not to be known is nothing.
fn if_there(value: u64, is_there: bool, what: &'static str) -> Result<Option<u64>, FrameError> {
    is(is_there || value == 0, what)?;
    Ok(is_there.then_some(value))
}

fn percent(value: u64) -> Result<Percent, FrameError> {
    u32::try_from(value).ok().and_then(Percent::checked).ok_or(FrameError::Impossible { what: "core" })
}

/// At most `most` of them, each of at least `least` bytes.
fn many<T>(
    from: &mut Reader<'_>,
    most: usize,
    least: usize,
    what: &'static str,
    mut read: impl FnMut(&mut Reader<'_>) -> Result<T, FrameError>,
) -> Result<Vec<T>, FrameError> {
    let count = from.count(most, least, what)?;
    (0..count).map(|_| read(from)).collect()
}
