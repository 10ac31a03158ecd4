//! What is read from the environment: all of it, here.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use berth_proto::shim::SOCKET_VARIABLE;

/// `1`: says on standard error why it goes on without berth.
const LOG_VARIABLE: &str = "BERTH_SHIM_LOG";
/// Milliseconds for which the daemon's first answer is waited for.
const WAIT_VARIABLE: &str = "BERTH_SHIM_WAIT_MS";
/// A moment to a program that starts, and enough for a daemon that is not overloaded.
const WAIT_MS: u64 = 250;

/// Where the daemon listens; without it nothing is done.
pub(crate) fn socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from)
}

pub(crate) fn wants_log() -> bool {
    std::env::var_os(LOG_VARIABLE).is_some_and(|value| value == "1")
}

/// Read once: a thread of ours must not read what the program may be writing.
pub(crate) fn wait() -> Duration {
    static WAIT: OnceLock<Duration> = OnceLock::new();
    *WAIT.get_or_init(|| {
        let asked = std::env::var(WAIT_VARIABLE).ok().and_then(|text| text.parse().ok());
        Duration::from_millis(asked.unwrap_or(WAIT_MS))
    })
}
