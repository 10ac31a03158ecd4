//! Becoming a client: connect, say who one is, get the two pages. Bounded in time; whatever goes wrong, the program goes on without.

use std::fmt;
use std::io;
use std::path::Path;
use std::time::Duration;

use berth_proto::shim::message::Refusal;
use berth_proto::shim::sys::Page;
use berth_proto::shim::{FromClient, FromDaemon, MessageError, VERSION};

use crate::client::Client;
use crate::environment;
use crate::sys::driver::Driver;
use crate::sys::process;
use crate::sys::socket::{Bell, Socket};
use crate::thread;

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

pub(crate) fn attach(path: &Path, driver: Driver) -> Result<Client, AttachError> {
    let socket = Socket::connect(path).map_err(AttachError::Connect)?;
    let attach = FromClient::Attach { version: VERSION, clock_ns: process::now_ns() };
    socket.send(&attach.to_packet()).map_err(AttachError::Connect)?;
    let wait = environment::wait();
    if !socket.wait(wait) {
        return Err(AttachError::Silent(wait));
    }
    let answer = socket.receive().map_err(AttachError::Connect)?;
    match FromDaemon::from_bytes(&answer.packet[..answer.length]).map_err(AttachError::Message)? {
        FromDaemon::Welcome { version: VERSION, .. } => {}
        FromDaemon::Refused(why) => return Err(AttachError::Refused(why)),
        _ => return Err(AttachError::Unexpected),
    }
    let [ledger, orders] = answer.files.as_slice() else { return Err(AttachError::Unexpected) };
    let ledger = Page::open(ledger).map_err(AttachError::Pages)?;
    let orders = Page::open_read_only(orders).map_err(AttachError::Pages)?;
    let bell = Bell::new().map_err(AttachError::Pages)?;
    Ok(Client::new(driver, socket, bell, ledger, orders))
}

/// Without the thread nothing would ever be let go, so without it nothing is minded.
pub(crate) fn start_thread(client: &'static Client) {
    let builder = std::thread::Builder::new().name("berth-shim".to_owned()).stack_size(STACK_BYTES);
    let started = process::without_signals(|| builder.spawn(move || thread::run(client)));
    if let Err(why) = started {
        crate::state::set(0);
        process::say(format_args!("goes on without berth: start a thread: {why}"));
    }
}
