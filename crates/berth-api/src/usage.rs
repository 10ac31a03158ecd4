//! What this process itself costs, from `/proc/self`.

use berth_model::Stat;

/// `None` where the kernel did not say.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// User and system time since the process began.
    pub cpu_seconds: Option<f64>,
    pub resident_bytes: Option<u64>,
}

impl Usage {
    pub fn of_this_process() -> Self {
        let stat = std::fs::read("/proc/self/stat").unwrap_or_default();
        Self::parse(&stat, rustix::param::clock_ticks_per_second(), rustix::param::page_size())
    }

    fn parse(stat: &[u8], ticks_per_second: u64, page_size: usize) -> Self {
        let Some(stat) = Stat::parse(stat) else { return Self::default() };
        #[expect(clippy::cast_precision_loss, reason = "seconds to a hundredth")]
        let cpu_seconds = stat.cpu_ticks().map(|ticks| ticks as f64 / ticks_per_second as f64);
        Self { cpu_seconds, resident_bytes: stat.resident_pages().map(|pages| pages * page_size as u64) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_pages_become_seconds_and_bytes() {
        let stat =
            b"7 (a) b (c) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 4 0 900 1000000 512 18446744073709551615";
        let usage = Usage::parse(stat, 100, 4096);
        assert_eq!(usage, Usage { cpu_seconds: Some(3.0), resident_bytes: Some(512 * 4096) });
    }

    #[test]
    fn what_cannot_be_read_is_unknown() {
        assert_eq!(Usage::parse(b"", 100, 4096), Usage::default());
    }

    #[test]
    fn this_process_has_memory() {
        assert!(Usage::of_this_process().resident_bytes > Some(100_000));
    }
}
