//! A node asked by its cluster: who has its key is told how it stands, and nobody else; through loss, misses and restarts.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use berth_api::{Client, paths};
use berth_cluster::frame::{FrameError, Fresh, Kind, NONCE_BYTES, NodeKey, Nonce, decode_report, hex};
use berth_cluster::node::{AskError, ask, ask_pasts, key_file};
use berth_model::cluster::report::GpuReport;
use berth_model::cluster::{NodeId, Past, PlacementId, Report};
use berth_model::settings::Mode;
use berth_model::{Bytes, Settings};

use crate::support::{BERTH, Daemon, Engine, Host, Run, run, until};

/// Far more than an answer takes.
const LONG: Duration = Duration::from_secs(10);
const NODE: &str = "worker-1";

/// Keys as the commands make them, and a daemon that others may ask.
struct Node {
    host: Host,
    daemon: Daemon,
    key: NodeKey,
}

fn id() -> NodeId {
    NODE.parse().unwrap()
}

fn make_keys(host: &Host) {
    let (cluster, own) = (host.file("cluster.key"), host.file("node.key"));
    let berth = |args: &[&str]| run(Command::new(BERTH).args(["cluster", "key"]).args(args)).ok();
    berth(&["new", "--out", cluster.to_str().unwrap()]);
    let own = own.to_str().unwrap();
    berth(&["node", NODE, "--cluster-key", cluster.to_str().unwrap(), "--out", own]);
}

fn listening(host: &Host, change: impl FnOnce(&mut Settings)) -> Daemon {
    host.daemon_with("berth", |settings| {
        settings.cluster.listen = "127.0.0.1:0".into();
        settings.cluster.key_file = host.file("node.key");
        change(settings);
    })
}

impl Node {
    fn start() -> Self {
        Self::start_with(|_| {})
    }

    fn start_with(change: impl FnOnce(&mut Settings)) -> Self {
        let host = Host::start();
        make_keys(&host);
        let daemon = listening(&host, change);
        let key = key_file::cluster(&host.file("cluster.key")).unwrap().node(&id());
        Self { host, daemon, key }
    }

    /// Where the newest daemon listens, as its log says.
    fn address(&self) -> SocketAddr {
        until("the port in the log", || {
            let log = std::fs::read_to_string(self.host.file("berth.log")).ok()?;
            let said = log.lines().rfind(|line| line.contains("the cluster may ask this node"))?;
            said.split("address=").nth(1)?.split_whitespace().next()?.parse().ok()
        })
    }

    fn ask_with(&self, key: &NodeKey) -> Result<Report, AskError> {
        block_on(ask(self.address(), &id(), key, LONG)).map(|told| told.what)
    }

    fn report(&self) -> Report {
        self.ask_with(&self.key).unwrap()
    }

    fn gpu_where(&self, what: &str, gpu: usize, is_it: impl Fn(&GpuReport) -> bool) -> GpuReport {
        until(what, || self.report().gpus.into_iter().nth(gpu).filter(|gpu| is_it(gpu)))
    }

    fn pasts(&self) -> Vec<Past> {
        block_on(ask_pasts(self.address(), &id(), &self.key, LONG)).unwrap()
    }

    /// The answer to a question as it was written on the wire, byte for byte.
    fn exchange(&self, nonce: &Nonce) -> Vec<u8> {
        let (nonce, signature) = (hex(&nonce.0), hex(&self.key.sign_ask(Kind::Report, nonce)));
        let mut stream = TcpStream::connect(self.address()).unwrap();
        write!(
            stream,
            "GET /v1/report HTTP/1.1\r\nhost: a\r\nberth-nonce: {nonce}\r\nberth-signature: {signature}\r\n\r\n"
        )
        .unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let body = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
        answer.split_off(body)
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_node_tells_whoever_has_its_key_and_nobody_else() {
    let node = Node::start();
    let report = node.report();
    assert_eq!((report.node, report.berth.as_str()), (id(), env!("CARGO_PKG_VERSION")));
    assert_eq!(report.gpus.len(), 2);
    let gpu = &report.gpus[0];
    assert!(gpu.uuid.0.starts_with("GPU-") && gpu.memory_total_bytes > gpu.memory_used_bytes, "{gpu:?}");
    // What `edf` leaves to those without a deadline is not theirs, though none is there yet.
    assert_eq!((gpu.loads.len(), gpu.others, gpu.share), (0, 0, 0.9));

    let other = key_file::cluster(&node.host.file("cluster.key")).unwrap().node(&"worker-2".parse().unwrap());
    let refused = node.ask_with(&other).unwrap_err().to_string();
    assert!(refused.contains("not signed with the key of this node"), "{refused}");
    let mut stream = TcpStream::connect(node.address()).unwrap();
    stream.write_all(b"GET /v1/report HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("not signed"), "{answer}");

    let metrics = node.daemon.metrics();
    for line in ["berth_reports_served_total 1", "{reason=\"wrong-key\"} 1.0", "{reason=\"not-signed\"} 1.0"] {
        assert!(metrics.contains(line), "{line} is not in {metrics}");
    }
}

#[test]
fn a_node_without_a_driver_says_that_it_has_no_gpu() {
    let node = Node::start_with(|settings| settings.nvml.library = "/none.so".into());
    let report = until("a report", || node.ask_with(&node.key).ok());
    assert_eq!(report.gpus, []);
    let told = node.report();
    assert!(told.stamp.number > report.stamp.number, "it goes on reporting: {told:?}");
}

#[test]
fn an_answer_is_for_one_question() {
    let node = Node::start();
    let nonce = Nonce([7; NONCE_BYTES]);
    let recorded = node.exchange(&nonce);
    let read = |nonce: Nonce| decode_report(&recorded, &id(), &node.key, &Fresh::Answer(nonce));
    assert_eq!(read(nonce).unwrap().what.node, id());
    assert_eq!(read(Nonce([8; NONCE_BYTES])), Err(FrameError::Replayed));
    // Who repeats a question gets an answer nobody waits for any more.
    assert_ne!(node.exchange(&nonce), recorded);
}

#[test]
fn deadlines_misses_and_lost_gpus_are_in_the_report() {
    let node = Node::start();
    let tenant = node.host.holder("due", &["--alloc-bytes", "3GiB"]);
    let beside = node.host.holder("beside", &[]);
    node.gpu_where("two tenants without a deadline", 0, |gpu| gpu.others == 2 && gpu.share == 1.0 - 0.1);
    node.daemon.berth(&["deadline", "set", tenant.cgroup.path(), "2m"]).ok();
    let gpu = node.gpu_where("one with a deadline", 0, |gpu| gpu.loads.len() == 1);
    let work = gpu.loads[0].under_way.expect("its task is under way");
    assert!(work.due_in_seconds > 60.0 && work.due_in_seconds < 120.0, "{gpu:?}");
    assert_eq!((gpu.others, gpu.loads[0].deadline_seconds, gpu.misses_ago_seconds.len()), (1, 120.0, 0));

    node.daemon.berth(&["deadline", "set", tenant.cgroup.path(), "1ms"]).ok();
    drop(tenant);
    let gpu = node.gpu_where("a miss", 0, |gpu| !gpu.misses_ago_seconds.is_empty());
    assert!(gpu.misses_ago_seconds[0] < 30.0 && gpu.loads.is_empty(), "{gpu:?}");
    assert_eq!((gpu.missed_by_present, gpu.others), (0, 1), "who missed it is gone");

    node.host.fault(&["gpu-lost", "0"]);
    let gpu = node.gpu_where("a lost GPU", 0, |gpu| gpu.is_lost);
    assert!(gpu.uuid.0.starts_with("GPU-"));
    assert!(!node.report().gpus[1].is_lost);
    drop(beside);
}

#[test]
fn the_report_of_a_new_daemon_is_newer_though_it_counts_anew() {
    let mut node = Node::start();
    let first = (0..3).map(|_| node.report()).last().unwrap().stamp;
    assert_eq!(node.daemon.stop(), 0);
    let gone = block_on(ask(node.address(), &id(), &node.key, LONG)).unwrap_err();
    assert!(matches!(gone, AskError::Connect { .. }), "{gone:?}");
    node.daemon = listening(&node.host, |_| {});
    let second = until("an answer of the new daemon", || node.ask_with(&node.key).ok()).stamp;
    assert!(second > first && second.started_ms > first.started_ms && second.number < first.number, "{second:?}");
}

#[test]
fn what_images_took_before_is_told_and_what_was_placed_is_seen() {
    let Some(engine) = Engine::for_test("what_images_took_before_is_told") else { return };
    let node = Node::start_with(|settings| {
        settings.docker.mode = Mode::Required;
        settings.docker.socket = engine.socket();
    });
    let labels = ["berth.deadline=2m", "berth.memory=20GiB", "berth.placement=00000000deadbeef"];
    let options: Vec<&str> = labels.iter().flat_map(|label| ["--label", label]).collect();
    let before = node.report().pasts;
    let container = engine.run(&node.host, "placed", &options, &["--size", "15000"]);
    let gpu = node.gpu_where("a placement", 0, |gpu| !gpu.placed.is_empty() && !gpu.loads.is_empty());
    assert_eq!(gpu.placed, [PlacementId(0xdead_beef)]);
    let promised = gpu.memory_promised_bytes;
    assert!(promised > Bytes(15 << 30) && promised <= Bytes(20 << 30), "what it has is taken off: {promised}");
    let past = until("its past", || node.pasts().into_iter().find(|past| past.takes.is_some()));
    let image = node.daemon.berth(&["history", "--json", &container.id]).ok();
    assert!(image.contains(&past.image), "{past:?} is not of {image}");
    assert!(past.takes.unwrap().most_seconds > 0.0);
    assert_ne!(node.report().pasts, before);
}

#[test]
fn the_same_is_told_on_the_socket_without_a_key() {
    let host = Host::start();
    let daemon = host.daemon();
    let get = |path: &str| -> serde_json::Value {
        let client = Client::new(&daemon.settings.api.socket);
        serde_json::from_str(&block_on(client.get_text(path)).unwrap()).unwrap()
    };
    let (one, other) = (get(paths::REPORT), get(paths::REPORT));
    assert_eq!(one["gpus"].as_array().unwrap().len(), 2);
    assert_eq!((&one["stamp"]["number"], &other["stamp"]["number"]), (&1.into(), &2.into()));
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(one["node"], name.trim());
    assert_eq!(get(paths::PASTS), serde_json::json!([]));
    assert!(!daemon.metrics().contains("berth_reports"), "nobody may ask over the network");
}

#[test]
fn a_daemon_that_others_may_ask_does_not_start_without_a_key_of_its_own() {
    let host = Host::bare();
    make_keys(&host);
    let start = |key: &Path, more: &[&str]| -> Run {
        let mut settings = host.settings("berth");
        settings.cluster.listen = "127.0.0.1:0".into();
        settings.cluster.key_file = key.to_owned();
        let config = host.write_config("berth", &settings);
        run(Command::new(BERTH).arg("--config").arg(config).args(more).arg("daemon"))
    };
    let refused = |key: &Path, more: &[&str], words: &str| {
        let run = start(key, more);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(run.stderr.contains(words), "{words} is not in {}", run.stderr);
    };
    refused(&host.file("none.key"), &[], "they need a key: make one with `berth cluster key node NAME`");
    let key = host.file("node.key");
    refused(&key, &["--set", "cluster.node=worker-2"], "holds the key of node `worker-1`, and this is node `worker-2`");
    refused(&key, &["--set", "cluster.listen=192.0.2.1:1"], "listening on 192.0.2.1:1");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).unwrap();
    refused(&key, &[], "can be read by others (its permissions are 0644)");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&key, "secret\n").unwrap();
    refused(&key, &[], "it is no key file of berth");
}
