//! Whether anyone still keeps a table up to date.
//!
//! Where the writer's pid means something here (same boot, same pid namespace) the kernel says whether it lives;
//! everywhere else, such as in a container, only its heartbeat does.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use super::layout::WriterId;
use super::sys::{self, Presence};

/// Missed heartbeats after which a writer counts as stuck.
const MISSED_HEARTBEATS: u64 = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    Live,
    /// The writer may live, but has not been heard of for so long.
    Stale {
        age: Duration,
    },
    /// Closed, or its process is no more: the rows are what was true last.
    WriterGone,
}

/// What is known about the writer's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Process {
    Lives,
    Gone,
    /// It cannot be seen from here.
    NotVisible,
}

impl Freshness {
    pub(crate) fn find(writer: &WriterId, place: &Place, beat: &Heartbeat, now_mono_ns: u64) -> Self {
        Self::judge(find_process(writer, place), beat, now_mono_ns)
    }

    fn judge(process: Process, beat: &Heartbeat, now_mono_ns: u64) -> Self {
        let age_ns = now_mono_ns.saturating_sub(beat.last_mono_ns);
        if beat.closed || process == Process::Gone {
            Self::WriterGone
        } else if age_ns > beat.interval_ns.saturating_mul(MISSED_HEARTBEATS) {
            Self::Stale { age: Duration::from_nanos(age_ns) }
        } else {
            Self::Live
        }
    }
}

/// Where a reader stands; neither changes while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    boot_id_hash: Option<u64>,
    pid_namespace: Option<u64>,
}

/// The writer's signs of life in the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Heartbeat {
    pub last_mono_ns: u64,
    pub interval_ns: u64,
    pub closed: bool,
}

impl WriterId {
    /// This process.
    pub fn of_self() -> Self {
        let pid = std::process::id();
        let Place { boot_id_hash, pid_namespace } = Place::here();
        Self { pid, start_ticks: stat_of(pid).map(|stat| stat.start_ticks), boot_id_hash, pid_namespace }
    }
}

impl Place {
    pub fn here() -> Self {
        let boot_id = fs::read("/proc/sys/kernel/random/boot_id").ok();
        let pid_namespace = fs::metadata("/proc/self/ns/pid").ok();
        Self {
            boot_id_hash: boot_id.map(|id| fnv1a(id.trim_ascii())),
            pid_namespace: pid_namespace.map(|namespace| namespace.ino()),
        }
    }
}

fn find_process(writer: &WriterId, place: &Place) -> Process {
    let same = |theirs: Option<u64>, ours: Option<u64>| theirs.zip(ours).map(|(theirs, ours)| theirs == ours);
    if same(writer.boot_id_hash, place.boot_id_hash) == Some(false) {
        return Process::Gone;
    }
    if same(writer.pid_namespace, place.pid_namespace) != Some(true) {
        return Process::NotVisible;
    }
    match stat_of(writer.pid) {
        Some(stat) if stat.dead || writer.start_ticks.is_some_and(|ticks| ticks != stat.start_ticks) => Process::Gone,
        Some(_) => Process::Lives,
        // `/proc` may be mounted so that it hides other users' processes.
        None if sys::presence(writer.pid) == Presence::Gone => Process::Gone,
        None => Process::NotVisible,
    }
}

/// Of `/proc/PID/stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stat {
    /// Killed, though its parent has not asked for its status yet.
    dead: bool,
    start_ticks: u64,
}

fn stat_of(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// The second field is the program's name in parentheses, which may contain both spaces and parentheses, and any bytes.
fn parse_stat(stat: &[u8]) -> Option<Stat> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let mut fields = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?.split_ascii_whitespace();
    let dead = matches!(fields.next()?, "Z" | "X" | "x");
    Some(Stat { dead, start_ticks: fields.nth(18)?.parse().ok()? })
}

/// FNV-1a, 64 bits: short, and the same in every language.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn beat(last_mono_ns: u64) -> Heartbeat {
        Heartbeat { last_mono_ns, interval_ns: SECOND_NS, closed: false }
    }

    #[test]
    fn a_silent_writer_is_stale_whether_its_process_is_seen_or_not() {
        for process in [Process::Lives, Process::NotVisible] {
            assert_eq!(Freshness::judge(process, &beat(SECOND_NS), 6 * SECOND_NS), Freshness::Live);
            let age = Duration::from_secs(6);
            assert_eq!(Freshness::judge(process, &beat(SECOND_NS), 7 * SECOND_NS), Freshness::Stale { age });
        }
    }

    #[test]
    fn a_dead_or_closed_writer_is_gone_however_young_its_heartbeat() {
        assert_eq!(Freshness::judge(Process::Gone, &beat(SECOND_NS), SECOND_NS), Freshness::WriterGone);
        let closed = Heartbeat { closed: true, ..beat(SECOND_NS) };
        assert_eq!(Freshness::judge(Process::Lives, &closed, SECOND_NS), Freshness::WriterGone);
    }

    #[test]
    fn a_heartbeat_from_the_future_is_no_age() {
        assert_eq!(Freshness::judge(Process::NotVisible, &beat(9 * SECOND_NS), SECOND_NS), Freshness::Live);
    }

    #[test]
    fn this_process_is_found_alive_and_one_with_its_pid_but_another_start_is_not() {
        let own = WriterId::of_self();
        assert_eq!(find_process(&own, &Place::here()), Process::Lives);
        let reused = WriterId { start_ticks: own.start_ticks.map(|ticks| ticks + 1), ..own };
        assert_eq!(find_process(&reused, &Place::here()), Process::Gone);
    }

    #[test]
    fn a_pid_of_another_boot_is_gone_and_one_of_another_namespace_is_not_judged() {
        let own = WriterId::of_self();
        let rebooted = WriterId { boot_id_hash: own.boot_id_hash.map(|hash| !hash), ..own };
        assert_eq!(find_process(&rebooted, &Place::here()), Process::Gone);
        let elsewhere = WriterId { pid_namespace: own.pid_namespace.map(|inode| inode + 1), pid: u32::MAX, ..own };
        assert_eq!(find_process(&elsewhere, &Place::here()), Process::NotVisible);
        let unsaid = WriterId { pid_namespace: None, ..own };
        assert_eq!(find_process(&unsaid, &Place::here()), Process::NotVisible);
    }

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_start_time() {
        let rest = "1 1 1 0 -1 4194560 0 0 0 0 0 0 0 0 20 0 1 0";
        let stat = |state: &str| parse_stat(format!("7 (a) Z (b)) {state} {rest} 4242 0 0").as_bytes());
        assert_eq!(stat("S"), Some(Stat { dead: false, start_ticks: 4242 }));
        assert_eq!(stat("Z"), Some(Stat { dead: true, start_ticks: 4242 }));
        assert_eq!(parse_stat(b"7 (cut"), None);
        assert_eq!(parse_stat(b"7 (cut) S 1 2"), None);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }
}
