//! What a client does that means harm. Each goes on until the process is killed, in a thread of its own, unless it says that it is over.

use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use berth_proto::shim::message::Lane;
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, LANES, Ledger, Stop, VERSION};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::net::{SendFlags, send};

use super::{Process, now_ns, packet_socket, receive, say};

/// How long a link's file is rewritten before it is looked whether there are others.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

impl Process {
    pub(super) fn misbehave(&mut self, words: &[&str]) {
        let path = self.path.clone();
        match *words {
            // Wrong versions, no messages at all, parts of some, GPUs of nobody, as fast as they are taken.
            ["forge"] => {
                std::thread::spawn(move || {
                    for round in 0.. {
                        forge(&path, round);
                    }
                });
            }
            // So many connections, some of which are kept, some of which never say or hear anything.
            ["crowd", count] => {
                let count: usize = count.parse().unwrap();
                std::thread::spawn(move || {
                    let kept: Vec<OwnedFd> = (0..count).filter_map(|index| crowd(&path, index)).collect();
                    say(&format!("crowd {}", kept.len()));
                    // The others are hung up on by now, or will be.
                    std::thread::sleep(Duration::from_secs(600));
                    drop(kept);
                });
            }
            // Connects and hangs up, in a loop.
            ["knock"] => {
                std::thread::spawn(move || {
                    loop {
                        let _ = packet_socket(&path);
                    }
                });
                say("knocks");
            }
            // Random bytes anywhere in its ledger.
            ["scribble"] => {
                let file = Arc::clone(self.ledger_file.as_ref().unwrap());
                std::thread::spawn(move || {
                    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
                    loop {
                        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                        let place = (random >> 20) % (size_of::<Ledger>() as u64 / 8) * 8;
                        let _ = file.write_at(&(random ^ random << 7).to_le_bytes(), place);
                    }
                });
                say("scribbles");
            }
            // Its word is up again faster than anybody can set it to 0.
            ["rewrite"] => {
                let pages: Vec<Page<Stop>> = std::mem::take(&mut self.leads).into_values().collect();
                assert!(!pages.is_empty(), "it leads nobody");
                std::thread::spawn(move || {
                    loop {
                        pages.iter().for_each(|page| page.word.store(1, Ordering::Release));
                    }
                });
                say("rewrites");
            }
            // The memory that others look at is no longer the memory that is written.
            ["punch"] => {
                let files: Vec<_> = self.lead_files.values().cloned().collect();
                assert!(!files.is_empty(), "it leads nobody");
                std::thread::spawn(move || {
                    loop {
                        for file in &files {
                            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                            let _ = fallocate(&**file, hole, 0, size_of::<Stop>() as u64);
                            let _ = file.write_at(&1_u32.to_le_bytes(), 0);
                        }
                        std::thread::sleep(LOOK_AGAIN);
                    }
                });
                say("punches");
            }
            _ => panic!("what is {words:?}?"),
        }
    }
}

/// One connection, and something wrong on it.
fn forge(path: &Path, round: usize) {
    let Ok(socket) = packet_socket(path) else { return };
    let put = |packet: &[u8]| send(&socket, packet, SendFlags::NOSIGNAL).is_ok();
    let attach = |version| FromClient::Attach { version, clock_ns: now_ns() }.to_packet();
    let lane = |lane: u8, fill: u8| {
        let lane = Lane { lane, uuid: [fill; 16], sm_count: u32::MAX, waits_on_gpu: true, divides: true };
        FromClient::Lane(lane).to_packet()
    };
    match round % 6 {
        0 => put(&attach(u32::MAX)),
        1 => put(&attach(VERSION)[..round % 64]),
        2 => put(&[0xff; 64]),
        3 => put(&attach(VERSION)) && put(&attach(VERSION)),
        // Before it was let attach.
        4 => put(&lane(0, 7)),
        // GPUs of nobody, and each lane twice.
        _ => {
            #[expect(clippy::cast_possible_truncation, reason = "one of a few lanes")]
            let lanes = || (0..2 * LANES).map(|index| lane((index % LANES) as u8, index as u8));
            put(&attach(VERSION)) && receive(&socket).is_some() && lanes().all(|lane| put(&lane))
        }
    };
    // Until it is hung up on, or a moment has passed.
    let _ = rustix::net::sockopt::set_socket_timeout(
        &socket,
        rustix::net::sockopt::Timeout::Recv,
        Some(Duration::from_millis(20)),
    );
    let _ = receive(&socket);
}

/// A connection that is kept: silent, or attached and never read.
fn crowd(path: &Path, index: usize) -> Option<OwnedFd> {
    let socket = packet_socket(path).ok()?;
    if index.is_multiple_of(2) {
        let attach = FromClient::Attach { version: VERSION, clock_ns: now_ns() };
        let _ = send(&socket, &attach.to_packet(), SendFlags::NOSIGNAL);
    }
    (!index.is_multiple_of(4)).then_some(socket)
}
