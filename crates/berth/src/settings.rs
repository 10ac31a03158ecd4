//! Settings from a file and the command line, with errors that name the place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use berth_model::Settings;
use berth_model::settings::InvalidSettings;
use serde::Deserialize;
use toml::de::DeTable;
use toml::{Table, Value};

use crate::cli::Global;
use crate::logging;

/// Read if it exists and no other file is named.
pub const DEFAULT_FILE: &str = "/etc/berth/berth.toml";

#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("reading the settings in {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{}", path.display())]
    Syntax { path: PathBuf, source: Box<toml::de::Error> },
    #[error("--set {argument}: write KEY=VALUE, such as `monitor.fast_interval=10ms`")]
    NoValue { argument: String },
    #[error("--set {argument}: {reason}")]
    Override { argument: String, reason: String },
    #[error("{}", lines(.0))]
    Invalid(Vec<Problem>),
}

/// Something wrong with a value, and where it comes from.
#[derive(Debug)]
pub struct Problem {
    file: Option<(PathBuf, usize)>,
    words: String,
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
    let (mut settings, mut table) = (Settings::default(), Table::new());
    if let Some((path, text)) = &file {
        let failed = |source| SettingsError::Syntax { path: path.clone(), source: Box::new(source) };
        settings = toml::from_str(text).map_err(failed)?;
        table = toml::from_str(text).map_err(failed)?;
    }
    for argument in &global.set {
        settings = apply(&mut table, argument)?;
    }
    if let Some(socket) = &global.socket {
        settings.api.socket.clone_from(socket);
    }
    if let Some(log) = &global.log {
        settings.log.level.clone_from(log);
    }
    let located = |(key, words): (&str, String)| {
        let line = file.as_ref().and_then(|(path, text)| Some((path.clone(), line_of(text, key)?)));
        Problem { file: line, words }
    };
    let problems: Vec<Problem> = problems(&settings).into_iter().map(located).collect();
    if problems.is_empty() { Ok(settings) } else { Err(SettingsError::Invalid(problems)) }
}

/// All that is wrong, each with its key. The model judges all but the log filter, which it cannot read.
fn problems(settings: &Settings) -> Vec<(&'static str, String)> {
    let mut problems: Vec<_> =
        settings.problems().into_iter().map(|problem| (key_of(&problem), problem.to_string())).collect();
    let level = &settings.log.level;
    if !logging::is_filter(level) {
        let words = format!(
            "log.level is `{level}`: write error, warn, info, debug, trace or off, or a filter such as \
             `berth_host=debug,info`"
        );
        problems.push(("log.level", words));
    }
    problems
}

/// The settings with one more override. The value is TOML; what is not, such as `10ms` or a path, is a string.
fn apply(table: &mut Table, argument: &str) -> Result<Settings, SettingsError> {
    let no_value = || SettingsError::NoValue { argument: argument.to_owned() };
    let failed = |reason: String| SettingsError::Override { argument: argument.to_owned(), reason };
    let (key, value) = argument.split_once('=').ok_or_else(no_value)?;
    let value = toml::from_str::<Table>(&format!("value = {value}"))
        .ok()
        .and_then(|mut parsed| parsed.remove("value"))
        .unwrap_or_else(|| Value::String(value.to_owned()));
    let (sections, leaf) = key.trim().rsplit_once('.').unwrap_or(("", key.trim()));
    let mut section = &mut *table;
    for name in sections.split('.').filter(|name| !name.is_empty()) {
        section = section
            .entry(name)
            .or_insert_with(|| Value::Table(Table::new()))
            .as_table_mut()
            .ok_or_else(|| failed(format!("`{name}` is a value, not a section")))?;
    }
    section.insert(leaf.to_owned(), value);
    Settings::deserialize(table.clone()).map_err(|error| failed(error.message().to_owned()))
}

fn key_of(problem: &InvalidSettings) -> &'static str {
    match problem {
        InvalidSettings::TooSmall { key, .. }
        | InvalidSettings::Above { key, .. }
        | InvalidSettings::NotOctal { key, .. }
        | InvalidSettings::Empty { key } => key,
    }
}

/// The line, counted from 1, on which the dotted `key` gets its value.
fn line_of(text: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (section, leaf) = key.split_once('.')?;
    let value = root.get_ref().get(section)?.get_ref().as_table()?.get(leaf)?;
    Some(text[..value.span().start].lines().count().max(1))
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some((path, line)) => write!(f, "{}, line {line}: {}", path.display(), self.words),
            None => write!(f, "{}", self.words),
        }
    }
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
    }

    #[test]
    fn all_problems_are_told_at_once_each_with_its_line() {
        let text = "[table]\nrows = 0\n\n[api]\nsocket_mode = \"rw\"";
        let told = with(text, &["nvml.library="]).unwrap_err().to_string();
        let expected = "f.toml, line 2: table.rows is 0: must be at least 1\n\
                        berth: f.toml, line 5: api.socket_mode is `rw`: write permissions in octal, such as `0660`\n\
                        berth: nvml.library is empty: give a path";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_file_that_was_named_must_exist_and_the_default_one_need_not() {
        let global = Global { config: Some("/nowhere/berth.toml".into()), ..Global::default() };
        assert!(load(&global).unwrap_err().to_string().contains("/nowhere/berth.toml"));
        assert!(read_if_there(Path::new("/nowhere/berth.toml")).unwrap().is_none());
    }
}
