//! Parking: GPU memory moved to host memory and back, by size.

use std::time::Instant;

use anyhow::{Context as _, anyhow};
use berth_model::Bytes;
use berth_model::hold::Want;

use super::on_hold::ms_between;
use super::report::{HOLD, RELEASE, Row};
use super::{Bench, Part};

/// Moving takes seconds: at most this often, and not again when it took this long.
const TURNS: usize = 3;
const ENOUGH_S: f64 = 15.0;

pub fn measure(bench: &mut Bench<'_>, rows: &mut Vec<Row>) -> anyhow::Result<()> {
    bench.host.driver.clone().map_err(|why| anyhow!(why))?;
    for size in bench.plan.sizes.clone() {
        match one(bench, size) {
            Ok(new) => rows.extend(new),
            Err(error) if bench.interrupt.noted().is_none() => {
                let why = format!("{error:#}");
                (bench.say)(&format!("park of {size}: {why}"));
                rows.push(Row::refused(Part::Park, &name(size), why));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn name(size: Bytes) -> String {
    format!("park {size}")
}

fn one(bench: &mut Bench<'_>, size: Bytes) -> anyhow::Result<Vec<Row>> {
    let bytes = format!("{}MiB", size.0 >> 20);
    let load = bench.load(&["light", "--size", "32", "--period", "10ms", "--alloc-bytes", &bytes])?;
    let parked = turns(bench, &load);
    bench.end(&load)?;
    let (holds, releases) = parked.with_context(|| format!("parking {size}"))?;
    let row = |what, times: &[f64]| Some(Row::of(Part::Park, &name(size), what, times)?.with_bytes(size));
    Ok([row(HOLD, &holds), row(RELEASE, &releases)].into_iter().flatten().collect())
}

fn turns(bench: &Bench<'_>, load: &super::subject::Load) -> anyhow::Result<(Vec<f64>, Vec<f64>)> {
    let (mut holds, mut releases) = (Vec::new(), Vec::new());
    let began = Instant::now();
    let mut held = bench.held(load);
    while holds.len() < TURNS && (holds.is_empty() || began.elapsed().as_secs_f64() < ENOUGH_S) {
        bench.interrupt.check()?;
        load.until_running()?;
        let hold = held.go(Want::Parked)?;
        let release = held.go(Want::Free)?;
        holds.push(hold.ms());
        releases.push(ms_between(release.from_ns, load.running_since(hold.to_ns, release.from_ns)?));
    }
    Ok((holds, releases))
}
