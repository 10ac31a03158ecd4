//! Bodies of reports and of pasts, as a node that was broken into may sign them (`crates/berth-cluster/src/frame`).
#![no_main]

/// By its path: the frame alone, without the servers of its crate, which take minutes to build.
#[path = "../../crates/berth-cluster/src/frame/mod.rs"]
#[allow(dead_code, unused_imports)]
mod frame;

libfuzzer_sys::fuzz_target!(|body: &[u8]| frame::fuzz(body));
