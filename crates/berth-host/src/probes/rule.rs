//! What the daemon tells the programs about a process: entries of one map from (process, rule) to a number.
//!
//! The programs read it at each hit, so a rule holds from the moment it is written. Nothing here knows of the kernel.

use super::function::Call;

/// What an entry means; no entry, no rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// Tell the first such call. The number counts them since then.
    First(Call),
    /// Halt the process at any such call: a launch or the making of a context in any case; an allocation if the GPU whose pool the number names has
    /// no room for it.
    Stop(Call),
    /// Tell when the process goes over from computing to waiting and back. The number is its [`Phase`].
    Watch,
    /// A call of the process waits for a decision. Kept by the programs: it is told once. The number is when it was made.
    Waiting,
    /// Calls that were made until then wait no longer, in nanoseconds of `CLOCK_MONOTONIC`. Every process that is known has it.
    Go,
    /// Never stop it by a signal: someone would see it.
    Discreet,
    /// Of a GPU: bytes that limited processes have asked for since the start.
    Taken,
    /// Of a GPU: what [`Rule::Taken`] may come to. One number for all who share it, counted up in one step: two who
    /// allocate at the same instant cannot both have the last of it.
    Ceiling,
}

/// What a watched process was last seen doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Phase {
    /// Whatever is seen next is told.
    Unknown = 0,
    Computing = 1,
    Drained = 2,
}

// === impl Rule ===

impl Rule {
    // The second half of the map's key, as the programs put it together: these, and below them the call's code.
    pub const STOP: i32 = 1 << 8;
    pub const WATCH: i32 = 2 << 8;
    pub const TAKEN: i32 = 3 << 8;
    pub const CEILING: i32 = 4 << 8;
    pub const WAITING: i32 = 5 << 8;
    pub const GO: i32 = 6 << 8;
    pub const DISCREET: i32 = 7 << 8;

    /// The second half of the map's key; the first is the process, or the GPU.
    pub fn code(self) -> u32 {
        match self {
            Rule::First(call) => u32::from(call.code()),
            Rule::Stop(call) => u32::from(call.code()) | Self::STOP.unsigned_abs(),
            Rule::Watch => Self::WATCH.unsigned_abs(),
            Rule::Taken => Self::TAKEN.unsigned_abs(),
            Rule::Ceiling => Self::CEILING.unsigned_abs(),
            Rule::Waiting => Self::WAITING.unsigned_abs(),
            Rule::Go => Self::GO.unsigned_abs(),
            Rule::Discreet => Self::DISCREET.unsigned_abs(),
        }
    }

    /// As the programs put it together.
    pub fn key(self, of: u32) -> [u8; 8] {
        let mut key = [0; 8];
        key[..4].copy_from_slice(&of.to_ne_bytes());
        key[4..].copy_from_slice(&self.code().to_ne_bytes());
        key
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_rules_share_an_entry() {
        let of_calls = [Rule::First, Rule::Stop].into_iter().flat_map(|rule| Call::ALL.map(rule));
        let others = [Rule::Watch, Rule::Taken, Rule::Ceiling, Rule::Waiting, Rule::Go, Rule::Discreet];
        let all: Vec<_> = of_calls.chain(others).collect();
        let codes: HashSet<_> = all.iter().map(|rule| rule.code()).collect();
        assert_eq!(codes.len(), all.len());
    }
}
