//! Messages on the socket: one packet each, of a fixed size, little-endian; memory files come with them as descriptors.

use thiserror::Error;

/// Bytes of every message.
pub const MESSAGE_BYTES: usize = 64;

pub type Packet = [u8; MESSAGE_BYTES];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromClient {
    /// The first one.
    Attach {
        version: u32,
        /// The client's `CLOCK_MONOTONIC` now, which may be of another time namespace.
        clock_ns: u64,
    },
    /// A GPU it has begun to use; from now on its orders count.
    Lane(Lane),
}

/// A GPU as a client sees it, and what can be done there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    pub lane: u8,
    pub uuid: [u8; 16],
    pub sm_count: u32,
    /// Streams can wait for a word of memory; otherwise the client waits before it launches.
    pub waits_on_gpu: bool,
    /// Work can be confined to some of the SMs.
    pub divides: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FromDaemon {
    /// Comes with two descriptors: the ledger, and the orders.
    Welcome { version: u32, client: u64 },
    /// The client goes on without berth.
    Refused(Refusal),
    /// The client yields on this link, whose page comes with it.
    Yield { link: u64, lane: u8 },
    /// The client is yielded to on this link, whose page comes with it.
    Lead { link: u64, lane: u8 },
    /// The link is no more; its page is not looked at again.
    Unlink { link: u64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    Version = 1,
    /// The process belongs to no tenant that is to be scheduled at the level of kernels.
    NotAsked = 2,
    TooMany = 3,
    /// The daemon is ending.
    Ending = 4,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MessageError {
    #[error("a message has {0} bytes and not {MESSAGE_BYTES}")]
    Length(usize),
    #[error("there is no message with number {0}")]
    Kind(u32),
    #[error("a message of kind {kind} has {value} where that is not possible")]
    Value { kind: u32, value: u64 },
}

/// Writes or reads a packet from its start; what is left over is 0.
struct Fields<'a> {
    packet: &'a mut Packet,
    at: usize,
}

// === impl FromClient ===

impl FromClient {
    pub fn to_packet(self) -> Packet {
        let mut packet = [0; MESSAGE_BYTES];
        let mut fields = Fields::new(&mut packet);
        match self {
            Self::Attach { version, clock_ns } => fields.u32(1).u32(version).u64(clock_ns),
            Self::Lane(lane) => {
                let can = u32::from(lane.waits_on_gpu) | u32::from(lane.divides) << 1;
                fields.u32(2).u32(lane.lane.into()).u32(lane.sm_count).u32(can).bytes(&lane.uuid)
            }
        };
        packet
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut packet = packet(bytes)?;
        let mut fields = Fields::new(&mut packet);
        match fields.take_u32() {
            1 => Ok(Self::Attach { version: fields.take_u32(), clock_ns: fields.take_u64() }),
            kind @ 2 => {
                let (lane, sm_count, can) = (fields.take_lane(kind)?, fields.take_u32(), fields.take_u32());
                if can > 3 {
                    return Err(MessageError::Value { kind, value: can.into() });
                }
                let (waits_on_gpu, divides) = (can & 1 != 0, can & 2 != 0);
                Ok(Self::Lane(Lane { lane, uuid: fields.take_uuid(), sm_count, waits_on_gpu, divides }))
            }
            kind => Err(MessageError::Kind(kind)),
        }
    }
}

// === impl FromDaemon ===

impl FromDaemon {
    /// Memory files that come with it.
    pub fn descriptors(self) -> usize {
        match self {
            Self::Welcome { .. } => 2,
            Self::Yield { .. } | Self::Lead { .. } => 1,
            Self::Refused(_) | Self::Unlink { .. } => 0,
        }
    }

    pub fn to_packet(self) -> Packet {
        let mut packet = [0; MESSAGE_BYTES];
        let mut fields = Fields::new(&mut packet);
        match self {
            Self::Welcome { version, client } => fields.u32(1).u32(version).u64(client),
            Self::Refused(why) => fields.u32(2).u32(why as u32),
            Self::Yield { link, lane } => fields.u32(3).u32(lane.into()).u64(link),
            Self::Lead { link, lane } => fields.u32(4).u32(lane.into()).u64(link),
            Self::Unlink { link } => fields.u32(5).u32(0).u64(link),
        };
        packet
    }

    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut packet = packet(bytes)?;
        let mut fields = Fields::new(&mut packet);
        match fields.take_u32() {
            1 => Ok(Self::Welcome { version: fields.take_u32(), client: fields.take_u64() }),
            kind @ 2 => match fields.take_u32() {
                1 => Ok(Self::Refused(Refusal::Version)),
                2 => Ok(Self::Refused(Refusal::NotAsked)),
                3 => Ok(Self::Refused(Refusal::TooMany)),
                4 => Ok(Self::Refused(Refusal::Ending)),
                value => Err(MessageError::Value { kind, value: value.into() }),
            },
            kind @ 3 => {
                let lane = fields.take_lane(kind)?;
                Ok(Self::Yield { link: fields.take_u64(), lane })
            }
            kind @ 4 => {
                let lane = fields.take_lane(kind)?;
                Ok(Self::Lead { link: fields.take_u64(), lane })
            }
            5 => {
                fields.take_u32();
                Ok(Self::Unlink { link: fields.take_u64() })
            }
            kind => Err(MessageError::Kind(kind)),
        }
    }
}

// === impl Fields ===

impl<'a> Fields<'a> {
    fn new(packet: &'a mut Packet) -> Self {
        Self { packet, at: 0 }
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.packet[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_le_bytes())
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        taken.copy_from_slice(&self.packet[self.at..self.at + N]);
        self.at += N;
        taken
    }

    fn take_u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn take_u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    fn take_uuid(&mut self) -> [u8; 16] {
        self.take()
    }

    fn take_lane(&mut self, kind: u32) -> Result<u8, MessageError> {
        let value = self.take_u32();
        let lane = u8::try_from(value).ok().filter(|lane| usize::from(*lane) < super::LANES);
        lane.ok_or(MessageError::Value { kind, value: value.into() })
    }
}

fn packet(bytes: &[u8]) -> Result<Packet, MessageError> {
    bytes.try_into().map_err(|_| MessageError::Length(bytes.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_from_client() -> impl Strategy<Value = FromClient> {
        let lane = (0..8u8, any::<[u8; 16]>(), any::<u32>(), any::<bool>(), any::<bool>()).prop_map(
            |(lane, uuid, sm_count, waits_on_gpu, divides)| {
                FromClient::Lane(Lane { lane, uuid, sm_count, waits_on_gpu, divides })
            },
        );
        let attach = any::<(u32, u64)>().prop_map(|(version, clock_ns)| FromClient::Attach { version, clock_ns });
        prop_oneof![attach, lane]
    }

    fn any_from_daemon() -> impl Strategy<Value = FromDaemon> {
        let refusals = [Refusal::Version, Refusal::NotAsked, Refusal::TooMany, Refusal::Ending];
        prop_oneof![
            any::<(u32, u64)>().prop_map(|(version, client)| FromDaemon::Welcome { version, client }),
            prop::sample::select(refusals.to_vec()).prop_map(FromDaemon::Refused),
            (any::<u64>(), 0..8u8).prop_map(|(link, lane)| FromDaemon::Yield { link, lane }),
            (any::<u64>(), 0..8u8).prop_map(|(link, lane)| FromDaemon::Lead { link, lane }),
            any::<u64>().prop_map(|link| FromDaemon::Unlink { link }),
        ]
    }

    proptest! {
        #[test]
        fn what_is_said_is_understood(client in any_from_client(), daemon in any_from_daemon()) {
            prop_assert_eq!(FromClient::from_bytes(&client.to_packet()), Ok(client));
            prop_assert_eq!(FromDaemon::from_bytes(&daemon.to_packet()), Ok(daemon));
        }

        #[test]
        fn anything_else_is_an_error_and_nothing_worse(bytes in prop::collection::vec(any::<u8>(), 0..130), kind in 0..8u32) {
            let _ = (FromClient::from_bytes(&bytes), FromDaemon::from_bytes(&bytes));
            let mut packet = [0xff; MESSAGE_BYTES];
            packet[..4].copy_from_slice(&kind.to_le_bytes());
            let _ = (FromClient::from_bytes(&packet), FromDaemon::from_bytes(&packet));
        }
    }

    #[test]
    fn impossible_values_are_named() {
        let lane = FromClient::Lane(Lane { lane: 1, uuid: [7; 16], sm_count: 132, waits_on_gpu: true, divides: false });
        let mut packet = lane.to_packet();
        packet[4] = 8;
        assert_eq!(FromClient::from_bytes(&packet), Err(MessageError::Value { kind: 2, value: 8 }));
        assert_eq!(FromClient::from_bytes(&packet[..63]), Err(MessageError::Length(63)));
        packet[0] = 9;
        assert_eq!(FromClient::from_bytes(&packet), Err(MessageError::Kind(9)));
    }
}
