//! Profiles are data: what is wrong in them is refused by name.

use std::error::Error;
use std::path::Path;

use berth_sim::{Profile, ProfileError, profile};

fn h200_with(from: &str, to: &str) -> Result<Profile, ProfileError> {
    let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/h200.toml"));
    let text = text.expect("the profile is there");
    assert!(text.contains(from), "{from}");
    Profile::parse("test.toml", &text.replace(from, to))
}

fn message(error: ProfileError) -> String {
    let source = error.source().map(ToString::to_string).unwrap_or_default();
    format!("{error}: {source}")
}

#[test]
fn every_built_in_profile_loads() {
    for name in profile::builtin_names() {
        Profile::builtin(name).unwrap();
    }
}

#[test]
fn unknown_profile_is_answered_with_those_there_are() {
    let message = message(Profile::builtin("h2000").unwrap_err());
    assert!(message.contains("h2000") && message.contains("rtx3090, a100, h200"), "{message}");
}

#[test]
fn unknown_key_is_refused_by_name() {
    let message = message(h200_with("slice_us", "slize_us").unwrap_err());
    assert!(message.contains("test.toml") && message.contains("slize_us"), "{message}");
}

#[test]
fn missing_key_is_refused_by_name() {
    let message = message(h200_with("launch_us = 3.0", "").unwrap_err());
    assert!(message.contains("launch_us"), "{message}");
}

#[test]
fn impossible_values_are_refused_by_key() {
    for (from, to, key) in [
        ("gflops = 5000.0", "gflops = 0.0", "compute.gflops"),
        ("gflops = 5000.0", "gflops = nan", "compute.gflops"),
        ("switch_us = 240.0", "switch_us = -1.0", "compute.switch_us"),
        ("jitter_pct = 3.0", "jitter_pct = 101.0", "context.jitter_pct"),
        ("memory_mib = 143771", "memory_mib = 522", "gpu.memory_mib"),
        ("memory_mib = 143771", "memory_mib = 9000000000000000000", "gpu.memory_mib"),
    ] {
        let message = message(h200_with(from, to).unwrap_err());
        assert!(message.contains(key) && message.contains("must be"), "{message}");
    }
}

#[test]
fn profile_loads_from_a_path_and_a_missing_one_is_named() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../profiles/a100.toml");
    assert_eq!(Profile::load(&path).unwrap(), Profile::builtin("a100").unwrap());
    let message = message(Profile::load(Path::new("/nonexistent.toml")).unwrap_err());
    assert!(message.contains("/nonexistent.toml"), "{message}");
}
