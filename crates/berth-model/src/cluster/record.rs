//! The record of the paper, sixteen bytes: state 1, memory 5, float time 10. Here it is of one GPU.
//!
//! It is made from the facts of a report and says nothing they do not. The paper gives sizes and no layout; this one is ours.

use super::report::{GpuReport, LoadReport};
use crate::quantity::Percent;

/// By the paper's rule, with the repairs it needs: a GPU without tasks has all the time in the world, and a task under way counts with
/// what is left until it is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// Nobody there missed a deadline, and neither its cores nor its memory are fully used.
    pub is_placeable: bool,
    /// Free memory in KiB; what is beyond five bytes is cut.
    pub free_kib: u64,
    /// Sum of everybody's float time in nanoseconds; `None` where nobody has a deadline.
    pub float_nanos: Option<i128>,
}

const MOST_KIB: u64 = (1 << 40) - 1;
/// Ten bytes, signed; the highest stands for no bound.
const UNBOUNDED: i128 = (1 << 79) - 1;

impl Record {
    pub const BYTES: usize = 16;

    pub fn of(gpu: &GpuReport) -> Self {
        let is_busy = gpu.core_pct.map(Percent::get) == Some(100);
        let is_full =
            gpu.memory_total_bytes.is_some_and(|total| gpu.memory_used_bytes.is_some_and(|used| used >= total));
        let free = gpu.free_bytes().map_or(0, |free| free.0 >> 10);
        Self {
            is_placeable: !gpu.is_lost && gpu.missed_by_present == 0 && !is_busy && !is_full,
            free_kib: free.min(MOST_KIB),
            float_nanos: (!gpu.loads.is_empty()).then(|| nanos(float_seconds(gpu))),
        }
    }

    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[0] = self.is_placeable.into();
        bytes[1..6].copy_from_slice(&self.free_kib.to_le_bytes()[..5]);
        bytes[6..].copy_from_slice(&self.float_nanos.unwrap_or(UNBOUNDED).to_le_bytes()[..10]);
        bytes
    }
}

/// Of those who are there, in seconds: under way until they are due, of the others what was left in their last unit.
fn float_seconds(gpu: &GpuReport) -> f64 {
    let due = |load: &LoadReport| load.under_way.map(|work| work.due_in_seconds);
    gpu.loads.iter().filter_map(due).sum::<f64>() + gpu.past_float_seconds
}

/// Saturates below what stands for no bound; what is no number is nothing.
#[expect(clippy::cast_possible_truncation, reason = "a float that is cast saturates")]
fn nanos(seconds: f64) -> i128 {
    ((seconds * 1e9) as i128).clamp(-UNBOUNDED, UNBOUNDED - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;
    use crate::cluster::report::UnderWay;
    use crate::deadline::Unit;
    use crate::id::GpuUuid;

    fn gpu() -> GpuReport {
        GpuReport {
            uuid: GpuUuid("GPU-1".into()),
            is_lost: false,
            memory_total_bytes: Some(Bytes::from_mib(1024)),
            memory_used_bytes: Some(Bytes::from_mib(24)),
            memory_promised_bytes: Bytes(0),
            core_pct: Percent::checked(99),
            queue: 0,
            others: 0,
            share: 1.0,
            loads: vec![],
            has_more: false,
            missed_by_present: 0,
            misses_ago_seconds: vec![],
            past_float_seconds: 0.0,
            placed: vec![],
        }
    }

    fn due_in(due_in_seconds: f64) -> LoadReport {
        let under_way = Some(UnderWay { due_in_seconds, done_seconds: 0.0 });
        LoadReport { unit: Unit::Task, deadline_seconds: 9.0, under_way, takes: None }
    }

    #[test]
    fn a_gpu_nobody_has_a_deadline_on_has_all_the_time_in_the_world() {
        let record = Record::of(&gpu());
        assert_eq!(record, Record { is_placeable: true, free_kib: 1000 << 10, float_nanos: None });
        let bytes = record.to_bytes();
        assert_eq!(bytes, [1, 0, 0xa0, 0x0f, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 255, 0x7f]);
    }

    #[test]
    fn float_times_are_added_and_may_be_below_zero() {
        let loads = vec![due_in(1.0), due_in(-3.5)];
        let record = Record::of(&GpuReport { loads, past_float_seconds: 0.5, ..gpu() });
        assert_eq!(record.float_nanos, Some(-2_000_000_000));
        assert_eq!(record.to_bytes()[6..], (-2_000_000_000i128).to_le_bytes()[..10]);
    }

    #[test]
    fn a_miss_full_cores_full_memory_and_a_lost_gpu_each_leave_it_out() {
        let is_placeable = |gpu: GpuReport| Record::of(&gpu).is_placeable;
        assert!(is_placeable(gpu()));
        assert!(!is_placeable(GpuReport { is_lost: true, ..gpu() }));
        assert!(!is_placeable(GpuReport { missed_by_present: 1, ..gpu() }));
        assert!(!is_placeable(GpuReport { core_pct: Percent::checked(100), ..gpu() }));
        assert!(!is_placeable(GpuReport { memory_used_bytes: Some(Bytes::from_mib(1024)), ..gpu() }));
        assert!(is_placeable(GpuReport { core_pct: None, memory_used_bytes: None, ..gpu() }), "nothing says otherwise");
    }

    #[test]
    fn what_does_not_fit_is_cut_and_is_never_taken_for_no_bound() {
        let vast = GpuReport { memory_total_bytes: Some(Bytes(u64::MAX)), loads: vec![due_in(f64::MAX)], ..gpu() };
        let record = Record::of(&vast);
        assert_eq!((record.free_kib, record.float_nanos), (MOST_KIB, Some(UNBOUNDED - 1)));
        assert_ne!(record.to_bytes()[6..], Record { float_nanos: None, ..record }.to_bytes()[6..]);
    }
}
