//! A client of the daemon as a process of its own, in a cgroup of its own: this test binary once more, told what to do line by line.
//!
//! It stands for the library: it says what it is told to say, and writes what it is told into its memory. It can be told to do what no
//! library would; see [`hostile`].

mod hostile;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, IoSliceMut, Write, stdin};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use berth_model::TenantKey;
use berth_proto::shim::message::{Lane, Packet};
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, FromDaemon, Ledger, Stop, VERSION};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, recvmsg, send, socket_with,
};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::{Cgroup, Host, Tenant};

const VARIABLE: &str = "BERTH_TEST_CLIENT";
const PATIENCE: Duration = Duration::from_secs(30);

/// The parent's end.
pub struct Client {
    child: Child,
    stdin: ChildStdin,
    said: Receiver<String>,
    /// What it heard and nobody has asked for yet.
    unread: Mutex<Vec<String>>,
    /// By which its tenant is on a GPU, where the driver can see it.
    _holder: Option<Tenant>,
    cgroup: Arc<Cgroup>,
}

impl Client {
    pub fn start(host: &Host, name: &str) -> Self {
        let cgroup = Arc::new(Cgroup::make(name));
        let holder = host.tenant_in(&cgroup, &["hold"]);
        holder.reaches(berth_load::Phase::Hold);
        Self::start_in(host, cgroup, Some(holder))
    }

    /// Another process of the same tenant.
    pub fn beside(&self, host: &Host) -> Self {
        Self::start_in(host, Arc::clone(&self.cgroup), None)
    }

    fn start_in(host: &Host, cgroup: Arc<Cgroup>, holder: Option<Tenant>) -> Self {
        let mut command: Command = cgroup.command(std::env::current_exe().unwrap());
        command.args(["--exact", "kernels::client::as_a_process", "--ignored", "--nocapture"]);
        command.env(VARIABLE, host.file("clients/shim.sock")).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (said_tx, said) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if let Some(word) = line.strip_prefix("> ") {
                    let _ = said_tx.send(word.to_owned());
                }
            }
        });
        let stdin = child.stdin.take().unwrap();
        Self { child, stdin, said, unread: Mutex::default(), _holder: holder, cgroup }
    }

    pub fn key(&self) -> TenantKey {
        self.cgroup.key()
    }

    pub fn path(&self) -> &str {
        self.cgroup.path()
    }

    pub fn dir(&self) -> &Path {
        self.cgroup.dir()
    }

    pub fn tell(&self, words: &str) -> &Self {
        writeln!(&self.stdin, "{words}").unwrap();
        self
    }

    /// Waits for a line that begins so; what comes before is kept for others.
    pub fn says(&self, wanted: &str) -> String {
        let mut unread = self.unread.lock().unwrap();
        loop {
            if let Some(place) = unread.iter().position(|line| line.starts_with(wanted)) {
                return unread.remove(place);
            }
            match self.said.recv_timeout(PATIENCE) {
                Ok(line) => unread.push(line),
                Err(error) => panic!("waited for `{wanted}` of {} in vain ({error}): {unread:?}", self.path()),
            }
        }
    }

    pub fn attaches(&self) -> &Self {
        self.tell(&format!("attach {VERSION}")).says("Welcome");
        self
    }

    /// `uuid` as the daemon shows it.
    pub fn uses(&self, uuid: &str) -> &Self {
        self.tell(&format!("lane 0 {}", uuid.trim_start_matches("GPU-").replace('-', "")))
    }

    pub fn works(&self, is_busy: bool) -> &Self {
        self.tell(&format!("busy {}", u8::from(is_busy))).says("busy");
        self
    }

    /// The highest of its words on that side; 0 without any.
    pub fn word(&self, side: &str) -> u32 {
        self.tell(&format!("word {side}"));
        self.says(&format!("word {side}")).rsplit(' ').next().unwrap().parse().unwrap()
    }

    pub fn signal(&self, signal: Signal) {
        // Fails only if it was killed before.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's end; not a test by itself.
#[test]
#[ignore = "a process of other tests"]
fn as_a_process() {
    let Ok(path) = std::env::var(VARIABLE) else { return };
    let child = Arc::new(Mutex::new(Process { path: path.into(), ..Process::default() }));
    for line in stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        child.lock().unwrap().obey(&words, &child);
    }
    std::process::exit(0);
}

#[derive(Default)]
struct Process {
    path: PathBuf,
    socket: Option<Arc<OwnedFd>>,
    ledger: Option<Page<Ledger>>,
    /// Of the ledger and of the links it leads by.
    ledger_file: Option<Arc<File>>,
    lead_files: BTreeMap<u64, Arc<File>>,
    yields: BTreeMap<u64, Page<Stop>>,
    leads: BTreeMap<u64, Page<Stop>>,
    /// It does not tell that it has mapped the pages it leads by.
    is_quiet: bool,
}

impl Process {
    fn obey(&mut self, words: &[&str], this: &Arc<Mutex<Self>>) {
        match *words {
            ["attach", version] => {
                self.connect(this);
                let clock_ns = now_ns();
                self.send(&FromClient::Attach { version: version.parse().unwrap(), clock_ns }.to_packet());
            }
            ["lane", lane, uuid] => {
                let uuid = std::array::from_fn(|at| u8::from_str_radix(&uuid[2 * at..2 * at + 2], 16).unwrap());
                let (lane, sm_count) = (lane.parse().unwrap(), 132);
                let lane = Lane { lane, uuid, sm_count, waits_on_gpu: true, divides: false };
                self.send(&FromClient::Lane(lane).to_packet());
            }
            ["busy", value] => {
                let lane = &self.ledger.as_ref().unwrap().lanes[0];
                lane.busy_since_ns.store(now_ns(), Ordering::Release);
                lane.busy.store(value.parse().unwrap(), Ordering::Release);
                say("busy");
            }
            ["quiet"] => {
                self.is_quiet = true;
                say("quiet");
            }
            ["garbage"] => self.garbage(),
            ["flood"] => while self.send(&[0xff; 64]) {},
            ["raise", value] => {
                self.raise(value.parse().unwrap());
                say("raised");
            }
            // The words of its links on that side, whoever else writes them.
            ["keep", side] => {
                let (this, side) = (Arc::clone(this), side.to_owned());
                std::thread::spawn(move || {
                    loop {
                        this.lock().unwrap().pages(&side).values().for_each(raised);
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
                say("keeps");
            }
            ["word", side] => {
                let value = self.pages(side).values().map(|page| page.word.load(Ordering::Acquire)).max().unwrap_or(0);
                say(&format!("word {side} {value}"));
            }
            _ => self.misbehave(words),
        }
    }

    fn connect(&mut self, this: &Arc<Mutex<Self>>) {
        let socket = Arc::new(packet_socket(&self.path).unwrap());
        self.socket = Some(Arc::clone(&socket));
        let this = Arc::clone(this);
        std::thread::spawn(move || {
            while let Some((message, files)) = receive(&socket) {
                this.lock().unwrap().hear(message, &files);
            }
            say("hung up");
        });
    }

    fn hear(&mut self, message: FromDaemon, files: &[File]) {
        match message {
            FromDaemon::Welcome { .. } => {
                self.ledger = Some(Page::open(&files[0]).unwrap());
                self.ledger_file = Some(Arc::new(files[0].try_clone().unwrap()));
            }
            FromDaemon::Yield { link, .. } => drop(self.yields.insert(link, Page::open(&files[0]).unwrap())),
            FromDaemon::Lead { link, .. } => {
                // One that comes more than a second late finds it closed, and gets another.
                if let Ok(page) = Page::<Stop>::open(&files[0]) {
                    page.is_led.store((!self.is_quiet).into(), Ordering::SeqCst);
                    self.leads.insert(link, page);
                    self.lead_files.insert(link, Arc::new(files[0].try_clone().unwrap()));
                }
            }
            FromDaemon::Unlink { link } => {
                drop((self.yields.remove(&link), self.leads.remove(&link)));
                self.lead_files.remove(&link);
            }
            FromDaemon::Refused(_) => {}
        }
        say(&format!("{message:?}"));
    }

    fn pages(&self, side: &str) -> &BTreeMap<u64, Page<Stop>> {
        if side == "yields" { &self.yields } else { &self.leads }
    }

    fn raise(&self, value: u32) {
        self.leads.values().for_each(|page| page.word.store(value, Ordering::Release));
    }

    fn send(&self, packet: &[u8]) -> bool {
        send(self.socket.as_ref().unwrap(), packet, SendFlags::NOSIGNAL).is_ok()
    }

    /// Every word of its ledger, with no sense at all.
    fn garbage(&self) {
        let ledger = self.ledger.as_ref().unwrap();
        for lane in &ledger.lanes {
            for counter in [&lane.launches, &lane.submitted_ns, &lane.busy_since_ns, &lane.stops, &lane.memory_bytes] {
                counter.store(u64::MAX, Ordering::Release);
            }
            lane.busy.store(u32::MAX, Ordering::Release);
        }
        ledger.sampled.store(u64::MAX, Ordering::Release);
        say("garbage");
    }
}

fn raised(page: &Page<Stop>) {
    page.word.store(1, Ordering::Release);
}

fn packet_socket(path: &Path) -> Result<OwnedFd, Errno> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

fn receive(socket: &OwnedFd) -> Option<(FromDaemon, Vec<File>)> {
    let mut packet: Packet = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut packet)], &mut ancillary, flags).ok()?;
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

fn now_ns() -> u64 {
    berth_host::clock::now().0
}

/// In one write: two threads speak.
fn say(words: &str) {
    let line = format!("> {words}\n");
    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
}
