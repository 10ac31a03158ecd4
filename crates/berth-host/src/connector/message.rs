//! The proc connector's messages, as in `linux/connector.h` and `linux/cn_proc.h`: a netlink header, a connector header,
//! then a request or an event. Integers are in the host's order; nothing is aligned.

use berth_model::Mono;

const NETLINK_HEADER: usize = 16;
const CONNECTOR_HEADER: usize = 20;
const NLMSG_DONE: u16 = 3;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const LISTEN: u32 = 1;
const IGNORE: u32 = 2;
const PROC_EVENT_NONE: u32 = 0;
const PROC_EVENT_EXEC: u32 = 2;

/// What to ask of the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Every process event. Always answered.
    ListenAll,
    /// The same, in the form that Linux 6.6 brought. Older kernels do not answer, which tells them apart.
    ListenAllFilterable,
    /// From 6.6 on: starts of programs and nothing else, not even an answer to this.
    ListenExec,
    Ignore,
}

/// What the kernel said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The answer to the request with this number; `error` is an errno, 0 for success.
    Ack { number: u32, error: u32 },
    /// A program was started.
    Exec { at: Mono },
    /// An event nobody here cares for.
    Other,
}

impl Request {
    pub fn encode(self, number: u32) -> Vec<u8> {
        let words: &[u32] = match self {
            Request::ListenAll => &[LISTEN],
            Request::ListenAllFilterable => &[LISTEN, PROC_EVENT_NONE],
            Request::ListenExec => &[LISTEN, PROC_EVENT_EXEC],
            Request::Ignore => &[IGNORE],
        };
        let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        frame(number, &data)
    }
}

impl Message {
    /// `None` for what is no message of the proc connector.
    pub fn decode(packet: &[u8]) -> Option<Message> {
        let word = |offset: usize| Some(u32::from_ne_bytes(packet.get(offset..offset + 4)?.try_into().ok()?));
        if (word(NETLINK_HEADER)?, word(NETLINK_HEADER + 4)?) != (CN_IDX_PROC, CN_VAL_PROC) {
            return None;
        }
        let event = NETLINK_HEADER + CONNECTOR_HEADER;
        let nanos = packet.get(event + 8..event + 16)?.try_into().ok()?;
        Some(match word(event)? {
            PROC_EVENT_NONE => {
                let number = word(NETLINK_HEADER + 12)?.wrapping_sub(1);
                Message::Ack { number, error: word(event + 16)? }
            }
            PROC_EVENT_EXEC => Message::Exec { at: Mono(u64::from_ne_bytes(nanos)) },
            _ => Message::Other,
        })
    }
}

/// A request's number is in the field for acknowledgements, where the answer has it plus one: what the kernel puts in
/// the field for sequences is a count of its own.
fn frame(number: u32, data: &[u8]) -> Vec<u8> {
    let length = NETLINK_HEADER + CONNECTOR_HEADER + data.len();
    let mut packet = Vec::with_capacity(length);
    packet.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    packet.extend(NLMSG_DONE.to_ne_bytes());
    packet.extend([0u8; 2]); // flags
    packet.extend([0u8; 8]); // sequence and port: the connector does without the one, the kernel fills in the other
    for word in [CN_IDX_PROC, CN_VAL_PROC, 0, number] {
        packet.extend(word.to_ne_bytes());
    }
    packet.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_ne_bytes());
    packet.extend([0u8; 2]); // flags
    packet.extend(data);
    packet
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn event(number: u32, what: u32, nanos: u64, tail: u32) -> Vec<u8> {
        let mut data = Vec::new();
        data.extend(what.to_ne_bytes());
        data.extend(7u32.to_ne_bytes()); // cpu
        data.extend(nanos.to_ne_bytes());
        data.extend(tail.to_ne_bytes());
        data.extend([0u8; 20]);
        frame(number, &data)
    }

    #[test]
    fn events_are_told_apart() {
        assert_eq!(Message::decode(&event(0, PROC_EVENT_EXEC, 42, 0)), Some(Message::Exec { at: Mono(42) }));
        assert_eq!(Message::decode(&event(9, PROC_EVENT_NONE, 42, 1)), Some(Message::Ack { number: 8, error: 1 }));
        assert_eq!(Message::decode(&event(0, 0x8000_0000, 42, 0)), Some(Message::Other));
    }

    #[test]
    fn requests_say_their_length_in_both_headers() {
        for (request, data) in
            [(Request::ListenExec, 8), (Request::ListenAllFilterable, 8), (Request::ListenAll, 4), (Request::Ignore, 4)]
        {
            let packet = request.encode(1);
            assert_eq!(packet.len(), 36 + data);
            assert_eq!(packet[..4], u32::try_from(packet.len()).unwrap().to_ne_bytes());
            assert_eq!(packet[32..34], u16::try_from(data).unwrap().to_ne_bytes());
        }
    }

    proptest! {
        #[test]
        fn any_packet_is_decoded_or_refused(packet in proptest::collection::vec(any::<u8>(), 0..100)) {
            let _ = Message::decode(&packet);
        }

        #[test]
        fn a_cut_event_is_refused(length in 0usize..56) {
            prop_assert_eq!(Message::decode(&event(0, PROC_EVENT_EXEC, 42, 0)[..length.min(51)]), None);
        }
    }
}
