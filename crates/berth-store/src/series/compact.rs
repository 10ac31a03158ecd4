//! What a segment's records say, by series; and the same as fewer values.

use std::collections::BTreeMap;
use std::collections::HashMap;

use berth_model::watch::series::{Bucket, Key};

use super::frame::{self, Record, Records};

/// Values in one record: at 60 bytes each they fit in every case.
const MOST_BUCKETS: usize = 500;

/// All of a segment.
#[derive(Debug, Default, PartialEq)]
pub struct Content {
    pub lines: BTreeMap<Key, Vec<Bucket>>,
    /// Stretches that cannot be read, and records of series that nothing names.
    pub damaged: u64,
}

pub fn content(bytes: &[u8]) -> Content {
    let mut names: HashMap<u32, Key> = HashMap::new();
    let mut content = Content::default();
    let mut records = Records::new(bytes);
    for record in records.by_ref() {
        let values: Vec<(u32, Bucket)> = match record {
            Record::Begins { .. } => continue,
            Record::Names { id, key } => {
                names.insert(id, *key);
                continue;
            }
            Record::Points { at_ms, values } => {
                values.into_iter().map(|(id, value)| (id, Bucket::point(at_ms, value))).collect()
            }
            Record::Buckets { id, buckets, .. } => buckets.into_iter().map(|bucket| (id, bucket)).collect(),
        };
        let mut is_nameless = false;
        for (id, bucket) in values {
            match names.get(&id) {
                None => is_nameless = true,
                Some(key) => match content.lines.get_mut(key) {
                    Some(line) => line.push(bucket),
                    None => drop(content.lines.insert(key.clone(), vec![bucket])),
                },
            }
        }
        content.damaged += u64::from(is_nameless);
    }
    content.damaged += records.damaged;
    content
}

/// A segment that says the same with one value per stretch of that length, of no more than `most` series. `None` if it says nothing.
pub fn compact(content: Content, width_ms: u32, most: usize) -> Option<Vec<u8>> {
    let lines: BTreeMap<Key, BTreeMap<i64, Bucket>> = fold(content.lines, most)
        .into_iter()
        .map(|(key, values)| (key, together(&values, width_ms)))
        .filter(|(_, values)| !values.is_empty())
        .collect();
    let from_ms = lines.values().filter_map(|values| values.keys().next()).min()?;
    let mut bytes = Vec::new();
    frame::encode(&Record::Begins { from_ms: *from_ms }, &mut bytes);
    for (id, (key, values)) in (0..).zip(lines) {
        frame::encode(&Record::Names { id, key: Box::new(key) }, &mut bytes);
        let buckets: Vec<Bucket> = values.into_values().collect();
        for part in buckets.chunks(MOST_BUCKETS) {
            frame::encode(&Record::Buckets { id, width_ms, buckets: part.to_vec() }, &mut bytes);
        }
    }
    Some(bytes)
}

fn together(values: &[Bucket], width_ms: u32) -> BTreeMap<i64, Bucket> {
    let mut stretches: BTreeMap<i64, Bucket> = BTreeMap::new();
    for value in values {
        let wide = value.widened(width_ms);
        stretches.entry(wide.at_ms).and_modify(|stretch| stretch.add(&wide)).or_insert(wide);
    }
    stretches
}

/// Those without a value for the longest time become one, for each figure of each GPU.
fn fold(lines: BTreeMap<Key, Vec<Bucket>>, most: usize) -> BTreeMap<Key, Vec<Bucket>> {
    let mut by_age: Vec<(Option<i64>, Key, Vec<Bucket>)> =
        lines.into_iter().map(|(key, values)| (values.iter().map(|value| value.at_ms).max(), key, values)).collect();
    by_age.sort_by(|(one, one_key, _), (other, other_key, _)| other.cmp(one).then_with(|| one_key.cmp(other_key)));
    let mut kept: BTreeMap<Key, Vec<Bucket>> = BTreeMap::new();
    for (place, (_, key, values)) in by_age.into_iter().enumerate() {
        let key = if place < most { key } else { key.folded() };
        kept.entry(key).or_default().extend(values);
    }
    kept
}
