//! A daemon for tests: it welcomes who connects, and links as the test says.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use berth_proto::shim::message::{Lane, Refusal};
use berth_proto::shim::sys::{Page, Writers};
use berth_proto::shim::{FromClient, FromDaemon, LaneLedger, LaneOrders, Ledger, Orders, Stop, VERSION};
use tempfile::TempDir;

use crate::sys;

pub struct Daemon {
    directory: TempDir,
    listener: OwnedFd,
}

/// A client that was welcomed.
pub struct Client {
    pub socket: OwnedFd,
    pub ledger: Page<Ledger>,
    pub orders: Page<Orders>,
}

/// The page of a link, and its file for the one on the other side.
pub struct Link {
    pub page: Page<Stop>,
    pub file: File,
}

impl Daemon {
    pub fn start() -> Self {
        Self::start_at(tempfile::tempdir().unwrap())
    }

    pub fn start_at(directory: TempDir) -> Self {
        let listener = sys::listen(&directory.path().join("shim.sock"));
        Self { directory, listener }
    }

    pub fn path(&self) -> PathBuf {
        self.directory.path().join("shim.sock")
    }

    pub fn has_visitor(&self, within_ms: i32) -> bool {
        sys::is_readable(self.listener.as_raw_fd(), within_ms)
    }

    /// The next one that says who it is.
    pub fn accept(&self) -> OwnedFd {
        let socket = sys::accept(&self.listener);
        let FromClient::Attach { version, .. } = FromClient::from_bytes(&sys::receive(&socket)).unwrap() else {
            panic!("something before the attachment");
        };
        assert_eq!(version, VERSION);
        socket
    }

    pub fn refuse(&self) {
        let socket = self.accept();
        sys::send(&socket, &FromDaemon::Refused(Refusal::NotAsked).to_packet(), &[]);
    }

    /// Welcomes the next one and hears of its first GPU, whose orders are written by `order` before that.
    pub fn welcome(&self, order: impl FnOnce(&LaneOrders)) -> Client {
        let socket = self.accept();
        let (ledger, ledger_file) = Page::create(c"ledger", Writers::All).unwrap();
        let (orders, orders_file) = Page::<Orders>::create(c"orders", Writers::SoFar).unwrap();
        order(&orders.lanes[0]);
        let welcome = FromDaemon::Welcome { version: VERSION, client: 1 };
        sys::send(&socket, &welcome.to_packet(), &[&ledger_file, &orders_file]);
        Client { socket, ledger, orders }
    }
}

impl Client {
    /// The next GPU it tells of.
    pub fn lane(&self) -> Lane {
        assert!(sys::is_readable(self.socket.as_raw_fd(), 20_000), "it tells of no GPU");
        let FromClient::Lane(lane) = FromClient::from_bytes(&sys::receive(&self.socket)).unwrap() else {
            panic!("it tells of something else");
        };
        self.orders.changes.fetch_add(1, Ordering::Release);
        lane
    }

    pub fn ledger(&self) -> &LaneLedger {
        &self.ledger.lanes[0]
    }

    pub fn send(&self, message: FromDaemon, files: &[&File]) {
        sys::send(&self.socket, &message.to_packet(), files);
    }

    pub fn yields(&self, id: u64, link: &Link) {
        self.send(FromDaemon::Yield { link: id, lane: 0 }, &[&link.file]);
    }

    pub fn leads(&self, id: u64, link: &Link) {
        self.send(FromDaemon::Lead { link: id, lane: 0 }, &[&link.file]);
    }

    pub fn has_hung_up(&self) -> bool {
        sys::is_readable(self.socket.as_raw_fd(), 20_000) && sys::receive(&self.socket).is_empty()
    }
}

impl Link {
    pub fn new() -> Self {
        let link = Self::unled();
        link.page.is_led.store(1, Ordering::SeqCst);
        link
    }

    /// Of a leader that has not mapped it yet.
    pub fn unled() -> Self {
        let (page, file) = Page::create(c"stop", Writers::All).unwrap();
        Self { page, file }
    }

    pub fn word(&self) -> u32 {
        self.page.word.load(Ordering::SeqCst)
    }

    pub fn set(&self, word: u32) {
        self.page.word.store(word, Ordering::SeqCst);
    }
}
