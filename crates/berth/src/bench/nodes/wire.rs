//! What a report weighs on the wire, and what it costs to read it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use berth_cluster::frame::{
    ClusterKey, FrameError, Fresh, KEY_BYTES, NONCE_BYTES, Nonce, decode_report, encode_report,
};
use berth_model::cluster::{Record, Report};
use serde::Serialize;

use super::draw::{Draw, Load};
use crate::bench::quantiles::Quantiles;

#[derive(Debug, Clone, Serialize)]
pub struct Wire {
    /// The paper's: state, memory and float time of one GPU.
    pub record_bytes: usize,
    /// A whole frame of a node of two GPUs, without HTTP and what is below it.
    pub frame_bytes: Quantiles,
    /// The same report as JSON.
    pub json_bytes: Quantiles,
    /// Signing and writing a frame.
    pub written_us: Quantiles,
    /// Checking and reading one.
    pub read_us: Quantiles,
}

impl Wire {
    /// A report like those that are measured.
    pub fn example(seed: u64) -> Report {
        Draw::new(seed).report(0, 1, Load::Mixed)
    }

    pub fn measure(turns: usize, seed: u64) -> Result<Self, FrameError> {
        let mut draw = Draw::new(seed);
        let cluster = ClusterKey::new([7; KEY_BYTES]);
        let (mut frame_bytes, mut json_bytes, mut written_us, mut read_us) = (vec![], vec![], vec![], vec![]);
        for turn in 0..turns {
            let report = draw.report(turn, 1, Load::Mixed);
            let nonce = Nonce([u8::try_from(turn % 251).unwrap_or(0); NONCE_BYTES]);
            let key = cluster.node(&report.node);
            let begun = Instant::now();
            let frame = encode_report(&report, Duration::ZERO, Some(&nonce), &key)?;
            written_us.push(begun.elapsed().as_secs_f64() * 1e6);
            let begun = Instant::now();
            black_box(decode_report(&frame, &report.node, &key, &Fresh::Answer(nonce))?);
            read_us.push(begun.elapsed().as_secs_f64() * 1e6);
            frame_bytes.push(frame.len() as f64);
            json_bytes.push(serde_json::to_vec(&report).map_or(0, |json| json.len()) as f64);
        }
        let of = |values: Vec<f64>| Quantiles::of(&values).expect("at least one turn");
        Ok(Self {
            record_bytes: Record::BYTES,
            frame_bytes: of(frame_bytes),
            json_bytes: of(json_bytes),
            written_us: of(written_us),
            read_us: of(read_us),
        })
    }
}
