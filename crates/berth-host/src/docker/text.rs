//! What the engine writes, read within bounds: pure, no connection.
//!
//! People choose how long the engine's words are: every event carries all labels of its container, and a container can have a million. A text
//! is read once, when it is whole; of one that is too long the beginning is kept, the rest is passed over as it comes, and what the beginning
//! says is what is known. That is much: the engine writes labels last.

use hyper::body::Bytes;
use serde::de::DeserializeOwned;

/// Of one event or answer; labels that people write take some kilobytes.
pub const MOST_BYTES: usize = 1 << 20;

/// A JSON object in the engine's words, or its beginning.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Text {
    bytes: Vec<u8>,
    pub is_cut: bool,
}

impl Text {
    pub fn add(&mut self, part: &[u8]) {
        let fits = part.len().min(MOST_BYTES - self.bytes.len());
        self.bytes.extend_from_slice(&part[..fits]);
        self.is_cut |= fits < part.len();
    }

    pub fn is_blank(&self) -> bool {
        self.bytes.trim_ascii().is_empty()
    }

    pub fn read<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        match self.is_cut {
            false => serde_json::from_slice(&self.bytes),
            true => serde_json::from_slice(&closed(&self.bytes)),
        }
    }
}

/// Takes a stream's lines from the pieces it comes in. A line is whole at its end, and not before.
#[derive(Debug, Default)]
pub struct Lines {
    begun: Text,
}

impl Lines {
    /// The next line that ends in `piece`, which keeps what follows; `None` if all of it was taken and no line ended.
    pub fn next_in(&mut self, piece: &mut Bytes) -> Option<Text> {
        let end = piece.iter().position(|byte| *byte == b'\n');
        self.begun.add(&piece.split_to(end.unwrap_or(piece.len())));
        end.map(|_| {
            drop(piece.split_to(1));
            std::mem::take(&mut self.begun)
        })
    }
}

/// The beginning of a JSON object made an object of its own: up to where its last member was whole, with what is open closed.
fn closed(beginning: &[u8]) -> Vec<u8> {
    let (mut open, mut is_string, mut is_escaped) = (Vec::new(), false, false);
    let (mut whole_until, mut open_there) = (0, Vec::new());
    for (at, byte) in beginning.iter().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = is_string,
            b'"' => is_string = !is_string,
            _ if is_string => {}
            b'{' | b'[' => {
                open.push(if *byte == b'{' { b'}' } else { b']' });
                (whole_until, open_there) = (at + 1, open.clone());
            }
            b'}' | b']' => drop(open.pop()),
            b',' => {
                whole_until = at;
                open_there.clone_from(&open);
            }
            _ => {}
        }
    }
    open_there.reverse();
    [&beginning[..whole_until], &open_there].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn lines_of(pieces: &[&[u8]]) -> Vec<Text> {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for piece in pieces {
            let mut piece = Bytes::copy_from_slice(piece);
            while let Some(line) = lines.next_in(&mut piece) {
                found.push(line);
            }
        }
        found
    }

    #[test]
    fn a_line_without_its_end_is_not_whole_and_holds_up_none_after_it() {
        assert_eq!(lines_of(&[b"{}"]), []);
        let texts = lines_of(&[b"{\"a\":1}", b"\n{\"a\":2}\n"]);
        assert_eq!(
            texts.iter().map(|text| text.read().unwrap()).collect::<Vec<Value>>(),
            [json!({"a": 1}), json!({"a": 2})]
        );
    }

    #[test]
    fn of_a_line_that_is_too_long_the_beginning_is_read_and_the_next_is_whole() {
        let labels: Vec<_> = (0..200_000).map(|n| format!(r#""label{n}":"x""#)).collect();
        let long =
            format!(r#"{{"Action":"start","Actor":{{"ID":"a","Attributes":{{{}}}}},"time":1}}"#, labels.join(","));
        let texts = lines_of(&[long.as_bytes(), b"\n{}\n"]);
        assert_eq!(texts.iter().map(|text| text.is_cut).collect::<Vec<_>>(), [true, false]);
        assert!(texts[0].bytes.len() <= MOST_BYTES);
        let begun: Value = texts[0].read().unwrap();
        assert_eq!(
            (&begun["Action"], &begun["Actor"]["ID"], &begun["time"]),
            (&json!("start"), &json!("a"), &Value::Null)
        );
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), any::<i32>().prop_map(Value::from), ".{0,8}".prop_map(Value::from)];
        leaf.prop_recursive(4, 32, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..5)
                    .prop_map(|members| members.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    proptest! {
        /// Texts, escapes, brackets in them: wherever an object is cut, what is left of it can be read, and holds nothing it did not say.
        #[test]
        fn every_beginning_of_an_object_is_an_object(member in value(), cut in any::<prop::sample::Index>()) {
            let object = json!({"a": 1, "b": member, "c": 2});
            let written = object.to_string();
            let cut = cut.index(written.len() - 1) + 1;
            let begun: Value = serde_json::from_slice(&closed(&written.as_bytes()[..cut])).unwrap();
            for (name, value) in begun.as_object().unwrap() {
                prop_assert!(name == "b" || *value == object[name]);
            }
        }

        #[test]
        fn lines_are_the_same_however_they_are_chopped(sizes in proptest::collection::vec(1..9usize, 1..20)) {
            let written: &[u8] = b"{\"a\":1}\n{\"b\":2}\n\n{\"c\":3}\n{";
            let (mut rest, mut pieces) = (written, Vec::new());
            for size in sizes {
                let (piece, after) = rest.split_at(size.min(rest.len()));
                pieces.push(piece);
                rest = after;
            }
            pieces.push(rest);
            prop_assert_eq!(lines_of(&pieces), lines_of(&[written]));
        }
    }
}
