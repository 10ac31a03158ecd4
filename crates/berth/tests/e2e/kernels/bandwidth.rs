//! What a program uses of the memory's bandwidth, by the counters of a GPU that has them.

use std::process::{Command, Stdio};

use berth_proto::nvml_state::{FILE_NAME, Reader};

use super::programs::{library, with_library};
use super::{daemon, row};
use crate::support::{Cgroup, Host, until};

#[test]
fn the_bandwidth_of_one_that_is_alone_is_learned_from_the_gpu_s_counters() {
    let Some(library) = library("the_bandwidth_of_one_that_is_alone_is_learned") else { return };
    let host = Host::start();
    let daemon = daemon(&host);
    let cgroup = std::sync::Arc::new(Cgroup::make("copies"));
    // Large enough not to spend its time on launches, small enough for memory to be seen beside arithmetic.
    let args = ["matmul", "--size", "1024", "--repeats", "forever"];
    let mut program: Command = with_library(&cgroup, &host, &library, &args);
    let mut program = program.stdin(Stdio::null()).stdout(Stdio::null()).stderr(host.log("copies")).spawn().unwrap();
    let (seen, served) = until("what it uses of the bandwidth", || {
        let row = row(&daemon, &cgroup.key())?;
        Some((row.bandwidth_share?, row.served_seconds))
    });
    let told = Reader::open(&host.sim_dir().join(FILE_NAME)).unwrap().gpu(0).unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    let used = told.traffic_us as f64 / 1e6 / served;
    assert!(used > 0.001 && (used / 2.0..used * 2.0).contains(&seen), "{seen} instead of {used}");
}
