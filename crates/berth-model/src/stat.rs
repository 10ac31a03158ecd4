//! `/proc/PID/stat` as the kernel writes it: one parser, for everybody who has read the file.
//!
//! The second field is the program's name in parentheses. Whoever runs the program chooses it: it may hold spaces, parentheses,
//! line ends and bytes that are no text. So fields count from its last `)`, and the file is bytes. Reading it is not done here.
//! `berth-proto` stands on no other crate and has a parser of its own.

use std::str::FromStr;

/// One file, by the field numbers of proc(5). What is missing or no number is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat<'a> {
    /// As the program gave it, without the parentheses.
    pub name: &'a [u8],
    /// From field 3 on.
    fields: &'a str,
}

impl<'a> Stat<'a> {
    /// `None` if there is no name in it, or no text after the name.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let from = bytes.iter().position(|byte| *byte == b'(')? + 1;
        let to = bytes.iter().rposition(|byte| *byte == b')')?;
        let fields = std::str::from_utf8(bytes.get(to + 1..)?).ok()?;
        Some(Self { name: bytes.get(from..to)?, fields })
    }

    /// The state's letter: `T` stopped, `t` stopped by a debugger, `Z` and `X` ended.
    pub fn state(&self) -> Option<char> {
        self.field(3)
    }

    /// It has ended, though its parent may not have asked how.
    pub fn has_ended(&self) -> bool {
        matches!(self.state(), Some('Z' | 'X' | 'x'))
    }

    pub fn parent(&self) -> Option<u32> {
        self.field(4)
    }

    /// Number of its controlling terminal; 0 for none.
    pub fn terminal(&self) -> Option<i32> {
        self.field(7)
    }

    /// When it started, in clock ticks after boot: with its pid, which process it is.
    pub fn start_ticks(&self) -> Option<u64> {
        self.field(22)
    }

    /// User and system time of all its threads, in clock ticks.
    pub fn cpu_ticks(&self) -> Option<u64> {
        self.field::<u64>(14)?.checked_add(self.field(15)?)
    }

    pub fn resident_pages(&self) -> Option<u64> {
        self.field(24)
    }

    fn field<T: FromStr>(&self, number: usize) -> Option<T> {
        self.fields.split_ascii_whitespace().nth(number - 3)?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line(name: &[u8]) -> Vec<u8> {
        let rest = b") T 5 77 77 34816 -1 4194560 1 0 0 0 250 50 0 0 20 0 1 0 4242 2703360 229 18446744073709551615\n";
        [b"77 (", name, rest].concat()
    }

    #[test]
    fn a_file_that_ends_too_early_says_what_it_says_and_no_more() {
        let cut = Stat::parse(b"77 (x) S 1").unwrap();
        assert_eq!((cut.state(), cut.parent(), cut.terminal(), cut.start_ticks()), (Some('S'), Some(1), None, None));
        for nothing in [&b""[..], b"77", b"77 (x", b"77 )x(", b"77 (x) \xff"] {
            assert_eq!(Stat::parse(nothing), None);
        }
    }

    #[test]
    fn one_that_has_ended_is_told_from_one_that_stands() {
        let ended = |state: &str| Stat::parse(format!("7 (a) {state} 1").as_bytes()).unwrap().has_ended();
        assert_eq!(["S", "T", "Z", "X", ""].map(ended), [false, false, true, true, false]);
    }

    proptest! {
        #[test]
        fn no_name_shifts_a_field(name in prop::collection::vec(any::<u8>(), 0..16)) {
            let bytes = line(&name);
            let stat = Stat::parse(&bytes).unwrap();
            prop_assert_eq!(stat.name, &name[..]);
            prop_assert_eq!((stat.state(), stat.parent(), stat.terminal()), (Some('T'), Some(5), Some(34816)));
            prop_assert_eq!((stat.start_ticks(), stat.cpu_ticks(), stat.resident_pages()), (Some(4242), Some(300), Some(229)));
        }

        #[test]
        fn whatever_stands_in_the_file_is_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Stat::parse(&bytes).map(|stat| (stat.state(), stat.start_ticks(), stat.cpu_ticks()));
        }
    }
}
