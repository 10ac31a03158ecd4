//! Settings from a file and the command line, with errors that name the place.

mod given;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use berth_model::Settings;
use berth_model::settings::InvalidSettings;
use serde::Deserialize;
use toml::Table;

use crate::cli::Global;
use crate::logging;
use given::{Given, Place, Problem};

/// Read if it exists and no other file is named.
pub const DEFAULT_FILE: &str = "/etc/berth/berth.toml";

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("reading the settings in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

/// What `global` asks for: the named file, the default one, or none; then its overrides.
pub fn load(global: &Global) -> Result<Settings, SettingsError> {
    let file = match &global.config {
        Some(path) => Some((path.clone(), read(path)?)),
        None => read_if_there(Path::new(DEFAULT_FILE))?,
    };
    resolve(file, global)
}

fn read(path: &Path) -> Result<String, SettingsError> {
    std::fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })
}

fn read_if_there(path: &Path) -> Result<Option<(PathBuf, String)>, SettingsError> {
    match read(path) {
        Ok(text) => Ok(Some((path.to_owned(), text))),
        Err(SettingsError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn resolve(file: Option<(PathBuf, String)>, global: &Global) -> Result<Settings, SettingsError> {
    let mut layers = Layers::default();
    if let Some((path, text)) = &file {
        // Without the file's values nothing else can be judged.
        layers.add(given::in_file(path, text).map_err(SettingsError::Invalid)?);
    }
    for argument in &global.set {
        match given::in_argument(argument) {
            Ok(given) => layers.add(given),
            Err(problem) => layers.problems.push(problem),
        }
    }
    layers.settle(global)
}

/// What was given, one layer upon the other.
#[derive(Debug, Default)]
struct Layers {
    accepted: Table,
    /// Where the value of each key comes from.
    places: BTreeMap<String, Place>,
    /// Keys whose last value was refused: nothing can be said about them together with others.
    refused: BTreeSet<String>,
    problems: Vec<Problem>,
}

impl Layers {
    fn add(&mut self, layer: Vec<Given>) {
        for given in layer {
            match given.judge() {
                Ok(value) => {
                    given::put(&mut self.accepted, &given.key, value);
                    self.refused.remove(&given.key);
                    self.places.insert(given.key, given.place);
                }
                Err(words) => {
                    let words = match &given.place {
                        Place::File { .. } => format!("{}: {words}", given.key),
                        // Names the key itself.
                        Place::Option(_) => words,
                    };
                    self.problems.push(Problem { place: Some(given.place), words });
                    self.refused.insert(given.key);
                }
            }
        }
    }

    /// The settings with the options that stand for one, or all that is wrong with them, in the order of the file.
    fn settle(mut self, global: &Global) -> Result<Settings, SettingsError> {
        let mut settings = Settings::deserialize(self.accepted).expect("each value was accepted alone");
        if let Some(socket) = &global.socket {
            settings.api.socket.clone_from(socket);
            self.places.insert("api.socket".to_owned(), Place::Option("--socket".to_owned()));
        }
        if let Some(log) = &global.log {
            settings.log.level.clone_from(log);
            self.places.insert("log.level".to_owned(), Place::Option("--log".to_owned()));
        }
        for (keys, words) in problems(&settings) {
            if keys.iter().all(|key| !self.refused.contains(*key)) {
                self.problems.push(Problem { place: self.places.get(keys[0]).cloned(), words });
            }
        }
        // What has no place was not given: it comes last.
        self.problems.sort_by(|a, b| (a.place.is_none(), &a.place).cmp(&(b.place.is_none(), &b.place)));
        if self.problems.is_empty() { Ok(settings) } else { Err(SettingsError::Invalid(self.problems)) }
    }
}

/// All that is wrong with values that are right alone, each with its key and the one it is compared with. The model
/// judges all but the log filter, which it cannot read.
fn problems(settings: &Settings) -> Vec<(Vec<&'static str>, String)> {
    let keys = |problem: &InvalidSettings| std::iter::once(problem.key()).chain(problem.other()).collect();
    let mut problems: Vec<_> = settings.problems().iter().map(|problem| (keys(problem), problem.to_string())).collect();
    let level = &settings.log.level;
    if !logging::is_filter(level) {
        let words = format!(
            "log.level is `{level}`: write error, warn, info, debug, trace or off, or a filter such as \
             `berth_host=debug,info`"
        );
        problems.push((vec!["log.level"], words));
    }
    problems
}

fn lines(problems: &[Problem]) -> String {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    all.join("\nberth: ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(text: &str, set: &[&str]) -> Result<Settings, SettingsError> {
        let global = Global { set: set.iter().map(|&argument| argument.to_owned()).collect(), ..Global::default() };
        resolve(Some(("f.toml".into(), text.to_owned())), &global)
    }

    #[test]
    fn overrides_come_after_the_file_and_reach_every_kind_of_value() {
        let set = [
            "monitor.fast_interval=7ms",
            "table.rows=9",
            "docker.mode=off",
            "probes.libraries=[\"/x.so\"]",
            "api.socket=/tmp/a b",
        ];
        let settings = with("[monitor]\nfast_interval = \"3ms\"\nidle_after = \"1s\"", &set).unwrap();
        assert_eq!(settings.monitor.fast_interval.to_string(), "7ms");
        assert_eq!(settings.monitor.idle_after.to_string(), "1s", "the file's other values stay");
        assert_eq!((settings.table.rows, settings.probes.libraries), (9, vec![PathBuf::from("/x.so")]));
        assert_eq!(settings.api.socket, PathBuf::from("/tmp/a b"));
    }

    #[test]
    fn a_wrong_override_is_named_with_what_would_be_right() {
        let told = |set: &str| with("", &[set]).unwrap_err().to_string();
        assert!(told("monitor.fast_interval").contains("write KEY=VALUE"));
        assert!(told("monitor.fast_intervall=1s").contains("unknown field `fast_intervall`"));
        let unit = told("monitor.fast_interval=20");
        assert!(unit.starts_with("--set monitor.fast_interval=20: "), "{unit}");
        assert!(told("docker.mode=maybe").contains("`maybe`"));
        assert!(told("docker.mode.x=1").contains("--set docker.mode.x=1"));
        assert!(told("docker=off").contains("a section is expected"));
        let rows = "99999999999999999999";
        let expected = format!("--set table.rows={rows}: {rows} is too large: must be at most 65536");
        assert_eq!(told(&format!("table.rows={rows}")), expected);
        assert_eq!(
            told("table.rows=5000000000"),
            "--set table.rows=5000000000: 5000000000 is too large: must be at most 65536"
        );
        let interval = told(&format!("monitor.interval={rows}"));
        assert!(interval.contains(rows) && interval.contains("is not a duration"), "{interval}");
        let mode = told("api.socket_mode=9999");
        assert!(mode.ends_with("api.socket_mode is `9999`: write permissions in octal, such as `0660`"), "{mode}");
    }

    #[test]
    fn a_number_on_the_command_line_may_be_meant_as_text() {
        let settings = with("", &["api.socket_mode=660", "api.socket_group=100", "api.socket=7"]).unwrap();
        assert_eq!((settings.api.mode(), settings.api.socket_group.as_str()), (Some(0o660), "100"));
        assert_eq!(settings.api.socket, PathBuf::from("7"));
        with("[api]\nsocket_mode = 660\n", &[]).expect_err("a file has quotes");
    }

    #[test]
    fn every_wrong_override_is_told_and_the_file_s_mistakes_with_them() {
        let set = ["table.rows=many", "nonsense", "api.socket=", "monitor.interval=3"];
        let told = with("[monitor]\nfast_interval = 20\n", &set).unwrap_err().to_string();
        let lines: Vec<&str> = told.split("\nberth: ").collect();
        assert_eq!(lines.len(), 5, "{told}");
        assert!(lines[0].starts_with("f.toml, line 2: monitor.fast_interval: `20` is not a duration"), "{told}");
        assert!(lines[1].starts_with("--set api.socket=: api.socket is empty"), "{told}");
        assert!(lines[2].starts_with("--set monitor.interval=3: `3` is not a duration"), "{told}");
        assert!(lines[3].starts_with("--set nonsense: write KEY=VALUE"), "{told}");
        assert!(lines[4].starts_with("--set table.rows=many: invalid type"), "{told}");
    }

    #[test]
    fn what_is_out_of_range_is_blamed_on_whoever_gave_it_last() {
        let text = "[table]\nrows = 7\n[api]\nsocket = \"/a\"\n";
        let told = |set: &[&str]| with(text, set).unwrap_err().to_string();
        assert_eq!(told(&["table.rows=0"]), "--set table.rows=0: table.rows is 0: must be at least 1");
        let global = Global { socket: Some("x".repeat(108).into()), ..Global::default() };
        let told = resolve(Some(("f.toml".into(), text.to_owned())), &global).unwrap_err().to_string();
        assert!(told.starts_with("--socket: api.socket is a path of 108 bytes"), "{told}");
    }

    /// The file's `interval` would be the limit if it were right; the default in its place is nobody's.
    #[test]
    fn nothing_is_compared_with_a_value_that_was_refused() {
        let text = "[monitor]\nfast_interval = \"200ms\"\ninterval = 300\n";
        let told = with(text, &[]).unwrap_err().to_string();
        assert!(told.contains("line 3") && !told.contains("above"), "{told}");
        with(text, &["monitor.interval=300ms"]).expect_err("the file is wrong all the same");
    }

    #[test]
    fn all_problems_are_told_at_once_each_with_its_line() {
        let text = "[table]\nrows = 0\n\n[api]\nsocket_mode = \"rw\"";
        let told = with(text, &["nvml.library="]).unwrap_err().to_string();
        let expected = "f.toml, line 2: table.rows is 0: must be at least 1\n\
                        berth: f.toml, line 5: api.socket_mode is `rw`: write permissions in octal, such as `0660`\n\
                        berth: --set nvml.library=: nvml.library is empty: give a path";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_file_that_was_named_must_exist_and_the_default_one_need_not() {
        let global = Global { config: Some("/nowhere/berth.toml".into()), ..Global::default() };
        assert!(load(&global).unwrap_err().to_string().contains("/nowhere/berth.toml"));
        assert!(read_if_there(Path::new("/nowhere/berth.toml")).unwrap().is_none());
    }
}
