//! A small engine on a Unix socket, which can fail on demand.

use std::collections::{HashMap, HashSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// Speaks as much of the engine's API as the source uses.
pub struct FakeEngine {
    pub socket: PathBuf,
    state: Arc<Mutex<EngineState>>,
    _dir: tempfile::TempDir,
}

#[derive(Default)]
pub struct EngineState {
    /// Names by id.
    pub containers: HashMap<String, String>,
    /// How many labels containers have, by id, beside their owner's.
    pub labels: HashMap<String, usize>,
    /// Everything that ever happened, with its time in nanoseconds.
    past: Vec<(u64, String)>,
    streams: Vec<UnixStream>,
    pub requests: Vec<String>,
    /// Answers every request with this.
    pub refuses: Option<&'static str>,
    /// Fails to describe containers this many times.
    pub inspect_failures: u32,
    /// The ids of those its flag says are paused.
    pub paused: HashSet<String>,
    /// Answers to pause and unpause, in turn; then it does as it is told.
    pub answers: VecDeque<PauseAnswer>,
}

/// How the engine answers a pause or unpause.
#[derive(Debug, Clone, Copy)]
pub enum PauseAnswer {
    Status(&'static str),
    /// Does it, but says so only so much later.
    Late(Duration),
}

impl FakeEngine {
    pub fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let engine = Self { socket: dir.path().join("docker.sock"), state: Arc::default(), _dir: dir };
        engine.listen();
        engine
    }

    pub fn listen(&self) {
        let listener = UnixListener::bind(&self.socket).unwrap();
        let state = self.state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = state.clone();
                std::thread::spawn(move || serve(stream, &state));
            }
        });
    }

    pub fn change<T>(&self, change: impl FnOnce(&mut EngineState) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub fn run(&self, id: &str, name: &str) {
        self.change(|state| state.containers.insert(id.into(), name.into()));
        self.happen("start", id);
    }

    pub fn rename(&self, id: &str, name: &str) {
        self.change(|state| state.containers.insert(id.into(), name.into()));
        self.happen("rename", id);
    }

    pub fn remove(&self, id: &str) {
        self.change(|state| state.containers.remove(id));
        self.happen("destroy", id);
    }

    pub fn happen(&self, action: &str, id: &str) {
        self.change(|state| {
            let at = u64::try_from(clock_ns()).unwrap();
            let (labels, seconds) = (state.labels_of(id), at / 1_000_000_000);
            let actor = format!(r#"{{"ID":"{id}","Attributes":{{{labels}}}}}"#);
            let line = format!(
                r#"{{"Type":"container","Action":"{action}","Actor":{actor},"time":{seconds},"timeNano":{at}}}"#,
            );
            state.streams.retain_mut(|stream| tell(stream, &line).is_ok());
            state.past.push((at, line));
        });
    }

    pub fn cut(&self) {
        self.change(|state| state.streams.clear());
    }

    pub fn listeners(&self) -> usize {
        self.change(|state| state.streams.len())
    }
}

impl EngineState {
    /// As members of a JSON object.
    fn labels_of(&self, id: &str) -> String {
        let more = (0..self.labels.get(id).copied().unwrap_or(0)).map(|n| format!(r#","label{n}":"x""#));
        std::iter::once(r#""berth.owner":"ann""#.to_owned()).chain(more).collect()
    }
}

fn clock_ns() -> i128 {
    crate::clock::anchor().wall.as_nanosecond()
}

fn serve(mut stream: UnixStream, state: &Mutex<EngineState>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(request)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut state = state.lock().unwrap();
    state.requests.push(path.clone());
    if let Some(status) = state.refuses {
        return reply(&mut stream, status, r#"{"message":"not today"}"#);
    }
    if path.ends_with("/version") {
        return reply(&mut stream, "200 OK", r#"{"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#);
    }
    if let Some((_, query)) = path.split_once("/events?") {
        let since = since(query);
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n");
        for (_, line) in state.past.iter().filter(|(at, _)| *at >= since) {
            let _ = tell(&mut stream, line);
        }
        return state.streams.push(stream);
    }
    let id = path.split_once("/containers/").and_then(|(_, rest)| rest.split('/').next()).unwrap_or_default();
    let is_known = state.containers.contains_key(id);
    if let Some(pause) = path.rsplit('/').next().filter(|verb| is_known && verb.ends_with("pause")) {
        return answer_pause(&mut stream, state, id, pause == "pause");
    }
    if state.inspect_failures > 0 {
        state.inspect_failures -= 1;
        return reply(&mut stream, "500 Internal Server Error", r#"{"message":"busy"}"#);
    }
    // By id or by name.
    match state.containers.iter().find(|(known, name)| *known == id || *name == id) {
        Some((id, name)) => reply(
            &mut stream,
            "200 OK",
            &format!(
                r#"{{"Id":"{id}","Name":"/{name}","State":{{"Paused":{}}},"Config":{{"Image":"img","Labels":{{{}}}}}}}"#,
                state.paused.contains(id),
                state.labels_of(id)
            ),
        ),
        None => reply(&mut stream, "404 Not Found", r#"{"message":"No such container"}"#),
    }
}

fn answer_pause(stream: &mut UnixStream, mut state: MutexGuard<'_, EngineState>, id: &str, pause: bool) {
    let answer = state.answers.pop_front();
    if let Some(PauseAnswer::Status(status)) = answer {
        return reply(stream, status, r#"{"message":"as the test has it"}"#);
    }
    match pause {
        true => state.paused.insert(id.to_owned()),
        false => state.paused.remove(id),
    };
    drop(state);
    if let Some(PauseAnswer::Late(delay)) = answer {
        std::thread::sleep(delay);
    }
    reply(stream, "204 No Content", "");
}

fn since(query: &str) -> u64 {
    let value = query.split('&').find_map(|pair| pair.strip_prefix("since=")).expect("a subscription says since when");
    value.replace('.', "").parse().expect("seconds and nine digits")
}

/// The end of a line comes by itself, as it can with an engine: a reader that takes the line for whole before it keeps back the next one.
fn tell(stream: &mut UnixStream, line: &str) -> std::io::Result<()> {
    stream.write_all(line.as_bytes())?;
    stream.write_all(b"\n")
}

fn reply(stream: &mut UnixStream, status: &str, body: &str) {
    let length = body.len();
    let _ = write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
}
