//! A process on a GPU, simulated or real: this test program itself, started again to hold memory until it is killed.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use berth_load::{FOREVER, Mode, Options};
use berth_model::{Bytes, GpuIndex};

/// Starts one; it has its memory when this returns.
pub fn tenant(libcuda: &Path, gpu: GpuIndex, memory: Bytes) -> Child {
    // By the running image, not by path: a build beside this run may have replaced the file.
    let mut child = Command::new("/proc/self/exe")
        .args(["--exact", "nvml::tests::tenant::tenant_process", "--nocapture", "--test-threads=1"])
        .env(TENANT, format!("{}:{}:{}", gpu.0, memory.0, libcuda.display()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_allocated = lines.any(|line| line.is_ok_and(|line| line.contains("first_allocation")));
    assert!(is_allocated, "the tenant ended without allocating");
    child
}

/// Tells a child of this test program to be a tenant: `GPU:BYTES:LIBCUDA`.
const TENANT: &str = "BERTH_TEST_TENANT";

/// No test: what such a child runs.
#[test]
fn tenant_process() {
    let Ok(order) = std::env::var(TENANT) else { return };
    let mut parts = order.splitn(3, ':');
    let mut options = Options::new(Mode::Hold);
    options.device = parts.next().unwrap().parse().unwrap();
    options.alloc_bytes = parts.next().unwrap().parse().unwrap();
    options.library = parts.next().unwrap().into();
    options.hold = FOREVER;
    berth_load::run(&options);
}
