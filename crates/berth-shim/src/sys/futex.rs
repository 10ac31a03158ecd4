//! Waiting for words that other processes write.

use std::ffi::{c_int, c_long};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// `FUTEX2_SIZE_U32`, not private: another process may wake it.
const WORD_OF_32_BITS: u32 = 2;
/// The most words that are waited for at a time.
pub(crate) const MOST: usize = 64;

/// `struct futex_waitv`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Waited {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// Waits until the word is no longer `value`, somebody wakes it, or the time is over. May return early.
pub(crate) fn wait(word: &AtomicU32, value: u32, within: Duration) {
    // SAFETY: the word is alive.
    unsafe { wait_at(word.as_ptr(), value, within) };
}

/// # Safety
/// There is a word at the address, or nothing: the kernel refuses then.
unsafe fn wait_at(word: *mut u32, value: u32, within: Duration) {
    let within = timespec(within);
    // SAFETY: the time is alive for the call, which only reads the word.
    unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAIT, value, &raw const within) };
}

/// Waits while each of these words has its value, as long as it may. Words that are not mapped any more end it. May return early.
pub(crate) fn wait_while(words: &[(*const AtomicU32, u32)], until_ns: u64, now_ns: u64) {
    let none = Waited { value: 0, address: 0, flags: WORD_OF_32_BITS, reserved: 0 };
    let (mut all, count) = ([none; MOST], words.len().min(MOST));
    for (one, (word, value)) in all.iter_mut().zip(words) {
        (one.address, one.value) = (word.addr() as u64, u64::from(*value));
    }
    let until = timespec(Duration::from_nanos(until_ns));
    // SAFETY: as many entries are given as there are, and the time is alive for the call; the words are only read, by the kernel,
    // which refuses what is not mapped.
    let answer = unsafe {
        libc::syscall(libc::SYS_futex_waitv, all.as_ptr(), count, 0, &raw const until, libc::CLOCK_MONOTONIC)
    };
    let is_refused = answer < 0 && !matches!(errno(), libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR | libc::EFAULT);
    if is_refused {
        // Before Linux 5.16, or by a filter of system calls: one of them, and the others a moment later.
        let within = Duration::from_nanos(until_ns.saturating_sub(now_ns));
        let within = if count > 1 { within.min(Duration::from_micros(200)) } else { within };
        if let Some((word, value)) = words.first() {
            // SAFETY: as above.
            unsafe { wait_at(word.cast_mut().cast(), *value, within) };
        }
    }
}

/// Everybody who waits for the word, in whichever process.
pub(crate) fn wake(word: &AtomicU32) {
    // SAFETY: the word is alive.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, c_int::MAX) };
}

fn errno() -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() }
}

fn timespec(time: Duration) -> libc::timespec {
    let seconds = libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX);
    libc::timespec { tv_sec: seconds, tv_nsec: c_long::from(time.subsec_nanos().cast_signed()) }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::Instant;

    use super::*;
    use crate::sys::process::now_ns;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_word_that_goes_up_wakes_whoever_waits_for_several() {
        let words = [AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0)];
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while words[2].load(Ordering::SeqCst) == 0 {
                    let words: Vec<_> = words.iter().map(|word| (std::ptr::from_ref(word), 0)).collect();
                    let now = now_ns();
                    wait_while(&words, now + 60_000_000_000, now);
                }
            });
            std::thread::sleep(Duration::from_millis(20));
            words[2].store(7, Ordering::SeqCst);
            wake(&words[2]);
        });
        assert!(begun.elapsed() < LONG, "it has slept through");
    }

    #[test]
    fn nobody_sleeps_for_a_word_that_has_changed_or_is_not_there() {
        let (up, begun) = (AtomicU32::new(1), Instant::now());
        let now = now_ns();
        for value in [0, 3] {
            wait_while(&[(std::ptr::from_ref(&up), value)], now + 60_000_000_000, now);
        }
        wait_while(&[(std::ptr::without_provenance(4096), 0)], now + 60_000_000_000, now);
        wait(&up, 0, LONG);
        assert!(begun.elapsed() < LONG);
    }

    /// From now on this thread's calls of `futex_waitv` are refused, as by a container's filter.
    fn refuse_waitv() {
        let statement =
            |code: u32, value: u32| libc::sock_filter { code: code.try_into().unwrap(), jt: 0, jf: 0, k: value };
        let is_waitv = u32::try_from(libc::SYS_futex_waitv).unwrap();
        let mut filter = [
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
            libc::sock_filter { jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, is_waitv) },
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM.cast_unsigned()),
            statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog { len: 4, filter: filter.as_mut_ptr() };
        // SAFETY: the program is alive for the call, which copies it.
        let told = unsafe {
            (
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program),
            )
        };
        assert_eq!(told, (0, 0), "{}", std::io::Error::last_os_error());
    }

    #[test]
    fn where_waiting_for_several_is_refused_it_is_looked_often_but_not_all_the_time() {
        let looks = |words: &[AtomicU32]| {
            let words: Vec<_> = words.iter().map(|word| (std::ptr::from_ref(word), 0)).collect();
            let (begun, mut looks) = (now_ns(), 0);
            while now_ns() - begun < 50_000_000 {
                wait_while(&words, begun + 60_000_000, now_ns());
                looks += 1;
            }
            looks
        };
        let refused = move || {
            refuse_waitv();
            (looks(&[AtomicU32::new(0)]), looks(&[AtomicU32::new(0), AtomicU32::new(0)]))
        };
        let (of_one, of_two) = std::thread::spawn(refused).join().unwrap();
        assert!(of_one <= 3 && of_two <= 250, "{of_one}, {of_two}");
    }
}
