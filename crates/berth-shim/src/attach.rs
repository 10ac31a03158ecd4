//! Becoming a client: connect, say who one is, get the two pages. Bounded in time; whatever goes wrong, the program goes on without.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use berth_proto::shim::message::Refusal;
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, FromDaemon, LANES, Ledger, MessageError, Orders, VERSION};

use crate::client::Client;
use crate::sys::driver::Driver;
use crate::sys::process;
use crate::sys::socket::Socket;
use crate::{environment, look, thread};

/// The driver's own functions run on it, too.
const STACK_BYTES: usize = 256 << 10;

/// Why there is no client. Only ever said, never returned to the program.
#[derive(Debug)]
pub(crate) enum AttachError {
    Connect(io::Error),
    Silent(Duration),
    Message(MessageError),
    Refused(Refusal),
    /// Another message than a welcome, of another version, or without its pages.
    Unexpected,
    Pages(io::Error),
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(why) => write!(f, "connect to the daemon: {why}"),
            Self::Silent(wait) => write!(f, "no answer within {} ms", wait.as_millis()),
            Self::Message(why) => write!(f, "read the answer: {why}"),
            Self::Refused(why) => write!(f, "refused: {why:?}"),
            Self::Unexpected => write!(f, "the answer is no welcome of version {VERSION}"),
            Self::Pages(why) => write!(f, "map the pages: {why}"),
        }
    }
}

/// `None` until the program has initialised the driver.
pub(crate) fn driver_that_is_ready() -> Option<Driver> {
    Driver::find().filter(Driver::is_ready)
}

/// What a daemon gives to a client: a socket to hear of links, and two pages.
#[derive(Debug)]
pub(crate) struct Connection {
    /// `None` while there is no daemon.
    pub(crate) socket: Option<Socket>,
    pub(crate) ledger: Page<Ledger>,
    pub(crate) orders: Page<Orders>,
    /// GPUs it was told of.
    pub(crate) told: [AtomicBool; LANES],
}

impl Connection {
    /// Without a daemon: nothing is ordered, and nobody reads what is written down.
    pub(crate) fn none() -> io::Result<Self> {
        let (ledger, orders) = (Page::private()?, Page::private()?);
        Ok(Self { socket: None, ledger, orders, told: Default::default() })
    }
}

/// Waits for the daemon's answer.
pub(crate) fn attach(path: &Path) -> Result<Connection, AttachError> {
    let socket = ask(path)?;
    let wait = environment::wait();
    if !socket.wait(wait) {
        return Err(AttachError::Silent(wait));
    }
    welcome(socket)
}

/// Asks to be let in. Does not wait.
pub(crate) fn ask(path: &Path) -> Result<Socket, AttachError> {
    let socket = Socket::connect(path).map_err(AttachError::Connect)?;
    let attach = FromClient::Attach { version: VERSION, clock_ns: process::now_ns() };
    socket.send(&attach.to_packet()).map_err(AttachError::Connect)?;
    Ok(socket)
}

/// The answer, which is there.
pub(crate) fn welcome(socket: Socket) -> Result<Connection, AttachError> {
    let answer = socket.receive().map_err(AttachError::Connect)?;
    match FromDaemon::from_bytes(&answer.packet[..answer.length]).map_err(AttachError::Message)? {
        FromDaemon::Welcome { version: VERSION, .. } => {}
        FromDaemon::Refused(why) => return Err(AttachError::Refused(why)),
        _ => return Err(AttachError::Unexpected),
    }
    let [ledger, orders] = answer.files.as_slice() else { return Err(AttachError::Unexpected) };
    let ledger = Page::open(ledger).map_err(AttachError::Pages)?;
    let orders = Page::open_read_only(orders).map_err(AttachError::Pages)?;
    socket.remember();
    Ok(Connection { socket: Some(socket), ledger, orders, told: Default::default() })
}

impl AttachError {
    /// Whether it can be another time: a daemon that is not there or ends may be followed by another.
    pub(crate) fn may_pass(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Silent(_) | Self::Message(_) | Self::Pages(_) => true,
            Self::Refused(why) => matches!(why, Refusal::Ending | Refusal::TooMany),
            Self::Unexpected => false,
        }
    }
}

/// Without the threads nothing would ever be let go, so without them nothing is minded.
pub(crate) fn start_threads(client: &'static Client, path: PathBuf) {
    let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
        let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        process::without_signals(|| builder.spawn(run)).map(drop)
    };
    let frees = start("berth-shim", Box::new(move || thread::run(client, path)));
    if let Err(why) = frees.and_then(|()| start("berth-shim-gpu", Box::new(move || look::run(client)))) {
        crate::state::set(0);
        client.set_broken();
        process::say(format_args!("goes on without berth: start a thread: {why}"));
    }
}
