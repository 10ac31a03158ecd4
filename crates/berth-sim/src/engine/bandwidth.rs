//! How fast kernels are on the SMs they have, and what they take of the memory bandwidth from each other.
//!
//! Alone on all SMs a kernel's arithmetic takes its compute part and its memory accesses its memory part of the time, side by side; the
//! longer takes all of it. On a part g of the SMs arithmetic takes 1/g as long; memory accesses do so only below the part that is
//! enough for the whole bandwidth (`memory_sms`). If all together want more than there is, everybody's memory accesses take longer by the same factor.
//! So a kernel is slowed down by neighbours as far as memory is what it waits for.
//!
//! Properties, held by tests: together no more than the bandwidth; alone at full speed; more SMs are never slower.

use super::fluid::Job;

/// Halvings in the search for the factor: enough for 12 digits.
const HALVINGS: u32 = 40;

/// A job, and the part of the SMs it has.
pub(super) type OnSms<'a> = (&'a Job, f64);

/// How long the job takes for what it does in one unit of time alone on all SMs.
fn time((job, held): OnSms<'_>, memory_sms: f64, factor: f64) -> f64 {
    let width = (held / memory_sms).min(1.0);
    (job.need.compute_part / held).max(factor * job.memory_part / width)
}

/// Times as long as with all SMs, for a kernel that can use a part `demand` of them and has them to itself.
pub(super) fn alone(compute_part: f64, memory_part: f64, demand: f64, memory_sms: f64) -> f64 {
    (compute_part / demand).max(memory_part / (demand / memory_sms).min(1.0))
}

/// Speed of each job against being alone, and the part of the bandwidth that is used.
pub(super) fn speeds(jobs: &[OnSms<'_>], memory_sms: f64) -> (Vec<f64>, f64) {
    let used = |factor: f64| -> f64 {
        let running = jobs.iter().filter(|(_, held)| *held > 0.0);
        running.map(|on_sms| on_sms.0.memory_part / time(*on_sms, memory_sms, factor)).sum()
    };
    let wanted = used(1.0);
    let factor = if wanted > 1.0 { find(|factor| used(factor) <= 1.0, jobs.len() as f64) } else { 1.0 };
    let speed = |on_sms: &OnSms<'_>| {
        let (job, held) = *on_sms;
        if held <= 0.0 {
            return 0.0;
        }
        let alone = alone(job.need.compute_part, job.memory_part, job.demand, memory_sms);
        (alone / time(*on_sms, memory_sms, factor)).min(1.0)
    };
    (jobs.iter().map(speed).collect(), used(factor).min(1.0))
}

/// The least factor from 1 to `most` that is enough.
fn find(is_enough: impl Fn(f64) -> bool, most: f64) -> f64 {
    let (mut low, mut high) = (1.0, most.max(1.0));
    for _ in 0..HALVINGS {
        let middle = f64::midpoint(low, high);
        if is_enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::fluid::Need;
    use super::*;

    fn kernel(compute_part: f64, memory_part: f64, demand: f64) -> Job {
        let need = Need { compute_part, ..Need::default() };
        Job { pid: 1, context: 1, stream: 0, demand, memory_part, remaining_ns: 1.0, rate: 0.0, need, held: 0.0 }
    }

    #[test]
    fn arithmetic_needs_sms_and_memory_accesses_only_some() {
        let (compute, memory) = (kernel(1.0, 0.0, 1.0), kernel(0.0, 1.0, 1.0));
        assert_eq!(speeds(&[(&compute, 0.5)], 0.5).0, [0.5]);
        assert_eq!(speeds(&[(&memory, 0.5)], 0.5).0, [1.0]);
        assert_eq!(speeds(&[(&memory, 0.25)], 0.5).0, [0.5]);
    }

    #[test]
    fn two_that_move_data_halve_each_other_and_leave_arithmetic_alone() {
        let (memory, compute) = (kernel(0.1, 1.0, 0.5), kernel(1.0, 0.0, 0.5));
        let (found, used) = speeds(&[(&memory, 0.5), (&memory, 0.5)], 0.5);
        assert!(found.iter().all(|speed| (speed - 0.5).abs() < 1e-9), "{found:?}");
        assert!((used - 1.0).abs() < 1e-9);
        assert_eq!(speeds(&[(&memory, 0.5), (&compute, 0.5)], 0.5).0, [1.0, 1.0]);
    }

    #[test]
    fn who_does_not_wait_for_memory_is_not_slowed_down() {
        let (heavy, light) = (kernel(0.1, 1.0, 0.5), kernel(1.0, 0.2, 0.5));
        let (found, _) = speeds(&[(&heavy, 0.5), (&light, 0.5)], 0.5);
        assert_eq!(found[1], 1.0);
        assert!((found[0] - 0.9).abs() < 1e-9, "it gives way to what the other uses: {found:?}");
    }

    proptest! {
        #[test]
        fn together_they_use_no_more_than_the_bandwidth(
            jobs in prop::collection::vec((0.0f64..=1.0, any::<bool>(), 0.05f64..=1.0, 0.0f64..=1.0), 1..12),
            memory_sms in 0.1f64..=1.0,
        ) {
            let total: f64 = jobs.iter().map(|(_, _, demand, part)| demand * part).sum();
            let kernels: Vec<(Job, f64)> = jobs
                .iter()
                .map(|(lesser, is_memory, demand, part)| {
                    let (compute, memory) = if *is_memory { (*lesser, 1.0) } else { (1.0, *lesser) };
                    (kernel(compute, memory, *demand), demand * part / total.max(1.0))
                })
                .collect();
            let on_sms: Vec<OnSms<'_>> = kernels.iter().map(|(job, held)| (job, *held)).collect();
            let (found, used) = speeds(&on_sms, memory_sms);
            prop_assert!(used <= 1.0 + 1e-9);
            prop_assert!(found.iter().all(|speed| (0.0..=1.0).contains(speed)));
            for (job, held) in &on_sms {
                let one = speeds(&[(*job, *held)], memory_sms).0[0];
                let all = speeds(&[(*job, job.demand)], memory_sms).0[0];
                prop_assert!(one <= all && (all - 1.0).abs() < 1e-9, "{one} {all}");
            }
        }
    }
}
