//! The files of the history: numbered segments, the highest number the newest, each small enough to be read at once.

use std::io::{self, Read};

use crate::place::Place;

/// A segment that has grown to this is the last of its own: the next record begins another.
pub const LARGEST: u64 = 4 << 20;
/// Read of a segment at most: what is written at once may go past the limit.
const MOST_READ: u64 = LARGEST + (1 << 20);
/// Of this version of the format. Segments of others are neither read nor removed.
const ENDING: &str = ".v1.jsonl";

/// Ascending.
pub fn numbers(place: &Place) -> io::Result<Vec<u64>> {
    let mut numbers: Vec<u64> = place.names()?.iter().filter_map(|name| number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

pub fn name(number: u64) -> String {
    format!("{number:010}{ENDING}")
}

fn number(found: &str) -> Option<u64> {
    let number = found.strip_suffix(ENDING)?.parse().ok()?;
    (name(number) == found).then_some(number)
}

/// Its whole lines, without their ends. `None` if it was removed meanwhile.
pub fn lines(place: &Place, number: u64) -> io::Result<Option<Lines>> {
    let file = match place.file(&name(number)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(MOST_READ).read_to_end(&mut bytes)?;
    bytes.truncate(whole(&bytes));
    Ok(Some(Lines(bytes)))
}

/// Length of the lines that were written to their end. What follows is being written, or was when the machine stopped.
pub fn whole(bytes: &[u8]) -> usize {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// Of one segment.
#[derive(Debug)]
pub struct Lines(Vec<u8>);

impl Lines {
    pub fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        let body = self.0.strip_suffix(b"\n").unwrap_or_default();
        body.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_given_by_berth_are_segments() {
        assert_eq!(number(&name(7)), Some(7));
        for found in ["7.v1.jsonl", "0000000007.v2.jsonl", "0000000007.v1.jsonl.bak", "lock", "-000000007.v1.jsonl"] {
            assert_eq!(number(found), None, "{found}");
        }
        assert!(name(9) < name(10) && number(&name(u64::MAX)) == Some(u64::MAX));
    }

    #[test]
    fn lines_are_those_written_to_their_end() {
        for (bytes, expected) in
            [(&b""[..], 0), (b"a\n", 1), (b"a\nb\n", 2), (b"a\nb", 1), (b"torn", 0), (b"a\n\nb\n", 2)]
        {
            let lines = Lines(bytes[..whole(bytes)].to_vec());
            assert_eq!(lines.iter().count(), expected, "{bytes:?}");
        }
    }
}
