//! What keeping figures costs: values per second through the thread that writes them, bytes for each, and what a minute's take.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};
use berth_model::watch::series::{Key, Metric, Of, Owner, SeriesQuery};
use berth_model::{GpuUuid, TenantKey};
use berth_store::series::{Limits, Series, read};
use serde::Serialize;

use super::noise::Noise;

const TENANTS: u32 = 20;
const METRICS: [Metric; 3] = [Metric::CorePct, Metric::MemoryBytes, Metric::HeldShare];
/// Between two lots, in the values' own time.
const STEP_MS: i64 = 5_000;
/// Lots between two waits: fewer than may be under way.
const FLUSH_EVERY: i64 = 128;

#[derive(Debug, Clone, Serialize)]
pub struct Store {
    pub values: u64,
    pub values_per_second: f64,
    pub bytes_per_value: f64,
    /// The same values after they became minutes.
    pub minutes_bytes_per_value: f64,
    /// To read all of it as hours.
    pub read_ms: f64,
    /// As many values came back as were written.
    pub is_complete: bool,
}

pub fn measure(lots: u32) -> Result<Store> {
    let parent = tempfile::tempdir().context("making a directory to write figures in")?;
    let dir = parent.path().join("series");
    let fine = Limits { points_ms: i64::MAX, most_bytes: u64::MAX, ..Limits::default() };
    let keys: Vec<Key> = (0..TENANTS).flat_map(|uid| METRICS.map(|metric| key(uid, metric))).collect();
    let drawn: Vec<Vec<(Key, f64)>> = draw(&keys);
    let begin = Instant::now();
    let written = write(&dir, fine, lots, &drawn)?;
    let seconds = begin.elapsed().as_secs_f64();
    let bytes = size(&dir)?;
    let begin = Instant::now();
    let query = SeriesQuery { step_ms: Some(3_600_000), ..SeriesQuery::default() };
    let told = read(&dir, &query, &|_| true)?;
    let read_ms = begin.elapsed().as_secs_f64() * 1e3;
    let count: u64 = told.lines.iter().flat_map(|line| &line.values).map(|value| value.count).sum();
    let minutes = compacted(&dir, lots)?;
    Ok(Store {
        values: written,
        values_per_second: float(written) / seconds,
        bytes_per_value: float(bytes) / float(written),
        minutes_bytes_per_value: float(minutes) / float(written),
        read_ms,
        is_complete: count == written && told.damaged == 0,
    })
}

fn write(dir: &Path, limits: Limits, lots: u32, drawn: &[Vec<(Key, f64)>]) -> Result<u64> {
    let series = Series::open(dir, limits, Path::new("/proc"))?;
    let writer = series.writer();
    for (lot, values) in (0..i64::from(lots)).zip(drawn.iter().cycle()) {
        writer.write(lot * STEP_MS, values.clone());
        if lot % FLUSH_EVERY == 0 {
            writer.flush();
        }
    }
    writer.flush();
    let health = writer.health();
    anyhow::ensure!(health.lost == 0, "{} values were lost", health.lost);
    Ok(health.written)
}

/// Bytes when all of it has become minutes: one value much later makes it so.
fn compacted(dir: &Path, lots: u32) -> Result<u64> {
    let limits = Limits { points_ms: 0, minutes_ms: i64::MAX, keep_ms: i64::MAX, ..Limits::default() };
    let end = i64::from(lots) * STEP_MS + 2 * limits.segment_ms;
    let series = Series::open(dir, limits, Path::new("/proc"))?;
    let writer = series.writer();
    // A few segments at a time.
    for turn in 0..i64::from(lots) {
        writer.write(end + turn, vec![(key(0, Metric::Feedback), 1.0)]);
        writer.flush();
        let has_points = names(dir)?.iter().filter(|name| name.contains(".points.")).count() > 1;
        if !has_points {
            break;
        }
    }
    size(dir)
}

fn key(uid: u32, metric: Metric) -> Key {
    let owner = Owner::new(Some("ada".to_owned()), vec![Some(1000)]);
    let of = Of::tenant(TenantKey::User { uid }, &format!("trainer-{uid}"), owner);
    Key { of, gpu: Some(GpuUuid("GPU-8f2c0f6e-9c1d-4f6b-8a52-6d8f0e7a1b2c".to_owned())), metric }
}

/// Values as they are measured: whole percents, memory in pieces of 2 MiB, shares of a second.
fn draw(keys: &[Key]) -> Vec<Vec<(Key, f64)>> {
    let mut noise = Noise::new(1);
    let mut value = |metric: Metric| match metric {
        Metric::CorePct => noise.between(0.0, 101.0).floor(),
        Metric::MemoryBytes => noise.between(100.0, 40_000.0).floor() * f64::from(2 << 20),
        _ => noise.between(0.0, 1.0),
    };
    (0..64).map(|_| keys.iter().map(|key| (key.clone(), value(key.metric))).collect()).collect()
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in dir.read_dir().with_context(|| format!("listing {}", dir.display()))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    Ok(names)
}

fn size(dir: &Path) -> Result<u64> {
    let sizes = names(dir)?.into_iter().map(|name| dir.join(name).metadata().map_or(0, |found| found.len()));
    Ok(sizes.sum())
}

#[expect(clippy::cast_precision_loss, reason = "shown with two decimals")]
fn float(number: u64) -> f64 {
    number as f64
}
