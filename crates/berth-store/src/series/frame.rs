//! Records of a segment: two bytes to find one by, a length, a checksum, and what it says.
//!
//! A record that was torn or damaged does not match its checksum; the next is then looked for by its first bytes. What it says is
//! written in as few bytes as whole numbers and short fractions need: a number in groups of seven bits, a value with its last bytes
//! first, which are mostly zero.

use berth_model::watch::series::{Bucket, Key};

use crate::checksum::checksum;

const MARK: [u8; 2] = [0xb5, 0x7e];
const HEAD: usize = 8;
/// Bytes a record may say; more is no record.
pub const LONGEST: usize = 32 << 10;

const BEGINS: u8 = 0;
const NAMES: u8 = 1;
const POINTS: u8 = 2;
const BUCKETS: u8 = 3;

/// What one record says. Instants are in milliseconds since 1970.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The first of a segment: no value in it is before this.
    Begins { from_ms: i64 },
    /// From here on this number stands for this series.
    Names { id: u32, key: Box<Key> },
    /// One value each of several series, of one instant.
    Points { at_ms: i64, values: Vec<(u32, f64)> },
    /// Values of one series, put together to stretches of one length.
    Buckets { id: u32, width_ms: u32, buckets: Vec<Bucket> },
}

/// Adds the record to `out`; `false` if it would be too long to be one.
pub fn encode(record: &Record, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD]);
    let is_written = match record {
        Record::Begins { from_ms } => {
            out.push(BEGINS);
            put(out, zigzag(*from_ms));
            true
        }
        Record::Names { id, key } => {
            out.push(NAMES);
            put(out, u64::from(*id));
            serde_json::to_writer(&mut *out, key).is_ok()
        }
        Record::Points { at_ms, values } => {
            out.push(POINTS);
            put(out, zigzag(*at_ms));
            values.iter().for_each(|(id, value)| {
                put(out, u64::from(*id));
                put_value(out, *value);
            });
            true
        }
        Record::Buckets { id, width_ms, buckets } => {
            out.push(BUCKETS);
            put(out, u64::from(*id));
            put(out, u64::from(*width_ms));
            let mut before = 0;
            for bucket in buckets {
                put(out, zigzag(bucket.at_ms.wrapping_sub(before)));
                before = bucket.at_ms;
                put(out, bucket.count);
                [bucket.sum, bucket.min, bucket.max].into_iter().for_each(|value| put_value(out, value));
            }
            true
        }
    };
    let length = u16::try_from(out.len() - start - HEAD).ok().filter(|length| usize::from(*length) <= LONGEST);
    let Some(length) = length.filter(|_| is_written) else {
        out.truncate(start);
        return false;
    };
    out[start..start + 2].copy_from_slice(&MARK);
    out[start + 2..start + 4].copy_from_slice(&length.to_le_bytes());
    let sum = checksum(&out[start + HEAD..]) ^ u32::from(length);
    out[start + 4..start + HEAD].copy_from_slice(&sum.to_le_bytes());
    true
}

/// What a segment's bytes say, in order.
#[derive(Debug)]
pub struct Records<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes up to the end of the last whole record.
    pub whole: usize,
    /// Stretches that are no record and have one behind them.
    pub damaged: u64,
}

impl<'a> Records<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, whole: 0, damaged: 0 }
    }
}

impl Iterator for Records<'_> {
    type Item = Record;

    /// Records of a kind that this version does not know are passed over.
    fn next(&mut self) -> Option<Record> {
        while self.at < self.bytes.len() {
            let Some(body) = body_at(self.bytes, self.at) else {
                self.at += 1;
                continue;
            };
            self.damaged += u64::from(self.at > self.whole);
            self.at += HEAD + body.len();
            self.whole = self.at;
            if let Some(record) = decode(body) {
                return Some(record);
            }
        }
        None
    }
}

fn body_at(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let (head, rest) = bytes.get(at..)?.split_at_checked(HEAD)?;
    let [mark_0, mark_1, len_0, len_1, sum @ ..] = head else { return None };
    let length = u16::from_le_bytes([*len_0, *len_1]);
    if [*mark_0, *mark_1] != MARK || usize::from(length) > LONGEST {
        return None;
    }
    let body = rest.get(..usize::from(length))?;
    (checksum(body) ^ u32::from(length) == u32::from_le_bytes(sum.try_into().ok()?)).then_some(body)
}

fn decode(body: &[u8]) -> Option<Record> {
    let (kind, mut rest) = body.split_first()?;
    let rest = &mut rest;
    match *kind {
        BEGINS => Some(Record::Begins { from_ms: unzigzag(take(rest)?) }),
        NAMES => {
            let id = take_id(rest)?;
            Some(Record::Names { id, key: serde_json::from_slice(rest).ok()? })
        }
        POINTS => {
            let at_ms = unzigzag(take(rest)?);
            let mut values = Vec::new();
            while !rest.is_empty() {
                values.push((take_id(rest)?, take_value(rest)?));
            }
            Some(Record::Points { at_ms, values })
        }
        BUCKETS => {
            let (id, width_ms) = (take_id(rest)?, take_id(rest)?);
            let (mut buckets, mut at_ms) = (Vec::new(), 0_i64);
            while !rest.is_empty() {
                at_ms = at_ms.wrapping_add(unzigzag(take(rest)?));
                let count = take(rest)?;
                let (sum, min, max) = (take_value(rest)?, take_value(rest)?, take_value(rest)?);
                buckets.push(Bucket { at_ms, width_ms, count, sum, min, max });
            }
            Some(Record::Buckets { id, width_ms, buckets })
        }
        _ => None,
    }
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    out.push(number.to_le_bytes()[0]);
}

fn take(rest: &mut &[u8]) -> Option<u64> {
    let (mut number, mut shift) = (0_u64, 0);
    loop {
        let (byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= u64::from(byte & 0x7f).checked_shl(shift)?;
        if byte & 0x80 == 0 {
            return Some(number);
        }
        shift += 7;
    }
}

fn take_id(rest: &mut &[u8]) -> Option<u32> {
    u32::try_from(take(rest)?).ok()
}

/// Whole numbers and short fractions end in bytes of zero.
fn put_value(out: &mut Vec<u8>, value: f64) {
    put(out, value.to_bits().swap_bytes());
}

fn take_value(rest: &mut &[u8]) -> Option<f64> {
    Some(f64::from_bits(take(rest)?.swap_bytes()))
}

/// Small numbers of either sign become small ones without.
fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::series::tests::any_record;

    fn bytes_of(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        assert!(records.iter().all(|record| encode(record, &mut out)));
        out
    }

    #[test]
    fn a_share_of_a_hundred_takes_five_bytes_with_its_series() {
        let mut out = Vec::new();
        put(&mut out, 100);
        put_value(&mut out, 37.0);
        assert_eq!(out.len(), 5);
    }

    #[test]
    fn a_record_too_long_is_not_written() {
        let values = (0..20_000).map(|id| (id, 0.1)).collect();
        let mut out = vec![7];
        assert!(!encode(&Record::Points { at_ms: 0, values }, &mut out));
        assert_eq!(out, [7]);
    }

    #[test]
    fn a_kind_of_a_later_version_is_passed_over_and_is_no_damage() {
        let mut out = bytes_of(&[Record::Begins { from_ms: 5 }]);
        let body = [9_u8, 1, 2];
        out.extend_from_slice(&MARK);
        out.extend_from_slice(&3_u16.to_le_bytes());
        out.extend_from_slice(&(checksum(&body) ^ 3).to_le_bytes());
        out.extend_from_slice(&body);
        assert!(encode(&Record::Begins { from_ms: 6 }, &mut out));
        let mut records = Records::new(&out);
        assert_eq!(records.by_ref().count(), 2);
        assert_eq!((records.damaged, records.whole), (0, out.len()));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(records in prop::collection::vec(any_record(), 0..20)) {
            let bytes = bytes_of(&records);
            let mut read = Records::new(&bytes);
            prop_assert_eq!(read.by_ref().collect::<Vec<_>>(), records);
            prop_assert_eq!((read.damaged, read.whole), (0, bytes.len()));
        }

        #[test]
        fn any_beginning_of_the_bytes_reads_as_a_beginning_of_the_records(
            records in prop::collection::vec(any_record(), 1..20), cut: prop::sample::Index,
        ) {
            let bytes = bytes_of(&records);
            let cut = cut.index(bytes.len());
            let mut read = Records::new(&bytes[..cut]);
            let told: Vec<_> = read.by_ref().collect();
            prop_assert_eq!(&told[..], &records[..told.len()]);
            prop_assert!(read.whole <= cut && bytes_of(&told).len() == read.whole, "all whole ones are read");
        }

        #[test]
        fn a_byte_that_changed_costs_its_record_and_no_other(
            records in prop::collection::vec(any_record(), 1..20), at: prop::sample::Index, by in 1..=255_u8,
        ) {
            let mut bytes = bytes_of(&records);
            let at = at.index(bytes.len());
            bytes[at] ^= by;
            let told: Vec<_> = Records::new(&bytes).collect();
            prop_assert!(told.len() + 1 >= records.len());
            let mut written = records.iter();
            prop_assert!(told.iter().all(|record| written.any(|one| one == record)), "in order, and nothing else");
        }

        #[test]
        fn garbage_is_never_mistaken(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            prop_assert_eq!(Records::new(&bytes).count(), 0);
        }
    }
}
