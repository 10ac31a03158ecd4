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
    /// Events of programs being started, and no others (Linux 6.6; older kernels do not answer).
    ListenExec,
    /// Every process event.
    ListenAll,
    Ignore,
}

/// What the kernel said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Message {
    /// The answer to the request with this number; `error` is an errno, 0 for success.
    Ack { seq: u32, error: u32 },
    /// A program was started.
    Exec { at: Mono },
    /// An event nobody here cares for.
    Other,
}

impl Request {
    pub fn encode(self, seq: u32) -> Vec<u8> {
        let mut data = Vec::new();
        match self {
            Request::ListenExec => [LISTEN, PROC_EVENT_EXEC].iter().for_each(|word| data.extend(word.to_ne_bytes())),
            Request::ListenAll => data.extend(LISTEN.to_ne_bytes()),
            Request::Ignore => data.extend(IGNORE.to_ne_bytes()),
        }
        frame(seq, 0, &data)
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
            PROC_EVENT_NONE => Message::Ack { seq: word(NETLINK_HEADER + 8)?, error: word(event + 16)? },
            PROC_EVENT_EXEC => Message::Exec { at: Mono(u64::from_ne_bytes(nanos)) },
            _ => Message::Other,
        })
    }
}

fn frame(seq: u32, ack: u32, data: &[u8]) -> Vec<u8> {
    let length = NETLINK_HEADER + CONNECTOR_HEADER + data.len();
    let mut packet = Vec::with_capacity(length);
    packet.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    packet.extend(NLMSG_DONE.to_ne_bytes());
    packet.extend([0u8; 2]); // flags
    packet.extend([0u8; 8]); // sequence and port: the connector has its own sequence, the kernel fills in the port
    for word in [CN_IDX_PROC, CN_VAL_PROC, seq, ack] {
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

    fn event(seq: u32, what: u32, nanos: u64, tail: u32) -> Vec<u8> {
        let mut data = Vec::new();
        data.extend(what.to_ne_bytes());
        data.extend(7u32.to_ne_bytes()); // cpu
        data.extend(nanos.to_ne_bytes());
        data.extend(tail.to_ne_bytes());
        data.extend([0u8; 20]);
        frame(seq, 0, &data)
    }

    #[test]
    fn events_are_told_apart() {
        assert_eq!(Message::decode(&event(0, PROC_EVENT_EXEC, 42, 0)), Some(Message::Exec { at: Mono(42) }));
        assert_eq!(Message::decode(&event(9, PROC_EVENT_NONE, 42, 1)), Some(Message::Ack { seq: 9, error: 1 }));
        assert_eq!(Message::decode(&event(0, 0x8000_0000, 42, 0)), Some(Message::Other));
    }

    #[test]
    fn requests_say_their_length_in_both_headers() {
        for (request, data) in [(Request::ListenExec, 8), (Request::ListenAll, 4), (Request::Ignore, 4)] {
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
