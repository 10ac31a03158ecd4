//! What the tests of several mechanisms share.

use std::time::Duration;

use berth_model::Mono;

use crate::clock;

/// Says loudly that a test cannot run here. Where everything was prepared (`BERTH_TEST_REQUIRED=1`) that is a failure.
pub fn skip(test: &str, missing: &str) {
    assert!(std::env::var_os("BERTH_TEST_REQUIRED").is_none_or(|v| v != "1"), "{test} cannot run: {missing}");
    eprintln!("SKIPPED {test}: {missing}");
}

/// Polls until `done` or ten seconds have passed.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline: Mono = clock::now() + Duration::from_secs(10);
    while !done() {
        assert!(clock::now() < deadline, "not within ten seconds: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
