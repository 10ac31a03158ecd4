//! One line of the history: a checksum, a space, a record as JSON. Each can be read, or found damaged, without the others.

use berth_model::history::Record;

use crate::checksum::checksum;

/// Bytes of a line, its end included. No record comes near it; one that did would not be written.
pub const LONGEST: usize = 64 << 10;
const DIGITS: usize = 8;

/// What a line says.
#[derive(Debug, PartialEq)]
pub enum Line {
    Record(Box<Record>),
    /// Written whole, of a kind this version does not know.
    Unknown,
    Damaged,
}

/// Adds the record's line to `out`; `false` if it is too long to be one.
pub fn encode(record: &Record, out: &mut Vec<u8>) -> bool {
    let Ok(json) = serde_json::to_vec(record) else { return false };
    if DIGITS + 1 + json.len() + 1 > LONGEST {
        return false;
    }
    out.extend_from_slice(format!("{:08x} ", checksum(&json)).as_bytes());
    out.extend_from_slice(&json);
    out.push(b'\n');
    true
}

/// `line` is without its end.
pub fn decode(line: &[u8]) -> Line {
    let Some((digits, json)) = line.split_at_checked(DIGITS) else { return Line::Damaged };
    let Some(json) = json.strip_prefix(b" ") else { return Line::Damaged };
    if digits != format!("{:08x}", checksum(json)).as_bytes() {
        return Line::Damaged;
    }
    serde_json::from_slice(json).map_or(Line::Unknown, |record| Line::Record(Box::new(record)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::history::testing::{any_record, released};

    fn line(record: &Record) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(encode(record, &mut out));
        assert_eq!(out.pop(), Some(b'\n'));
        out
    }

    #[test]
    fn a_kind_of_a_later_version_is_unknown_and_not_damaged() {
        let json =
            br#"{"at":"2026-11-15T10:00:00Z","tenant":{"kind":"user","uid":0},"name":"a","what":"deadline_missed"}"#;
        let mut line = format!("{:08x} ", checksum(json)).into_bytes();
        line.extend_from_slice(json);
        assert_eq!(decode(&line), Line::Unknown);
    }

    #[test]
    fn a_record_too_long_for_a_line_is_not_written() {
        let mut out = Vec::new();
        assert!(!encode(&released(0, &"x".repeat(LONGEST)), &mut out));
        assert_eq!(out, b"");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(record in any_record()) {
            let line = line(&record);
            prop_assert!(!line.contains(&b'\n'));
            prop_assert_eq!(decode(&line), Line::Record(Box::new(record)));
        }

        #[test]
        fn a_byte_that_changed_is_noticed(record in any_record(), at: prop::sample::Index, by in 1..=255_u8) {
            let mut line = line(&record);
            let at = at.index(line.len());
            line[at] ^= by;
            prop_assert_eq!(decode(&line), Line::Damaged);
        }

        #[test]
        fn a_torn_line_is_noticed(record in any_record(), at: prop::sample::Index) {
            let line = line(&record);
            prop_assert_eq!(decode(&line[..at.index(line.len())]), Line::Damaged);
        }
    }
}
