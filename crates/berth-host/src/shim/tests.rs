//! The socket with clients that speak the protocol, well and badly.

use std::collections::HashSet;
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use berth_model::{ProcKey, ProcessFacts, TenantKey};
use berth_proto::shim::message::{Lane, Packet, Refusal};
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, FromDaemon, Ledger, Orders, Stop, VERSION};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, send, socket_with,
};
use tempfile::TempDir;

use super::serve::timespec;
use super::*;

const PATIENCE: Duration = Duration::from_secs(10);

struct Stage {
    shim: Shim,
    told: Receiver<Told>,
    path: PathBuf,
    _dir: TempDir,
}

struct Client {
    socket: OwnedFd,
}

/// What a client hears: a message with its files, or that it was hung up on.
type Heard = Option<(FromDaemon, Vec<File>)>;

fn facts(pid: u32) -> Option<Arc<ProcessFacts>> {
    let process = ProcKey { pid, start_ticks: 1 };
    let tenant = TenantKey::Cgroup { path: "/a".into() };
    let (uid, user, command, started) = (None, None, String::new(), None);
    Some(Arc::new(ProcessFacts { process, tenant, uid, user, command, started }))
}

impl Stage {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("clients/shim.sock");
        let (told_tx, told) = mpsc::channel();
        let tell = move |news| drop(told_tx.send(news));
        let shim = Shim::start(&path, Box::new(facts), tell).unwrap();
        Self { shim, told, path, _dir: dir }
    }

    fn told(&self) -> Told {
        self.told.recv_timeout(PATIENCE).expect("something to be told")
    }

    fn connect(&self) -> Client {
        Client::at(&self.path)
    }

    /// A client that asks, and its id.
    fn asking(&self) -> (Client, ClientId) {
        let client = self.connect();
        client.say(attach(VERSION));
        let Told::Asks { client: id, facts, .. } = self.told() else { panic!("not what was said") };
        assert_eq!(facts.process.pid, std::process::id(), "who it is says the kernel");
        (client, id)
    }

    /// One that has attached and uses a GPU by lane 0.
    fn attached(&self) -> (Client, ClientId, Arc<Pages>) {
        let (client, id) = self.asking();
        let pages = self.shim.welcome(id).expect("it is there");
        assert!(matches!(client.hears(), Some((FromDaemon::Welcome { .. }, _))));
        client.say(lane(0));
        assert!(matches!(self.told(), Told::Lane { client, .. } if client == id));
        (client, id, pages)
    }

    fn hears_no_more_of(&self, client: ClientId) {
        assert!(matches!(self.told(), Told::Gone { client: gone } if gone == client));
    }
}

impl Client {
    fn at(path: &Path) -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        Self { socket }
    }

    fn say(&self, message: FromClient) {
        assert!(self.say_bytes(&message.to_packet()));
    }

    fn say_bytes(&self, bytes: &[u8]) -> bool {
        send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).is_ok()
    }

    fn hears(&self) -> Heard {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        assert_eq!(poll(&mut fds, Some(&timespec(PATIENCE))), Ok(1), "nothing is said");
        let mut packet: Packet = [0; 64];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags).ok()?;
        if got.bytes == 0 {
            return None;
        }
        let mut files = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                files.extend(rights.map(File::from));
            }
        }
        Some((FromDaemon::from_bytes(&packet).unwrap(), files))
    }

    fn is_hung_up_on(&self) -> bool {
        // A reset counts as well: something it said was not read any more.
        self.hears().is_none()
    }
}

fn attach(version: u32) -> FromClient {
    FromClient::Attach { version, clock_ns: clock_ns() }
}

fn clock_ns() -> u64 {
    crate::clock::now().0
}

fn lane(lane: u8) -> FromClient {
    FromClient::Lane(Lane { lane, uuid: [7; 16], sm_count: 132, waits_on_gpu: true, divides: false })
}

#[test]
fn a_client_writes_its_ledger_and_reads_its_orders() {
    let stage = Stage::start();
    let (client, id) = stage.asking();
    let pages = stage.shim.welcome(id).unwrap();
    let Some((FromDaemon::Welcome { version, client: told }, files)) = client.hears() else { panic!("no welcome") };
    assert_eq!((version, told, files.len()), (VERSION, id.0, 2));
    let ledger = Page::<Ledger>::open(&files[0]).unwrap();
    let orders = Page::<Orders>::open_read_only(&files[1]).unwrap();
    ledger.lanes[0].launches.store(3, Ordering::Release);
    pages.orders.lanes[0].grain_ns.store(50_000, Ordering::Release);
    assert_eq!(pages.ledger.lanes[0].launches.load(Ordering::Acquire), 3);
    assert_eq!(orders.lanes[0].grain_ns.load(Ordering::Acquire), 50_000);
    assert!(Page::<Orders>::open(&files[1]).is_err(), "orders are not the client's to write");
    drop(client);
    stage.hears_no_more_of(id);
}

#[test]
fn who_speaks_another_version_is_refused_by_name_and_never_told_of() {
    let stage = Stage::start();
    let client = stage.connect();
    client.say(attach(VERSION + 1));
    assert!(matches!(client.hears(), Some((FromDaemon::Refused(Refusal::Version), _))));
    assert!(client.is_hung_up_on());
    let (_other, _) = stage.asking();
}

#[test]
fn who_is_refused_is_told_why_and_hung_up_on() {
    let stage = Stage::start();
    let (client, id) = stage.asking();
    stage.shim.refuse(id, Refusal::NotAsked);
    assert!(matches!(client.hears(), Some((FromDaemon::Refused(Refusal::NotAsked), _))));
    assert!(client.is_hung_up_on());
    stage.hears_no_more_of(id);
    assert!(stage.shim.welcome(id).is_none());
}

#[test]
fn both_ends_of_a_link_have_the_same_page_and_hear_of_its_end() {
    let stage = Stage::start();
    let ((trainer, yields, _), (server, leads, _)) = (stage.attached(), stage.attached());
    let end = |client| End { client, lane: 0 };
    let link = stage.shim.link(end(yields), Some(end(leads))).unwrap();
    let Some((FromDaemon::Yield { link: id, lane: 0 }, files)) = trainer.hears() else { panic!("does not yield") };
    let yielded = Page::<Stop>::open(&files[0]).unwrap();
    let Some((FromDaemon::Lead { link: led, lane: 0 }, files)) = server.hears() else { panic!("does not lead") };
    let raised = Page::<Stop>::open(&files[0]).unwrap();
    assert_eq!(id, led);
    raised.word.store(1, Ordering::Release);
    assert_eq!((yielded.word.load(Ordering::Acquire), link.is_up()), (1, true));
    stage.shim.unlink(&link);
    for client in [&server, &trainer] {
        assert!(matches!(client.hears(), Some((FromDaemon::Unlink { link }, _)) if link == id));
    }
    assert_eq!(yielded.word.load(Ordering::Acquire), 0, "nobody is left standing");
}

#[test]
fn the_daemon_leads_by_its_own_word() {
    let stage = Stage::start();
    let (client, yields, _) = stage.attached();
    let link = stage.shim.link(End { client: yields, lane: 0 }, None).unwrap();
    let Some((FromDaemon::Yield { .. }, files)) = client.hears() else { panic!("does not yield") };
    let page = Page::<Stop>::open(&files[0]).unwrap();
    let word = || page.word.load(Ordering::Acquire);
    link.raise();
    let first = word();
    assert_ne!(first, 0);
    link.raise();
    assert_eq!(word(), first, "it is up already");
    assert!(link.lower() && word() == 0 && !link.lower());
    link.raise();
    assert!(word() != 0 && word() != first, "whoever looks rarely sees that it was down");
    link.lower_own();
    assert_eq!(word(), 0);
    page.word.store(7, Ordering::Release);
    link.lower_own();
    assert_eq!(word(), 7, "a client's word is its own");
}

#[test]
fn nobody_is_linked_to_one_that_is_gone_or_has_no_such_lane() {
    let stage = Stage::start();
    let ((trainer, yields, _), (server, leads, _)) = (stage.attached(), stage.attached());
    let end = |client| End { client, lane: 0 };
    assert!(stage.shim.link(End { client: yields, lane: 1 }, Some(end(leads))).is_none());
    drop(trainer);
    stage.hears_no_more_of(yields);
    assert!(stage.shim.link(end(yields), Some(end(leads))).is_none());
    // What it was told to begin it was told to end.
    for _ in 0..2 {
        assert!(matches!(server.hears(), Some((FromDaemon::Lead { .. }, _))));
        assert!(matches!(server.hears(), Some((FromDaemon::Unlink { .. }, _))));
    }
}

#[test]
fn what_cannot_be_said_ends_a_connection_and_nothing_else() {
    let stage = Stage::start();
    let (honest, id, _) = stage.attached();
    let mut garbage: Vec<Vec<u8>> = vec![vec![0xff; 64], vec![0; 64], vec![1], vec![0xff; 65], vec![0xff; 9_000]];
    garbage.push(lane(0).to_packet().to_vec());
    for bytes in garbage {
        let client = stage.connect();
        assert!(client.say_bytes(&bytes));
        assert!(client.is_hung_up_on(), "{bytes:?}");
    }
    let (again, again_id) = stage.asking();
    again.say(attach(VERSION));
    assert!(again.is_hung_up_on(), "asks twice");
    stage.hears_no_more_of(again_id);
    honest.say(lane(1));
    assert!(matches!(stage.told(), Told::Lane { client, .. } if client == id));
    honest.say(lane(1));
    assert!(honest.is_hung_up_on(), "a lane is told once");
}

#[test]
fn a_flood_of_messages_ends_its_connection() {
    let stage = Stage::start();
    let (client, id, _) = stage.attached();
    // Lanes that are told already end it at the first; so every message here is another's.
    let packet = lane(3).to_packet();
    while client.say_bytes(&packet) {}
    stage_until_gone(&stage, id);
    let (_other, _) = stage.asking();
}

fn stage_until_gone(stage: &Stage, id: ClientId) {
    while !matches!(stage.told(), Told::Gone { client } if client == id) {}
}

#[test]
fn a_client_that_does_not_read_is_hung_up_on_and_holds_nobody_up() {
    let stage = Stage::start();
    let (client, id, _) = stage.attached();
    let end = End { client: id, lane: 0 };
    let links: Vec<Link> = std::iter::from_fn(|| stage.shim.link(end, None)).take(100_000).collect();
    assert!(links.len() < 100_000);
    stage.hears_no_more_of(id);
    drop(client);
}

#[test]
fn a_tenant_has_only_so_many_clients_and_places_come_free() {
    let stage = Stage::start();
    let mut clients: Vec<_> = (0..CLIENTS_PER_TENANT).map(|_| stage.asking()).collect();
    assert_eq!(clients.iter().map(|(_, id)| *id).collect::<HashSet<_>>().len(), CLIENTS_PER_TENANT);
    let one_more = stage.connect();
    one_more.say(attach(VERSION));
    assert!(matches!(one_more.hears(), Some((FromDaemon::Refused(Refusal::TooMany), _))));
    let (client, id) = clients.pop().unwrap();
    drop(client);
    stage.hears_no_more_of(id);
    stage.asking();
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let stage = Stage::start();
    let silent: Vec<Client> = (0..100).map(|_| stage.connect()).collect();
    let (_client, _) = stage.asking();
    assert!(silent[0].is_hung_up_on(), "the one that was silent for longest");
}

#[test]
fn when_the_daemon_ends_everybody_is_hung_up_on_and_the_socket_is_gone() {
    let Stage { shim, path, told: _told, _dir } = Stage::start();
    let client = Client::at(&path);
    drop(shim);
    assert!(client.is_hung_up_on());
    assert!(!path.exists());
}

#[test]
fn a_second_daemon_is_refused_and_a_dead_one_s_socket_replaced() {
    let stage = Stage::start();
    let taken = Shim::start(&stage.path, Box::new(facts), |_| ()).unwrap_err();
    assert!(matches!(taken, ShimError::InUse { .. }), "{taken}");
    let path = stage.path.with_file_name("dead.sock");
    // Its name stays behind when a daemon is killed.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let shim = Shim::start(&path, Box::new(facts), |_| ()).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::mode(&path.metadata().unwrap().permissions());
    assert_eq!(mode & 0o777, 0o666, "containers of any user attach");
    drop(shim);
}

#[test]
fn another_clock_is_told_from_a_message_s_way() {
    let same = ClientClock::of(5_000_000_000, 5_000_300_000);
    assert_eq!((same.ahead_ns, same.to_own(7)), (0, 7));
    let ahead = ClientClock::of(90_000_000_000, 5_000_000_000);
    assert_eq!(ahead.to_own(91_000_000_000), 6_000_000_000);
    let behind = ClientClock::of(5_000_000_000, 90_000_000_000);
    assert_eq!(behind.to_own(6_000_000_000), 91_000_000_000);
}
