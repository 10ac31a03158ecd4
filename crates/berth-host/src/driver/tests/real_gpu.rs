//! On a real GPU, where `BERTH_TEST_GPU=1` says there is one: what the driver answers, and what it costs.
//!
//! Besides holding the claims it prints what only hardware can tell: the cost of `cuInit`, the code of a lock that ran out
//! of time, the times of lock and park.

use std::path::Path;
use std::time::{Duration, Instant};

use berth_load::Moment;
use berth_model::Bytes;

use super::host::Tenant;
use super::{LONG, SOON};
use crate::driver::api::Api;
use crate::driver::measure::{lock_times, park_times};
use crate::driver::sys::Cuda;
use crate::driver::{Driver, DriverError, Options, ParkOptions, Parking, State};
use crate::nvml::{GpuProbe, NvmlProbe, RawReading};

const LIBCUDA: &str = "libcuda.so.1";

fn is_listed(probe: &mut NvmlProbe, pid: u32) -> bool {
    probe.look(false).gpus.iter().any(|gpu| {
        matches!(&gpu.reading, RawReading::Ok { processes: Ok(listed), .. } if listed.iter().any(|one| one.pid == pid))
    })
}

#[test]
fn a_real_driver_locks_and_parks_as_the_simulated_one_does() {
    if std::env::var_os("BERTH_TEST_GPU").is_none_or(|value| value != "1") {
        eprintln!("SKIPPED a_real_driver_locks_and_parks_as_the_simulated_one_does: BERTH_TEST_GPU is not 1");
        return;
    }
    let mut probe = NvmlProbe::open(Path::new("libnvidia-ml.so.1")).unwrap();
    probe.inventory().unwrap();
    let driver = Driver::open(Path::new(LIBCUDA), Options::default()).unwrap();
    let idle = Tenant::start(Path::new(LIBCUDA), &format!("hold:{}", 1_u64 << 30));
    let begin = Instant::now();
    assert_eq!(driver.state(idle.key()).unwrap(), State::Running);
    eprintln!("cuInit and the first state: {:?}", begin.elapsed());
    assert!(!is_listed(&mut probe, std::process::id()), "no context was made here");
    eprintln!("idle: {:?}", lock_times(&driver, idle.key(), 200, LONG).unwrap());

    let mut busy = Tenant::start(Path::new(LIBCUDA), "matmul:19456");
    busy.until(Moment::FirstLaunch);
    let bare = Cuda::open(Path::new(LIBCUDA)).unwrap();
    let answer = bare.lock(busy.key().pid.cast_signed(), 50);
    eprintln!("a lock that runs out of time answers {:?} ({answer})", bare.name(answer));
    let refused = driver.lock(busy.key(), SOON).unwrap_err();
    assert!(matches!(refused, DriverError::TimedOut { .. }), "{refused}");
    assert_eq!(driver.state(busy.key()).unwrap(), State::Running);
    let begin = Instant::now();
    driver.lock(busy.key(), Duration::from_secs(60)).unwrap();
    eprintln!("lock of a running kernel: {:?}", begin.elapsed());
    driver.unlock(busy.key()).unwrap();
    assert!(busy.finish());

    let parking = Parking::new(driver, Box::new(probe), ParkOptions::default());
    for gib in [1_u64, 4, 10] {
        let tenant = Tenant::start(Path::new(LIBCUDA), &format!("hold:{}", gib << 30));
        let times = park_times(&parking, tenant.key(), LONG).unwrap();
        assert!(times.bytes >= Bytes(gib << 30));
        eprintln!("park: {times:?}");
    }
}
