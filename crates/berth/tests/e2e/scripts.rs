//! The scripts behind `make`.

use std::os::unix::fs::symlink;
use std::process::Command;

use crate::support::{BERTH, Host, run};

const RUN_BERTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/berth.sh");

#[test]
fn the_build_is_found_where_cargo_was_told_to_put_it() {
    let host = Host::bare();
    let target = host.file("elsewhere");
    let berth = || run(Command::new(RUN_BERTH).arg("--version").env("CARGO_TARGET_DIR", &target));
    let missing = berth();
    assert_eq!(missing.code, 1, "{missing:?}");
    let place = target.join("release/berth");
    assert!(missing.stderr.contains(place.to_str().unwrap()), "{missing:?}");
    std::fs::create_dir_all(target.join("release")).unwrap();
    symlink(BERTH, place).unwrap();
    assert!(berth().ok().starts_with("berth "));
}
