//! A daemon over a simulated GPU, and the commands that ask it.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use crate::run::{BERTH, Run, Running, berth, dir_named, until, until_exists};

const SIGHUP: i32 = 1;
const SIGTERM: i32 = 15;
const SIGCONT: i32 = 18;
const SIGSTOP: i32 = 19;

/// A simulator of two GPUs and a daemon that watches them; nothing of it is shared with others on this machine.
struct Host {
    dir: TempDir,
    daemon: Running,
    _sim: Running,
}

impl Host {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let sim = Running::start(
            Command::new(BERTH)
                .args(["sim", "serve", "--gpus", "2", "--dir", &dir_named(&dir, "sim")])
                .stdout(Stdio::null()),
        );
        until_exists(&dir_named(&dir, "sim/nvml.state"));
        let daemon = Self::daemon(&dir);
        let host = Self { dir, daemon, _sim: sim };
        until("the daemon's first look", || (!host.json(&["ps", "--json"]).is_null()).then_some(()));
        host
    }

    fn daemon(dir: &TempDir) -> Running {
        let mut command = Command::new(BERTH);
        command.args(Self::settings(dir, "run")).arg("daemon").stderr(Stdio::piped());
        Running::start(&mut command)
    }

    /// `run`: the folder of the daemon's own files.
    fn settings(dir: &TempDir, run: &str) -> Vec<String> {
        let set = |key: &str, value: String| ["--set".to_owned(), format!("{key}={value}")];
        let mut args = vec!["--socket".to_owned(), dir_named(dir, &format!("{run}/s"))];
        args.extend(set("table.path", dir_named(dir, &format!("{run}/tasks"))));
        args.extend(set("nvml.library", dir_named(dir, "sim/lib/libnvidia-ml.so.1")));
        args.extend(set("hold.journal", dir_named(dir, &format!("{run}/holds"))));
        args.extend(set("history.dir", dir_named(dir, &format!("{run}/history"))));
        args.extend(set("docker.mode", "off".into()));
        // What a host may or may not offer is left out, so that every screen is the same everywhere: a terminal is sent
        // only what differs from the screen before.
        args.extend(set("probes.mode", "off".into()));
        args.extend(set("processes.connector", "off".into()));
        args
    }

    fn run(&self, args: &[&str]) -> Run {
        let settings = Self::settings(&self.dir, "run");
        berth(&settings.iter().map(String::as_str).chain(args.iter().copied()).collect::<Vec<_>>())
    }

    /// Null while the daemon does not answer.
    fn json(&self, args: &[&str]) -> Value {
        let run = self.run(args);
        if run.stderr.is_empty() { serde_json::from_str(&run.stdout).unwrap() } else { Value::Null }
    }

    /// A tenant that holds memory on `gpu` until dropped.
    fn tenant(&self, gpu: &str) -> Running {
        let library = dir_named(&self.dir, "sim/lib/libcuda.so.1");
        let mut command = Command::new(BERTH);
        command.args(["load", "hold", "--alloc-bytes", "3GiB", "--device", gpu, "--library", &library]);
        Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
    }

    /// What a scraper gets.
    fn metrics(&self) -> String {
        let mut stream = UnixStream::connect(dir_named(&self.dir, "run/s")).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    fn rows(&self) -> Vec<Value> {
        self.json(&["ps", "--json"]).as_array().cloned().unwrap_or_default()
    }
}

#[test]
fn a_tenant_is_seen_by_ps_events_and_metrics_and_is_gone_after_its_end() {
    let host = Host::start();
    let events_file = PathBuf::from(dir_named(&host.dir, "events"));
    let events = Running::start(
        Command::new(BERTH)
            .args(Host::settings(&host.dir, "run"))
            .args(["events", "--json"])
            .stdout(std::fs::File::create(&events_file).unwrap())
            .stderr(std::fs::File::create(dir_named(&host.dir, "notes")).unwrap()),
    );
    until("the follower's connection", || {
        std::fs::read_to_string(dir_named(&host.dir, "notes")).unwrap().contains("following the daemon").then_some(())
    });
    let tenant = host.tenant("1");
    let pid = u64::from(tenant.0.id());
    let row = until("the tenant", || {
        host.rows().into_iter().find(|row| row["pids"][0] == pid && row["gpu_memory_bytes"].as_u64() >= Some(3 << 30))
    });
    assert_eq!((&row["gpu_index"], &row["container_id"]), (&1.into(), &Value::Null));
    for key in ["container_name", "owner", "gpu_uuid", "gpu_core_pct", "state", "task_started_at", "task_seconds"] {
        assert!(row.get(key).is_some(), "{key} is missing in {row}");
    }
    assert!(host.run(&["ps"]).ok().lines().any(|line| line.contains(&pid.to_string())));
    assert_eq!(host.json(&["ps", "--json", "--gpu", "0"]), serde_json::json!([]));

    let series = |metrics: &str| metrics.lines().filter(|line| line.starts_with("berth_tenant_memory_bytes{")).count();
    assert_eq!(series(&host.metrics()), 1, "{}", host.metrics());

    drop(tenant);
    until("the tenant's end", || host.rows().is_empty().then_some(()));
    assert_eq!(series(&host.metrics()), 0, "a tenant that left has no series");
    let all = host.json(&["ps", "--json", "--all"]);
    assert_eq!(all["ended"][0]["gpus"], serde_json::json!([1]));
    assert!(host.run(&["ps", "--all"]).ok().contains("LASTED"));
    let told = until("the events", || {
        let text = std::fs::read_to_string(&events_file).unwrap();
        text.contains("task_ended").then_some(text)
    });
    let kinds: Vec<Value> =
        told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["change"].clone()).collect();
    let at = |kind: &str| kinds.iter().position(|known| known == kind).unwrap_or_else(|| panic!("{kind}: {told}"));
    assert!(at("task_started") < at("task_ended"), "{told}");
    drop(events);
}

#[test]
fn a_second_daemon_on_the_same_socket_is_refused_and_the_first_goes_on() {
    let host = Host::start();
    let (code, stderr) = Host::daemon(&host.dir).wait();
    assert_eq!(code, 1);
    assert!(stderr.contains("another daemon answers on") && stderr.contains("api.socket"), "{stderr}");
    assert!(host.rows().is_empty() && host.run(&["ps", "--json"]).stderr.is_empty(), "the first no longer answers");
}

/// The kernel takes connections in for a process that never does.
#[test]
fn a_daemon_that_never_answers_is_told_and_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir_named(&dir, "s");
    let _mute = UnixListener::bind(&socket).unwrap();
    let run = berth(&["--socket", &socket, "ps"]);
    assert_eq!((run.code, run.stdout.as_str()), (1, ""));
    assert_eq!(run.stderr, format!("berth: the daemon on {socket} did not answer within 5 s\n"));
}

#[test]
fn idle_connections_do_not_keep_ps_from_an_answer() {
    let host = Host::start();
    let idle: Vec<UnixStream> = (0..200).map(|_| UnixStream::connect(dir_named(&host.dir, "run/s")).unwrap()).collect();
    let run = host.run(&["ps"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains("128 clients are connected") && run.stderr.contains("try again"), "{}", run.stderr);
    drop(idle);
    until("an answer", || (host.run(&["ps"]).code == 0).then_some(()));
}

#[test]
fn the_daemon_stops_at_sigterm_without_leaving_its_socket_and_ignores_sighup() {
    let host = Host::start();
    host.daemon.signal(SIGHUP);
    assert!(host.run(&["ps", "--json"]).stderr.is_empty(), "SIGHUP ended it");
    host.daemon.signal(SIGTERM);
    let Host { dir, daemon, _sim } = host;
    let (code, stderr) = daemon.wait();
    assert_eq!(code, 0, "{stderr}");
    assert!(stderr.contains("SIGHUP does nothing") && stderr.contains("stopped"), "{stderr}");
    assert!(!std::path::Path::new(&dir_named(&dir, "run/s")).exists(), "the socket is left");
}

#[test]
fn a_required_source_that_is_missing_is_named_and_nothing_is_left_behind() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir_named(&dir, "run/s");
    let set = ["docker.mode=required", "docker.socket=/nowhere/docker.sock"].map(|set| format!("--set={set}"));
    let table = format!("--set=table.path={}", dir_named(&dir, "run/tasks"));
    let run = berth(&["--socket", &socket, &set[0], &set[1], &table, "--log", "error", "daemon"]);
    assert_eq!(run.code, 1);
    assert!(run.stderr.starts_with("berth: ") && run.stderr.contains("/nowhere/docker.sock"), "{}", run.stderr);
    assert!(!std::path::Path::new(&socket).exists(), "the socket is left");
}

/// `berth top` on a terminal, which `script` gives it.
struct OnTerminal {
    script: Running,
    screen: PathBuf,
    pid: PathBuf,
}

impl OnTerminal {
    fn top(host: &Host) -> Self {
        let (screen, pid) = (dir_named(&host.dir, "screen").into(), dir_named(&host.dir, "pid"));
        let settings: Vec<String> = Host::settings(&host.dir, "run").iter().map(|arg| format!("'{arg}'")).collect();
        let top = format!("stty rows 24 cols 80; echo $$ > {pid}; exec {BERTH} {} top", settings.join(" "));
        let mut command = Command::new("script");
        command.args(["-qec", &top, "/dev/null"]).env("TERM", "xterm").stdin(Stdio::piped());
        let script = Running(command.stdout(std::fs::File::create(&screen).unwrap()).spawn().unwrap());
        Self { script, screen, pid: pid.into() }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.screen).unwrap()).into_owned()
    }

    fn until_shown(&self, text: &str) {
        until(text, || self.shown().contains(text).then_some(()));
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(std::fs::read_to_string(&self.pid).unwrap().trim().parse().unwrap()).unwrap()
    }
}

#[test]
fn top_draws_on_a_terminal_and_gives_it_back_at_a_key_or_a_signal() {
    const GIVE_BACK: &str = "\u{1b}[?1049l";
    let host = Host::start();
    for end in ["a key", "a signal"] {
        let mut top = OnTerminal::top(&host);
        top.until_shown("GPU 1 NVIDIA H200");
        assert!(!top.shown().contains(GIVE_BACK), "{}", top.shown());
        match end {
            "a key" => top.script.0.stdin.as_mut().unwrap().write_all(b"q").unwrap(),
            _ => kill_process(top.pid(), Signal::TERM).unwrap(),
        }
        top.until_shown(GIVE_BACK);
        let screen = top.shown();
        assert_eq!(top.script.wait().0, 0, "after {end}: {screen}");
    }
}

/// Killing `script` closes the terminal it gave.
#[test]
fn top_ends_when_its_terminal_closes() {
    let host = Host::start();
    let top = OnTerminal::top(&host);
    top.until_shown("GPU 1 NVIDIA H200");
    let pid = top.pid().as_raw_nonzero();
    drop(top.script);
    until("the end of top", || {
        // Nobody may have taken its exit code yet.
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z ")).then_some(())
    });
}

#[test]
fn top_says_so_when_the_daemon_says_nothing_any_more() {
    let host = Host::start();
    let top = OnTerminal::top(&host);
    top.until_shown("GPU 1 NVIDIA H200");
    assert!(!top.shown().contains("no word"), "{}", top.shown());
    host.daemon.signal(SIGSTOP);
    top.until_shown("no word from the daemon for");
    host.daemon.signal(SIGCONT);
}

#[test]
fn the_service_manager_is_told_when_the_daemon_is_ready_alive_and_stopping() {
    let host = Host::start();
    let notify = std::os::unix::net::UnixDatagram::bind(dir_named(&host.dir, "notify")).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let words = || {
        let mut buffer = [0; 256];
        let length = notify.recv(&mut buffer).expect("nothing was said");
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    let mut command = Command::new(BERTH);
    command.args(Host::settings(&host.dir, "other")).arg("daemon");
    command
        .env("NOTIFY_SOCKET", dir_named(&host.dir, "notify"))
        .env("WATCHDOG_USEC", "200000")
        .env_remove("WATCHDOG_PID");
    let daemon = Running::start(command.stderr(Stdio::null()));
    assert_eq!(words().trim(), "READY=1");
    assert_eq!(words().trim(), "WATCHDOG=1");
    daemon.signal(SIGTERM);
    let last = until("the last word", || Some(words()).filter(|word| word.trim() != "WATCHDOG=1"));
    assert_eq!(last.trim(), "STOPPING=1");
    assert_eq!(daemon.wait().0, 0);
}

#[test]
fn a_gpu_that_vanishes_while_watched_is_told_and_the_daemon_lives() {
    let host = Host::start();
    let _tenant = host.tenant("0");
    until("the tenant", || (!host.rows().is_empty()).then_some(()));
    berth(&["sim", "fault", "--dir", &dir_named(&host.dir, "sim"), "gpu-lost", "0"]).ok();
    let run = until("the loss", || Some(host.run(&["ps"])).filter(|run| run.stderr.contains("GPU 0 is lost")));
    assert_eq!(run.code, 0);
}

/// For people only: programs see an empty array, and its code.
#[test]
fn that_nobody_is_there_is_said_beside_the_table() {
    let host = Host::start();
    let run = host.run(&["ps"]);
    assert_eq!((run.code, run.stdout.lines().count()), (0, 1), "{}", run.stdout);
    assert_eq!(run.stderr, "berth: nobody uses the GPUs\n");
    assert_eq!(host.run(&["ps", "--gpu", "1"]).stderr, "berth: nobody uses GPU 1\n");
    let missing = host.run(&["ps", "--gpu", "7"]);
    assert_eq!((missing.code, missing.stderr.as_str()), (3, "berth: there is no GPU 7 (there are: 0, 1)\n"));
    let json = host.run(&["ps", "--json"]);
    assert_eq!((json.code, json.stdout.trim(), json.stderr.as_str()), (0, "[]", ""));
}

/// As a Docker engine does.
#[test]
fn a_server_that_is_not_berth_is_told_as_such() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir_named(&dir, "s");
    let listener = UnixListener::bind(&socket).unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1024]).unwrap();
        let answer = "HTTP/1.1 404 Not Found\r\ncontent-length: 28\r\n\r\n{\"message\":\"page not found\"}";
        stream.write_all(answer.as_bytes()).unwrap();
    });
    let run = berth(&["--socket", &socket, "ps"]);
    server.join().unwrap();
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stderr.contains(&format!("whatever listens on {socket} is not berth")), "{}", run.stderr);
}

#[test]
fn watching_prints_a_line_of_json_per_interval_until_the_reader_goes() {
    let host = Host::start();
    let settings: Vec<String> = Host::settings(&host.dir, "run").iter().map(|arg| format!("'{arg}'")).collect();
    let line =
        format!("\"$BERTH\" {} ps --json --watch 100ms | head -n 3; echo ${{PIPESTATUS[0]}}", settings.join(" "));
    assert_eq!(Run::shell(&line).stdout, "[]\n[]\n[]\n0\n");
}

#[test]
fn what_is_missing_is_said_once_while_watching() {
    let dir = tempfile::tempdir().unwrap();
    let options = format!("--socket {} --set nvml.library=/nowhere --set docker.mode=off", dir_named(&dir, "s"));
    let run = Run::shell(&format!("\"$BERTH\" {options} ps --watch 100ms | head -n 4"));
    assert_eq!(run.stdout.lines().filter(|line| line.contains("CONTAINER")).count(), 4, "{}", run.stdout);
    assert_eq!(run.stderr.matches("no GPU can be seen").count(), 1, "{}", run.stderr);
}

#[test]
fn an_interval_nobody_can_follow_is_refused_with_the_shortest() {
    for args in [["ps", "--watch", "0s"], ["ps", "--watch", "99ms"], ["top", "--interval", "0s"]] {
        let run = berth(&args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains("the shortest interval is 100ms"), "{}", run.stderr);
    }
}

#[test]
fn events_says_that_a_restart_hides_what_happened_meanwhile() {
    let mut host = Host::start();
    let notes = dir_named(&host.dir, "notes");
    let _events = Running::start(
        Command::new(BERTH)
            .args(Host::settings(&host.dir, "run"))
            .arg("events")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&notes).unwrap()),
    );
    let until_noted =
        |text: &str| until(text, || std::fs::read_to_string(&notes).unwrap().contains(text).then_some(()));
    until_noted("following the daemon");
    host.daemon.signal(SIGTERM);
    until_noted("trying again");
    host.daemon = Host::daemon(&host.dir);
    until_noted("the daemon was restarted; what happened meanwhile is not known");
}
