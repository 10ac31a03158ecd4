//! What the tests of several mechanisms share.

use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use berth_model::Mono;
use berth_sim::server::{Libraries, find_libraries};

use crate::clock;

/// Says loudly that a test cannot run for lack of what only a host's kernel offers. A failure on a host under
/// `make test`, see CONTRIBUTING.md.
pub fn skip(test: &str, missing: &str) {
    skip_unless_required(test, missing, &["1"]);
}

/// The same for lack of what `make test` prepares, wherever it runs.
pub fn skip_unprepared(test: &str, missing: &str) {
    skip_unless_required(test, missing, &["1", "prepared"]);
}

fn skip_unless_required(test: &str, missing: &str, required_by: &[&str]) {
    let required = std::env::var("BERTH_TEST_REQUIRED").unwrap_or_default();
    assert!(!required_by.contains(&required.as_str()), "{test} cannot run: {missing}");
    eprintln!("SKIPPED {test}: {missing}");
}

/// How long a test waits for what must come. Far longer than it takes: other tests keep the machine busy on purpose.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Polls until `done`, for [`PATIENCE`] at most.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline: Mono = clock::now() + PATIENCE;
    while !done() {
        assert!(clock::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Cargo builds a shared library only when its package is asked for, so ask: quick when nothing changed.
pub fn libraries() -> Libraries {
    static BUILT: OnceLock<Libraries> = OnceLock::new();
    let build = || {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "berth-sim-cuda", "-p", "berth-sim-nvml"]);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        assert!(build.status().unwrap().success());
        find_libraries().unwrap()
    };
    BUILT.get_or_init(build).clone()
}
