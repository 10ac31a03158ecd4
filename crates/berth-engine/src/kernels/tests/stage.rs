//! A stage for everybody on GPUs in made-up time: the thread's state with real sockets and pages, and clients that do what they are told.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use berth_host::clock;
use berth_host::shim::{Shim, Told};
use berth_model::kernels::{KernelLevel, KernelNews, KernelRow};
use berth_model::settings::KernelSettings;
use berth_model::{Event, GpuUuid, Mono, ProcKey, ProcessFacts, Slo, TenantKey};
use berth_proto::shim::message::{Lane, Packet};
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, FromDaemon, LaneOrders, Ledger, Orders, Stop, VERSION};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, send, socket_with,
};
use tempfile::TempDir;

use super::super::standing::Standing;
use super::super::still::Still;
use super::super::world::World;
use super::super::{CONTENDED, Shared};

pub const PATIENCE: Duration = Duration::from_secs(10);

/// A GPU as the driver calls it, by one byte.
pub fn gpu(byte: u8) -> GpuUuid {
    let hex = format!("{byte:02x}").repeat(16);
    GpuUuid(format!("GPU-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]))
}

pub fn tenant(name: &str) -> TenantKey {
    TenantKey::Cgroup { path: name.into() }
}

pub struct Stage {
    pub world: World,
    pub told: Receiver<Told>,
    pub events: Receiver<Event>,
    pub shared: Arc<Mutex<Shared>>,
    /// Whose the next connections are.
    pub next: Arc<Mutex<VecDeque<TenantKey>>>,
    pub now: Mono,
    pub dir: TempDir,
    /// What the next clients say of themselves.
    pub divides: bool,
}

pub struct Client {
    pub socket: OwnedFd,
    pub ledger: Page<Ledger>,
    pub orders: Page<Orders>,
    pub yields: BTreeMap<u64, Page<Stop>>,
    pub leads: BTreeMap<u64, Page<Stop>>,
    pub is_hung_up: bool,
}

impl Stage {
    pub fn start() -> Self {
        Self::with(|_| ())
    }

    pub fn with(change: impl FnOnce(&mut KernelSettings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = KernelSettings { socket: dir.path().join("shim.sock"), ..KernelSettings::default() };
        change(&mut settings);
        let (told_tx, told) = mpsc::channel();
        let (event_tx, events) = mpsc::channel();
        let next: Arc<Mutex<VecDeque<TenantKey>>> = Arc::default();
        let names = Arc::clone(&next);
        let facts = move |pid| {
            let tenant = names.lock().unwrap().pop_front()?;
            let (process, command) = (ProcKey { pid, start_ticks: 1 }, String::new());
            Some(Arc::new(ProcessFacts { process, tenant, uid: None, user: None, command, started: None }))
        };
        let shim = Shim::start(&settings.socket, Box::new(facts), move |news| drop(told_tx.send(news))).unwrap();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let world = World::new(settings, Still::new(Path::new("/proc")), shim, event_tx, Arc::clone(&shared));
        Self { world, told, events, shared, next, now: clock::now(), dir, divides: true }
    }

    /// A process of that tenant on the first GPU, which the driver has seen there.
    pub fn client(&mut self, name: &str, slo: &[(&str, &str)]) -> Client {
        self.knows(name, slo, |_| ());
        self.client_on(name, 0)
    }

    pub fn knows(&mut self, name: &str, slo: &[(&str, &str)], change: impl FnOnce(&mut Standing)) {
        let labels = slo.iter().map(|(goal, value)| (format!("berth.slo.{goal}"), (*value).to_owned())).collect();
        let (slo, wrong) = Slo::from_labels(&labels);
        assert!(wrong.is_empty(), "{wrong:?}");
        let mut standing = Standing {
            name: name.to_owned(),
            takes_part: Some(true),
            slo,
            gpus: [gpu(0)].into(),
            ..Standing::default()
        };
        change(&mut standing);
        self.world.know(tenant(name), standing, self.now);
    }

    pub fn connect(&self) -> OwnedFd {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(self.dir.path().join("shim.sock")).unwrap()).unwrap();
        socket
    }

    pub fn client_on(&mut self, name: &str, on: u8) -> Client {
        self.attaches(name, on).expect("it is let attach")
    }

    /// `None`: it is refused.
    pub fn attaches(&mut self, name: &str, on: u8) -> Option<Client> {
        self.next.lock().unwrap().push_back(tenant(name));
        let socket = self.connect();
        say(&socket, FromClient::Attach { version: VERSION, clock_ns: clock::now().0 });
        // Some who were refused may be told of as gone before.
        let mut has_asked = false;
        while !has_asked {
            let told = self.told.recv_timeout(PATIENCE).unwrap();
            has_asked = matches!(told, Told::Asks { .. });
            self.world.hear(told, self.now);
        }
        let (message, files) = until(|| hear(&socket).ok());
        if matches!(message, FromDaemon::Refused(_)) {
            return None;
        }
        assert!(matches!(message, FromDaemon::Welcome { .. }), "{message:?}");
        let (ledger, orders) = (Page::open(&files[0]).unwrap(), Page::open_read_only(&files[1]).unwrap());
        let lane = Lane { lane: 0, uuid: [on; 16], sm_count: 132, waits_on_gpu: true, divides: self.divides };
        say(&socket, FromClient::Lane(lane));
        let lane = self.told.recv_timeout(PATIENCE).unwrap();
        self.world.hear(lane, self.now);
        let (yields, leads) = (BTreeMap::new(), BTreeMap::new());
        Some(Client { socket, ledger, orders, yields, leads, is_hung_up: false })
    }

    /// Looks as often as it would while two have work.
    pub fn pass(&mut self, time: Duration, clients: &mut [&mut Client]) {
        self.pass_while(time, clients, |_, _| ());
    }

    /// The same, with something that is done before each look, told how many there were.
    pub fn pass_while(
        &mut self,
        time: Duration,
        clients: &mut [&mut Client],
        mut each: impl FnMut(u32, &mut [&mut Client]),
    ) {
        let until = self.now + time;
        for step in 0.. {
            each(step, clients);
            self.now = self.now + CONTENDED;
            let gone: Vec<Told> = self.told.try_iter().collect();
            gone.into_iter().for_each(|told| self.world.hear(told, self.now));
            self.world.turn(self.now);
            clients.iter_mut().for_each(|client| client.listen());
            if self.now >= until {
                break;
            }
        }
    }

    /// Looks when it would by itself. A look that is due later than `time` is not made.
    pub fn pass_at_its_pace(&mut self, time: Duration, clients: &mut [&mut Client]) {
        let until = self.now + time;
        while let Some(wait) = self.world.wait(self.now).filter(|wait| self.now + *wait <= until) {
            self.now = self.now + wait;
            self.world.turn(self.now);
            clients.iter_mut().for_each(|client| client.listen());
        }
        self.now = until;
    }

    /// These hang up, and the world hears of it.
    pub fn leave(&mut self, clients: Vec<Client>) {
        let leaving = clients.len();
        drop(clients);
        for _ in 0..leaving {
            let gone = self.told.recv_timeout(PATIENCE).unwrap();
            assert!(matches!(gone, Told::Gone { .. }), "{gone:?}");
            self.world.hear(gone, self.now);
        }
    }

    pub fn level(&mut self) -> KernelLevel {
        // Shown now and then, and with the next look after this.
        self.now = self.now + Duration::from_millis(200);
        self.world.turn(self.now);
        self.shared.lock().unwrap().level.clone().unwrap()
    }

    pub fn row(&mut self, name: &str) -> KernelRow {
        let rows = self.level().rows;
        rows.into_iter().find(|row| row.tenant == tenant(name)).expect("it is shown")
    }

    pub fn news(&self, of: &str) -> Vec<KernelNews> {
        let news = self.all_news().into_iter();
        news.filter(|(who, _)| *who == tenant(of)).map(|(_, news)| news).collect()
    }

    /// Since it was last asked for any.
    pub fn all_news(&self) -> Vec<(TenantKey, KernelNews)> {
        let news = self.events.try_iter().filter_map(|event| match event {
            Event::Kernels { tenant, news, .. } => Some((tenant, news)),
            _ => None,
        });
        news.collect()
    }
}

impl Client {
    pub fn works(&self, is_busy: bool, now: Mono) {
        let lane = &self.ledger.lanes[0];
        lane.busy_since_ns.store(now.0, Ordering::Release);
        lane.busy.store(is_busy.into(), Ordering::Release);
    }

    pub fn listen(&mut self) {
        while let Ok((message, files)) = hear(&self.socket) {
            match message {
                FromDaemon::Yield { link, .. } => drop(self.yields.insert(link, Page::open(&files[0]).unwrap())),
                FromDaemon::Lead { link, .. } => {
                    let page: Page<Stop> = Page::open(&files[0]).unwrap();
                    page.is_led.store(1, Ordering::SeqCst);
                    self.leads.insert(link, page);
                }
                FromDaemon::Unlink { link } => drop((self.yields.remove(&link), self.leads.remove(&link))),
                FromDaemon::Refused(_) => self.is_hung_up = true,
                FromDaemon::Welcome { .. } => {}
            }
        }
    }

    pub fn raise(&self, value: u32) {
        self.leads.values().for_each(|page| page.word.store(value, Ordering::Release));
    }

    /// Whatever others make of them.
    pub fn keeps_its_yields_up(&self) {
        self.yields.values().for_each(|page| page.word.store(1, Ordering::Release));
    }

    pub fn is_stopped(&self) -> bool {
        self.yields.values().any(|page| page.word.load(Ordering::Acquire) != 0)
    }

    pub fn lane(&self) -> &LaneOrders {
        &self.orders.lanes[0]
    }
}

pub fn say(socket: &OwnedFd, message: FromClient) {
    assert!(send(socket, &message.to_packet(), SendFlags::NOSIGNAL).is_ok());
}

pub fn hear(socket: &OwnedFd) -> Result<(FromDaemon, Vec<File>), ()> {
    let mut packet: Packet = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags).map_err(drop)?;
    let mut files = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            files.extend(rights.map(File::from));
        }
    }
    if got.bytes == 0 { Err(()) } else { FromDaemon::from_bytes(&packet).map(|message| (message, files)).map_err(drop) }
}

pub fn until<T>(mut wanted: impl FnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = wanted() {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "waited in vain");
        std::thread::sleep(Duration::from_millis(1));
    }
}
