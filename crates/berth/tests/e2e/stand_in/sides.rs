//! One line by the client and by the stand-in, and what differs.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::lines::{Expected, Line};
use crate::support::{BERTH, Engine, Run, run, until_within};

/// The container a line leaves, as far as it does not differ from run to run.
const LOOK: &str = r#"{"config": {{json .Config}}, "host": {{json .HostConfig}}, "mounts": {{json .Mounts}}}"#;
/// Containers that lists show: with a deadline, with the label of stock Docker, with none.
const LISTED: [(&str, &str); 3] = [("a", "-l berth.deadline=9"), ("b", "-l 1500ms"), ("c", "")];
const LISTED_NAME: &str = "listed";

/// Two directories that each have a `docker`.
pub struct Sides {
    dir: TempDir,
    engine: Engine,
}

/// What a shell with one of them answered, and what it left.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: i32,
    stdout: String,
    stderr: String,
    container: String,
}

/// The docker client of this machine, on which a stand-in may be installed.
pub fn client() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let is_client = |path: &PathBuf| fs::canonicalize(path).is_ok_and(|file| !file.ends_with("berth"));
    std::env::split_paths(&path).map(|dir| dir.join("docker")).find(is_client)
}

impl Sides {
    pub fn new(engine: &Engine) -> Self {
        let dir = tempfile::Builder::new().prefix("berth-sides.").tempdir_in("/tmp").unwrap();
        for (side, program) in [("client", client().unwrap()), ("stand-in", BERTH.into())] {
            fs::create_dir(dir.path().join(side)).unwrap();
            symlink(program, dir.path().join(side).join("docker")).unwrap();
        }
        fs::create_dir(dir.path().join("home")).unwrap();
        Self { dir, engine: engine.clone() }
    }

    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub fn client(&self, line: &str) -> Run {
        self.shell("client", line, &self.home(), "")
    }

    pub fn stand_in(&self, line: &str) -> Run {
        self.shell("stand-in", line, &self.home(), "")
    }

    /// The stand-in's directory goes before the client's.
    fn shell(&self, side: &str, line: &str, home: &Path, name: &str) -> Run {
        let at = |name: &str| self.dir.path().join(name).display().to_string();
        let path = format!("{}:{}:{}", at(side), at("client"), std::env::var("PATH").unwrap_or_default());
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(home).env("HOME", home).env("PATH", path).env("N", name);
        shell.env("I", &self.engine.image).env("P", LISTED_NAME).env("DOCKER_HOST", self.engine.address());
        for variable in ["DOCKER_CONFIG", "DOCKER_CONTEXT", "BERTH_DOCKER", "BERTH_SOCKET"] {
            shell.env_remove(variable);
        }
        run(&mut shell)
    }

    pub fn make_listed(&self) {
        for (name, labels) in LISTED {
            let image = &self.engine.image;
            self.client(&format!("docker create --name {LISTED_NAME}-{name} {labels} {image}")).ok();
        }
        let running = format!(
            "docker run -d --net none --name {LISTED_NAME}-d -l berth.deadline=9s {} sleep 600",
            self.engine.image
        );
        self.client(&running).ok();
    }

    /// What the stand-in does otherwise than expected.
    pub fn complaint(&self, number: usize, line: &Line) -> Option<String> {
        match line.expected {
            Expected::Client(other) => {
                let (client, stand_in) =
                    (self.answer("client", other, number), self.answer("stand-in", line.text, number));
                (client != stand_in).then(|| format!("  client:   {client:?}\n  stand-in: {stand_in:?}"))
            }
            Expected::Refusal(told) => self.refusal(number, line, told),
            Expected::Column => self.column(line),
            Expected::Help => self.help(line),
        }
    }

    /// Both sides have the same name and the same directory, one after the other.
    fn answer(&self, side: &str, line: &str, number: usize) -> Answer {
        let (home, name) = (self.dir.path().join(format!("{number}")), format!("n{number}"));
        fs::create_dir(&home).unwrap();
        let Run { code, stdout, stderr } = self.shell(side, line, &home, &name);
        fs::remove_dir_all(&home).unwrap();
        let left = self.engine.docker(&["inspect", "--format", LOOK, &name]);
        let container = if left.code == 0 { with_sorted_env(&left.stdout) } else { String::new() };
        if !container.is_empty() {
            self.engine.docker(&["rm", "--force", "--volumes", &name]).ok();
        }
        let [stdout, stderr, container] = [stdout, without_log(&stderr), container].map(|text| without_ids(&text));
        Answer { code, stdout, stderr, container }
    }

    fn refusal(&self, number: usize, line: &Line, told: &str) -> Option<String> {
        let all = || self.engine.docker(&["ps", "--all", "--quiet"]).ok();
        let before = all();
        let answer = self.answer("stand-in", line.text, number);
        let is_refused = answer.code == 125 && answer.stdout.is_empty() && answer.stderr.contains(told);
        let is_nothing_made = answer.container.is_empty() && all() == before;
        (!is_refused || !is_nothing_made).then(|| format!("  {answer:?}"))
    }

    /// The list tells how old things are: it is believed if it has not changed meanwhile. In the first minute it does every second, which a
    /// busy machine takes to ask thrice.
    fn column(&self, line: &Line) -> Option<String> {
        let (client, stand_in) = until_within(Duration::from_secs(120), "a list that stays the same", || {
            let client = self.client(line.text).ok();
            let stand_in = self.stand_in(line.text).ok();
            (self.client(line.text).ok() == client).then_some((client, stand_in))
        });
        let cells: Option<Vec<_>> = (stand_in.lines().count() == client.lines().count())
            .then(|| stand_in.lines().zip(client.lines()).map(|(ours, theirs)| cell(ours, theirs)).collect())
            .flatten();
        (cells != Some(deadlines(&client))).then(|| format!("  client:\n{client}\n  stand-in:\n{stand_in}"))
    }

    fn help(&self, line: &Line) -> Option<String> {
        let client = self.client(&line.text.replace("-dl 9", "")).ok();
        let stand_in = self.stand_in(line.text).ok();
        let mut rest: Vec<&str> = stand_in.lines().collect();
        if let Some(ours) = rest.iter().position(|line| line.starts_with(" -dl, --deadline")) {
            rest.drain(ours..ours + 2);
        }
        let is_added = rest.len() + 2 == stand_in.lines().count();
        (!is_added || rest != client.lines().collect::<Vec<_>>())
            .then(|| format!("  client:\n{client}\n  stand-in:\n{stand_in}"))
    }
}

/// What stands in the last column of our line, which begins as the client's.
fn cell(ours: &str, theirs: &str) -> Option<String> {
    ours.strip_prefix(theirs).map(|cell| cell.trim().to_owned())
}

/// What should stand there, by the names in the client's list.
fn deadlines(list: &str) -> Vec<String> {
    let expected = |row: &str| match () {
        () if row.starts_with("CONTAINER ID") => "DEADLINES",
        () if row.contains("listed-a") => "9",
        () if row.contains("listed-b") => "1500ms",
        () if row.contains("listed-d") => "9s",
        () => "",
    };
    list.lines().map(|row| expected(row).to_owned()).collect()
}

/// Older clients log, with the time of day, that they wait no longer for what did not start; or do not, as their threads race.
fn without_log(stderr: &str) -> String {
    stderr.split_inclusive('\n').filter(|line| !line.starts_with("time=\"")).collect()
}

/// The client hands the engine several variables in any order.
fn with_sorted_env(look: &str) -> String {
    let mut look: serde_json::Value = serde_json::from_str(look).unwrap();
    if let Some(env) = look["config"]["Env"].as_array_mut() {
        env.sort_by_key(ToString::to_string);
    }
    look.to_string()
}

/// Ids are long runs of hexadecimal digits.
fn without_ids(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(|char: char| char.is_ascii_hexdigit()) {
        let length = rest[start..].find(|char: char| !char.is_ascii_hexdigit()).unwrap_or(rest.len() - start);
        let run = &rest[start..start + length];
        out.push_str(&rest[..start]);
        out.push_str(if length >= 12 { "ID" } else { run });
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}
