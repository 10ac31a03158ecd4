//! Signals as engines and people name them, and which of them a tenant that stands still is let go for.

use std::fmt;
use std::str::FromStr;

/// A signal by its number on Linux (x86 and Arm).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(pub u8);

/// By number, from 1.
const NAMES: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// The first that programs may use of the real-time signals; the two before it are the C library's.
const FIRST_REAL_TIME: u8 = 34;
const LAST: u8 = 64;

impl Signal {
    pub const HUP: Signal = Signal(1);
    pub const INT: Signal = Signal(2);
    pub const QUIT: Signal = Signal(3);
    pub const KILL: Signal = Signal(9);
    pub const USR1: Signal = Signal(10);
    pub const USR2: Signal = Signal(12);
    pub const TERM: Signal = Signal(15);
    const CHLD: Signal = Signal(17);
    pub const CONT: Signal = Signal(18);
    const STOP: Signal = Signal(19);
    const TTOU: Signal = Signal(22);
    const URG: Signal = Signal(23);
    pub const WINCH: Signal = Signal(28);

    /// What people and service managers send to end a process.
    pub fn ends(self) -> bool {
        [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::KILL].contains(&self)
    }

    /// What it is for can wait until the tenant's turn: a window's size, a child's end, urgent data, which programs ignore unless
    /// they ask for them; and stopping and going on, which is no news for whom stands still. A frozen process keeps it
    /// pending and takes it when it is thawed. Any other is sent to be acted on now.
    pub fn can_wait(self) -> bool {
        (Signal::STOP..=Signal::TTOU).contains(&self)
            || [Signal::CHLD, Signal::CONT, Signal::URG, Signal::WINCH].contains(&self)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.get(usize::from(self.0).wrapping_sub(1)) {
            Some(name) => write!(out, "SIG{name}"),
            None => write!(out, "signal {}", self.0),
        }
    }
}

/// As engines take them: `15`, `TERM`, `SIGTERM`, `SIGRTMIN+3`.
impl FromStr for Signal {
    type Err = NoSignal;

    fn from_str(text: &str) -> Result<Self, NoSignal> {
        let unknown = || NoSignal { text: text.to_owned() };
        let upper = text.trim().to_ascii_uppercase();
        let name = upper.strip_prefix("SIG").unwrap_or(&upper);
        let real_time = |end: &str, base: u8, sign: i16| {
            let offset: i16 = name.strip_prefix(end).map(|rest| rest.trim_start_matches(['+', '-']))?.parse().ok()?;
            u8::try_from(i16::from(base) + sign * offset).ok()
        };
        let named = NAMES.iter().position(|known| *known == name).and_then(|at| u8::try_from(at + 1).ok());
        let number = name.parse().ok().or(named).or_else(|| match name {
            "RTMIN" => Some(FIRST_REAL_TIME),
            "RTMAX" => Some(LAST),
            _ => real_time("RTMIN", FIRST_REAL_TIME, 1).or_else(|| real_time("RTMAX", LAST, -1)),
        });
        number.filter(|number| (1..=LAST).contains(number)).map(Signal).ok_or_else(unknown)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no signal")]
pub struct NoSignal {
    text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_read_however_an_engine_writes_it() {
        for (text, number) in [
            ("15", 15),
            ("TERM", 15),
            ("SIGTERM", 15),
            ("sigquit", 3),
            ("SIGWINCH", 28),
            ("SIGRTMIN", 34),
            ("SIGRTMIN+3", 37),
            ("RTMAX-1", 63),
        ] {
            assert_eq!(text.parse(), Ok(Signal(number)), "{text}");
        }
        for text in ["", "0", "65", "SIGNONE", "RTMIN+90", "-1"] {
            assert!(text.parse::<Signal>().is_err(), "{text}");
        }
    }

    #[test]
    fn what_a_signal_is_shown_as_is_read_as_the_same() {
        for number in 1..=31 {
            assert_eq!(Signal(number).to_string().parse(), Ok(Signal(number)));
        }
        assert_eq!(Signal(37).to_string(), "signal 37");
    }

    #[test]
    fn only_what_nobody_waits_for_can_wait() {
        let waiting: Vec<String> = (1..=64).map(Signal).filter(|it| it.can_wait()).map(|it| it.to_string()).collect();
        let expected =
            ["CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "WINCH"].map(|name| format!("SIG{name}"));
        assert_eq!(waiting, expected);
    }
}
