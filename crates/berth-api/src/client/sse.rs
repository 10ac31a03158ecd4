//! Server-sent events out of bytes that arrive in any pieces.

/// One event; fields this interface does not use are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct RawEvent {
    pub event: String,
    pub data: String,
}

/// Holds at most one unfinished event.
#[derive(Debug, Default)]
pub(super) struct Parser {
    rest: Vec<u8>,
    current: RawEvent,
}

impl Parser {
    /// The events that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<RawEvent> {
        self.rest.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line);
            events.extend(self.line(line.trim_end_matches(['\n', '\r'])));
        }
        events
    }

    fn line(&mut self, line: &str) -> Option<RawEvent> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.current);
            return (event != RawEvent::default()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.current.event),
            "data" => {
                if !self.current.data.is_empty() {
                    self.current.data.push('\n');
                }
                self.current.data.push_str(value);
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str =
        ": keep-alive\n\nevent: change\nid: 7\ndata: {\"a\":\"ä: b\"}\n\nevent: lagged\r\ndata: x\r\ndata: y\r\n\r\n";

    fn expected() -> Vec<RawEvent> {
        vec![
            RawEvent { event: "change".into(), data: "{\"a\":\"ä: b\"}".into() },
            RawEvent { event: "lagged".into(), data: "x\ny".into() },
        ]
    }

    proptest! {
        #[test]
        fn the_same_events_come_out_however_the_bytes_are_cut(cuts in prop::collection::vec(0..TEXT.len(), 0..12)) {
            let mut cuts = cuts;
            cuts.extend([0, TEXT.len()]);
            cuts.sort_unstable();
            let mut parser = Parser::default();
            let pieces = cuts.windows(2).map(|cut| &TEXT.as_bytes()[cut[0]..cut[1]]);
            let events: Vec<_> = pieces.flat_map(|piece| parser.push(piece)).collect();
            prop_assert_eq!(events, expected());
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            Parser::default().push(&bytes);
        }
    }
}
